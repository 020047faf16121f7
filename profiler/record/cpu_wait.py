"""The wait of a run's threads for a CPU: from when on it is long, how long it was, and why.

All outputs say it in one sentence.
"""

import math
from functools import partial
from typing import Final

from msgspec import Struct

from profiler.core.optional_math import first_known
from profiler.core.timestamps import MS_PER_SECOND
from profiler.record.measured import Number, measured_from
from profiler.record.mention_limits import MIN_COVERED_PERCENT
from profiler.record.record_model import Metrics, Record
from profiler.record.units import format_bare_vcpu, format_count, format_value, format_vcpu

MIN_CPU_WAIT_PERCENT: Final = 10
_MIN_SECONDS: Final = 0.1
# Less of a CPU delays nobody.
_MIN_OTHERS_VCPU: Final = 0.1
_LEAST_EXPLAINED: Final = 0.5
# Of so much more than it used, the next vCPU size would be another one.
_LEAST_TAKEN_SHARE: Final = 0.25
_PERCENT: Final = 100


class CpuWait(Struct, frozen=True, kw_only=True):
    """What is said of the wait of all threads for a CPU: why, its length and why in a list, and the
    sentence without a capital letter and a full stop. A short wait has none.

    Its share of the time in which the threads could run is another number than the part of the run
    in which it waited for a CPU, so that it is only said of several runs.
    """

    why: str = ""
    text: str = ""
    sentence: str = ""


SHORT_WAIT: Final = CpuWait()


def long_cpu_wait(record: Record) -> CpuWait:
    """The wait for a CPU, or SHORT_WAIT."""
    if not is_long_cpu_wait(record):
        return SHORT_WAIT
    waited = measured_from(record.metrics.cpu_wait_seconds, is_least=is_cpu_wait_partial(record))
    duration = waited.text(partial(format_value, unit="s"))
    why = _cpu_wait_reason(record)
    return CpuWait(
        why=why,
        text=f"{duration} in total: {why}",
        sentence=f"its threads waited {duration} in total for a CPU: {why}",
    )


def _cpu_wait_reason(record: Record) -> str:
    """Why its threads waited for a CPU: what they and other programs used, as far as known."""
    metrics = record.metrics
    reasons = []
    threads = metrics.max_pids or 0
    vcpu_size = metrics.vcpu_size or threads
    if threads > vcpu_size and _can_cpu_time_explain_wait(threads, vcpu_size, metrics):
        verb = "had" if threads == 1 else "shared"
        reasons.append(f"up to {format_count(threads, 'thread')} {verb} {format_vcpu(vcpu_size)}")
    processor = record.processor
    others = processor.others_vcpu_used
    if others is not None and others >= _MIN_OTHERS_VCPU:
        used = format_bare_vcpu(others)
        reasons.append(f"other programs used {used} of the machine's {processor.count} CPUs")
    elif others is None and not reasons:
        reasons.append("it shares its CPU with others, or its threads run in short bursts")
    elif not reasons:
        reasons.append("its threads run in short bursts, or are held at a CPU limit")
    return ", and ".join(reasons)


def _can_cpu_time_explain_wait(threads: int, vcpu_size: Number, metrics: Metrics) -> bool:
    """Whether the CPU time of the threads can explain half of their wait: while one of them runs,
    at most all the others wait for it. With less than one vCPU, all wait while none may run.
    """
    cpu_seconds = first_known(metrics.cpu_seconds, math.inf)
    explained_seconds = (threads / min(vcpu_size, 1) - 1) * cpu_seconds
    return explained_seconds >= _LEAST_EXPLAINED * (metrics.cpu_wait_seconds or 0)


def is_long_cpu_wait(record: Record) -> bool:
    """Whether the threads waited for a CPU for 0.1 s, a tenth of the run and of the time in
    which they could run.
    """
    percent = notable_cpu_wait_percent(record)
    return record.metrics.cpu_wait_seconds is not None and (percent or 0) >= MIN_CPU_WAIT_PERCENT


def is_starved(record: Record) -> bool:
    """Whether the threads waited long for CPUs of which other programs used so much that the run's
    own use does not tell what it needs.
    """
    others = record.processor.others_vcpu_used or 0
    least = max(_MIN_OTHERS_VCPU, _LEAST_TAKEN_SHARE * (record.metrics.vcpu_used.avg or 0))
    return others >= least and is_long_cpu_wait(record)


def notable_cpu_wait_percent(record: Record) -> float | None:
    """``cpu_wait_percent``; 0 if the wait was less than a tenth of the run, or than 0.1 s.

    Waits at the same time add up. So by a known time breakdown, the limit of a tenth also holds for
    the part of the run that more CPUs could have saved: its own waits, and of its time on a CPU the
    share that its threads waited.
    """
    metrics = record.metrics
    times = record.time_breakdown
    least_seconds = (metrics.duration_ms or 0) / MS_PER_SECOND * MIN_CPU_WAIT_PERCENT / _PERCENT
    waited = metrics.cpu_wait_seconds
    percent = cpu_wait_percent(metrics)
    if waited is not None and waited < max(_MIN_SECONDS, least_seconds):
        return 0
    if percent is not None and times.on_cpu_percent is not None:
        savable = (times.waiting_for_cpu_percent or 0) + times.on_cpu_percent * percent / _PERCENT
        return percent if savable >= MIN_CPU_WAIT_PERCENT else 0
    return percent


def cpu_wait_percent(metrics: Metrics) -> float | None:
    """The wait for a CPU as a share of the time in which threads could run; a search document
    has only the sums.
    """
    percent = metrics.cpu_wait_percent
    waited = metrics.cpu_wait_seconds
    used = metrics.cpu_seconds
    if percent is None and waited is not None and used:
        percent = _PERCENT * waited / (waited + used)
    if percent is not None and 0 <= percent <= _PERCENT:
        return percent
    return None


def is_cpu_wait_partial(record: Record) -> bool:
    """Whether waits for a CPU that matter may be missing, of threads that ended unread: not if
    others waited little.
    """
    covered = record.sampling.cpu_wait_covered_percent
    waited = record.metrics.cpu_wait_seconds
    if covered is None or waited is None or covered >= MIN_COVERED_PERCENT:
        return False
    return _PERCENT * waited >= _MIN_SECONDS * covered

"""The wait of a run's threads for a CPU: how long it was, and why; one sentence for all outputs."""

from functools import partial

from profiler.record.fact_list import Fact
from profiler.record.measured import measured
from profiler.record.mention_limits import is_cpu_wait_partial
from profiler.record.record_model import Record
from profiler.record.units import format_count, format_value, format_vcpu

# Less of a CPU delays nobody.
_MIN_OTHERS_VCPU = 0.1


def cpu_wait_fact(record: Record) -> Fact:
    """The wait of all threads for a CPU, in seconds; the sentence has no full stop.

    Its share of the time in which the threads could run is another number than the part of the run
    in which it waited for a CPU, so that it is only said of several runs.
    """
    waited = measured(record.metrics.cpu_wait_seconds or 0, is_least=is_cpu_wait_partial(record))
    duration = waited.text(partial(format_value, unit="s"))
    why = cpu_wait_reason(record)
    return Fact(
        name="CPU wait",
        number=waited,
        unit="s",
        text=f"{duration} in total: {why}",
        sentence=f"its threads waited {duration} in total for a CPU: {why}",
    )


def cpu_wait_reason(record: Record) -> str:
    """Why its threads waited for a CPU: what they and other programs used, as far as known."""
    metrics = record.metrics
    reasons = []
    if metrics.max_pids and metrics.vcpu_size and metrics.max_pids > metrics.vcpu_size:
        threads = format_count(metrics.max_pids, "thread")
        reasons.append(f"up to {threads} shared {format_vcpu(metrics.vcpu_size)}")
    processor = record.processor
    others = processor.others_vcpu_used
    if others is not None and others >= _MIN_OTHERS_VCPU:
        used = format_vcpu(others).removesuffix(" vCPU")
        reasons.append(f"other programs used {used} of the machine's {processor.count} CPUs")
    elif others is None and not reasons:
        reasons.append("it shares its CPU with others, or its threads run in short bursts")
    elif not reasons:
        reasons.append("its threads run in short bursts, or are held at a CPU limit")
    return ", and ".join(reasons)

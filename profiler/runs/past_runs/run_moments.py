"""Notable moments of a run in its time series and its call stacks.

A gap is neither idle nor busy.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from statistics import median
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.optional_math import known_values
from profiler.core.text import words_if_known
from profiler.core.timestamps import NS_PER_MS, parse_ns
from profiler.record.cpu_wait import MIN_CPU_WAIT_PERCENT, is_long_cpu_wait
from profiler.record.measured import Exactly
from profiler.record.mention_limits import (
    SATURATED_SHARE,
    is_near_limit,
    max_idle_vcpu,
)
from profiler.record.record_model import Record, Series
from profiler.record.units import (
    format_duration,
    format_memory,
    format_memory_share,
    format_share,
    format_vcpu,
)
from profiler.runs.past_runs.stack_functions import SampledStack, sampled_stacks

MomentKind = Literal["memory-peak", "memory", "saturated", "idle"]

MIN_STRETCH_STEPS = 3
# The mean number of threads that wait for a CPU in a step, up to which the run can be idle.
_MAX_IDLE_WAIT = MIN_CPU_WAIT_PERCENT / 100
# A peak is notable if it is this much above the median, or near the limit.
_PEAK_ABOVE_MEDIAN = 1.25
# Samples have seen a peak that is at most this much above the highest of them.
_MISSED_PEAK = 1.01


class RunMoment(Struct, frozen=True, kw_only=True):
    """A moment or a stretch.

    Its times are after the start of the run; those of a moment are the same.
    """

    kind: MomentKind
    start_ms: float
    end_ms: float
    text: str


def find_moments(record: Record, series: Series | None = None) -> tuple[RunMoment, ...]:
    """The moments in the order of time: at most one peak, two stretches of each kind, and five
    stacks.
    """
    series = series or record.series
    waits = _cpu_waits_of(record, series)
    moments: list[RunMoment] = []
    if series is not None:
        length_ms = series_length_ms(record, series)
        moments = [
            *_memory_peak_moments(record, series, length_ms),
            *_stretch_moments(record, series, waits, length_ms),
        ]
    described = _with_stacks(moments, record, waits)
    return tuple(sorted(described, key=lambda moment: (moment.start_ms, moment.kind)))


class _CpuWaitTimes(Struct, frozen=True, kw_only=True):
    """When a run waited for a CPU, in which it was not idle: the mean number of waiting threads in
    each step; without steps, ``is_long`` says whether the whole run did.
    """

    steps: Sequence[float | None] = ()
    step_ms: float = 0
    is_long: bool = False

    def vcpu_used_outside_waits(self, vcpu_used: Sequence[float | None]) -> Sequence[float | None]:
        """The use of the CPUs in the steps in which the run did not wait for one."""
        if not self.steps:
            return () if self.is_long else vcpu_used
        return [
            None if (wait or 0) > _MAX_IDLE_WAIT else vcpu
            for vcpu, wait in zip_longest(vcpu_used, self.steps[: len(vcpu_used)])
        ]

    def is_waiting_during(self, stack: SampledStack) -> bool:
        """Whether the run waited for a CPU during a stack."""
        if not self.steps:
            return self.is_long
        # In the steps at its ends, the run may have worked, and waited for a CPU.
        first = math.ceil(stack.start_ms / self.step_ms)
        end = int(stack.end_ms // self.step_ms)
        if first >= end:
            first, end = int(stack.start_ms // self.step_ms), end + 1
        waits = [wait or 0 for wait in self.steps[first:end]]
        return sum(waits) > _MAX_IDLE_WAIT * len(waits)


def _cpu_waits_of(record: Record, series: Series | None) -> _CpuWaitTimes:
    if series is None or not series.cpu_wait or not series.step_ms:
        return _CpuWaitTimes(is_long=is_long_cpu_wait(record))
    return _CpuWaitTimes(steps=series.cpu_wait, step_ms=series.step_ms)


def format_elapsed(milliseconds: float) -> str:
    """Format a time after the start: ``+430ms``, ``+9.7s``, ``+3m``, ``+19m 06s``."""
    if not milliseconds:
        return "+0s"
    text = re.sub(r" 00[smh]$", "", format_duration(milliseconds))
    return "+" + re.sub(r"(\.0)? (m?s)$", r"\2", text)


def series_length_ms(record: Record, series: Series) -> float:
    """The length of the run as far as the series covers it."""
    columns = (
        series.vcpu_used,
        series.memory_used_mb,
        series.gpu_utilization_percent,
        series.neuron_utilization_percent,
    )
    length_ms = max(len(column or ()) for column in columns) * series.step_ms
    duration_ms = record.metrics.duration_ms
    return min(length_ms, duration_ms) if duration_ms else length_ms


def _memory_peak_moments(record: Record, series: Series, length_ms: float) -> Iterator[RunMoment]:
    metrics = record.metrics
    memory_mb = series.memory_used_mb or ()
    known = known_values(memory_mb)
    peak_mb = metrics.max_memory_used_mb
    size_mb = metrics.memory_size_mb
    if not known or peak_mb is None:
        return
    highest_mb = max(known)
    if not is_near_limit(peak_mb, size_mb) and highest_mb < _PEAK_ABOVE_MEDIAN * median(known):
        return
    share = format_memory_share(peak_mb, size_mb)
    share = share and f", {share}"
    recorded_ms = _recorded_peak_ms(record, series, length_ms)
    if recorded_ms is None:
        peak_ms = min(memory_mb.index(highest_mb) * series.step_ms, length_ms)
    else:
        peak_ms = recorded_ms
    peak = metrics.memory_peak.text(format_memory)
    if peak_mb > _MISSED_PEAK * highest_mb and recorded_ms is None:
        # The kernel counts a peak between two samples, without its time.
        is_counted = isinstance(metrics.memory_peak, Exactly)
        when = "between samples (kernel)" if is_counted else "at an unknown time"
        text = (
            f"memory peak {peak} {when}{share}; highest sample {format_memory(highest_mb)} at "
            f"{format_elapsed(peak_ms)}"
        )
    else:
        text = f"memory peak {peak} at {format_elapsed(peak_ms)}{share}"
    yield RunMoment(kind="memory-peak", start_ms=peak_ms, end_ms=peak_ms, text=text)


def _recorded_peak_ms(record: Record, series: Series, length_ms: float) -> float | None:
    """When the peak was, in milliseconds after the start; None if the record's time is unknown or
    outside the series.
    """
    started_ns = parse_ns(record.started_at or series.started_at)
    peak_ns = record.metrics.max_memory_used_at_ns
    if started_ns is None or peak_ns is None:
        return None
    peak_ms = (peak_ns - started_ns) / NS_PER_MS
    return peak_ms if 0 <= peak_ms <= length_ms else None


def _stretch_moments(
    record: Record, series: Series, waits: _CpuWaitTimes, length_ms: float
) -> Iterator[RunMoment]:
    size = record.metrics.vcpu_size
    if not size:
        return
    run_ms = record.metrics.duration_ms or length_ms
    has_end = record.status != "running" and length_ms + series.step_ms > run_ms
    busy = SATURATED_SHARE * size
    idle = max_idle_vcpu(size)
    last = "the end" if has_end else "the last reading"
    vcpu_used = series.vcpu_used or ()
    stretches_of_kind: Mapping[MomentKind, Iterator[tuple[int, int]]] = {
        "saturated": _step_ranges(vcpu_used, lambda vcpu: vcpu >= busy),
        "idle": _step_ranges(waits.vcpu_used_outside_waits(vcpu_used), lambda vcpu: vcpu <= idle),
    }
    for kind, stretches in stretches_of_kind.items():
        longest_first = sorted(stretches, key=lambda steps: steps[0] - steps[1])
        for first_step, end_step in longest_first[:2]:
            start_ms = min(first_step * series.step_ms, length_ms)
            end_ms = min(end_step * series.step_ms, length_ms)
            if end_ms <= start_ms:
                continue
            until = last if end_ms >= length_ms else format_elapsed(end_ms)
            during = f"from {format_elapsed(start_ms)} to {until}"
            if kind == "saturated":
                share = format_share(end_ms - start_ms, run_ms)
                text = f"used all of its {format_vcpu(size)} {during}, {share} of the run"
            else:
                text = f"idle {during}"
            yield RunMoment(kind=kind, start_ms=start_ms, end_ms=end_ms, text=text)


def _step_ranges(
    values: Sequence[float | None], matches: Callable[[float], bool]
) -> Iterator[tuple[int, int]]:
    """Yield the first step, and the step after the last one, of each stretch of at least three
    matching steps.
    """
    first: int | None = None
    for step, value in enumerate((*values, None)):
        if value is not None and matches(value):
            if first is None:
                first = step
            continue
        if first is not None and step - first >= MIN_STRETCH_STEPS:
            yield first, step
        first = None


def _with_stacks(
    moments: Iterable[RunMoment], record: Record, waits: _CpuWaitTimes
) -> Iterator[RunMoment]:
    """The moments with their functions, and separate moments for all other stacks."""
    stacks: list[SampledStack] = []
    for stack in sampled_stacks(record):
        if stack.kind != "idle" or not waits.is_waiting_during(stack):
            stacks.append(stack)
    left = list(stacks)
    for moment in moments:
        inside = [stack for stack in stacks if _is_of_same_stretch(stack, moment)]
        # If one stretch has several stacks, the first belongs to the stretch; if several stretches
        # have one stack, it belongs to all of them.
        first = inside[0] if inside else None
        for stack in inside:
            if stack in left and stack.functions == inside[0].functions:
                left.remove(stack)
        yield _moment_with_functions(moment, first, record)
    for stack in left:
        yield from _separate_stack_moments(stack, record)


def _is_of_same_stretch(stack: SampledStack, moment: RunMoment) -> bool:
    """Whether the stack is of a stretch of the moment's kind and time."""
    is_same_time = stack.start_ms < moment.end_ms and moment.start_ms < stack.end_ms
    return is_same_time and stack.kind == moment.kind


def _separate_stack_moments(stack: SampledStack, record: Record) -> Iterator[RunMoment]:
    """A separate moment for a stack; no moment for a kind of a newer version."""
    start_ms = stack.start_ms
    end_ms = stack.end_ms
    during = f"from {format_elapsed(start_ms)} to {format_elapsed(end_ms)}"
    if stack.kind == "memory":
        text = f"memory rose {during} while {stack.functions} ran{stack.share}"
        yield RunMoment(kind="memory", start_ms=start_ms, end_ms=end_ms, text=text)
    elif stack.kind == "idle":
        idle = RunMoment(kind="idle", start_ms=start_ms, end_ms=end_ms, text=f"idle {during}")
        yield _moment_with_functions(idle, stack, record)
    elif stack.kind == "saturated":
        vcpu = record.metrics.vcpu_size
        size = f"all of its {format_vcpu(vcpu)}" if vcpu else "all vCPUs"
        text = f"used {size} {during}"
        saturated = RunMoment(kind="saturated", start_ms=start_ms, end_ms=end_ms, text=text)
        yield _moment_with_functions(saturated, stack, record)


def _moment_with_functions(
    moment: RunMoment, stack: SampledStack | None, record: Record
) -> RunMoment:
    """The moment with the functions of its stack, and the address that it waited for."""
    text = moment.text
    if stack is not None:
        text += f": {stack.functions}{stack.share}"
    if moment.kind == "idle":
        peer = _peer_waited_for(record, stack, moment.end_ms - moment.start_ms)
        text += words_if_known(", waiting for {}", peer)
    return replace(moment, text=text)


def _peer_waited_for(record: Record, stack: SampledStack | None, length_ms: float) -> str | None:
    """The address that an idle stretch waited for; None if unknown.

    The time breakdown of the whole run shows it if all other waits together (of a stretch in a
    socket: all that may be for the network) are shorter than the stretch.
    """
    times = record.time_breakdown
    duration_ms = record.metrics.duration_ms
    if not duration_ms:
        return None
    peers = [wait for wait in times.waiting_for if wait.kind == "network" and ":" in wait.target]
    if not peers:
        return None
    largest = max(peers, key=lambda peer: peer.percent)
    if stack is not None and stack.is_in_socket and times.network_percent is not None:
        waits_percent = times.network_percent + (times.other_percent or 0)
    else:
        cpu_percent = (times.on_cpu_percent or 0) + (times.waiting_for_cpu_percent or 0)
        waits_percent = 100 - cpu_percent
    other_waits_ms = (waits_percent - largest.percent) / 100 * duration_ms
    return largest.target if other_waits_ms < length_ms else None

"""What the sources saw of a run, each and together: the evidence from which
:mod:`profiler.aggregation.record_assembly` makes the record.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.memory_peak import MemoryEvidence
from profiler.core.optional_math import first_of, known_values, max_known
from profiler.record.activity_model import NO_BREAKDOWN, TimeBreakdown
from profiler.record.measured import Number
from profiler.record.record_model import (
    NO_READINGS,
    AverageAndMaximum,
    Interval,
    MemoryKills,
    Metrics,
    Process,
    Series,
)

if TYPE_CHECKING:
    from profiler.aggregation.slowdown import CpuDemand
    from profiler.aggregation.time_series import RunSeries

    # From the first to the last work of the GPUs, by the wall clock.
    IdleParts = Callable[[int, int], tuple[TimeBreakdown, TimeBreakdown]]


class CpuEvidence(Struct, frozen=True, kw_only=True):
    """The CPU time of a run up to a reading at ``until_ns``, by the wall clock of its start.

    ``is_exact``: the kernel's own total of all ended processes. ``is_partial``: some processes
    ended without a count.
    """

    cpu_seconds: float
    until_ns: int | None = None
    is_exact: bool = False
    is_partial: bool = False


class DemandEvidence(Struct, frozen=True, kw_only=True):
    """How many vCPUs a task used over time, of how many it had; ``max_threads`` of all its
    containers, None if unknown.
    """

    demand: "CpuDemand"
    vcpu_size: float | None
    max_threads: int | None


class KillEvidence(Struct, frozen=True, kw_only=True):
    """The kernel's kills for lack of memory, as one source counted them.

    ``own_count``: kills of the run's processes, None if unknown; ``own`` is what the record says of
    them. ``excludes_kill_at_end``: none that was counted can have ended the run. ``shared_count``:
    kills in a group that may have unrelated processes, ``marked_bytes`` the most that the run's had
    mapped by their marks, unsurely. ``may_have_missed``: the machine had kills that no source could
    assign.
    """

    own_count: int | None = None
    own: MemoryKills | None = None
    excludes_kill_at_end: bool = False
    shared_count: int = 0
    marked_bytes: float = 0
    may_have_missed: bool = False


_NO_KILLS: Final = KillEvidence()


class ProcessActivity(Struct, frozen=True, kw_only=True):
    """What the processes did over time.

    ``cpu_wait_ns`` is None if waits for a CPU were not read; ``read_cpu_ns`` is the CPU time of the
    threads that were read with their waits, ``cpu_ns`` that of all processes.

    ``idle_parts`` divides the idle time of the GPUs before their work, and between its beginning
    and its end (wall clock); None where that is unknown.
    """

    breakdown: TimeBreakdown = NO_BREAKDOWN
    idle_parts: "IdleParts | None" = None
    cpu_wait_ns: int | None = None
    read_cpu_ns: int = 0
    cpu_ns: int = 0


class ProcessReadings(Struct, frozen=True, kw_only=True):
    """The readings of the processes, which can replace the distributions of the task stats.

    ``step_ms`` is the median time between two readings. ``series`` is None in checkpoints.
    """

    samples: int
    step_ms: float | None
    agrees_on_cpu: bool
    metrics: Metrics
    demand: "CpuDemand"
    interval: Interval | None = None
    series: "RunSeries | None" = None


def series_without_commands(series: Series | None) -> Series | None:
    """The time series of a run without commands."""
    return series


class ProcessRows(Struct, frozen=True, kw_only=True):
    """The processes by name, and how to add them to the time series.

    ``is_one``: the run had only this process.
    """

    rows: tuple[Process, ...]
    with_commands: Callable[[Series | None], Series | None] = series_without_commands
    is_one: bool = False


class RunEvidence(Struct, frozen=True, kw_only=True):
    """What one source saw of a run. What it did not see is absent.

    ``metrics``: its samples; of one source only. ``usage_peak_mb``: the mark of the control group
    with page cache, ``memory_marked_mb`` the most that the mark had beside the page cache of the
    samples before and after it rose. ``memory_bound_mb``: the most that can have been used, with
    memory that no control group counts. ``huge_pages`` (MB) are in addition to the memory used.
    ``limit_hits``: how often the memory was at its limit.
    """

    metrics: Metrics | None = None
    series: Series | None = None
    cpu: CpuEvidence | None = None
    demand: DemandEvidence | None = None
    memory: tuple[MemoryEvidence, ...] = ()
    usage_peak_mb: float | None = None
    memory_marked_mb: Number | None = None
    memory_bound_mb: Number | None = None
    max_pids: int | None = None
    huge_pages: AverageAndMaximum = NO_READINGS
    limit_hits: int | None = None
    kills: KillEvidence = _NO_KILLS
    processes: ProcessReadings | None = None
    activity: ProcessActivity | None = None
    rows: ProcessRows | None = None
    warnings: tuple[str, ...] = ()


NOTHING_SEEN: Final = RunEvidence()


def combined_evidence(seen: Sequence[RunEvidence]) -> RunEvidence:
    """What all sources saw together, without their warnings.

    Of the CPU time it is the evidence that counts, of lower bounds the largest, of memory and kills
    all of it, and of anything else what its only source saw.
    """
    return RunEvidence(
        metrics=first_of(evidence.metrics for evidence in seen),
        series=first_of(evidence.series for evidence in seen),
        cpu=choose_cpu_evidence(known_values(evidence.cpu for evidence in seen)),
        demand=first_of(evidence.demand for evidence in seen),
        memory=tuple(chain.from_iterable(evidence.memory for evidence in seen)),
        usage_peak_mb=max_known(*(evidence.usage_peak_mb for evidence in seen)),
        memory_marked_mb=max_known(*(evidence.memory_marked_mb for evidence in seen)),
        memory_bound_mb=max_known(*(evidence.memory_bound_mb for evidence in seen)),
        max_pids=max_known(*(evidence.max_pids for evidence in seen)),
        huge_pages=reduce(
            with_larger_maximum, [evidence.huge_pages for evidence in seen], NO_READINGS
        ),
        limit_hits=max_known(*(evidence.limit_hits for evidence in seen)),
        kills=_combined_kills([evidence.kills for evidence in seen]),
        processes=first_of(evidence.processes for evidence in seen),
        activity=first_of(evidence.activity for evidence in seen),
        rows=first_of(evidence.rows for evidence in seen),
    )


def choose_cpu_evidence(evidence: Iterable[CpuEvidence]) -> CpuEvidence | None:
    """The CPU time: an exact total, else the largest one; of equal ones the later reading."""
    chosen: CpuEvidence | None = None
    for item in evidence:
        if item.is_exact:
            return item
        if chosen is None or item.cpu_seconds > chosen.cpu_seconds:
            chosen = item
        elif item.cpu_seconds == chosen.cpu_seconds:
            chosen = replace(chosen, until_ns=max_known(chosen.until_ns, item.until_ns))
    return chosen


def with_larger_maximum(first: AverageAndMaximum, second: AverageAndMaximum) -> AverageAndMaximum:
    """The one with the larger maximum: both are lower bounds."""
    return second if (second.max or 0) > (first.max or 0) else first


def _combined_kills(kills: Sequence[KillEvidence]) -> KillEvidence:
    """The kills that all sources counted: one that any of them counted is decisive."""
    return KillEvidence(
        own_count=max_known(*(item.own_count for item in kills)),
        own=first_of(item.own for item in kills),
        excludes_kill_at_end=any(item.excludes_kill_at_end for item in kills),
        shared_count=max((item.shared_count for item in kills), default=0),
        marked_bytes=max((item.marked_bytes for item in kills), default=0),
        may_have_missed=any(item.may_have_missed for item in kills),
    )

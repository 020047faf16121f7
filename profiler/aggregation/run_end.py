"""How a run ended: its status, its end, and whether it probably ran out of memory."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.record_model import Metrics, PeakSource, Record
from profiler.record.run_outcome import (
    SIGKILL_EXIT_CODE,
    SIGTERM_EXIT_CODE,
    OutOfMemoryEvidence,
    Status,
    end_status,
)

# A platform may cut the fraction of ExecutionStoppedAt, so it is exact only to the second.
_STAMP_MARGIN_NS = NS_PER_SECOND
# The memory counts as at its limit from the first share on; with reclaims at the limit, from the
# second one on.
_AT_LIMIT_FRACTION = 0.9
_AT_LIMIT_FRACTION_WITH_HITS = 0.7
_NEAR_LIMIT_FRACTION = 0.95


class RunEnd(Struct, frozen=True, kw_only=True):
    """The end of a run, or the fact that it is running.

    ``until_ns`` is the wall-clock time up to which durations count, ``finished_ns`` the end of the
    run, or the last reading of a batch that disappeared; None if a stop of the task hid the end.
    """

    status: Status
    exit_code: int | None = None
    until_ns: int | None = None
    finished_ns: int | None = None


def with_clock_shift(end: RunEnd, started_ns: int | None, shift_ns: int) -> RunEnd:
    """Correct the durations for the changes of the wall clock since the start."""
    if not shift_ns or end.until_ns is None or started_ns is None:
        return end
    until_ns = end.until_ns - shift_ns
    return end if until_ns < started_ns else replace(end, until_ns=until_ns)


def was_stopped(
    exit_code: int | None,
    finished_ns: int | None,
    *,
    seen_ns: int | None = None,
    signalled_ns: int | None = None,
    first_end_ns: int | None = None,
    others_finished_ns: Sequence[int] = (),
    is_task_stopping: bool = False,
    is_stop_denied: bool = False,
) -> bool:
    """Whether the batch ended because the task was stopped.

    Times are wall-clock times, None if unknown.

    ``seen_ns`` is when a stop was seen while the batch was listed as running, ``signalled_ns`` the
    monitor's own SIGTERM, ``first_end_ns`` the task's ExecutionStoppedAt, the end of its first
    essential container. ``is_task_stopping``: ECS has requested the end of the task, at an unknown
    time. An essential batch that ends by itself stops the task, too. So a request that was first
    seen after the end explains only the exit code of SIGTERM, and never a kill. Docker may log the
    signal after the end. With ``is_stop_denied``, another program than ECS sent the signal.
    """
    is_sigterm = exit_code == SIGTERM_EXIT_CODE and not is_stop_denied
    if is_sigterm and (is_task_stopping or seen_ns is not None):
        return True
    if finished_ns is None:
        return seen_ns is not None
    if any(
        request_ns is not None and finished_ns > request_ns
        for request_ns in (seen_ns, signalled_ns)
    ):
        return True
    # The first end alone is proof only more than the margin before the batch's. Nearer to it, the
    # end of another container at that time is the proof, because the time may be the batch's own
    # end.
    if first_end_ns is None or first_end_ns >= finished_ns:
        return False
    return first_end_ns < finished_ns - _STAMP_MARGIN_NS or any(
        other_ns < finished_ns and abs(other_ns - first_end_ns) <= _STAMP_MARGIN_NS
        for other_ns in others_finished_ns
    )


def ended(exit_code: int | None, finished_ns: int | None, *, was_stopped: bool) -> RunEnd:
    """The end of a batch that has exited; ``was_stopped``: a stop was requested before."""
    return RunEnd(
        status=end_status(exit_code, was_stopped=was_stopped),
        exit_code=exit_code,
        until_ns=finished_ns,
        finished_ns=finished_ns,
    )


class OutOfMemory(Struct, frozen=True, kw_only=True):
    """A verdict of :func:`out_of_memory`."""

    likely: bool | None = None
    evidence: OutOfMemoryEvidence | None = None


def out_of_memory(
    end: RunEnd,
    *,
    memory_max_bytes: float | None,
    memory_size_bytes: float | None,
    peak_source: PeakSource | None,
    limit_hits: int | None = None,
    memory_kills: int | None = None,
    may_have_missed_a_kill: bool = False,
) -> OutOfMemory:
    """Whether the kernel killed the batch or one of its processes for lack of memory, as far as
    there is evidence.

    The kills that the kernel counted are decisive (None: unknown). ``limit_hits`` alone are no
    evidence, because version 1 of cgroup also counts reclaimed page cache. With
    ``may_have_missed_a_kill``, an exit code excludes none.
    """
    if memory_kills:
        return OutOfMemory(likely=True, evidence="kernel-counter")
    is_unseen = end.status == "unknown" and end.exit_code is None and end.until_ns is None
    if end.status == "running" or is_unseen:
        return OutOfMemory()
    share = (
        memory_max_bytes / memory_size_bytes
        if memory_max_bytes is not None and memory_size_bytes
        else None
    )
    at_limit = _AT_LIMIT_FRACTION_WITH_HITS if limit_hits else _AT_LIMIT_FRACTION
    is_unexplained = end.status != "stopped" and end.exit_code in (None, SIGKILL_EXIT_CODE)
    if is_unexplained and share is not None and share >= at_limit:
        return OutOfMemory(
            likely=True,
            evidence="memory-at-limit" if end.exit_code is None else "exit-137-at-limit",
        )
    is_excluded = (
        end.exit_code not in (None, SIGKILL_EXIT_CODE)
        or (peak_source == "kernel" and share is not None and share < _AT_LIMIT_FRACTION)
        or memory_kills == 0
    )
    is_open = may_have_missed_a_kill and memory_kills is None
    return OutOfMemory(likely=False if is_excluded and not is_open else None)


def may_have_lost_a_child(metrics: Metrics) -> bool:
    """Whether the usage came within 5 % of the limit, not by cache: a child may have been killed
    between samples.
    """
    peak_mb, size_mb = metrics.memory_usage_peak_mb, metrics.memory_size_mb
    if peak_mb is None or not size_mb:
        return False
    cache_mb = None if metrics.memory_cache_mb is None else metrics.memory_cache_mb.max
    return peak_mb - (cache_mb or 0) >= _NEAR_LIMIT_FRACTION * size_mb


def may_have_missed_a_kill(record: Record) -> bool:
    """Whether a process may have been killed for memory with any exit code: a child, or an
    earlier attempt.
    """
    return bool(record.container.restarts) or may_have_lost_a_child(record.metrics)

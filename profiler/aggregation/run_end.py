"""How a run ended: its status and its end."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.optional_math import first_known
from profiler.core.timestamps import NEVER_NS, NS_PER_SECOND
from profiler.record.run_outcome import SIGTERM_EXIT_CODE, Status, end_status_of

# A platform may cut the fraction of ExecutionStoppedAt, so it is exact only to the second.
_STAMP_MARGIN_NS = NS_PER_SECOND


class RunEnd(Struct, frozen=True, kw_only=True):
    """The end of a run, or the fact that it is running.

    ``until_ns`` is the time up to which durations count, by the wall clock as it was set at the
    start, ``finished_ns`` the end of the run, or the last reading of a batch that disappeared; None
    if a stop of the task hid the end.
    """

    status: Status
    exit_code: int | None = None
    until_ns: int | None = None
    finished_ns: int | None = None


def with_clock_shift(end: RunEnd, started_ns: int | None, shift_ns: int, *, now_ns: int) -> RunEnd:
    """Correct the durations for the changes of the wall clock since the start.

    An end that would lie before the start, or after ``now_ns``, was before the clock was set.
    """
    if not shift_ns or end.until_ns is None or started_ns is None:
        return end
    until_ns = end.until_ns - shift_ns
    if not started_ns <= until_ns <= now_ns - shift_ns:
        return end
    return replace(end, until_ns=until_ns)


def was_ended_by_stop(
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
        finished_ns > first_known(request_ns, NEVER_NS) for request_ns in (seen_ns, signalled_ns)
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


def run_end_of_exit(exit_code: int | None, finished_ns: int | None, *, was_stopped: bool) -> RunEnd:
    """The end of a batch that has exited; ``was_stopped``: a stop was requested before."""
    return RunEnd(
        status=end_status_of(exit_code, was_stopped=was_stopped),
        exit_code=exit_code,
        until_ns=finished_ns,
        finished_ns=finished_ns,
    )

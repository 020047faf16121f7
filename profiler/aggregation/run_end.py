"""How a run ended: its status and its end."""

from msgspec import Struct
from msgspec.structs import replace

from profiler.record.run_outcome import SIGTERM_EXIT_CODE, Status, end_status


class RunEnd(Struct, frozen=True, kw_only=True):
    """How a run ended, or that it is running.

    ``until_ns`` is the wall-clock time up to which durations count, ``finished_ns`` the end of the run, or the last
    reading of a batch that disappeared. Each is None if unknown. When a task is stopped while the batch runs, the
    monitor does not see the end of the batch: only ``until_ns`` is known.
    """

    status: Status
    exit_code: int | None = None
    until_ns: int | None = None
    finished_ns: int | None = None

    @property
    def has_vanished(self) -> bool:
        """Whether nothing of its end was seen."""
        return self.status == "unknown" and self.exit_code is None and self.until_ns is None


def with_clock_shift(end: RunEnd, started_ns: int | None, shift_ns: int) -> RunEnd:
    """Correct the durations by what the wall clock was set since the start."""
    if not shift_ns or end.until_ns is None or started_ns is None:
        return end
    until_ns = end.until_ns - shift_ns
    return end if until_ns < started_ns else replace(end, until_ns=until_ns)


class StopEvidence(Struct, frozen=True, kw_only=True):
    """What is known of a stop of the task. Times are wall-clock times, None if unknown.

    ``seen_ns`` is the time at which a stop was seen while the batch was listed as running, ``signalled_ns`` that of the
    monitor's own SIGTERM, ``execution_stopped_ns`` that of the end of the task's first essential container.
    ``is_task_stopping``: ECS has requested the end of the task, at an unknown time.
    """

    seen_ns: int | None = None
    signalled_ns: int | None = None
    execution_stopped_ns: int | None = None
    is_task_stopping: bool = False

    def explains(self, exit_code: int | None, finished_ns: int | None) -> bool:
        """Whether the batch ended because the task was stopped.

        An essential batch that ends by itself stops the task, too. So a request that was only seen after the end
        explains no exit code but that of SIGTERM, and in particular no kill.
        """
        if self.is_task_stopping and exit_code == SIGTERM_EXIT_CODE:
            return True
        if finished_ns is None:
            return self.seen_ns is not None
        requests_ns = (self.seen_ns, self.signalled_ns, self.execution_stopped_ns)
        return any(request_ns is not None and finished_ns > request_ns for request_ns in requests_ns)


def ended(exit_code: int | None, finished_ns: int | None, *, was_stopped: bool) -> RunEnd:
    """The end of a batch that has exited; ``was_stopped``: a stop was requested before."""
    return RunEnd(
        status=end_status(exit_code, was_stopped=was_stopped),
        exit_code=exit_code,
        until_ns=finished_ns,
        finished_ns=finished_ns,
    )

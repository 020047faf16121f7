"""How a run ended: its status, its end, and whether it probably ran out of memory."""

from msgspec import Struct

from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.model import OutOfMemoryEvidence, Status

_SIGKILL_EXIT_CODE = 137  # 128 + SIGKILL, which the kernel's OOM killer sends
_SIGTERM_EXIT_CODE = 143  # 128 + SIGTERM, which ECS sends to stop a container
_LIKELY_FRACTION = 0.9
_UNLIKELY_FRACTION = 0.5
# Sampled memory counts as low until the end from this many readings on, if the last one is this close to the end.
# Later, or between rarer readings, a batch has the time to fill its limit unseen.
_MIN_READINGS = 3
_MAX_UNOBSERVED_NS = 3 * NS_PER_SECOND


class Outcome(Struct, frozen=True, kw_only=True):
    """The state of a run.

    ``until_ns`` is the wall-clock time up to which durations count, ``finished_ns`` the end of the
    run. Each is None if unknown.
    """

    status: Status
    exit_code: int | None = None
    until_ns: int | None = None
    finished_ns: int | None = None

    @property
    def has_vanished(self) -> bool:
        """Whether nothing of its end was seen."""
        return self.status == "unknown" and self.exit_code is None and self.until_ns is None


class MemoryReadings:
    """The number and the last time of the memory readings of one run."""

    __slots__ = ("_count", "_last_ns")

    def __init__(self) -> None:
        self._count = 0
        self._last_ns = 0

    def add(self, read_ns: int) -> None:
        """Count a reading, taken at ``read_ns`` (wall clock)."""
        self._count += 1
        self._last_ns = read_ns

    def reach(self, end_ns: int | None) -> bool:
        """Whether there are at least three readings, the last one within 3 s of the end; False if that is unknown."""
        return end_ns is not None and self._count >= _MIN_READINGS and abs(end_ns - self._last_ns) <= _MAX_UNOBSERVED_NS


class OutOfMemory(Struct, frozen=True, kw_only=True):
    """Whether the kernel probably killed the batch or one of its processes for lack of memory, and the evidence."""

    likely: bool | None = None
    evidence: OutOfMemoryEvidence | None = None


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
        if self.is_task_stopping and exit_code == _SIGTERM_EXIT_CODE:
            return True
        if finished_ns is None:
            return self.seen_ns is not None
        requests_ns = (self.seen_ns, self.signalled_ns, self.execution_stopped_ns)
        return any(request_ns is not None and finished_ns > request_ns for request_ns in requests_ns)


def running_outcome(now_ns: int) -> Outcome:
    """The batch is still running."""
    return Outcome(status="running", until_ns=now_ns)


def stopped_outcome(now_ns: int) -> Outcome:
    """The task was stopped while the batch was running; the monitor does not see the end of the batch."""
    return Outcome(status="stopped", until_ns=now_ns)


def unknown_outcome(last_seen_ns: int | None) -> Outcome:
    """The batch has disappeared without an exit code; the last reading of it was at ``last_seen_ns``."""
    return Outcome(status="unknown", finished_ns=last_seen_ns)


def unobserved_outcome() -> Outcome:
    """The monitor has failed while the batch was running: nothing is known of the end."""
    return Outcome(status="unknown")


def exited_outcome(exit_code: int | None, finished_ns: int | None, *, is_stop_requested: bool) -> Outcome:
    """The batch has ended.

    A stop that was requested before the end determines the status regardless of the exit code: a batch
    that handles SIGTERM correctly exits with 0 although it has not finished its work.
    """
    return Outcome(
        status=_status(exit_code, is_stop_requested=is_stop_requested),
        exit_code=exit_code,
        until_ns=finished_ns,
        finished_ns=finished_ns,
    )


def _status(exit_code: int | None, *, is_stop_requested: bool) -> Status:
    if is_stop_requested:
        return "stopped"
    if exit_code is None:
        return "unknown"
    return "success" if exit_code == 0 else "failure"


def likely_out_of_memory(
    end: Outcome,
    *,
    memory_max_bytes: float | None,
    memory_size_bytes: float | None,
    limit_hits: int | None,
    is_end_covered: bool,
) -> bool | None:
    """Whether the kernel probably killed the batch for lack of memory; None if unknown.

    True if the exit code is 137 or unknown, no stop was requested, and the memory used reached 90 %
    of the limit or the kernel counted hits of the limit. A sampled peak between 50 % and 90 % gives
    None: memory can grow from there to the limit within one sampling period. A lower peak gives None,
    too, if the exit code is unknown or the measurement of the peak does not cover the end (``is_end_covered``).
    A batch that has vanished gives None in any case.
    """
    if end.status == "running" or end.has_vanished:
        return None
    if end.status == "stopped" or end.exit_code not in (None, _SIGKILL_EXIT_CODE):
        return False
    if limit_hits:
        return True
    if memory_size_bytes is None or memory_max_bytes is None:
        return None
    share = memory_max_bytes / memory_size_bytes
    if share >= _LIKELY_FRACTION:
        return True
    is_excluded = is_end_covered and end.exit_code is not None and share < _UNLIKELY_FRACTION
    return False if is_excluded else None


def out_of_memory(
    end: Outcome,
    *,
    memory_max_bytes: float | None,
    memory_size_bytes: float | None,
    limit_hits: int | None,
    is_end_covered: bool,
    memory_kills: int | None = None,
) -> OutOfMemory:
    """As :func:`likely_out_of_memory`, but a kill that the kernel counted (``memory_kills``) is decisive."""
    if memory_kills:
        return OutOfMemory(likely=True, evidence="kernel-counter")
    likely = likely_out_of_memory(
        end,
        memory_max_bytes=memory_max_bytes,
        memory_size_bytes=memory_size_bytes,
        limit_hits=limit_hits,
        is_end_covered=is_end_covered,
    )
    return OutOfMemory(likely=likely, evidence="exit-137-at-limit" if likely else None)

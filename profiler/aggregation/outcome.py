"""How a run ended: its status, its end, and whether it probably ran out of memory."""

from msgspec import Struct

from profiler.record.model import OutOfMemoryEvidence, Status

_SIGKILL_EXIT_CODE = 137  # 128 + SIGKILL, which the kernel's OOM killer sends
_LIKELY_FRACTION = 0.9
_UNLIKELY_FRACTION = 0.5


class Outcome(Struct, frozen=True, kw_only=True):
    """The state of a run.

    ``until_ns`` is the wall-clock time up to which durations count, ``finished_ns`` the end of the
    run. Each is None if unknown.
    """

    status: Status
    exit_code: int | None = None
    until_ns: int | None = None
    finished_ns: int | None = None


class OutOfMemory(Struct, frozen=True, kw_only=True):
    """Whether the kernel probably killed the batch or one of its processes for lack of memory, and the evidence."""

    likely: bool | None = None
    evidence: OutOfMemoryEvidence | None = None


def running_outcome(now_ns: int) -> Outcome:
    """The batch is still running."""
    return Outcome(status="running", until_ns=now_ns)


def stopped_outcome(now_ns: int) -> Outcome:
    """The task was stopped while the batch was running; the monitor does not see the end of the batch."""
    return Outcome(status="stopped", until_ns=now_ns)


def unknown_outcome(last_seen_ns: int | None) -> Outcome:
    """The batch has disappeared without an exit code; the last reading of it was at ``last_seen_ns``."""
    return Outcome(status="unknown", finished_ns=last_seen_ns)


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
) -> bool | None:
    """Whether the kernel probably killed the batch for lack of memory; None if unknown.

    True if the exit code is 137 or unknown, no stop was requested, and the memory used reached 90 %
    of the limit or the kernel counted hits of the limit. A sampled peak between 50 % and 90 % gives
    None: memory can grow from there to the limit within one sampling period.
    """
    if end.status == "running":
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
    return False if share < _UNLIKELY_FRACTION else None


def out_of_memory(
    end: Outcome,
    *,
    memory_max_bytes: float | None,
    memory_size_bytes: float | None,
    limit_hits: int | None,
    memory_kills: int | None = None,
) -> OutOfMemory:
    """As :func:`likely_out_of_memory`, but a kill that the kernel counted (``memory_kills``) is decisive."""
    if memory_kills:
        return OutOfMemory(likely=True, evidence="kernel-counter")
    likely = likely_out_of_memory(
        end, memory_max_bytes=memory_max_bytes, memory_size_bytes=memory_size_bytes, limit_hits=limit_hits
    )
    return OutOfMemory(likely=likely, evidence="exit-137-at-limit" if likely else None)

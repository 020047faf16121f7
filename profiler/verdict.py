"""How a run ended: its status, its end in time, and whether it probably ran out of memory."""

from msgspec import Struct

from profiler.record import OutOfMemoryEvidence, Status

_SIGKILL_EXIT_CODE = 137  # 128 + SIGKILL, what the kernel's OOM killer leaves
_LIKELY_FRACTION = 0.9
_UNLIKELY_FRACTION = 0.5


class Outcome(Struct, frozen=True, kw_only=True):
    """How far a run has come.

    ``until_ns`` is the wall clock's time up to which durations count, ``finished_ns`` the end
    itself; each is None where it cannot be known.
    """

    status: Status
    exit_code: int | None = None
    until_ns: int | None = None
    finished_ns: int | None = None


class OutOfMemory(Struct, frozen=True, kw_only=True):
    """Whether the batch or a process of it was probably killed for memory, and what says so."""

    likely: bool | None = None
    evidence: OutOfMemoryEvidence | None = None


def running_outcome(now_ns: int) -> Outcome:
    """The batch goes on."""
    return Outcome(status="running", until_ns=now_ns)


def stopped_outcome(now_ns: int) -> Outcome:
    """The task was told to stop while the batch ran on; its end is not ours to see."""
    return Outcome(status="stopped", until_ns=now_ns)


def unknown_outcome(last_seen_ns: int | None) -> Outcome:
    """The batch is gone and nobody said how it ended; there were readings until ``last_seen_ns``."""
    return Outcome(status="unknown", finished_ns=last_seen_ns)


def exited_outcome(exit_code: int | None, finished_ns: int | None, *, is_stop_requested: bool) -> Outcome:
    """The batch came to its end.

    A stop that was asked for before the end counts whatever the exit code is: a batch that
    handles SIGTERM well exits 0 without having done its work.
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
    """Whether the batch was probably killed for memory; None if that cannot be told.

    True: killed (137) or ended unseen, nobody asked for a stop, and the working set came to 90 %
    of the limit or the kernel counted hits of it. Between half and 90 % a sampled peak proves
    nothing: a batch can cross that in less than one sampling period.
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
    """The verdict: the kernel's counter of ``memory_kills`` in the batch decides, however that ended."""
    if memory_kills:
        return OutOfMemory(likely=True, evidence="kernel-counter")
    likely = likely_out_of_memory(
        end, memory_max_bytes=memory_max_bytes, memory_size_bytes=memory_size_bytes, limit_hits=limit_hits
    )
    return OutOfMemory(likely=likely, evidence="exit-137-at-limit" if likely else None)

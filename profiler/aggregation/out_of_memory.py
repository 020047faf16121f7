"""Whether a run probably ran out of memory, and the evidence."""

from msgspec import Struct

from profiler.aggregation.run_end import RunEnd
from profiler.record.record_model import PeakSource
from profiler.record.run_outcome import SIGKILL_EXIT_CODE, OutOfMemoryEvidence

# The memory counts as at its limit from the first share on; with reclaims at the limit, from the second one on.
_AT_LIMIT_FRACTION = 0.9
_AT_LIMIT_FRACTION_WITH_HITS = 0.7


class OutOfMemory(Struct, frozen=True, kw_only=True):
    """Whether the kernel probably killed the batch or one of its processes for lack of memory, and the evidence."""

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
    """Whether the kernel killed the batch or one of its processes for lack of memory, as far as there is evidence.

    Args:
        end: How the batch ended.
        memory_max_bytes: The peak of the memory in use.
        memory_size_bytes: The limit.
        peak_source: How the peak was measured.
        limit_hits: How often the usage hit the limit. Version 1 of cgroup also counts reclaimed page cache, so alone
            this is not evidence.
        memory_kills: The kills that the kernel counted, which are decisive; None if its counter is unknown.
        may_have_missed_a_kill: Whether the exit code says too little: the usage reached the limit unseen, where a child
            may have been killed, or the batch was restarted after an end that was not seen.
    """
    if memory_kills:
        return OutOfMemory(likely=True, evidence="kernel-counter")
    if end.status == "running" or end.has_vanished:
        return OutOfMemory()
    share = None
    if memory_max_bytes is not None and memory_size_bytes:
        share = memory_max_bytes / memory_size_bytes
    at_limit = _AT_LIMIT_FRACTION_WITH_HITS if limit_hits else _AT_LIMIT_FRACTION
    is_unexplained = end.status != "stopped" and end.exit_code in (None, SIGKILL_EXIT_CODE)
    if is_unexplained and share is not None and share >= at_limit:
        return OutOfMemory(likely=True, evidence="memory-at-limit" if end.exit_code is None else "exit-137-at-limit")
    is_excluded = (
        end.exit_code not in (None, SIGKILL_EXIT_CODE)
        or (peak_source == "kernel" and share is not None and share < _AT_LIMIT_FRACTION)
        or memory_kills == 0
    )
    is_open = may_have_missed_a_kill and memory_kills is None
    return OutOfMemory(likely=False if is_excluded and not is_open else None)

"""The memory peak of a run: what each source saw, how exact that is, and which one counts."""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from msgspec import Struct

from profiler.aggregation.process_tree_usage import GroupPeak, counts_too_little
from profiler.record.record_model import PeakSource

EvidenceSource = Literal[
    "statistics", "group mark", "process mark", "samples", "shared memory", "kernel memory"
]
# "exact": the peak of all processes together, by a mark of the kernel over the whole run.
# "at least": they held so much. "unsure": perhaps they did; it only contradicts exact evidence.
Exactness = Literal["exact", "at least", "unsure"]


class MemoryEvidence(Struct, frozen=True, kw_only=True):
    """What one source saw of the memory of a run's processes.

    All of it is since the start of the run: a mark that began earlier is "unsure".
    """

    source: EvidenceSource
    size_bytes: float
    exactness: Exactness


class MemoryPeak(Struct, frozen=True, kw_only=True):
    """The largest memory use of all processes of the command together, and how it was measured."""

    size_bytes: float | None = None
    source: PeakSource | None = None


def group_evidence(group: GroupPeak, transferred_bytes: int = 0) -> tuple[MemoryEvidence, ...]:
    """The evidence of a control group's high-water mark: none if it has page cache.

    ``transferred_bytes``: what was read and written, which may have been in the page cache.
    """
    if group.size_bytes is None or not group.is_free_of_cache(transferred_bytes):
        return ()
    exactness: Exactness = "at least"
    if group.is_peak_of_processes(transferred_bytes):
        exactness = "exact"
    mark = MemoryEvidence(source="group mark", size_bytes=group.size_bytes, exactness=exactness)
    return (mark,)


def evidence_from(
    source: EvidenceSource, size_bytes: float | None, exactness: Exactness = "at least"
) -> tuple[MemoryEvidence, ...]:
    """The evidence of a value; none if it is unknown."""
    if size_bytes is None:
        return ()
    return (MemoryEvidence(source=source, size_bytes=size_bytes, exactness=exactness),)


def mark_bytes_perhaps_of_files(evidence: Iterable[MemoryEvidence]) -> float:
    """What the mark of a process says that may be pages of files; 0 if it says nothing."""
    marks = [item for item in evidence if item.source == "process mark"]
    return max([mark.size_bytes for mark in marks if mark.exactness == "unsure"], default=0)


def choose_memory_peak(evidence: Iterable[MemoryEvidence]) -> MemoryPeak:
    """The peak by all evidence of a run.

    The first exact evidence that nothing contradicts makes it the kernel's:

    1. the mark of the statistics after the container's end: by nothing;
    2. the group's mark: by notably more memory of the kernel that it may have caused and version 1
       does not count; by no process;
    3. the mark of the only process: by a group's mark above it, and by notably more shared memory
       that it may have made and not mapped, or memory of the kernel that it may have caused.

    Else it is sampled, the largest value that was seen.
    """
    items = tuple(evidence)
    exact = [item for item in items if item.exactness == "exact"]
    for source, is_contradicted in _EXACT_SOURCES:
        for item in exact:
            if item.source == source and not is_contradicted(item, items):
                return MemoryPeak(size_bytes=_kernel_bytes(item, items), source="kernel")
    seen = [item.size_bytes for item in items if item.exactness != "unsure"]
    size_bytes = max(seen, default=None)
    return MemoryPeak(size_bytes=size_bytes, source=None if size_bytes is None else "sampled")


def _kernel_bytes(chosen: MemoryEvidence, items: Sequence[MemoryEvidence]) -> float:
    """The chosen mark, or what the statistics saw: both are at least what was held."""
    of_statistics = [item.size_bytes for item in items if item.source == "statistics"]
    if chosen.source == "statistics":
        of_statistics = []
    return max([chosen.size_bytes, *of_statistics])


def _never_true(_: MemoryEvidence, __: Sequence[MemoryEvidence]) -> bool:
    return False


def _is_always_possible(mark: MemoryEvidence, items: Sequence[MemoryEvidence]) -> bool:
    of_group = [item.size_bytes for item in items if item.source == "group mark"]
    if max(of_group, default=0) > mark.size_bytes:
        return True
    with_shared = [item.size_bytes for item in items if item.source == "shared memory"]
    lacks_shared = counts_too_little(mark.size_bytes, max(with_shared, default=0))
    return lacks_shared or _may_lack_kernel_memory(mark, items)


def _may_lack_kernel_memory(mark: MemoryEvidence, items: Sequence[MemoryEvidence]) -> bool:
    with_kernel = [item.size_bytes for item in items if item.source == "kernel memory"]
    return counts_too_little(mark.size_bytes, max(with_kernel, default=0))


_IsContradicted = Callable[[MemoryEvidence, Sequence[MemoryEvidence]], bool]
_EXACT_SOURCES: tuple[tuple[EvidenceSource, _IsContradicted], ...] = (
    ("statistics", _never_true),
    ("group mark", _may_lack_kernel_memory),
    ("process mark", _is_always_possible),
)

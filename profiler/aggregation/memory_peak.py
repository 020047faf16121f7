"""The memory peak of a run: what each source saw, how exact that is, which one counts, and what the
record says of it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict, replace

from profiler.aggregation.process_tree_usage import GroupPeak, counts_too_little
from profiler.core.optional_math import difference, known_members, max_known
from profiler.readers.memory_usage import is_notable
from profiler.record.measured import Number
from profiler.record.record_model import (
    NOT_MEASURED,
    Distribution,
    Metrics,
    PeakSource,
    Record,
    with_warnings,
)
from profiler.record.task_needs import uncached_peak_mb
from profiler.record.units import MIB, bytes_to_mebibytes, format_memory

EvidenceSource = Literal[
    "statistics", "group mark", "process mark", "samples", "shared memory", "kernel memory"
]
# "exact": the peak of all processes together, by a mark of the kernel over the whole run.
# "at least": they held so much. "unsure": perhaps they did; it only contradicts exact evidence.
Exactness = Literal["exact", "at least", "unsure"]


# The time of the highest sample counts as the time of the peak if the sample reached this part of
# it.
_SAMPLED_PEAK_FRACTION = 0.9
# What a runtime needs for a moment to start a container counts in its group, too.
_MIN_UNSEEN_MB = 32
_PEAK_IS_UNSEEN = (
    "The memory peak may have been {}: the control group's mark has so much beside the page cache "
    "that was seen, so memory or page cache was larger between two samples."
)


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


def with_peak(metrics: Metrics, peak: MemoryPeak, limit_bytes: float | None) -> Metrics:
    """Replace the memory peak of the samples, also as the distributions' maximum; far above
    them, it has no time.
    """
    size_bytes = peak.size_bytes
    percent = None
    if size_bytes is not None and limit_bytes:
        # The kernel lets a process that it kills exceed the limit by less than 1 MiB.
        if limit_bytes < size_bytes < limit_bytes + MIB:
            size_bytes = limit_bytes
        percent = round(100 * size_bytes / limit_bytes, 3)
    peak_mb = bytes_to_mebibytes(size_bytes)
    sampled_mb = metrics.memory_used_mb.max
    bound_mb = metrics.memory_used_bound_mb
    if (bound_mb or 0) <= (peak_mb or 0):
        bound_mb = None
    peak_at: str | None = None
    if peak_mb is not None and sampled_mb is not None:
        is_near = sampled_mb >= _SAMPLED_PEAK_FRACTION * peak_mb
        peak_at = metrics.max_memory_used_at if is_near else None
    return replace(
        metrics,
        max_memory_used_mb=peak_mb,
        max_memory_used_at=peak_at,
        memory_used_bound_mb=bound_mb,
        memory_peak_source=peak.source,
        memory_used_mb=_with_max(metrics.memory_used_mb, peak_mb),
        memory_utilization_percent=_with_max(metrics.memory_utilization_percent, percent),
    )


def _with_max(distribution: Distribution, maximum: float | None) -> Distribution:
    """The distribution with another maximum, which no other of its values exceeds."""
    if distribution is NOT_MEASURED or maximum is None:
        return distribution
    peak = float(maximum)
    known_levels = known_members(asdict(distribution))
    values: dict[str, float] = {name: min(value, peak) for name, value in known_levels.items()}
    values["max"] = peak
    return Distribution(**values)


def unseen_bound_mb(metrics: Metrics, marked_mb: Number | None) -> Number | None:
    """What the control group's mark has beside the page cache, if that is notably above the memory
    of all samples: between two of them, there was more memory, or more page cache.

    ``marked_mb`` is the most that the mark had beside the page cache of the samples before and
    after it rose: if that is unknown, the largest page cache counts.
    """
    if metrics.memory_peak_source != "sampled":
        return None
    if metrics.memory_cache_mb.max is not None:
        marked_mb = max_known(marked_mb, uncached_peak_mb(metrics))
    unseen_mb = difference(marked_mb, metrics.max_memory_used_mb or 0)
    if marked_mb is None or unseen_mb is None or unseen_mb < _MIN_UNSEEN_MB:
        return None
    return marked_mb if is_notable(unseen_mb * MIB, marked_mb * MIB) else None


def with_unseen_peak(record: Record, marked_mb: Number | None) -> Record:
    """The record with a bound, and a warning, where the control group's mark has notably more
    beside the page cache than all samples.
    """
    metrics = record.metrics
    bound_mb = unseen_bound_mb(metrics, marked_mb)
    if bound_mb is None:
        return record
    larger_mb = max_known(metrics.memory_used_bound_mb, bound_mb)
    record = replace(record, metrics=replace(metrics, memory_used_bound_mb=larger_mb))
    return with_warnings(record, (_PEAK_IS_UNSEEN.format(format_memory(bound_mb)),))


def charged_to_limit_bytes(evidence: Iterable[MemoryEvidence], peak: MemoryPeak) -> float | None:
    """The memory that counts for the limit: the peak, or all that the stats had."""
    if peak.size_bytes is None:
        return None
    of_statistics = [item.size_bytes for item in evidence if item.source == "statistics"]
    return max(peak.size_bytes, *of_statistics, 0)

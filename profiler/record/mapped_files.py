"""Pages of files that processes map: what a record says of them, and which peaks compare.

The kernel drops such pages before it kills, so they are not used: ``memoryMappedFileMB`` says them
apart. Records without it count them as used: those of schema 1.3 and earlier, those of Container
Insights, and those of runs that end before all values are read for the first time, whose peak may
be the kernel's alone. Such a peak is the most that was used: it keeps a size from getting smaller,
and is never a reason for a larger one once enough runs say the files apart.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from profiler.record.record_model import Metrics, Record
from profiler.record.units import format_count, format_memory
from profiler.record.unusual import MIN_RUNS

# Less than this, or than this share of the memory used, is the code of any program.
_NOTABLE_MB: Final = 64
_NOTABLE_SHARE: Final = 0.1

INCLUDES_FILES: Final = (
    "include pages of mapped files, as older versions, Container Insights and very short runs "
    "count them"
)

_Run = TypeVar("_Run")


def means_same_memory(metrics: Metrics, other: Metrics) -> bool:
    """Whether the memory used of two runs means the same, if both are known."""
    if not (metrics.has_memory and other.has_memory):
        return True
    return metrics.counts_files == other.counts_files


def mixed_memory_note(records: Sequence[Record]) -> str:
    """A sentence if the memory of some runs may include mapped files, unlike that of others."""
    measured = [one for one in records if one.metrics.has_memory]
    older = sum(one.metrics.counts_files for one in measured)
    if not 0 < older < len(measured):
        return ""
    return f"The memory of {format_count(older, 'run')} may {INCLUDES_FILES}."


def runs_of_one_meaning(runs: Sequence[_Run], do_count: Callable[[_Run], bool]) -> Sequence[_Run]:
    """The runs whose memory counts: those that say mapped files apart, if there are five; until
    then all.

    ``do_count``: whether a run counts mapped files as used.
    """
    apart = [run for run in runs if not do_count(run)]
    return apart if enough_say_files_apart(len(apart)) else runs


def enough_say_files_apart(runs: int) -> bool:
    """Whether so many runs that say mapped files apart count alone."""
    return runs >= MIN_RUNS


def mapped_files_text(metrics: Metrics) -> str:
    """What a run keeps of its files in memory, as the rest of a sentence; "" where it is no more
    than the code of any program.
    """
    files_mb = metrics.mapped_files_mb
    least_mb = max(_NOTABLE_MB, _NOTABLE_SHARE * (metrics.max_memory_used_mb or 0))
    if files_mb is None or files_mb < least_mb:
        return ""
    return (
        f"it also keeps up to {format_memory(files_mb)} of its files in memory (with less memory "
        "it reads them again)"
    )

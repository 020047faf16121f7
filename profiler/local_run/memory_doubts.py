"""Why a command may have needed notably more memory than was seen of it."""

import math
from collections.abc import Iterator

from msgspec import Struct

from profiler.aggregation.container_usage import ContainerUsage
from profiler.aggregation.memory_peak import MemoryPeak
from profiler.aggregation.process_tree_usage import counts_too_little
from profiler.aggregation.record_parts import pinned_memory_warnings
from profiler.core.optional_math import first_known
from profiler.core.timestamps import NS_PER_MS
from profiler.local_run.command_usage import CommandReader, UnreadMemory
from profiler.readers.memory_usage import is_notable
from profiler.record.measured import Number
from profiler.record.units import MIB, bytes_to_mebibytes, format_duration, format_memory

_MEMORY_IS_UNSURE = (
    "The memory peak may have been {} or more: how many pages the processes share or map again "
    "could not be read often enough."
)
_MAPPED_MEMORY_IS_UNSURE = (
    "The memory peak may have been {}: a process mapped more than the readings show, and it is "
    "unknown how much of that is pages of files or the same pages again."
)
_SHARED_MEMORY_IS_UNSURE = (
    "The memory peak may have been {}, and the average is a lower bound: files in memory (tmpfs, "
    "/dev/shm) and shared memory grew during the run, and it is unknown which program made them."
)
_SHARED_MEMORY_IS_IN_SWAP = (
    "The memory peak may have been {}, and the average is a lower bound: files in memory (tmpfs, "
    "/dev/shm) and shared memory grew during the run, and so did the machine's memory in swap, "
    "perhaps by them."
)
_ALL_MEMORY_IS_UNSURE = (
    "The memory peak may have been {}, and the average is a lower bound: the memory of the sandbox "
    "grew during the run by more than the processes have, such as shared memory that none of them "
    "maps, perhaps by other programs."
)
_AVERAGE_IS_UNSURE = (
    "The average memory use may have been {}: shared memory grew during the run, and it is unknown "
    "which program made it."
)
_AVERAGE_IS_AN_ESTIMATE = (
    "The average memory use may be up to {} too high or too low: the memory could not be read for "
    "{}."
)
_KERNEL_MEMORY_IS_UNSURE = (
    "The memory peak may have been {}, and the average is a lower bound: the machine's kernel "
    "memory grew during the run, such as socket queues, packet rings and pipes, perhaps by other "
    "programs."
)
_MEMORY_IS_IN_SWAP = (
    "Up to {} of the processes' memory was in swap: the memory values do not include it."
)
_MEMORY_IS_MERGED = (
    "The memory peak may be {} on a machine that does not merge equal pages (KSM), and here once "
    "the processes write to them: the control group counts a merged page once."
)
_LOCKED_FILES_ARE_SHARED = (
    "The memory peak may have been {}: the processes locked pages of files that other programs "
    "hold, too, or that another control group read first."
)
_MERGED_COUNTS = (
    "The kernel merged up to {} of the processes' memory with equal pages (KSM): the memory values "
    "count it as if it was not merged, which is what the command needs elsewhere."
)
_HUGE_PAGES_ARE_UNSURE = (
    "Up to {} of huge pages were taken during the run that none of its processes mapped, perhaps "
    "by other programs: the memory values do not include them."
)
_MEMORY_IS_HELD_DOWN = (
    "The memory peak may be too low: a control group holds the command down at {} (memory.high), "
    "which the peak has nearly reached."
)
# Of that limit: the kernel takes memory away in steps.
_HELD_DOWN_SHARE = 0.9
_PROCESSES_ARE_HIDDEN = (
    "The memory peak and average are lower bounds: /proc hides processes of another user from "
    "this one (mount option hidepid)."
)


class MemoryDoubts(Struct, frozen=True, kw_only=True):
    """One sentence for each reason, and the most that the command may have needed, by all doubts
    that know it. ``unread``: a sentence if only the average is in doubt. ``notes`` say what the
    values mean, and hold no advice back.
    """

    sentences: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    bound_mb: Number | None = None


def memory_doubts(
    peak: MemoryPeak,
    usage: ContainerUsage,
    command: CommandReader,
    *,
    finished_ns: int,
    counts_hidden: bool,
    marked_bytes: float = 0,
    throttling_limit_bytes: int | None = None,
) -> MemoryDoubts:
    """The doubts about a peak. ``counts_hidden``: hidden processes are counted, too.
    ``finished_ns`` is by the clock of the samples. ``marked_bytes``: by the marks, unsurely.
    ``throttling_limit_bytes``: where the kernel makes the command's processes wait for memory.
    """
    bounds = list(_notable_bounds(peak, command, marked_bytes))
    sentences = tuple(sentence for _, sentence in bounds)
    if (peak.size_bytes or 0) >= _HELD_DOWN_SHARE * first_known(throttling_limit_bytes, math.inf):
        limit = format_memory((throttling_limit_bytes or 0) / MIB)
        sentences += (_MEMORY_IS_HELD_DOWN.format(limit),)
    bound_mb = bytes_to_mebibytes(max((bound_bytes for bound_bytes, _ in bounds), default=None))
    most_bytes = max(peak.size_bytes or 0, command.shared_bound_bytes or 0)
    of_average = _average_doubts(usage, command.average_bound_bytes, most_bytes)
    command.unread_memory.add_size(finished_ns, 0)
    unread = _unread_doubts(usage, command.unread_memory)
    notes = tuple(_merged_notes(peak, command))
    if peak.source != "sampled":
        return MemoryDoubts(
            sentences=sentences + of_average, unread=unread, notes=notes, bound_mb=bound_mb
        )
    sentences += pinned_memory_warnings(usage)
    if not sentences:  # else they say it
        sentences = of_average or unread
    if command.has_hidden_processes and not counts_hidden:
        sentences += (_PROCESSES_ARE_HIDDEN,)
    return MemoryDoubts(sentences=sentences, notes=notes, bound_mb=bound_mb)


def _notable_bounds(
    peak: MemoryPeak, command: CommandReader, marked_bytes: float
) -> Iterator[tuple[float, str]]:
    """How much the command may have needed, where that is notably more than the peak, and why."""
    peak_bytes = peak.size_bytes or 0
    swap_bytes = command.swap_peak_bytes
    if counts_too_little(peak_bytes, peak_bytes + swap_bytes):
        sentence = _MEMORY_IS_IN_SWAP.format(format_memory(swap_bytes / MIB))
        yield peak_bytes + swap_bytes, sentence
    huge_bytes = command.huge_pages_bound_bytes
    if counts_too_little(peak_bytes, peak_bytes + huge_bytes):
        sentence = _HUGE_PAGES_ARE_UNSURE.format(format_memory(huge_bytes / MIB))
        yield peak_bytes + huge_bytes, sentence
    merged_bytes = command.merged_bound_bytes
    if counts_too_little(peak_bytes, merged_bytes):
        yield merged_bytes, _MEMORY_IS_MERGED.format(format_memory(merged_bytes / MIB))
    locked_bytes = command.locked_bound_bytes
    if counts_too_little(peak_bytes, locked_bytes):
        yield locked_bytes, _LOCKED_FILES_ARE_SHARED.format(format_memory(locked_bytes / MIB))
    if peak.source != "sampled":
        return
    shared_is_unsure = _SHARED_MEMORY_IS_UNSURE
    if not command.tells_shared_memory:
        shared_is_unsure = _ALL_MEMORY_IS_UNSURE
    elif counts_too_little(peak_bytes, peak_bytes + command.shared_swapped_bytes):
        shared_is_unsure = _SHARED_MEMORY_IS_IN_SWAP
    for bound_bytes, sentence in (
        (command.memory_bound_bytes, _MEMORY_IS_UNSURE),
        (marked_bytes, _MAPPED_MEMORY_IS_UNSURE),
        (command.shared_bound_bytes or 0, shared_is_unsure),
        (command.kernel_bound_bytes, _KERNEL_MEMORY_IS_UNSURE),
    ):
        if counts_too_little(peak_bytes, bound_bytes):
            yield bound_bytes, sentence.format(format_memory(bound_bytes / MIB))


def _merged_notes(peak: MemoryPeak, command: CommandReader) -> Iterator[str]:
    """That notable merged memory counts, where no group counts each page once."""
    merged_bytes = command.merged_peak_bytes
    if not command.merged_bound_bytes and is_notable(merged_bytes, peak.size_bytes or 0):
        yield _MERGED_COUNTS.format(format_memory(merged_bytes / MIB))


def _average_doubts(
    usage: ContainerUsage, unassigned_bytes: float, most_bytes: float
) -> tuple[str, ...]:
    """Why the average may be too low, although the peak is right: a segment of shared memory that
    its maker has filled, and left. No average is above ``most_bytes``.
    """
    average_bytes = usage.run.memory_bytes.distribution().avg or 0.0
    bound_bytes = min(average_bytes + unassigned_bytes, most_bytes)
    if not counts_too_little(average_bytes, bound_bytes):
        return ()
    return (_AVERAGE_IS_UNSURE.format(format_memory(bound_bytes / MIB)),)


def _unread_doubts(usage: ContainerUsage, unread: UnreadMemory) -> tuple[str, ...]:
    """That a reading counts for a long time before it, in which the memory became another one, or
    that none does for the time before the end.
    """
    average_bytes = usage.run.memory_bytes.distribution().avg or 0.0
    known_ns = max(usage.run.memory_bytes.weight_ns, unread.unread_ns, 1)
    doubt_bytes = unread.byte_ns / known_ns
    if not counts_too_little(average_bytes, average_bytes + doubt_bytes):
        return ()
    return (
        _AVERAGE_IS_AN_ESTIMATE.format(
            format_memory(doubt_bytes / MIB), format_duration(unread.unread_ns / NS_PER_MS)
        ),
    )

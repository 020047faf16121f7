"""Finds processes that use their parent's memory: from a vfork, as of posix_spawn, until they
execute a program. The kernel counts that memory in full for both.
"""

from collections.abc import Sequence

from profiler.readers.linux import proc


def has_parents_memory(pid: int, parent_pid: int) -> bool:
    """Whether a forked process has no memory of its own yet, or meanwhile another program's.

    A fork's differs: it begins without the pages of files.
    """
    before = read_statm_pages(parent_pid)
    sizes = read_statm_pages(pid)
    if are_sizes_between(sizes, before, read_statm_pages(parent_pid)):
        return True
    return not proc.read_stat(f"/proc/{pid}").is_forked


def shares_parents_memory(pid: int, parent_pid: int, proc_folder: str) -> bool:
    """Whether a child uses its parent's memory, by their sizes; the parent does not run."""
    sizes = read_statm_pages(pid, proc_folder)
    return bool(sizes) and sizes == read_statm_pages(parent_pid, proc_folder)


def are_sizes_between(sizes: Sequence[int], before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether these sizes can be those of the process whose sizes were read just before and just
    after: its other threads may allocate memory meanwhile.
    """
    if not sizes or not before or not after:
        return False
    return all(
        min(first, last) <= size <= max(first, last)
        for first, size, last in zip(before, sizes, after, strict=True)
    )


def read_statm_pages(pid: int, proc_folder: str = "/proc") -> tuple[int, ...]:
    """``/proc/PID/statm``, in pages; empty after the end of the process."""
    words = (proc.read_or_none(f"{proc_folder}/{pid}/statm") or b"").split()
    return tuple([int(word) for word in words])

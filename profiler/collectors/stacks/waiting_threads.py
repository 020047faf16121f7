"""Which threads of a process wait, for Python up to 3.10, whose thread ids are not those of the kernel.

There a thread's id is the address of its thread structure, which the C library keeps at the upper end of the thread's
stack. The kernel shows the stack pointer of every thread that waits, so the nearest structure above it is the thread's.
Without this, each waiting thread of such a Python would count as running.
"""

from bisect import bisect_right
from collections.abc import Collection

from profiler.readers.linux import proc

# Less than the usual size of a stack: beyond it lies the stack of another thread.
_MAX_DEPTH_BYTES = 1024 * 1024
_STACK_POINTER = -2


def waiting_thread_ids(pid: int, thread_ids: Collection[int], main_id: int | None) -> frozenset[int] | None:
    """Those of the threads that wait; None if the kernel does not show it. ``main_id`` is the main thread's id."""
    structures = sorted(thread_ids)
    waiting: set[int] = set()
    is_readable = False
    for tid in proc.all_pids(f"/proc/{pid}/task"):
        text = proc.read(f"/proc/{pid}/task/{tid}/syscall")
        if text is None:
            continue
        is_readable = True
        pointer = stack_pointer(text)
        if pointer is None:
            continue
        if tid == pid:
            if main_id is not None:
                waiting.add(main_id)  # its structure is not on its stack
            continue
        above = bisect_right(structures, pointer)
        if above < len(structures) and structures[above] - pointer <= _MAX_DEPTH_BYTES:
            waiting.add(structures[above])
    return frozenset(waiting) if is_readable else None


def stack_pointer(syscall: bytes) -> int | None:
    """The stack pointer in ``/proc/PID/task/TID/syscall``; None if the thread runs."""
    words = syscall.split()
    try:
        return int(words[_STACK_POINTER], 16) if len(words) > 2 else None  # noqa: PLR2004  number, pointer, address
    except ValueError:
        return None

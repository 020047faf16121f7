"""Holds 100 MiB of memory in a way that the RSS counts several times, or not at all.

Arguments: the way, the seconds that it holds them at least, and what the way needs. It holds them
for three quarters of its life at least, and until a profiler above it has looked some times,
however slow the machine is.
"""

import ctypes
import mmap
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SIZE = 100 << 20
_PAGE = 4096
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def _touch(view: mmap.mmap, value: int = 1, size: int = SIZE) -> None:
    for place in range(0, size, _PAGE):
        view[place] = value


def views(times: str) -> object:
    """A memory file that is mapped several times: Java's ZGC, .NET's code, a ring buffer."""
    memory = os.memfd_create("pages")
    os.ftruncate(memory, SIZE)
    mapped = [mmap.mmap(memory, SIZE) for _ in range(int(times))]
    for view in mapped:
        _touch(view)
    return mapped


def segment(times: str) -> object:
    """A System V segment that is attached several times."""
    libc = ctypes.CDLL(None)
    libc.shmat.restype = ctypes.c_void_p
    identity = libc.shmget(0, ctypes.c_size_t(SIZE), 0o1600)
    addresses = [ctypes.c_void_p(libc.shmat(identity, None, 0)) for _ in range(int(times))]
    libc.shmctl(identity, 0, None)  # it goes with its last process
    for address in addresses:
        ctypes.memset(address, 1, SIZE)
    return addresses


def file(times: str, path: str) -> object:
    """Several views of one file: the kernel can drop its pages."""
    descriptor = os.open(path, os.O_RDONLY)
    mapped = [mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) for _ in range(int(times))]
    for view in mapped:
        sum(view[place] for place in range(0, len(view), _PAGE))
    return mapped


def locked(path: str) -> object:
    """A file that is locked in memory: the kernel cannot drop its pages."""
    descriptor = os.open(path, os.O_RDWR)
    view = mmap.mmap(descriptor, 0)
    address = ctypes.addressof(ctypes.c_char.from_buffer(view))
    if ctypes.CDLL(None).mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(view))):
        sys.exit("the kernel refuses to lock the file")
    return view


def forks(count: str, copied_mib: str) -> object:
    """Forks that share anonymous memory, of which each copies a part."""
    held = mmap.mmap(-1, SIZE, flags=_PRIVATE)
    _touch(held)
    _fork(int(count), lambda: _touch(held, 2, int(copied_mib) << 20))
    return held


def shared(count: str) -> object:
    """Forks that map the same shared memory."""
    held = mmap.mmap(-1, SIZE)
    _touch(held)
    _fork(int(count), lambda: _touch(held, 2))
    return held


def threads(count: str) -> object:
    """Threads that write to the same memory."""
    held = mmap.mmap(-1, SIZE, flags=_PRIVATE)
    for _ in range(int(count)):
        threading.Thread(target=_touch, args=(held,)).start()
    return held


@contextmanager
def _profiler_stopped(readings: str) -> Iterator[None]:
    """The profiler is stopped after it has woken up so often."""
    _wait_for_readings(int(readings))
    profiler = _profiler()
    if profiler is None:
        sys.exit("no profiler is above this process")
    os.kill(profiler, signal.SIGSTOP)
    try:
        _wait_until_stopped(profiler)
        yield
    finally:
        os.kill(profiler, signal.SIGCONT)


def unseen(times: str, readings: str) -> None:
    """A memory file that is mapped several times and gone before the next reading."""
    with _profiler_stopped(readings):
        memory = os.memfd_create("pages")
        os.ftruncate(memory, SIZE)
        mapped = [mmap.mmap(memory, SIZE) for _ in range(int(times))]
        os.close(memory)
        for view in mapped:
            _touch(view)
        for view in mapped:
            view.close()


def unseen_file(path: str, readings: str) -> None:
    """A file that is written as a mapping and deleted before the next reading."""
    with _profiler_stopped(readings):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        os.ftruncate(descriptor, SIZE)
        with mmap.mmap(descriptor, SIZE) as view:
            _touch(view)
        os.close(descriptor)
        Path(path).unlink()


# The forks end when these are closed.
_ends: list[int] = []


def _fork(count: int, act: Callable[[], None]) -> None:
    """All of them act, and hold what they have until the end."""
    ready, tells_ready = os.pipe()
    end, tells_end = os.pipe()
    for _ in range(count):
        if os.fork() == 0:
            os.close(tells_end)
            act()
            os.write(tells_ready, b".")
            os.read(end, 1)
            os._exit(0)
    for _ in range(count):
        os.read(ready, 1)
    _ends.append(tells_end)


def _lived_seconds() -> float:
    began_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    uptime_seconds = float(Path("/proc/uptime").read_text().split()[0])
    return uptime_seconds - began_ticks / os.sysconf("SC_CLK_TCK")


def _profiler() -> int | None:
    """The process of `run` that is above this one."""
    profiler = os.getppid()
    while b"run" not in Path(f"/proc/{profiler}/cmdline").read_bytes().split(b"\0"):
        profiler = int(Path(f"/proc/{profiler}/stat").read_text().rpartition(")")[2].split()[1])
        if profiler <= 1:
            return None
    return profiler


def _wait_until_stopped(pid: int) -> None:
    """All threads of a process; a signal acts on each at its next return from the kernel."""
    end = time.monotonic() + 900
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        while stat.read_text().rpartition(")")[2].split()[0] != "T":
            if time.monotonic() > end:
                sys.exit("the profiler does not stop")
            time.sleep(0.02)


def _wait_for_readings(count: int) -> None:
    """Until `run`, if it is above this process, has woken up so often."""
    profiler = _profiler()
    if profiler is None:
        return
    status = Path(f"/proc/{profiler}/status")

    def wake_ups() -> int:
        return int(status.read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0])

    last, end = wake_ups() + count, time.monotonic() + 900
    while wake_ups() < last:
        if time.monotonic() > end:
            sys.exit(f"the profiler has not woken up {count} times")
        time.sleep(0.02)


WAYS = {
    way.__name__: way
    for way in (views, segment, file, locked, forks, shared, threads, unseen, unseen_file)
}

if __name__ == "__main__":
    held = WAYS[sys.argv[1]](*sys.argv[3:])
    holds_from = _lived_seconds()
    holds_until = holds_from + max(float(sys.argv[2]), 3 * holds_from)
    _wait_for_readings(20)
    time.sleep(max(holds_until - _lived_seconds(), 0))
    for number in _ends:
        os.close(number)
    with suppress(ChildProcessError):
        while True:
            os.wait()

"""What a program knows about its own time: each thread times its phases and writes them down.

Only the standard library, because the programs of this folder run in several environments. A phase
of a thread is a kind of wait, its begin and end by the monotonic clock, and the nanoseconds in
between that the thread was on a CPU, and that it waited for one. The kind ``any`` is not known.
Of ``others``, for whose work the thread waits, only the time on a CPU or waiting for one counts. In
``python``, a thread of the process holds the interpreter. ``tests/true_parts.py`` makes the true
parts of a run of the phases of all its threads.
"""

import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# The folder into which the processes of a run write their phases.
FOLDER = "TIMED_PHASES"
SINCE_NS = "TIMED_SINCE_NS"

_START_TICKS = 19  # in /proc/self/stat, counted from the state

_written_down: list[list[object]] = []


class _ThreadClock(threading.local):
    """How long the calling thread was on a CPU, and has waited for one."""

    def __init__(self) -> None:
        self._counters = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self.ended: tuple[int, int, int] | None = None

    def read(self) -> tuple[int, int, int]:
        now_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns()
        return now_ns, cpu_ns, int(os.pread(self._counters, 64, 0).split()[1])


_clock = _ThreadClock()


@contextlib.contextmanager
def phase(kind: str) -> Iterator[None]:
    """Time a phase of the calling thread, which waits for this while it is not on a CPU."""
    before = _clock.read()
    if _clock.ended is not None:
        _add_between("others", _clock.ended, before)
    try:
        yield
    finally:
        after = _clock.read()
        _add_between(kind, before, after)
        if _clock.ended is not None:
            _clock.ended = after


def time_all() -> None:
    """From now on, the calling thread's time between its phases counts as a wait for others."""
    _clock.ended = _clock.read()


def time_whole(work: Callable[[], object]) -> None:
    """Do the work; what of the calling thread's time is in no phase counts as a wait for others."""
    time_all()
    work()
    with phase("others"):
        pass


def fork_child(work: Callable[[], object]) -> int:
    """Do the work in a child, which writes its phases down; returns its process id."""
    pid = os.fork()
    if pid == 0:
        forget()
        time_whole(work)
        write_down()
        os._exit(0)
    return pid


def run_child(kind: str, *command: str, reads_output: bool = False) -> None:
    """Time a child without threads and children, which waits for this while it is not on a CPU."""
    before = _clock.read()
    output = subprocess.PIPE if reads_output else subprocess.DEVNULL
    with subprocess.Popen(command, stdout=output) as child:
        if child.stdout is not None:
            child.stdout.read()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # its counters are still there
        counters = Path(f"/proc/{child.pid}/schedstat").read_text().split()
    _add(kind, before, int(counters[0]), int(counters[1]))


def begin_phase() -> tuple[int, int, int]:
    """Begin a phase of which only its end tells the kind: see :func:`add_phase`."""
    return _clock.read()


def add_phase(kind: str, begin: tuple[int, int, int]) -> None:
    """Add a phase of the calling thread that ends now."""
    _add(kind, begin)


def _add(kind: str, before: tuple[int, int, int], used_ns: int = 0, waited_ns: int = 0) -> None:
    ended_ns, cpu_ns, wait_ns = _clock.read()
    _add_between(kind, before, (ended_ns, cpu_ns + used_ns, wait_ns + waited_ns))


def _add_between(kind: str, before: tuple[int, int, int], after: tuple[int, int, int]) -> None:
    used_ns, waited_ns = after[1] - before[1], after[2] - before[2]
    thread = threading.get_native_id()
    _written_down.append([kind, before[0], after[0], used_ns, waited_ns, thread])


def started() -> None:
    """Count the time from the start of this process until now, which has only one thread yet."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[_START_TICKS])
    age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * 1_000_000_000 // os.sysconf(
        "SC_CLK_TCK"
    )
    # A program that became this one has timed itself until then.
    began_ns = max(time.monotonic_ns() - age_ns, int(os.environ.get(SINCE_NS, "0")))
    _add("any", (began_ns, 0, 0))


def compute(seconds: float, kind: str = "any") -> None:
    """Use this much CPU time. The rest is time of Python's lock, in which other threads run."""
    with phase(kind):
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass


def sleep(seconds: float) -> None:
    with phase("sleep"):
        time.sleep(seconds)


def rounds(seconds: float) -> Iterator[None]:
    """Begin rounds until this time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield


def forget() -> None:
    """In a new child: the phases so far are its parent's."""
    global _clock  # noqa: PLW0603 -- the thread of a fork has a clock of its own
    _written_down.clear()
    _clock = _ThreadClock()


def write_down() -> None:
    """Write the phases of this process, before it ends or becomes another program."""
    name = f"{os.getpid()}-{time.monotonic_ns()}.json"
    Path(os.environ[FOLDER], name).write_text(json.dumps(_written_down))

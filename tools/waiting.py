"""Waits for a condition, with a deadline and a description of what is waited for."""

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

# What a test waits at most for what will come. A busy machine keeps a process waiting for more than
# a minute: the wait ends with the event, and the limit is for what hangs.
LIMIT_SECONDS = 900.0

# For a profiled program: it waits, however slow the machine is, until the profiler has woken up for
# some readings. A program whose parent is not the profiler has the profiler's process ID in
# PROFILER. What it has now it holds for three quarters of its life, if that is asserted of a median.
READINGS = """
import os, time
profiler = os.environ.get("PROFILER", os.getppid())
def wait_for_readings(count):
    def wake_ups():
        with open(f"/proc/{profiler}/status") as file:
            return int(file.read().partition("voluntary_ctxt_switches:")[2].split()[0])
    last, end = wake_ups() + count, time.monotonic() + 900
    while wake_ups() < last:
        assert time.monotonic() < end, f"the profiler has not woken up {count} times"
        time.sleep(0.02)
def hold_for_most(count=10):
    with open("/proc/self/stat") as stat, open("/proc/uptime") as uptime:
        began_ticks = int(stat.read().rpartition(")")[2].split()[19])
        lived_seconds = float(uptime.read().split()[0]) - began_ticks / os.sysconf("SC_CLK_TCK")
    wait_for_readings(count)
    time.sleep(3 * lived_seconds)
"""

# For a profiled program whose memory stays as it is now: it waits, however slow the machine is,
# until somebody else has read one of its files so often, such as the processes' `status`, or the
# control group's `memory.stat`. The first reading may have begun before. The kernel watches an inode:
# while nobody has the file open, it may forget the one of a file in /proc to have its memory back,
# and the next reader gets another one that is not watched.
READINGS_OF_FILES = """
import ctypes, os, select, time
def wait_until_read(path, count=2, seconds=1700):
    library = ctypes.CDLL(None)
    notices = library.inotify_init()
    kept_open = os.open(path, os.O_RDONLY)
    assert library.inotify_add_watch(notices, path.encode(), 1) > 0, path
    poll, end = select.poll(), time.monotonic() + seconds
    poll.register(notices, select.POLLIN)
    for _ in range(count):
        if not poll.poll(1000 * max(end - time.monotonic(), 0)):
            raise SystemExit(f"nobody has read {path} {count} times in {seconds} s")
        os.read(notices, 65536)
    os.close(notices)
    os.close(kept_open)
"""


class WaitTimeoutError(AssertionError):
    """What was waited for did not happen in time; an assertion, so that a test fails and does
    not err.
    """


def wait_until(
    predicate: Callable[[], T | None],
    what: str,
    step_seconds: float = 0.02,
    seconds: float = LIMIT_SECONDS,
) -> T:
    """Return the first truthy answer of `predicate`; when `seconds` have passed, raise "waited N
    s for `what`".
    """
    deadline = time.monotonic() + seconds
    while True:
        answer = predicate()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            raise WaitTimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(step_seconds)


def remove_group(group: Path) -> None:
    """Remove a control group when its processes have ended; one that was waited for may keep it
    busy for a moment.
    """

    def is_removed() -> bool:
        with suppress(OSError):
            group.rmdir()
        return not group.exists()

    wait_until(is_removed, f"{group} to be free")


def has_signal_handler(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler for a signal, which may be lost before."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")), 0)
    return bool(caught & (1 << (number - 1)))

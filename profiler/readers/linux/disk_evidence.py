"""Whether a thread in an uninterruptible sleep waits for a disk, by what every user can read.

A frozen group, a parent in vfork and a wait for memory have the same state. Where the kernel counts
the waits of each thread for a disk (up to Linux 5.13, later by ``kernel.task_delayacct``), these
say it of a wait that is over. Else it is what the machine's threads wait for.
"""

import os

from msgspec import Struct

from profiler.readers.linux import proc
from profiler.readers.linux.cpu_pressure import parse_pressure_ns
from profiler.readers.linux.thread_counters import FollowedThread
from profiler.readers.linux.vforked import shares_parents_memory

# If the machine's threads waited for disks for a smaller part of the time, sleeps that came and
# went were hardly such waits.
_MIN_PART = 0.02
# Of ``/proc/PID/task/TID/stat``, after the name.
_MAJOR_FAULTS, _DISK_TICKS = 9, 39
_IOWAIT = 5  # of the first line of ``/proc/stat``


class _MachineWaits(Struct, frozen=True):
    """For how long threads of the machine waited for a disk up to ``read_ns``, summed over the
    CPUs; None if the kernel does not count this. ``are_any``: some wait at this moment.
    """

    read_ns: int
    waited_ns: int | None
    are_any: bool


class DiskEvidence:
    """What speaks for a wait for a disk.

    ``/proc/stat`` says how many threads wait at this moment, which misses those of microseconds;
    the pressure of the machine, for how long any of them did.
    """

    def __init__(self, proc_folder: str) -> None:
        self._folder = proc_folder
        self._before: _MachineWaits | None = None  # as of an earlier look
        self._now: _MachineWaits | None = None  # as of this look, if it was read
        self._now_ns = 0
        self._counts_threads = False

    def begin_look(self, now_ns: int) -> None:
        """Begin a look; the first one reads with what the machine's counters begin."""
        self._now_ns = now_ns
        if self._now is not None:
            self._before, self._now = self._now, None
        elif self._before is None:
            self._before = self._read_machine()

    def shows_wait(self, pid: int, thread: FollowedThread) -> bool:
        """Whether anything speaks for a disk, and no vfork against it, now that the thread of this
        process sleeps uninterruptibly.
        """
        return self._may_be_disk(thread) and not self._is_in_vfork(pid, thread)

    def _is_in_vfork(self, pid: int, thread: FollowedThread) -> bool:
        """Whether a child of the thread has not executed a program yet; it may block no signal."""
        children = proc.parse_child_pids(proc.read_or_none(f"{thread.path}/children") or b"")
        return any(shares_parents_memory(child, pid, self._folder) for child in children)

    def _may_be_disk(self, thread: FollowedThread) -> bool:
        """Whether anything speaks for a disk.

        While a thread waits for a disk and does not run, the machine has such a wait at each look.
        """
        if not thread.is_stale:
            return self._read_now().are_any
        marks = _disk_marks(thread)
        before, thread.disk_marks = thread.disk_marks, marks
        self._counts_threads = self._counts_threads or marks[1] > 0
        if before is not None and marks != before:
            return True
        now = self._read_now()
        is_counted = self._counts_threads and before is not None
        return now.are_any or (not is_counted and self._has_machine_waited(now))

    def _read_now(self) -> _MachineWaits:
        if self._now is None:
            self._now = self._read_machine()
        return self._now

    def _has_machine_waited(self, now: _MachineWaits) -> bool:
        before = self._before
        if before is None or before.waited_ns is None or now.waited_ns is None:
            return False
        least_ns = _MIN_PART * (now.read_ns - before.read_ns)
        return now.waited_ns - before.waited_ns > least_ns

    def _read_machine(self) -> _MachineWaits:
        stat = proc.read_or_none(f"{self._folder}/stat") or b""
        pressure = proc.read_or_none(f"{self._folder}/pressure/io") or b""
        waited_ns = parse_pressure_ns(pressure)
        if waited_ns is not None:  # a mean over the CPUs
            waited_ns *= os.cpu_count() or 1
        else:
            words = stat.partition(b"\n")[0].split()
            if len(words) > _IOWAIT:
                waited_ns = int(words[_IOWAIT]) * proc.ns_per_tick()
        are_any = (proc.number_after(stat, b"procs_blocked ") or 0) > 0
        return _MachineWaits(self._now_ns, waited_ns, are_any)


def _disk_marks(thread: FollowedThread) -> tuple[int, int]:
    """The thread's major page faults, and its ticks of waits for a disk that are over; 0 if they
    are not counted.
    """
    thread.read_state()
    fields = thread.state_text[thread.state_text.rfind(b")") + 1 :].split()
    if len(fields) <= _DISK_TICKS:
        return (0, 0)
    return int(fields[_MAJOR_FAULTS]), int(fields[_DISK_TICKS])

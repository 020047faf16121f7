"""The processes whose threads are read now: which have begun, run or ended, by the readings of all
of them, and by the CPU clock of each between two readings.
"""

import os
from collections.abc import Callable, Collection, Mapping
from itertools import zip_longest

from msgspec.structs import replace

from profiler.readers.linux.look import ProcessSeen
from profiler.readers.linux.process_threads import ProcessThreads
from profiler.readers.linux.process_tree import ProcessReading
from profiler.readers.linux.reading_turns import AsleepReadings
from profiler.readers.linux.thread_counters import ReadingNumberAndTime, ThreadFiles
from profiler.readers.linux.wait_reader import ENDED, STOPPED_STATES

# The CPU time of a process; None if it has ended.
CpuClock = Callable[[int, None], int | None]


class WatchedProcesses:
    """The processes that are followed, ``by_pid``, from ``folder``, which is ``/proc``.

    ``files`` opens those of their threads. ``readings`` are as of the last call of :meth:`follow`,
    at which none has begun or ended if it ``is_steady``. ``changed`` are those whose threads may
    have run since all of these were known last. ``ended_threads`` are those of the processes that
    have ended since the last look.
    """

    def __init__(self, proc_folder: str, cpu_clock: CpuClock) -> None:
        self.folder = proc_folder
        self.files = ThreadFiles()
        self._cpu_clock = cpu_clock
        self.by_pid: dict[int, ProcessThreads] = {}
        self.readings: Collection[ProcessReading] = ()
        self.changed: dict[int, ProcessThreads] = {}
        self.ended_threads: list[int] = []
        self._read_ended_ns = 0
        self.is_steady = False
        self._shown: Mapping[int, ProcessSeen] = {}  # as they are now if it is_shown
        self._is_shown = False

    def follow(
        self,
        readings: Collection[ProcessReading],
        asleep: AsleepReadings,
        last: ReadingNumberAndTime,
    ) -> list[ProcessThreads]:
        """Follow these processes, as of a reading of all of them; returns those that have ended
        since the reading before. Since the look ``last``, some readings found all ``asleep``.
        """
        still = last
        if asleep.readings:
            still = ReadingNumberAndTime(last.number, asleep.at_ns)
        known = self.by_pid
        count = len(known)
        ended: list[ProcessThreads] = []
        before_this = self.readings
        self.readings = readings
        for reading, before, between in zip_longest(readings, before_this, asleep.processes):
            # The reader of another container's processes returns an unchanged one again, mostly in
            # the same place.
            if reading is before or reading is None:
                continue
            process = known.get(reading.pid)
            if process is None or process.started_ticks != reading.started_ticks:
                if process is not None:
                    ended.append(self._end(process))
                self.add(reading, still).clock_ns = reading.own_cpu_ns
                count = 0
            elif process.reading is not reading:
                is_still = between is before is process.reading
                self._note_change(process, reading, still if is_still else last)
        if len(known) > len(readings):
            self._is_shown = False
            for pid in known.keys() - {reading.pid for reading in readings}:
                ended.append(self._end(known.pop(pid)))
        self.is_steady = len(known) == count
        return ended

    def add(self, reading: ProcessReading, last: ReadingNumberAndTime) -> ProcessThreads:
        """Follow a process that began after ``last``."""
        process = ProcessThreads(reading, reading.started_ticks, last)
        process.thread_count = reading.threads
        process.state = reading.state
        self.by_pid[reading.pid] = self.changed[reading.pid] = process
        self._is_shown = False
        return process

    def _note_change(
        self, process: ProcessThreads, reading: ProcessReading, last: ReadingNumberAndTime
    ) -> None:
        before = process.reading
        process.reading = reading
        process.thread_count = reading.threads
        if (
            before.parent_pid != reading.parent_pid
            or before.children_cpu_ns != reading.children_cpu_ns
        ):
            self._is_shown = False
        state = reading.state
        if process.state != state:
            was_stopped = process.state in STOPPED_STATES
            process.state = state
            if was_stopped != (state in STOPPED_STATES):
                for thread in process.threads.values():
                    thread.is_stale = True
        if (
            reading.own_cpu_ns != process.clock_ns
            or state != before.state
            or reading.threads != before.threads
        ):
            process.has_run = True
            process.clock_ns = reading.own_cpu_ns
        if process.has_run and reading.pid not in self.changed:
            self.changed[reading.pid] = process
            process.still_at = last

    def note_those_that_ran(self, last: ReadingNumberAndTime, *, sees_calls: bool) -> None:
        """Note the processes that have run since the ``last`` look, by their CPU clocks."""
        for pid, process in self.by_pid.items():
            clock_ns = self._cpu_clock(pid, None)
            if clock_ns is not None and not sees_calls:
                self._note_present_state(process, clock_ns, last)
                continue
            if clock_ns == process.clock_ns and clock_ns is not None:
                continue
            process.clock_ns = clock_ns
            process.thread_count = self._current_thread_count(process)
            process.has_run = True
            if pid not in self.changed:
                self.changed[pid] = process
                process.still_at = last

    def _note_present_state(
        self, process: ProcessThreads, clock_ns: int, last: ReadingNumberAndTime
    ) -> None:
        """Note whether a process with one thread has run, and its state, which is all that is known
        of its wait, as if both had been read with the processes.
        """
        first = process.threads.get(process.reading.pid)
        if first is None:
            return  # it is new
        state = first.read_state()
        before = process.reading
        if (before.own_cpu_ns, before.state) == (clock_ns, state.letter):
            return
        reading = replace(
            before,
            own_cpu_ns=clock_ns,
            state=state.letter,
            blocks_signals=state.blocks_signals,
            shows_function=state.shows_function,
        )
        self._note_change(process, reading, last)

    def _current_thread_count(self, process: ProcessThreads) -> int:
        """The present number of a process's threads: it has a folder for each; as before if it
        has ended.
        """
        path = f"{self.folder}/{process.reading.pid}/task"
        count = process.thread_count
        if process.folder_file is None and count > 1:
            process.folder_file = self.files.open(path)
        try:
            # To find the folder costs several times as much as to ask for its size.
            folder = path if process.folder_file is None else process.folder_file
            return os.stat(folder).st_nlink - 2 or count  # noqa: PTH116  faster
        except OSError:
            return count

    def _end(self, process: ProcessThreads) -> ProcessThreads:
        """Close the files of a process that has ended."""
        self.changed.pop(process.reading.pid, None)
        self._read_ended_ns += process.read_ns + process.unread_ns + process.later_ns
        self.files.close(process.folder_file)
        process.folder_file = None
        for thread in process.threads.values():
            thread.close()
            self.ended_threads.append(thread.thread_id)
        return process

    def take_ended_threads(self) -> list[int]:
        """The ended threads, which the present look says."""
        ended = self.ended_threads
        self.ended_threads = []
        return ended

    def take_read_ended_ns(self) -> int:
        """What was read of the processes that have ended since the last call."""
        read_ns = self._read_ended_ns
        self._read_ended_ns = 0
        return read_ns

    def shown(self) -> Mapping[int, ProcessSeen]:
        """All processes, as a look shows them."""
        if not self._is_shown:
            self._is_shown = True
            self._shown = {
                pid: ProcessSeen(process.reading.parent_pid, process.reading.children_cpu_ns)
                for pid, process in self.by_pid.items()
            }
        return self._shown

    def has_living_child(self, parent: ProcessThreads) -> bool:
        """Whether a child of the process was seen that has not ended."""
        return any(
            child.reading.parent_pid == parent.reading.pid and _lives(child)
            for child in self.by_pid.values()
        )

    @property
    def have_all_ended(self) -> bool:
        """Whether no thread lives, as far as all were read."""
        return not (self.changed or any(map(_lives, self.by_pid.values())))

    def close(self) -> None:
        for process in self.by_pid.values():
            self._end(process)
        self.by_pid.clear()


def _lives(process: ProcessThreads) -> bool:
    """Whether a thread of the process was seen that has not ended."""
    return any(thread.blocked is not ENDED for thread in process.threads.values())

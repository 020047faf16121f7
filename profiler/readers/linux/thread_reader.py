"""Reads the threads of processes: time on a CPU, time waiting for one, and what the blocked ones
wait for.

Every user can read ``schedstat`` and the state; the system call only the same user or SYS_PTRACE.
"""

import math
import os
from collections.abc import Callable, Collection, Mapping
from functools import partial

from profiler.core.clock import wall_ahead_ns
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux.batch_group import BatchGroup
from profiler.readers.linux.connection_waits import AskedStreams
from profiler.readers.linux.counters_reader import CountersReader, certainly_busiest
from profiler.readers.linux.cpu_pressure import PressureFiles
from profiler.readers.linux.disk_evidence import DiskEvidence
from profiler.readers.linux.known_waits import KnownWaits
from profiler.readers.linux.look import PresentLook, ProcessSeen, ThreadSeen, ThreadsLook
from profiler.readers.linux.new_processes import NewProcesses
from profiler.readers.linux.process_threads import ProcessThreads
from profiler.readers.linux.process_tree import ProcessReading
from profiler.readers.linux.process_tree import own_cpu_ns as process_cpu_ns
from profiler.readers.linux.reading_turns import (
    NOTABLE_DIVISOR,
    AsleepReadings,
    LookBudget,
    SkippedReading,
    ThreadTurns,
)
from profiler.readers.linux.skipped_readings import ReadingSkipper
from profiler.readers.linux.sockets import UnknownSockets
from profiler.readers.linux.still_threads import StillThreads
from profiler.readers.linux.system_calls import waiting_calls_of_machine
from profiler.readers.linux.thread_asker import ThreadAsker
from profiler.readers.linux.thread_counters import ReadingNumberAndTime
from profiler.readers.linux.wait_reader import BlockedReader
from profiler.readers.linux.waited_target import WaitResolver
from profiler.readers.linux.watched_processes import CpuClock, WatchedProcesses
from profiler.readers.linux.working_threads import WorkingThreads

# A look at so many threads is as many samples.
_MANY_THREADS = 100
# One of so many looks reads the pressure.
_MAX_CALM_LOOKS = 5
# Without system calls, so many looks lie between the first readings of so few processes with one
# thread: in a run of seconds, one look a second says too little. More of them would make the
# reading of the processes dearer by more than it may be.
_MAX_BETWEEN = 240
_MAX_PROCESSES_BETWEEN = 8
# The share of a CPU that readings take, and how much of it in advance, as the first one, which
# opens all files. This part of it is for the counters.
_MAX_CPU_SHARE = 0.0017
_ADVANCE_NS = 20 * NS_PER_MS
_PART_OF_COUNTERS = 0.6
# A thread that ran and waited for a CPU for this share of the time was never blocked for long.
_MOSTLY = 0.98
_NO_PROCESSES: Mapping[int, ProcessSeen] = {}


class ThreadReader:
    """Reads the threads of a batch's processes.

    ``own_cpu_ns`` is the calling thread's CPU time. ``sockets`` say where connections end and what
    came on them, and are closed with the reader. ``open_pressure`` opens the counters of a
    process's control group. ``is_frozen``: whether this group is stopped. ``is_of_batch``: whether
    a process is the batch's whose parent has ended. Not thread-safe.
    """

    def __init__(
        self,
        own_cpu_ns: Callable[[], int],
        proc_folder: str = "/proc",
        machine: str | None = None,
        *,
        sockets: UnknownSockets | None = None,
        open_pressure: Callable[[int], PressureFiles] | None = None,
        is_frozen: Callable[[int], bool] = lambda _: False,
        is_of_batch: Callable[[int], bool] = lambda _: True,
        cpu_clock: CpuClock = process_cpu_ns,
    ) -> None:
        self._own_cpu_ns = own_cpu_ns
        self._budget_ns = float(_ADVANCE_NS)
        self._last: ReadingNumberAndTime | None = None
        self._calm_looks = 0
        self._left_out = 0
        self._turns = ThreadTurns()
        self._asleep = AsleepReadings()
        self._waits = KnownWaits()
        self._working = WorkingThreads()
        self._processes = processes = WatchedProcesses(proc_folder, cpu_clock)
        self._new_processes = NewProcesses(processes, is_of_batch)
        self._counters = CountersReader(
            processes, self._turns, self._asleep, self._working, self._waits
        )
        self._skipper = ReadingSkipper(
            processes, self._turns, self._asleep, self._working, self._waits
        )
        self._sockets = sockets = sockets or UnknownSockets()
        self._streams = AskedStreams(sockets.ask_stream_state)
        self._group = BatchGroup(proc_folder, open_pressure)
        calls = waiting_calls_of_machine(os.uname().machine if machine is None else machine)
        self._resolver = WaitResolver(
            calls,
            proc_folder,
            own_cpu_ns,
            peer_inode=sockets.ask_peer_inode,
            find_streams=sockets.find_streams,
            ask_stream=self._streams.ask,
            batch_pids=lambda: processes.by_pid,
            wall_ahead_ns=wall_ahead_ns,
        )
        self._blocked = BlockedReader(
            self._resolver,
            knows_calls=bool(calls),
            is_frozen=is_frozen,
            is_short_of_memory=self._group.is_short_of_memory,
            disk=DiskEvidence(proc_folder),
        )
        self._asker = ThreadAsker(
            processes,
            self._resolver,
            self._blocked,
            self._waits,
            counters=self._counters,
            new_processes=self._new_processes,
            turns=self._turns,
        )
        self._still = StillThreads(processes, self._resolver, self._working, self._waits)

    @property
    def sees_calls(self) -> bool:
        """Whether any system call was readable so far."""
        return self._blocked.has_seen_call

    def follow(self, readings: Collection[ProcessReading], last_pid: int | None = None) -> None:
        """Follow these processes, as of a reading of all of them; ``last_pid`` is the id that was
        assigned last before it, None if unknown.
        """
        last = self._last or ReadingNumberAndTime(0, 0)
        for ended in self._processes.follow(readings, self._asleep, last):
            self._waits.forget(ended)
            for thread in ended.threads.values():
                self._working.forget(thread)
        self._new_processes.last_pid = last_pid
        self._working.peeks.is_steady = self._processes.is_steady
        self._asleep.processes = readings

    def skip_if_all_asleep(
        self, readings: Collection[ProcessReading], now_ns: int
    ) -> SkippedReading | None:
        """What there is to say of a reading of all processes that need not be followed, before it
        is; None if it has to be.
        """
        if self.sees_calls or self._last is None:
            return None
        return self._skipper.skip_if_all_asleep(readings, self._last, now_ns, self.empty_look)

    def take_read_ended_ns(self) -> int:
        """What was read of the processes that have ended since the last call."""
        return self._processes.take_read_ended_ns()

    @property
    def lookup_cpu_ns(self) -> int:
        """The CPU time of the search for peers so far, which has its own limit."""
        return self._resolver.sockets.lookup_cpu_ns

    def look(
        self, now_ns: int, *, is_fresh: bool = False, is_required: bool = False
    ) -> ThreadsLook | None:
        """Look at the threads of the followed processes; None, and a peek, if that would cost too
        much now, unless it ``is_required``.

        ``is_fresh``: :meth:`follow` has just had their readings.
        """
        last = self._take_last_look_time(now_ns)
        self._new_processes.begin_look()
        length_ns = now_ns - last.at_ns
        budget_ns = min(self._budget_ns + length_ns * _MAX_CPU_SHARE, _ADVANCE_NS)
        if budget_ns < 0 and not is_required:
            self.peek()
            return None
        self._working.peeks.looked_ns += length_ns
        now = ReadingNumberAndTime(last.number + 1, now_ns)
        due: list[ProcessThreads] | None = None
        if is_fresh and not (self.sees_calls or is_required):
            due = self._counters.due_processes(now, is_required=False)
            is_open = due or self._waits.to_ask or self._processes.ended_threads
            if not is_open and self._processes.changed:
                self._last = now
                self._budget_ns = budget_ns
                return self.empty_look()
        began_ns = self._own_cpu_ns() - self.lookup_cpu_ns

        def spent_ns() -> int:
            """The cost of this look, without the search for peers."""
            return self._own_cpu_ns() - self.lookup_cpu_ns - began_ns

        if not is_fresh:
            self._note_processes_that_ran(last)
        if due is None:
            due = self._counters.due_processes(now, is_required=is_required)
        reads = LookBudget(spent_ns, math.inf if is_required else _PART_OF_COUNTERS * budget_ns)
        look = self._begin_look(now)
        self._counters.read_due(due, reads, look, is_required=is_required)
        # The first look has no length, in which nobody was busy.
        busy = certainly_busiest(look.growth, _MOSTLY * length_ns)
        if busy is not None:
            look.seen.append(ThreadSeen(busy.thread, busy.process, None))
        else:
            self._look_at_waits(look, partial(LookBudget, spent_ns, budget_ns), is_fresh=is_fresh)
        self._last = now
        found = self._make_look(look, reads_pressure=not self._is_calm(look, length_ns))
        self._budget_ns = budget_ns - spent_ns()
        return found

    def _note_processes_that_ran(self, last: ReadingNumberAndTime) -> None:
        """Note the processes that have run since the last look, and new ones of which no thread
        tells.
        """
        sees_calls = self.sees_calls
        self._new_processes.follow_all(last, sees_calls=sees_calls)
        self._turns.between += not sees_calls
        self._processes.note_those_that_ran(last, sees_calls=sees_calls)

    def _look_at_waits(
        self, look: PresentLook, new_budget: Callable[[], LookBudget], *, is_fresh: bool
    ) -> None:
        """Look at what threads wait for that may have been blocked since the last look."""
        self._still.look_for_frozen(look, new_budget())
        if self._waits.to_ask:
            self._asker.ask_threads_that_ran(look, new_budget(), is_fresh=is_fresh)
            self._resolver.end_look()
        if self.sees_calls:
            self._still.look_for_able(look, new_budget())

    def look_with_reading(self, now_ns: int) -> ThreadsLook | None:
        """A look after :meth:`follow` has had the readings of this moment. If by these none has
        run, begun or ended since the last look, all threads wait for the same, and none is asked.
        """
        has_changed = self._processes.changed or self._processes.ended_threads
        if has_changed or self._waits.to_ask or self._waits.able or self._last is None:
            return self.look(now_ns, is_fresh=True)
        if self._group.begin_look(now_ns):
            self._waits.ask_all(self._processes.by_pid.values())
            return self.look(now_ns, is_fresh=True)
        last = self._take_last_look_time(now_ns)
        earned_ns = (now_ns - last.at_ns) * _MAX_CPU_SHARE
        self._budget_ns = min(self._budget_ns + earned_ns, _ADVANCE_NS)
        self._last = ReadingNumberAndTime(last.number + 1, now_ns)
        return ThreadsLook(
            growth=() if self._counters.is_counting else None,
            processes=self._processes.shown() if self.sees_calls else _NO_PROCESSES,
            sees_calls=self.sees_calls,
            have_all_ended=self._processes.have_all_ended,
            cpus=self._group.known_cpus,
            readings=self._take_readings(),
        )

    @property
    def is_steady(self) -> bool:
        """Whether no process has begun or ended at the last reading."""
        return self._working.peeks.is_steady and not self._processes.ended_threads

    @property
    def can_look_between(self) -> bool:
        """Whether looks between the readings of the processes say more."""
        if self.sees_calls:
            return True
        processes = self._processes.by_pid
        if self._last is None or len(processes) > _MAX_PROCESSES_BETWEEN:
            return False
        if any(process.thread_count > 1 for process in processes.values()):
            return False  # these have turns
        return self._turns.between < _MAX_BETWEEN

    def leave_out_reading(self) -> None:
        """The next look stands for this reading of the processes, too."""
        self._left_out += 1

    def _take_readings(self) -> int:
        """For how many readings of the processes this look stands."""
        readings = 1 + self._asleep.readings + self._left_out
        self._asleep.readings = self._left_out = 0
        return readings

    @property
    def can_peek(self) -> bool:
        """Whether a peek says something."""
        return self._working.can_peek(sees_calls=self.sees_calls)

    def is_one_enough(self, look: ThreadsLook | None) -> bool:
        """Whether more looks like this one in a step would say no more: it has left threads for the
        next ones, there are so many that each look is many samples, and all wait for the same as
        before.
        """
        if look is None or look.has_other_waits or not look.is_behind:
            return False
        processes = self._processes.by_pid.values()
        return sum([process.thread_count for process in processes]) >= _MANY_THREADS

    def peek(self) -> None:
        """Note for the next look whether a thread that works can run, if that says something. What
        it costs is limited by its caller, and puts no look off.
        """
        if self.can_peek:
            self._working.peek()

    def _take_last_look_time(self, now_ns: int) -> ReadingNumberAndTime:
        """The last look, and how many readings were before this one."""
        last = self._last or ReadingNumberAndTime(0, now_ns)
        if self._turns.skipped:
            last = ReadingNumberAndTime(last.number + self._turns.skipped, last.at_ns)
            self._turns.skipped = 0
        return last

    def empty_look(self) -> ThreadsLook:
        """A look in which no thread has its turn."""
        peeks = self._working.peeks.take_results()
        return ThreadsLook(
            growth=() if self._counters.is_counting else None,
            is_behind=True,
            is_nobodys_turn=True,
            cpus=self._group.known_cpus,
            peeks=len(peeks),
            able_peeks=sum(peeks),
        )

    def _begin_look(self, now: ReadingNumberAndTime) -> PresentLook:
        self._turns.without_turn = None
        self._asleep.regulars = {}
        self._streams.begin_look()
        self._blocked.disk.begin_look(now.at_ns)
        if not self._turns.are_left_out:
            self._working.peeks.begin_look()
        if self.sees_calls:
            self._new_processes.may_have_begun()  # reads at the begin how many threads can run
        if self._group.begin_look(now.at_ns):
            self._waits.ask_all(self._processes.by_pid.values())
        return PresentLook(
            now=now,
            before=self._last or ReadingNumberAndTime(0, now.at_ns),
            is_group_frozen=self._group.is_frozen,
            ended=self._processes.take_ended_threads(),
        )

    def read_last(self, now_ns: int) -> ThreadsLook:
        """Read the counters of all threads that were seen, for the last time: a zombie's
        counters are readable.
        """
        number = 0 if self._last is None else self._last.number
        self._new_processes.begin_look()
        look = self._begin_look(ReadingNumberAndTime(number + 1, now_ns))
        self._counters.read_last(look)
        return self._make_look(look, is_last=True)

    def close(self) -> None:
        self._processes.close()
        self._new_processes.close()
        self._sockets.close()
        self._group.close()

    def _is_calm(self, look: PresentLook, length_ns: int) -> bool:
        """Whether the threads cannot have waited for a CPU for long, without their system calls:
        all were read, they used little, and none can run. To read the pressure costs more than to
        read a few threads, and a later reading says it of this time, too.
        """
        self._calm_looks += 1
        is_all_known = not (self._processes.changed or self._waits.to_ask or look.ended)
        if self.sees_calls or not is_all_known or self._waits.able:
            self._calm_looks = 0
        used_ns = sum([grown.run_ns + grown.wait_ns for grown in look.growth])
        if NOTABLE_DIVISOR * used_ns >= length_ns or self._calm_looks >= _MAX_CALM_LOOKS:
            self._calm_looks = 0
        return self._calm_looks > 0

    def _make_look(
        self, look: PresentLook, *, reads_pressure: bool = True, is_last: bool = False
    ) -> ThreadsLook:
        """What this look has found. At the ``is_last`` one, all threads have ended."""
        processes = self._processes
        peeks = self._working.peeks.take_results()
        return ThreadsLook(
            growth=look.growth if self._counters.is_counting else None,
            seen=look.seen,
            ended=look.ended,
            unread_run_ns=look.unread_run_ns,
            later_run_ns=look.later_run_ns,
            processes=processes.shown() if self.sees_calls else _NO_PROCESSES,
            sees_calls=self.sees_calls,
            is_behind=bool(processes.changed),
            asked_share=look.asked_share,
            able_on_machine=self._new_processes.able_on_machine,
            misses_child=not all(map(processes.has_living_child, look.parents)),
            have_all_ended=is_last or processes.have_all_ended,
            pressure=self._group.read_pressure(processes.by_pid) if reads_pressure else None,
            cpus=self._group.usable_cpus(processes.by_pid),
            readings=self._take_readings(),
            peeks=len(peeks),
            able_peeks=sum(peeks),
            has_other_waits=look.has_other_waits or bool(look.ended),
        )

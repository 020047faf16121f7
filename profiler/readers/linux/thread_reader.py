"""Reads the threads of processes: time on a CPU, time waiting for one, and what the blocked ones
wait for.

Every user can read ``schedstat`` and the state; the system call only the same user or SYS_PTRACE. A
thread that has not been on a CPU is still blocked in the same call, and not read again.
"""

import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import zip_longest

from msgspec.structs import replace

from profiler.core.clock import wall_ahead_ns
from profiler.core.look_times import GOLDEN_PART
from profiler.core.optional_math import difference
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.readers.linux import proc
from profiler.readers.linux.batch_group import BatchGroup
from profiler.readers.linux.cpu_pressure import PressureFiles
from profiler.readers.linux.disk_evidence import DiskEvidence
from profiler.readers.linux.look import ProcessSeen, ThreadSeen, ThreadsLook
from profiler.readers.linux.poll_outcome import (
    ConnectionArrival,
    WorkBeginBounds,
    did_timeout_end_poll,
    first_arrival_before_ns,
    has_ended_before_timeout,
    was_due_as_work_began,
    what_came,
)
from profiler.readers.linux.process_threads import ProcessThreads
from profiler.readers.linux.process_tree import ProcessReading
from profiler.readers.linux.process_tree import own_cpu_ns as process_cpu_ns
from profiler.readers.linux.reading_turns import (
    CHECKED_THREADS,
    NOTABLE_DIVISOR,
    AsleepReadings,
    LookBudget,
    PeekResults,
    SkippedReading,
    ThreadTurns,
)
from profiler.readers.linux.sockets import (
    TcpStreamState,
    UnknownSockets,
    read_accepted_connections,
)
from profiler.readers.linux.thread_counters import (
    FollowedThread,
    ReadingNumberAndTime,
    ThreadFiles,
    ThreadTimeGrowth,
    open_thread,
)
from profiler.readers.linux.wait_reader import (
    DISK_BY_STATE,
    ENDED,
    ENDED_STATES,
    HIDDEN_DISK,
    INTERRUPTIBLE_KINDS,
    RUNNABLE_STATE,
    SLEEP_STATE,
    STOPPED_STATES,
    TRACED_STATE,
    BlockedReader,
    kernel_function,
)
from profiler.readers.linux.wait_types import MEMORY, STOPPED, BlockedThread
from profiler.readers.linux.waited_target import AskStream, WaitResolver, waiting_calls_of_machine

# The most threads whose system call is read at once. The others follow in the next readings.
_MAX_ASKED = 64
# The most threads whose state is read at once: of those that have not run since the last look, or
# were not read, the ones that use this share of a CPU, and then those that ran last, are the
# likeliest to be able to run. If both are no more than the second number, peeks read all of them.
_MAX_STATES = 32
_MAX_PEEKED = 16
# A thread that has not run for so long is hardly ever found while it waits for a CPU: its state is
# not read any more. What it waited is counted when it runs.
_LONG_ASLEEP_NS = 10 * NS_PER_SECOND
_WORKERS_DIVISOR = 100
# A look at so many threads is as many samples.
_MANY_THREADS = 100
# Without system calls, states are read between looks only of several threads that work.
_MIN_WORKERS = 2
# One of so many looks reads the pressure.
_MAX_CALM_LOOKS = 5
# The children of each thread are listed if there are no more threads, else of so many.
_MAX_PARENTS = 8
_FIRST_PID = 1
# Without system calls, the counters of processes that run in every step and sleep at every reading
# say the same if several steps are read as one: after a twentieth of all looks so far, and at least
# every fourth time. In 50 processes a look costs a third of the reading of the processes.
_LOOKS_PER_SLEEP = 20
_MAX_SLEEP_READINGS = 4
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
# So many threads of a process are read in each look, also if to read all takes several looks.
_MAX_BUSIEST = 8
# The kernel functions in which threads of a frozen group of version 2 are; compilers put one into
# the other.
_FROZEN_IN = (b"do_freezer_trap", b"get_signal")
# A thread that ran and waited for a CPU for this share of the time was never blocked for long.
_MOSTLY = 0.98
# CPU time of a process that no thread has: a clock that was read earlier than the threads differs
# by less.
_MIN_UNREAD_NS = 20 * NS_PER_MS
CpuClock = Callable[[int, None], int | None]
_ASLEEP = SkippedReading()


class _AskedStreams:
    """The states of connections, each asked once in a look: of two waits of a thread, the end of
    one and the begin of the next.
    """

    def __init__(self, ask_stream: AskStream) -> None:
        self._ask_stream = ask_stream
        self._states: dict[tuple[int, bytes], TcpStreamState | None] = {}

    def begin_look(self) -> None:
        self._states = {}

    def ask(self, inode: int, stream: bytes) -> TcpStreamState | None:
        """The state of a connection; the inode of its other end is not known."""
        asked = (inode, stream)
        if asked not in self._states:
            self._states[asked] = self._ask_stream(inode, stream)
        return self._states[asked]


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
        self._own_cpu_ns, self._folder = own_cpu_ns, proc_folder
        self._sockets = sockets = sockets or UnknownSockets()
        calls = waiting_calls_of_machine(os.uname().machine if machine is None else machine)
        self._streams = _AskedStreams(sockets.ask_stream_state)
        self._resolver = WaitResolver(
            calls,
            proc_folder,
            own_cpu_ns,
            peer_inode=sockets.ask_peer_inode,
            find_streams=sockets.find_streams,
            ask_stream=self._streams.ask,
            batch_pids=lambda: self._processes,
            wall_ahead_ns=wall_ahead_ns,
        )
        self._group = BatchGroup(proc_folder, open_pressure)
        self._blocked = BlockedReader(
            self._resolver,
            knows_calls=bool(calls),
            is_frozen=is_frozen,
            is_short_of_memory=self._group.is_short_of_memory,
            disk=DiskEvidence(proc_folder),
        )
        self._budget_ns = float(_ADVANCE_NS)
        self._processes: dict[int, ProcessThreads] = {}
        self._followed: Collection[ProcessReading] = ()  # as of the last call of follow
        self._shown: Mapping[int, ProcessSeen] = {}  # as they are now if it is_shown
        self._changed: dict[int, ProcessThreads] = {}
        self._stale: dict[int, ProcessThreads] = {}
        self._turns, self._asleep, self._files = ThreadTurns(), AsleepReadings(), ThreadFiles()
        self._load = proc.LoadFile(proc_folder)
        self._cpu_clock, self._is_of_batch = cpu_clock, is_of_batch
        self._last: ReadingNumberAndTime | None = None
        # Of the present look.
        self._growth, self._seen = list[ThreadTimeGrowth](), list[ThreadSeen]()
        self._ended, self._ended_between = list[int](), list[int]()  # since the last look
        self._workers: dict[FollowedThread, int] = {}  # with their processes, as they ran last
        self._recent: dict[FollowedThread, int] = {}  # the others
        self._able: set[FollowedThread] = set()  # as far as they were asked
        self._new_waits: dict[int, dict[FollowedThread, None]] = {}  # before this look, by process
        self._lock_waits: dict[FollowedThread, ProcessThreads] = {}  # for locks of files
        self._unread_run_ns = self._later_run_ns = 0
        self._parents: list[ProcessThreads] = []  # those that wait for a child
        self._newest_pid: int | None = None  # when the processes were read last
        self._has_newer: bool | None = None
        self._able_on_machine: int | None = None
        self._peeks, self._asked_share = PeekResults(), 1.0
        self._at_ns = self._read_ended_ns = self._calm_looks = self._left_out = 0
        self._is_counting = self._is_shown = self._has_other_waits = self.sees_calls = False

    def follow(self, processes: Collection[ProcessReading], last_pid: int | None = None) -> None:
        """Follow these processes, as of a reading of all of them; ``last_pid`` is the id that was
        assigned last before it, None if unknown.
        """
        last = still = self._last or ReadingNumberAndTime(0, 0)
        asleep = self._asleep
        if asleep.readings:
            still = ReadingNumberAndTime(last.number, asleep.at_ns)
        self._newest_pid = last_pid
        known = self._processes
        count = len(known)
        followed = self._followed
        self._followed = processes
        for reading, before, between in zip_longest(processes, followed, asleep.processes):
            # The reader of another container's processes returns an unchanged one again, mostly in
            # the same place.
            if reading is before or reading is None:
                continue
            process = known.get(reading.pid)
            if process is None or process.started_ticks != reading.started_ticks:
                if process is not None:
                    self._forget(process)
                process = ProcessThreads(reading, reading.started_ticks, still)
                process.thread_count = reading.threads
                process.clock_ns = reading.own_cpu_ns
                process.state = reading.state
                known[reading.pid] = self._changed[reading.pid] = process
                self._is_shown = False
                count = 0
            elif process.reading is not reading:
                is_still = between is before is process.reading
                self._note_change(process, reading, still if is_still else last)
        if len(known) > len(processes):
            self._is_shown = False
            for pid in known.keys() - {reading.pid for reading in processes}:
                self._forget(known.pop(pid))
        self._peeks.is_steady = len(known) == count
        asleep.processes = processes

    def skip_if_all_asleep(
        self, processes: Collection[ProcessReading], now_ns: int
    ) -> SkippedReading | None:
        """What there is to say of a reading of all processes that need not be followed: none has
        begun or ended, and of those that have changed, no thread has its turn, or those that run
        in every step sleep again. Returns None if it has to be followed.
        """
        if self.sees_calls or self._stale or self._ended_between or self._last is None:
            return None
        if len(processes) != len(self._followed):
            return None
        asleep = self._asleep
        has_regulars = bool(asleep.regulars)
        number = self._last.number + 1 + self._turns.skipped
        is_turn = self._turns.are_due(number)
        is_asleep = False
        for reading, before, between in zip(
            processes, self._followed, asleep.processes, strict=True
        ):
            if reading is before:
                continue
            if has_regulars and asleep.has_process_run_and_slept_again(reading, between):
                is_asleep = True
            elif is_turn or not self._are_threads_in_turns(reading):
                return None
        if is_asleep:
            return self._note_asleep(processes, now_ns)
        if is_turn:
            return None
        self._turns.skipped += 1
        return self._reading_without_turn()

    def _reading_without_turn(self) -> SkippedReading:
        """A reading in which no thread has its turn; without peeks, all are the same object. To
        make one costs a tenth of the reading of a few processes.
        """
        turns = self._turns
        if self._peeks.able:
            return SkippedReading(self.empty_look())
        if turns.without_turn is None:
            turns.without_turn = SkippedReading(self.empty_look())
        return turns.without_turn

    def _are_threads_in_turns(self, reading: ProcessReading) -> bool:
        """Whether the threads of a process have turns."""
        process = self._processes.get(reading.pid)
        if process is None or process.started_ticks != reading.started_ticks:
            return False
        return process.is_refused and reading.threads > 1

    def _note_asleep(
        self, processes: Collection[ProcessReading], now_ns: int
    ) -> SkippedReading | None:
        """Note a reading that found nobody who could run, unless it is time for a look."""
        asleep = self._asleep
        number = 0 if self._last is None else self._last.number - self._turns.between
        together = min(number // _LOOKS_PER_SLEEP, _MAX_SLEEP_READINGS)
        if asleep.readings + 1 >= together or self._turns.skipped or self._able:
            return None
        asleep.readings += 1
        asleep.at_ns = now_ns
        asleep.processes = processes
        self._turns.last_number -= 1  # its turn comes after so many readings, not looks
        self._peeks.able.append(False)
        return _ASLEEP

    def take_read_ended_ns(self) -> int:
        """What was read of the processes that have ended since the last call."""
        read_ns = self._read_ended_ns
        self._read_ended_ns = 0
        return read_ns

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
        self._has_newer = self._able_on_machine = None
        length_ns = now_ns - last.at_ns
        budget_ns = min(self._budget_ns + length_ns * _MAX_CPU_SHARE, _ADVANCE_NS)
        if budget_ns < 0 and not is_required:
            self.peek()
            return None
        self._peeks.looked_ns += length_ns
        now = ReadingNumberAndTime(last.number + 1, now_ns)
        due: list[ProcessThreads] | None = None
        if is_fresh and not (self.sees_calls or is_required):
            due = self._due_processes(now, is_required=False)
            if not (due or self._stale or self._ended_between) and self._changed:
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
            due = self._due_processes(now, is_required=is_required)
        reads = LookBudget(spent_ns, math.inf if is_required else _PART_OF_COUNTERS * budget_ns)
        self._begin_look(now_ns)
        self._read_due(due, reads, now, is_required=is_required)
        busy = (
            _certainly_busiest(self._growth, _MOSTLY * length_ns)
            if self._last is not None
            else None
        )
        if busy is not None:
            self._seen.append(ThreadSeen(busy.thread, busy.process, None))
        else:
            self._look_for_frozen(LookBudget(spent_ns, budget_ns))
            if self._stale:
                self._ask_threads_that_ran(LookBudget(spent_ns, budget_ns), now, is_fresh=is_fresh)
                self._resolver.end_look()
            if self.sees_calls:
                self._look_for_able(LookBudget(spent_ns, budget_ns))
        self._last = now
        look = self._make_look(reads_pressure=not self._is_calm(length_ns))
        self._budget_ns = budget_ns - spent_ns()
        return look

    def look_with_reading(self, now_ns: int) -> ThreadsLook | None:
        """A look after :meth:`follow` has had the readings of this moment. If by these none has
        run, begun or ended since the last look, all threads wait for the same, and none is asked.
        """
        is_open = self._changed or self._stale or self._ended_between or self._able
        if is_open or self._last is None:
            return self.look(now_ns, is_fresh=True)
        if self._group.begin_look(now_ns):
            self._mark_all_to_ask()
            return self.look(now_ns, is_fresh=True)
        last = self._take_last_look_time(now_ns)
        earned_ns = (now_ns - last.at_ns) * _MAX_CPU_SHARE
        self._budget_ns = min(self._budget_ns + earned_ns, _ADVANCE_NS)
        self._last = ReadingNumberAndTime(last.number + 1, now_ns)
        return ThreadsLook(
            growth=() if self._is_counting else None,
            processes=self._processes_seen(),
            sees_calls=self.sees_calls,
            have_all_ended=self._have_all_ended(),
            cpus=self._group.known_cpus,
            readings=self._take_readings(),
        )

    @property
    def is_steady(self) -> bool:
        """Whether no process has begun or ended at the last reading."""
        return self._peeks.is_steady and not self._ended_between

    @property
    def can_look_between(self) -> bool:
        """Whether looks between the readings of the processes say more."""
        if self.sees_calls:
            return True
        if self._last is None or len(self._processes) > _MAX_PROCESSES_BETWEEN:
            return False
        if any(process.thread_count > 1 for process in self._processes.values()):
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
        """Whether a peek says something: not if other threads may run, those of many that work
        little, or of processes that begin and end; nor if none has run lately. Without system
        calls, only if the counters leave open for how long any thread could run.
        """
        if not 0 < len(self._workers) <= _MAX_STATES or not self._peeks.find_those_that_run:
            return False
        if self.sees_calls:
            return True
        return len(self._workers) >= _MIN_WORKERS and self._peeks.show_how_long_able

    def is_one_enough(self, look: ThreadsLook | None) -> bool:
        """Whether more looks like this one in a step would say no more: it has left threads for the
        next ones, there are so many that each look is many samples, and all wait for the same as
        before.
        """
        if look is None or look.has_other_waits or not look.is_behind:
            return False
        return sum([process.thread_count for process in self._processes.values()]) >= _MANY_THREADS

    def peek(self) -> None:
        """Note for the next look whether a thread that works can run, if that says something: not
        if one has ended, after which another may have begun. What it costs is limited by its
        caller, and puts no look off.
        """
        if not self.can_peek:
            return
        is_able = has_one_ended = False
        others = reversed(self._recent) if self._do_peeks_read_others else ()
        for thread in (*reversed(self._workers), *others):
            letter = thread.read_state().letter
            is_able = letter == RUNNABLE_STATE
            if is_able:
                break
            has_one_ended = has_one_ended or letter in ENDED_STATES
        if is_able or not has_one_ended:
            self._peeks.able.append(is_able)
        else:
            self._peeks.is_steady = False

    @property
    def _do_peeks_read_others(self) -> bool:
        """Whether peeks also read threads that worked little: they are few, and one may do the work
        next, as any of a runtime's threads can.
        """
        return len(self._workers) + len(self._recent) <= _MAX_PEEKED

    def _take_last_look_time(self, now_ns: int) -> ReadingNumberAndTime:
        """The last look, and how many readings were before this one."""
        last = self._last or ReadingNumberAndTime(0, now_ns)
        if self._turns.skipped:
            last = ReadingNumberAndTime(last.number + self._turns.skipped, last.at_ns)
            self._turns.skipped = 0
        return last

    def empty_look(self) -> ThreadsLook:
        """A look in which no thread has its turn."""
        peeks = self._peeks.take_results()
        return ThreadsLook(
            growth=() if self._is_counting else None,
            is_behind=True,
            is_nobodys_turn=True,
            cpus=self._group.known_cpus,
            peeks=len(peeks),
            able_peeks=sum(peeks),
        )

    def _begin_look(self, now_ns: int) -> None:
        self._at_ns = now_ns
        self._turns.without_turn = None
        self._asleep.regulars = {}
        self._streams.begin_look()
        self._blocked.disk.begin_look(now_ns)
        if not self._turns.are_left_out:
            self._peeks.begin_look()
        self._growth = []
        self._seen = []
        self._ended = self._ended_between
        self._ended_between = []
        self._unread_run_ns = self._later_run_ns = 0
        self._has_other_waits = False
        self._asked_share = 1.0
        if self.sees_calls:
            self._may_have_newer()  # reads at the begin how many threads can run
        self._parents = []
        if self._group.begin_look(now_ns):
            self._mark_all_to_ask()

    def _mark_all_to_ask(self) -> None:
        """Ask all threads again: a group of version 1 is frozen while none of them runs."""
        for pid, process in self._processes.items():
            process.seen = process.threads.values()
            process.was_sleeping = False
            for thread in process.seen:
                thread.is_stale = True
            self._stale[pid] = process

    def _note_processes_that_ran(self, last: ReadingNumberAndTime) -> None:
        """Note the processes that have run since the last look, by their CPU clocks, and new ones
        of which no thread tells.
        """
        self._follow_new_processes(last)
        self._turns.between += not self.sees_calls
        for pid, process in self._processes.items():
            clock_ns = self._cpu_clock(pid, None)
            if clock_ns is not None and not self.sees_calls:
                self._note_present_state(process, clock_ns, last)
                continue
            if clock_ns == process.clock_ns and clock_ns is not None:
                continue
            process.clock_ns = clock_ns
            process.thread_count = self._current_thread_count(process)
            process.has_run = True
            if pid not in self._changed:
                self._changed[pid] = process
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
        path = f"{self._folder}/{process.reading.pid}/task"
        count = process.thread_count
        if process.folder_file is None and count > 1:
            process.folder_file = self._files.open(path)
        try:
            # To find the folder costs several times as much as to ask for its size.
            folder = path if process.folder_file is None else process.folder_file
            return os.stat(folder).st_nlink - 2 or count  # noqa: PTH116  faster
        except OSError:
            return count

    def _processes_seen(self) -> Mapping[int, ProcessSeen]:
        """All processes; none without system calls, which say who waits for whom."""
        if self._is_shown or not self.sees_calls:
            return self._shown
        self._is_shown = True
        self._shown = {
            pid: ProcessSeen(process.reading.parent_pid, process.reading.children_cpu_ns)
            for pid, process in self._processes.items()
        }
        return self._shown

    def read_last(self, now_ns: int) -> ThreadsLook:
        """Read the counters of all threads that were seen, for the last time: a zombie's
        counters are readable.
        """
        last = self._last or ReadingNumberAndTime(0, now_ns)
        self._has_newer = self._able_on_machine = None
        self._begin_look(now_ns)
        for pid, process in self._processes.items():
            if pid not in self._changed:
                process.still_at = last
            threads = tuple(process.threads.values())
            self._read_threads(process, threads, ReadingNumberAndTime(last.number + 1, now_ns))
        return self._make_look(is_last=True)

    def close(self) -> None:
        for process in self._processes.values():
            self._forget(process)
        self._processes = {}
        self._load.close()
        self._sockets.close()
        self._group.close()

    def _is_calm(self, length_ns: int) -> bool:
        """Whether the threads cannot have waited for a CPU for long, without their system calls:
        all were read, they used little, and none can run. To read the pressure costs more than to
        read a few threads, and a later reading says it of this time, too.
        """
        self._calm_looks += 1
        if self.sees_calls or self._changed or self._stale or self._ended or self._able:
            self._calm_looks = 0
        used_ns = sum([grown.run_ns + grown.wait_ns for grown in self._growth])
        if NOTABLE_DIVISOR * used_ns >= length_ns or self._calm_looks >= _MAX_CALM_LOOKS:
            self._calm_looks = 0
        return self._calm_looks > 0

    def _make_look(self, *, reads_pressure: bool = True, is_last: bool = False) -> ThreadsLook:
        """What this look has found. At the ``is_last`` one, all threads have ended."""
        peeks = self._peeks.take_results()
        return ThreadsLook(
            growth=self._growth if self._is_counting else None,
            seen=self._seen,
            ended=self._ended,
            unread_run_ns=self._unread_run_ns,
            later_run_ns=self._later_run_ns,
            processes=self._processes_seen(),
            sees_calls=self.sees_calls,
            is_behind=bool(self._changed),
            asked_share=self._asked_share,
            able_on_machine=self._able_on_machine,
            misses_child=self._is_any_child_missing(),
            have_all_ended=is_last or self._have_all_ended(),
            pressure=self._group.read_pressure(self._processes) if reads_pressure else None,
            cpus=self._group.usable_cpus(self._processes),
            readings=self._take_readings(),
            peeks=len(peeks),
            able_peeks=sum(peeks),
            has_other_waits=self._has_other_waits or bool(self._ended),
        )

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
        if process.has_run and reading.pid not in self._changed:
            self._changed[reading.pid] = process
            process.still_at = last

    def _due_processes(
        self, now: ReadingNumberAndTime, *, is_required: bool
    ) -> list[ProcessThreads]:
        """The processes whose threads may have run or are new, and are read now; those that take
        several readings come last, and first at every other look, so that they are read at all.
        """
        due: list[ProcessThreads] = []
        in_turn: list[ProcessThreads] = []
        threads = 0
        has_left = False
        for process in self._changed.values():
            if process.is_refused and process.reading.threads > 1 and not is_required:
                in_turn.append(process)
                threads += process.reading.threads
            else:
                due.append(process)
                has_left = has_left or bool(process.left)
        if has_left and len(due) > 1:
            place = 1 if now.number % 2 else -1
            due.sort(key=lambda process: place * (bool(process.left) and not process.is_refused))
        has_turn = not in_turn or self._turns.begin_if_due(threads, now.number)
        self._turns.are_left_out = not has_turn
        return due + in_turn if has_turn else due

    def _read_due(
        self,
        due: Sequence[ProcessThreads],
        budget: LookBudget,
        now: ReadingNumberAndTime,
        *,
        is_required: bool,
    ) -> None:
        """Read the counters of these processes' threads, as far as the budget allows."""
        for process in due:
            if not process.is_refused:
                process.seen = ()
            if budget.is_spent:
                continue
            if (
                process.is_refused
                and process.shows_only_state
                and self._read_only_thread(process, now)
            ):
                budget.allows_threads()
                continue
            if is_required or not process.is_refused or process.reading.threads == 1:
                self._read_remaining_threads(process, budget, now, None)
            elif self._turns.left > 0:
                self._turns.left -= self._read_remaining_threads(
                    process, budget, now, self._turns.left
                )

    def _read_only_thread(self, process: ProcessThreads, now: ReadingNumberAndTime) -> bool:
        """Read the counters of a process with one thread; returns False after the thread's end."""
        (thread,) = process.threads.values()
        reading = process.reading
        try:
            grown = thread.read_growth(process.still_at, now, reading.pid)
        except (ProcessLookupError, ValueError):
            self._end_thread(process, thread)
            return False
        if grown is not None:
            self._note_growth(process, thread, grown)
        process.has_run = False
        process.still_at = now
        del self._changed[reading.pid]
        if grown is not None and reading.state == SLEEP_STATE:
            self._asleep.regulars[reading.pid] = process
        is_sleeping_again = (
            process.was_sleeping
            and reading.state == SLEEP_STATE
            and reading.blocks_signals == thread.sleeps_unsignalled
        )
        thread.is_stale = not is_sleeping_again
        if is_sleeping_again:
            self._seen.append(ThreadSeen(thread.thread_id, reading.pid, thread.blocked))
        else:
            self._stale[reading.pid] = process
        return True

    def _read_remaining_threads(
        self,
        process: ProcessThreads,
        budget: LookBudget,
        now: ReadingNumberAndTime,
        limit: int | None,
    ) -> int:
        """Read the threads that are left, up to a ``limit``; returns how many were read."""
        pid = process.reading.pid
        is_first = not process.left
        before = len(self._growth)
        busiest = process.busiest
        if is_first:
            process.has_run = False
            process.left = list(reversed(process.threads.values()))
            busiest = []
        read = self._read_threads(process, busiest, now)
        has_looked = False
        while process.left or not has_looked:
            if not process.left:
                has_looked = True
                process.left = self._find_threads(process, now)
                continue
            together = CHECKED_THREADS if limit is None else min(CHECKED_THREADS, limit - len(read))
            next_ones = process.left[-together:] if together else []
            if not next_ones or not budget.allows_threads(len(next_ones)):
                break
            del process.left[-together:]
            next_ones.reverse()
            if busiest:
                next_ones = [thread for thread in next_ones if thread not in busiest]
            read += self._read_threads(process, next_ones, now)
        is_known = not process.left and (is_first or not process.has_run)
        if is_known:
            process.still_at = now
            del self._changed[pid]
            self._note_unread(process)
        elif not process.is_refused:
            self._note_later(process)
            self._note_busiest(process, self._growth[before:])
        process.seen = process.threads.values() if is_known or process.is_refused else read
        self._stale[pid] = process
        return len(read)

    def _note_busiest(self, process: ProcessThreads, growth: Sequence[ThreadTimeGrowth]) -> None:
        """Note which threads ran or waited for a CPU most, of those that were read in this look;
        if these are too few, also those that were noted before.
        """
        busiest = nlargest(_MAX_BUSIEST, growth, key=_busy_share)
        ids = dict.fromkeys([grown.thread for grown in busiest])
        ids.update(dict.fromkeys([thread.thread_id for thread in process.busiest]))
        threads = [process.threads[each] for each in ids if each in process.threads]
        process.busiest = threads[:_MAX_BUSIEST]

    def _note_unread(self, process: ProcessThreads) -> None:
        """Note the CPU time of threads that ended unread."""
        if process.clock_ns is None or process.thread_count == 1:
            return
        unread_ns = process.clock_ns - process.read_ns - process.unread_ns
        noted_ns = process.later_ns
        process.later_ns = 0
        if unread_ns >= _MIN_UNREAD_NS:
            process.unread_ns += unread_ns
            self._unread_run_ns += max(unread_ns - noted_ns, 0)
            self._peeks.rest_ns += unread_ns
            self._peeks.missed_ns += unread_ns

    def _note_later(self, process: ProcessThreads) -> None:
        """Note the CPU time of threads that are left for the next looks."""
        if process.clock_ns is None:
            return
        left_ns = process.clock_ns - process.read_ns - process.unread_ns
        self._later_run_ns += max(left_ns - process.later_ns, 0)
        process.later_ns = max(left_ns, 0)

    def _end_thread(self, process: ProcessThreads, thread: FollowedThread) -> None:
        """Close the files of a thread that has ended."""
        del process.threads[thread.thread_id]
        self._lock_waits.pop(thread, None)
        thread.close()
        self._forget_run(thread, process.reading.pid)
        self._ended.append(thread.thread_id)

    def _read_threads(
        self,
        process: ProcessThreads,
        threads: Iterable[FollowedThread],
        now: ReadingNumberAndTime,
    ) -> list[FollowedThread]:
        """Read the counters of threads; returns those that have not ended."""
        read: list[FollowedThread] = []
        pid = process.reading.pid
        since = process.still_at
        for thread in threads:
            try:
                grown = thread.read_growth(since, now, pid)
            except (ProcessLookupError, ValueError):
                if process.threads.get(thread.thread_id) is thread:
                    self._end_thread(process, thread)
                continue  # else its end was seen in an earlier look
            if grown is not None:
                self._note_growth(process, thread, grown)
            read.append(thread)
        return read

    def _note_growth(
        self, process: ProcessThreads, thread: FollowedThread, grown: ThreadTimeGrowth
    ) -> None:
        run_ns = grown.run_ns
        process.read_ns += run_ns
        if grown.steps > 1 and process.later_ns:
            process.later_ns = max(process.later_ns - run_ns, 0)
        if run_ns:
            self._is_counting = True
        self._growth.append(grown)
        is_peeked = thread in self._workers or (
            thread in self._recent and self._do_peeks_read_others
        )
        if not is_peeked and self._last is not None:
            self._peeks.missed_ns += run_ns
        self._forget_run(thread, grown.process)
        if _WORKERS_DIVISOR * run_ns >= grown.span_ns:
            self._workers[thread] = grown.process
            self._peeks.workers_ns += run_ns
        else:
            self._recent[thread] = grown.process
            self._peeks.rest_ns += run_ns

    def _forget_run(self, thread: FollowedThread, pid: int) -> None:
        if self._workers.pop(thread, None) is None:
            self._recent.pop(thread, None)
        if self._able:
            self._able.discard(thread)
        if pid in self._new_waits:
            self._new_waits[pid].pop(thread, None)

    def _find_threads(
        self, process: ProcessThreads, now: ReadingNumberAndTime
    ) -> list[FollowedThread]:
        """The new threads of a process, if the number of the known ones is not the process's."""
        known = process.threads
        reading = process.reading
        if len(known) == process.thread_count:
            # A state may have changed without a run: a signal has stopped the process.
            if len(known) == 1:
                next(iter(known.values())).is_stale = True
            return []
        folder = f"{self._folder}/{reading.pid}/task"
        appeared = []
        thread_ids = [reading.pid]
        if process.thread_count > 1:
            thread_ids = proc.numeric_entries(folder)
        for thread_id in thread_ids:
            if thread_id not in known:
                known[thread_id] = open_thread(
                    thread_id,
                    f"{folder}/{thread_id}",
                    self._files,
                    self._last or ReadingNumberAndTime(0, now.at_ns),
                )
                appeared.append(known[thread_id])
        return appeared

    def _note_lock_wait(self, process: ProcessThreads, thread: FollowedThread) -> None:
        if thread.blocked is not None and thread.blocked.is_for_file_lock:
            self._lock_waits[thread] = process
        elif self._lock_waits:
            self._lock_waits.pop(thread, None)

    def _ask_for_holders_after(self, ended: ProcessThreads) -> None:
        """Ask who waits for the lock of a file that an ended process held who holds it now."""
        for thread, process in tuple(self._lock_waits.items()):
            if process is ended:
                del self._lock_waits[thread]
            elif thread.blocked is not None and ended.reading.pid in thread.blocked.helper_pids:
                thread.is_postponed = True
                process.seen = process.threads.values()
                self._stale[process.reading.pid] = process

    def _forget(self, process: ProcessThreads) -> None:
        """Close the files of a process that has ended."""
        pid = process.reading.pid
        self._ask_for_holders_after(process)
        self._stale.pop(pid, None)
        self._changed.pop(pid, None)
        self._read_ended_ns += process.read_ns + process.unread_ns + process.later_ns
        self._files.close(process.folder_file)
        process.folder_file = None
        for thread in process.threads.values():
            thread.close()
            self._forget_run(thread, pid)
            self._ended_between.append(thread.thread_id)

    def _ask_threads_that_ran(
        self, budget: LookBudget, now: ReadingNumberAndTime, *, is_fresh: bool
    ) -> None:
        """Ask the threads that have run what they wait for now, as many as the budget allows."""
        left = _MAX_ASKED
        for process in tuple(self._stale.values()):
            if process.shows_only_state:
                if not self._note_state(process, now.at_ns):
                    del self._stale[process.reading.pid]
            else:
                if left > 0 and not (is_fresh or budget.is_spent):
                    self._read_state(process)
                left -= self._ask_threads(process, left, budget, now)

    def _read_state(self, process: ProcessThreads) -> None:
        """Read whether a process has been stopped since its reading, or goes on: its threads show
        the same calls. Beside a tracer such as strace, one of both can run at any moment, so that
        the state of the reading stays.
        """
        first = process.threads.get(process.reading.pid)
        if first is None or process.state == TRACED_STATE:
            return
        state = first.read_state().letter
        if state != TRACED_STATE:
            process.state = state

    def _ask_threads(
        self, process: ProcessThreads, most: int, budget: LookBudget, now: ReadingNumberAndTime
    ) -> int:
        """Ask the threads of a process, at most so many; returns how many were asked."""
        asked = 0
        is_open = False
        parents: list[FollowedThread] = []
        may_go_on = not (process.is_refused or self._group.is_frozen)
        may_go_on = may_go_on and process.state in (SLEEP_STATE, RUNNABLE_STATE)
        for thread in process.seen:
            if not (thread.is_stale or thread.is_postponed or _may_others_add_watches(thread)):
                continue
            if asked < most and budget.allows_threads():
                if not (may_go_on and self._is_in_same_call(process, thread)):
                    self._ask_thread(process, thread, now.at_ns)
                asked += not process.is_refused  # reading a state costs little
                if thread.blocked is not None and self._may_miss_child(process, thread.blocked):
                    parents.append(thread)
            is_open = is_open or thread.is_stale or thread.is_postponed
        process.was_sleeping = False
        if not is_open:
            del self._stale[process.reading.pid]
        if parents:
            asked += self._look_at_children(process, parents, most - asked, budget, now)
        if any(one.blocked is not None and one.blocked.wait.kind == "child" for one in parents):
            self._parents.append(process)
        return asked

    def _is_any_child_missing(self) -> bool:
        """Whether a process waits for a child, and none lives, now that all were asked."""
        return not all(self._has_living_child(parent) for parent in self._parents)

    def _has_living_child(self, parent: ProcessThreads) -> bool:
        """Whether a child of the process was seen that has not ended."""
        return any(
            child.reading.parent_pid == parent.reading.pid and _lives(child)
            for child in self._processes.values()
        )

    def _have_all_ended(self) -> bool:
        """Whether no thread lives, as far as all were read."""
        return not (self._changed or any(map(_lives, self._processes.values())))

    def _is_in_same_call(self, process: ProcessThreads, thread: FollowedThread) -> bool:
        """Whether a thread that ran is in the same call again, in which each thread waits for the
        same; then this is noted. Most threads of most programs do so: it takes a third of the time.
        """
        blocked = thread.blocked
        if blocked is None or not thread.is_stale or not thread.is_in_read_call:
            return False
        if thread.call is None or self._resolver.unconditional_wait(thread.call) is not blocked:
            return False
        pid = process.reading.pid
        thread.is_stale = thread.is_postponed = False
        self._new_waits.setdefault(pid, {})[thread] = None
        self._seen.append(ThreadSeen(thread.thread_id, pid, blocked))
        return True

    def _ask_thread(self, process: ProcessThreads, thread: FollowedThread, now_ns: int) -> None:
        """Ask a thread what it does now, and whether something came in its wait before."""
        arrivals: Sequence[ConnectionArrival] = ()
        before = thread.blocked
        is_same_wait = not (thread.is_stale or thread.is_postponed)
        is_same_sleep = not thread.is_stale and before in DISK_BY_STATE
        if is_same_sleep and thread.has_run:
            thread.is_postponed = False
            return  # as it was when it was asked
        if before is not None and before.connections and thread.is_stale:
            arrivals = self._resolver.read_arrivals(before)
        blocked = self._blocked.read_blocked_thread(process, thread, now_ns)
        self.sees_calls = self.sees_calls or self._blocked.has_seen_call
        self._note_wait(process, thread, blocked)
        if is_same_wait and _has_unchanged_watched_connections(before, blocked):
            return  # with how much the wait began is known
        if self._group.is_frozen and blocked is not ENDED:
            blocked = STOPPED
        thread.is_stale = False
        thread.blocked = blocked
        self._note_lock_wait(process, thread)
        if blocked is None:
            self._able.add(thread)
        else:
            self._able.discard(thread)
            is_known = blocked.is_hidden or blocked.is_stopped or blocked is ENDED
            if not (is_known or is_same_wait):
                self._new_waits.setdefault(process.reading.pid, {})[thread] = None
        if blocked is ENDED:
            self._ended.append(thread.thread_id)
        else:
            pid = process.reading.pid
            is_stopped = blocked is not None and blocked.is_stopped  # a signal ended the wait
            was_woken = False
            was_due: bool | None = None
            timed_out: bool | None = False
            if before is not None and before.may_time_out and not is_stopped:
                begin = thread.work_begin_bounds(now_ns, is_able=blocked is None)
                was_woken = has_ended_before_timeout(before, begin, now_ns)
                was_due = was_due_as_work_began(before, begin)
                if before.may_go_on:
                    timed_out = did_timeout_end_poll(before, arrivals, begin, now_ns)
            # What comes until the thread runs may come on any connection that it watched.
            adds = is_same_wait and before is not None and bool(before.connections)
            came = what_came(arrivals, timed_out=timed_out) if arrivals else ()
            seen = ThreadSeen(
                thread.thread_id,
                pid,
                blocked,
                came,
                was_woken,
                timed_out,
                None if is_same_wait else self._may_have_client(pid, thread, before, blocked),
                is_correction=adds or is_same_sleep,
                came_before_ns=first_arrival_before_ns(arrivals),
                was_due=was_due,
            )
            self._seen.append(seen)

    def _note_wait(
        self, process: ProcessThreads, thread: FollowedThread, blocked: BlockedThread | None
    ) -> None:
        """Note whether a thread waits for something else than before, and waits for a disk."""
        if blocked is not None and blocked.wait != thread.last_wait:
            thread.last_wait = blocked.wait
            self._has_other_waits = True
        if process.is_refused and (blocked is HIDDEN_DISK or blocked is MEMORY):
            self._turns.note_disk(0 if self._last is None else self._last.number)

    def _may_miss_child(self, process: ProcessThreads, blocked: BlockedThread) -> bool:
        """Whether a thread may have a child that began since the processes were read, and matters:
        it waits for it, is told of its end by a signal, or asks again and again whether it has
        ended, which no thread of a pool does.
        """
        if blocked.may_wait_for_children:
            return True
        may_ask = blocked.may_ask_for_children and len(process.threads) <= _MAX_PARENTS
        return (may_ask or blocked.may_be_told_of_child) and self._may_have_newer()

    def _may_have_newer(self) -> bool:
        """Whether an id was assigned since the processes were read; asked once in a look, together
        with the number of threads of the machine that can run.
        """
        if self._has_newer is None:
            able, newest = self._load.able_threads_and_last_pid()
            self._able_on_machine = difference(able, 1)  # without the calling one
            self._has_newer = newest is None or newest != self._newest_pid
        return self._has_newer

    def _follow_new_processes(self, last: ReadingNumberAndTime) -> None:
        """Follow the processes that began since the processes were read, and whose parents have
        ended: a double fork leaves its work to one, for which others wait at a pipe or a socket.
        The kernel gives it to the first process of a container, or to the one that started that,
        at the latest to the first one of all. Without system calls nobody knows who waits for a
        child: then follow all.
        """
        if not self._may_have_newer():
            return
        parents = self._adopters()
        if not self.sees_calls:
            parents = {*parents, *self._processes}
        for pid in self._new_children_of(parents):
            if self._is_of_batch(pid) and (stat := self._read_living(pid)) is not None:
                process = self._follow_new(pid, stat, last)
                process.is_refused = not self.sees_calls

    def _adopters(self) -> Collection[int]:
        found: set[int] = set()
        for pid, process in self._processes.items():
            parent = process.reading.parent_pid
            if parent not in self._processes:
                found.update((pid, parent or _FIRST_PID))
        return found

    def _new_children_of(self, parents: Collection[int]) -> Collection[int]:
        """The unknown ones of these processes' first threads, which adopt; of many, the last."""
        pids: set[int] = set()
        for parent in parents:
            path = f"{self._folder}/{parent}/task/{parent}/children"
            pids.update(proc.parse_child_pids(proc.read_or_none(path) or b""))
        return sorted(pids.difference(self._processes))[-_MAX_ASKED:]

    def _read_living(self, pid: int) -> proc.ProcessStat | None:
        """The state of a process; None if it has ended."""
        stat = proc.parse_stat(proc.read_or_none(f"{self._folder}/{pid}/stat") or b"")
        return None if stat is None or stat.state in ENDED_STATES else stat

    def _follow_new(
        self, pid: int, stat: proc.ProcessStat, last: ReadingNumberAndTime
    ) -> ProcessThreads:
        """Follow a process that began since the processes were read."""
        reading = ProcessReading(
            pid=pid,
            started_ticks=stat.started_ticks,
            own_cpu_ns=0,
            children_cpu_ns=0,
            threads=stat.threads,
            state=stat.state,
            parent_pid=stat.parent_pid,
        )
        process = ProcessThreads(reading, stat.started_ticks, last)
        process.thread_count = stat.threads
        process.state = stat.state
        self._processes[pid] = self._changed[pid] = process
        self._is_shown = False
        return process

    def _look_at_children(
        self,
        process: ProcessThreads,
        parents: Collection[FollowedThread],
        most: int,
        budget: LookBudget,
        now: ReadingNumberAndTime,
    ) -> int:
        """Look at the children of these threads that began since the processes were read; returns
        how many were asked.
        """
        asked = 0
        for pid in self._children_of_threads(process, parents):
            if pid in self._processes or asked >= most or not budget.allows_threads():
                continue
            stat = self._read_living(pid)
            if stat is None:
                continue
            before = self._last or ReadingNumberAndTime(0, now.at_ns)
            child = self._follow_new(pid, stat, before)
            child.is_refused = process.is_refused
            self._read_remaining_threads(child, budget, now, None)
            asked += 1 + self._ask_threads(child, most - asked, budget, now)
        return asked

    def _children_of_threads(
        self, process: ProcessThreads, parents: Collection[FollowedThread]
    ) -> Collection[int]:
        """The children of these threads, and of the others of their process: if these are many, of
        those that ran last. In Java, another thread starts a child than waits for it.
        """
        if len(process.threads) <= _MAX_PARENTS:
            parents = process.threads.values()
        else:
            latest = sorted(process.threads.values(), key=lambda thread: -thread.ran_after_ns)
            parents = dict.fromkeys((*parents, *latest[:_MAX_PARENTS]))
        pids: list[int] = []
        for thread in parents:
            pids += proc.parse_child_pids(proc.read_or_none(f"{thread.path}/children") or b"")
        return pids

    def _look_for_frozen(self, budget: LookBudget) -> None:
        """Look which threads that wait since an earlier look are in a frozen group of version 2
        that is not the one of the first process: the kernel shows them in their calls, as if they
        slept. Waits that are over by now are not looked at, and none a second time.

        All threads of a process are frozen together, those in interruptible sleeps at once. So one
        of these that is not says it of all, and nobody looks at a process that has just run.
        """
        have_run = {grown.process for grown in self._growth}
        for pid in [pid for pid in self._new_waits if pid not in have_run]:
            threads = self._new_waits[pid]
            while threads and budget.allows_threads():
                thread, _ = threads.popitem()
                if thread.is_stale:
                    continue
                if kernel_function(thread) in _FROZEN_IN:
                    self._note_frozen(thread, pid)
                elif thread.blocked is not None and thread.blocked.wait.kind in INTERRUPTIBLE_KINDS:
                    threads.clear()
            if not threads:
                del self._new_waits[pid]

    def _note_frozen(self, thread: FollowedThread, pid: int) -> None:
        """Note a thread whose group is frozen, if it sleeps."""
        if thread.read_state().letter != SLEEP_STATE:
            return
        thread.blocked, thread.is_postponed = STOPPED, False
        # It has not run since it was asked, as it does when it is frozen.
        self._seen.append(ThreadSeen(thread.thread_id, pid, STOPPED, is_correction=True))
        self._has_other_waits = True

    def _look_for_able(self, budget: LookBudget) -> None:
        """Look for threads that can run, though they have not run since they were blocked, or were
        not read; those that were asked in this look have said what they do.
        """
        asked = {seen.thread for seen in self._seen}
        workers = self._unasked_threads(self._workers, asked)
        others = self._unasked_threads(self._recent, asked)
        count = 0
        for thread, pid in (workers + others)[:_MAX_STATES]:
            # The cost of asking counts: to read the states of many others makes looks dear.
            if count == len(workers):
                budget.allows_threads(len(asked))
            if not budget.allows_threads():
                break
            count += 1
            before = thread.blocked
            if thread.read_state().letter == RUNNABLE_STATE:
                thread.blocked = None
                self._seen.append(self._thread_woken_now(thread, pid, before))
        left_workers = max(len(workers) - count, 0)
        left_others = len(workers) + len(others) - count - left_workers
        if left_workers or left_others:
            self._asked_share = self._peeks.share_of_work(
                1 - left_workers / max(len(self._workers), 1),
                1 - left_others / max(len(self._recent), 1),
            )

    def _unasked_threads(
        self, threads: dict[FollowedThread, int], asked: Collection[int]
    ) -> list[tuple[FollowedThread, int]]:
        """Those of the threads that may be able to run, with their processes, and were not asked,
        in turn: if not all can be, each is as likely to be.
        """
        since_ns = self._at_ns - _LONG_ASLEEP_NS
        unasked = [
            (thread, pid)
            for thread, pid in threads.items()
            if thread.thread_id not in asked
            and (thread.ran_after_ns >= since_ns or pid in self._changed)
            and not (thread.blocked and thread.blocked.is_hidden)
        ]
        number = 0 if self._last is None else self._last.number
        first = int(number * GOLDEN_PART % 1 * len(unasked))
        return unasked[first:] + unasked[:first]

    def _thread_woken_now(
        self, thread: FollowedThread, pid: int, before: BlockedThread | None
    ) -> ThreadSeen:
        """A thread that can run, and has not run yet: its wait ended since the last look."""
        if before is None:
            return ThreadSeen(thread.thread_id, pid, None)
        arrivals = self._resolver.read_arrivals(before)
        timed_out: bool | None = False
        if before.may_go_on and self._last is not None:
            begin = WorkBeginBounds(self._last.at_ns, self._at_ns, is_known=False, worked_ns=0)
            timed_out = did_timeout_end_poll(before, arrivals, begin, self._at_ns)
        came = what_came(arrivals, timed_out=timed_out)
        return ThreadSeen(
            thread.thread_id,
            pid,
            None,
            came,
            has_ended_before_timeout(before, None, self._at_ns),
            timed_out,
            self._may_have_client(pid, thread, before, None),
            came_before_ns=first_arrival_before_ns(arrivals),
        )

    def _may_have_client(
        self,
        pid: int,
        thread: FollowedThread,
        before: BlockedThread | None,
        blocked: BlockedThread | None,
    ) -> bool | None:
        """Whether anybody may have connected since this was asked last to what the thread listened
        to in its wait before: somebody has connected to a process of its network then, or that is
        not known. None if it only goes on waiting, and nobody asked.
        """
        if thread.accepted is None and blocked is not None and blocked.is_timeout_of_listeners:
            thread.accepted = read_accepted_connections(self._folder, pid)
        if not before or not before.is_timeout_of_listeners:
            return None
        if blocked and thread.busy_ns - thread.queued_ns < NS_PER_MS:
            return None
        known = thread.accepted
        thread.accepted = read_accepted_connections(self._folder, pid)
        return known is None or thread.accepted != known

    def _note_state(self, process: ProcessThreads, now_ns: int) -> bool:
        """Note what the only thread waits for, by the state that was read with the process; returns
        whether it is to be asked again.
        """
        (thread,) = process.threads.values()
        self._ask_thread(process, thread, now_ns)
        process.was_sleeping = process.reading.state == SLEEP_STATE
        return thread.is_postponed


def _lives(process: ProcessThreads) -> bool:
    """Whether a thread of the process was seen that has not ended."""
    return any(thread.blocked is not ENDED for thread in process.threads.values())


def _busy_share(grown: ThreadTimeGrowth) -> float:
    """The share of the time for which a thread could run."""
    return (grown.run_ns + grown.wait_ns) / max(grown.span_ns, 1)


def _certainly_busiest(
    growth: Sequence[ThreadTimeGrowth], least_ns: float
) -> ThreadTimeGrowth | None:
    """A thread that certainly could run for so long in each of its steps; None if none could."""
    for grown in growth:
        if 0 < least_ns <= (grown.run_ns + grown.wait_ns) / grown.steps:
            return grown
    return None


def _has_unchanged_watched_connections(
    before: BlockedThread | None, now: BlockedThread | None
) -> bool:
    """Whether a thread that has not run watches the same connections, and children or pipes."""
    if before is None or now is None or before.wait != now.wait:
        return False
    if before.otherwise != now.otherwise:
        return False
    return [each.stream for each in before.connections] == [each.stream for each in now.connections]


def _may_others_add_watches(thread: FollowedThread) -> bool:
    """Whether a thread that has not run may watch more by now."""
    return thread.blocked is not None and thread.blocked.others_add

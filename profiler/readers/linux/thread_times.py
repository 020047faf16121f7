"""Reads the threads of processes: time on a CPU, time waiting for one, and what the blocked ones
wait for.

Every user can read ``schedstat`` and the state; the system call only the same user or SYS_PTRACE. A
thread that has not been on a CPU is still blocked in the same call, and not read again.
"""

import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import zip_longest

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux import proc
from profiler.readers.linux.cpu_pressure import (
    CpuPressure,
    PressureFiles,
    open_machine_pressure,
)
from profiler.readers.linux.process_tree import ProcessReading
from profiler.readers.linux.thread_counters import (
    ReadingTime,
    Thread,
    ThreadFiles,
    ThreadGrowth,
    ThreadState,
    open_thread,
)
from profiler.readers.linux.waited_target import (
    TIMER,
    SystemCall,
    Wait,
    WaitResolver,
    calls_of,
    parse_system_call,
)

# The most threads whose system call is read at once. The others follow in the next readings.
_MAX_ASKED = 64
# Without system calls there is little to see: of processes that have several threads, each thread
# has its turn after a tenth of all readings so far, and at least every twentieth time, if there are
# not too many. As a reading costs much more than one more thread, so many are read together.
_AGE_PER_TURN = 10
_MAX_READINGS_PER_TURN = 20
_MAX_TOGETHER = 64
# The share of a CPU that readings take, and how much of it in advance, as the first one, which
# opens all files. Half of it is for the counters. A reading checks its cost after this many
# threads.
_MAX_CPU_SHARE = 0.002
_ADVANCE_NS = 20 * NS_PER_MS
_UNCHECKED = 16
_MAX_FILE_BYTES = 1024
_DISK_STATE = "D"
_SLEEP_STATE = "S"
_STOPPED_STATES = ("T", "t")
_ENDED_STATES = ("Z", "X", "x", "")
_DISK = Wait("disk")
_OTHER = Wait("other")
_ENDED = Wait("ended")
_LOCK = Wait("lock")
_FOR_THREADS = (TIMER, _LOCK)
# Threads of the Java virtual machine that look at something now and then: the program does not
# sleep for their sake. The kernel keeps 15 characters of a name.
_RUNTIME_THREADS = frozenset(
    (
        *("VM Periodic Tas", "VM Thread", "Monitor Deflati", "Common-Cleaner", "Service Thread"),
        *("C1 CompilerThre", "C2 CompilerThre", "Sweeper thread", "Reference Handl", "Finalizer"),
        *("G1 Service", "G1 Main Marker", "Notification Th", "Signal Dispatch", "Attach Listener"),
    )
)


class ThreadSample(Struct, frozen=True, kw_only=True):
    """The threads since the last reading.

    ``growth`` has those that ran or waited for a CPU since then; None if the kernel does not count
    this. ``waits`` are the present waits of the blocked threads whose system call was read, with
    their number. ``has_refused``: the system calls of a process are not readable. ``sees_calls``:
    any was readable so far. ``is_partial``: readable threads are missing, because there are too
    many. ``has_running``: one of them was on a CPU, or waited for one. ``shows_work``: the same of
    all threads, also where only their state is readable. ``is_behind``: the counters of threads are
    left for the next readings. ``pressure``: for how long any threads have waited for a CPU so far.
    """

    growth: Sequence[ThreadGrowth] | None = ()
    waits: Mapping[Wait, int] = {}
    has_refused: bool = False
    sees_calls: bool = False
    is_partial: bool = False
    has_running: bool = False
    shows_work: bool = False
    is_behind: bool = False
    pressure: CpuPressure | None = None


class _Process(Struct, eq=False):
    """One process with its threads, by their ids.

    All threads were known last at ``still_at``; ``left`` are those to be read until all are known
    again. ``seen`` are the threads whose ``waits`` count. ``has_run``: it was on a CPU since the
    first of its threads was read. ``is_refused``: its system calls are not readable.
    ``was_sleeping``: its only thread was, when its state was noted last.
    """

    reading: ProcessReading
    started_ticks: int
    still_at: ReadingTime
    threads: dict[int, Thread] = {}
    left: list[Thread] = []
    seen: Collection[Thread] = ()
    waits: Mapping[Wait, int] = {}
    has_run: bool = False
    is_refused: bool = False
    was_sleeping: bool = False

    @property
    def has_known_state(self) -> bool:
        """Whether the state of the process is all that can be known of its waits."""
        if not self.is_refused or self.reading.threads != 1 or self.left:
            return False
        return len(self.threads) == 1


class _Budget:
    """The limit of the cost of a part of a reading, until it ``is_spent``.

    The first threads are always allowed.
    """

    def __init__(self, spent_ns: Callable[[], int], limit_ns: float) -> None:
        self._spent_ns = spent_ns
        self._limit_ns = limit_ns
        self._count = 0
        self.is_spent = False

    def allows(self) -> bool:
        """Whether one more thread may be read."""
        self._count += 1
        if self._count % _UNCHECKED == 0:
            self.is_spent = self.is_spent or self._spent_ns() >= self._limit_ns
        return not self.is_spent


class ThreadReader:
    """Reads the threads of a batch's processes.

    ``own_cpu_ns`` is the calling thread's CPU time; ``peer_inode`` is as of
    :class:`~profiler.readers.linux.sockets.Sockets`. ``open_pressure`` opens the counters of a
    process's control group. ``is_frozen``: whether this group is stopped. Not thread-safe.
    """

    def __init__(
        self,
        own_cpu_ns: Callable[[], int],
        proc_folder: str = "/proc",
        machine: str | None = None,
        *,
        peer_inode: Callable[[int], int | None] = lambda _: None,
        open_pressure: Callable[[int], PressureFiles] | None = None,
        is_frozen: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self._own_cpu_ns = own_cpu_ns
        self._folder = proc_folder
        self._calls = calls_of(os.uname().machine if machine is None else machine)
        self._resolver = WaitResolver(self._calls, proc_folder, own_cpu_ns, peer_inode)
        self._budget_ns = float(_ADVANCE_NS)
        self._processes: dict[int, _Process] = {}
        self._followed: Collection[ProcessReading] = ()  # as of the last reading
        self._changed: dict[int, _Process] = {}
        self._stale: dict[int, _Process] = {}
        self._turn_number = 0  # of the last reading in which threads had their turn
        self._turns_left = 0
        # The last sample if the system calls of a process are not readable.
        self._last_refused: ThreadSample | None = None
        # Of all processes: the sum of their waits, and those of which a thread was not blocked when
        # it was asked, or whose system calls are not readable.
        self._waits: dict[Wait, int] = {}  # a Counter takes several times as long
        self._running: set[int] = set()
        self._refused: set[int] = set()
        self._files = ThreadFiles()
        self._open_pressure = open_pressure
        self._is_frozen = is_frozen
        self._pressure_files: PressureFiles | None = None
        self._last: ReadingTime | None = None
        self._growth: list[ThreadGrowth] = []  # of the present reading
        self._is_counting = False
        self._sees_calls = False

    def read(
        self, processes: Collection[ProcessReading], now_ns: int, *, is_required: bool = False
    ) -> ThreadSample | None:
        """Read the threads of these processes; None if that would cost too much now, unless it
        ``is_required``.
        """
        last = self._last or ReadingTime(0, now_ns)
        length_ns = now_ns - last.at_ns
        budget_ns = min(self._budget_ns + length_ns * _MAX_CPU_SHARE, _ADVANCE_NS)
        if budget_ns < 0 and not is_required:
            return None
        now = ReadingTime(last.number + 1, now_ns)
        self._follow(processes, last)
        due = self._due(now, is_required=is_required)
        if not due and self._changed and not self._stale and self._last_refused is not None:
            self._last = now
            self._budget_ns = budget_ns
            self._last_refused = self._without_growth(self._last_refused)
            return self._last_refused
        began_ns = self._own_cpu_ns() - self._resolver.sockets.lookup_ns

        def spent_ns() -> int:
            """The cost of this reading, without the search for peers, which has its own limit."""
            return self._own_cpu_ns() - self._resolver.sockets.lookup_ns - began_ns

        reads = _Budget(spent_ns, math.inf if is_required else budget_ns / 2)
        growth = self._growth = []
        self._read_due(due, reads, now, is_required=is_required)
        is_busy = self._last is not None and 0 < length_ns <= _busy_ns(growth)
        if self._stale and not is_busy:
            self._ask_stale(_Budget(spent_ns, budget_ns), now_ns)
        self._last = now
        sample = self._sample(is_busy=is_busy)
        self._last_refused = sample if sample.has_refused else None
        self._budget_ns = budget_ns - spent_ns()
        return sample

    def read_last(self, now_ns: int) -> ThreadSample:
        """Read the counters of all threads that were seen, for the last time: a zombie's
        counters are readable.
        """
        last = self._last or ReadingTime(0, now_ns)
        self._growth = []
        for pid, process in self._processes.items():
            if pid not in self._changed:
                process.still_at = last
            for thread in tuple(process.threads.values()):
                self._read_thread(process, thread, ReadingTime(last.number + 1, now_ns))
        return replace(self._sample(is_busy=False), waits={})

    def close(self) -> None:
        for process in self._processes.values():
            self._forget(process)
        self._processes = {}
        if self._pressure_files is not None:
            self._pressure_files.close()
            self._pressure_files = None

    def _sample(self, *, is_busy: bool) -> ThreadSample:
        """What is known now; no thread was blocked if the CPU ``is_busy``."""
        has_left = False
        if self._sees_calls:
            left = self._changed.keys() | self._stale.keys()
            has_left = bool(left - self._refused)
        return ThreadSample(
            growth=self._growth if self._is_counting else None,
            waits={} if is_busy else dict(self._waits),
            has_refused=bool(self._refused),
            sees_calls=self._sees_calls,
            is_partial=has_left,
            has_running=self._sees_calls and bool(self._running - self._refused),
            shows_work=is_busy or bool(self._running),
            is_behind=bool(self._changed),
            pressure=self._pressure(),
        )

    def _without_growth(self, sample: ThreadSample) -> ThreadSample:
        """The sample of a reading in which no thread has its turn."""
        if sample.is_behind and not sample.growth and sample.pressure is None:
            return sample
        growth = () if self._is_counting else None
        return replace(sample, growth=growth, is_behind=True, pressure=None)

    def _pressure(self) -> CpuPressure | None:
        """The counters of the group of the first process that was read, else the machine's."""
        if self._pressure_files is None:
            if not self._processes:
                return None
            if self._open_pressure is None:
                self._pressure_files = PressureFiles(open_machine_pressure(self._folder))
            else:
                self._pressure_files = self._open_pressure(next(iter(self._processes)))
        return self._pressure_files.read()

    def _follow(self, processes: Collection[ProcessReading], last: ReadingTime) -> None:
        """Note the processes whose threads may have run since the last reading."""
        known = self._processes
        followed = self._followed
        self._followed = processes
        for reading, before in zip_longest(processes, followed):
            # The reader of another container's processes returns an unchanged one again, mostly in
            # the same place.
            if reading is before or reading is None:
                continue
            process = known.get(reading.pid)
            if process is None or process.started_ticks != reading.started_ticks:
                if process is not None:
                    self._forget(process)
                self._last_refused = None
                process = _Process(reading, reading.started_ticks, last)
                known[reading.pid] = self._changed[reading.pid] = process
            elif process.reading is not reading:
                self._note_change(process, reading, last)
        if len(known) > len(processes):
            self._last_refused = None
            for pid in known.keys() - {reading.pid for reading in processes}:
                self._forget(known.pop(pid))

    def _note_change(self, process: _Process, reading: ProcessReading, last: ReadingTime) -> None:
        before = process.reading
        process.reading = reading
        process.has_run = process.has_run or (
            reading.own_cpu_ns != before.own_cpu_ns
            or reading.state != before.state
            or reading.threads != before.threads
        )
        if process.has_run and reading.pid not in self._changed:
            self._changed[reading.pid] = process
            process.still_at = last

    def _due(self, now: ReadingTime, *, is_required: bool) -> list[_Process]:
        """The processes whose threads may have run or are new, and are read now; those that take
        several readings come last.
        """
        due: list[_Process] = []
        in_turn: list[_Process] = []
        threads = 0
        for process in self._changed.values():
            if process.is_refused and process.reading.threads > 1 and not is_required:
                in_turn.append(process)
                threads += process.reading.threads
            else:
                due.append(process)
        if len(due) > 1 and any(process.left for process in due):
            due.sort(key=lambda process: bool(process.left) and not process.is_refused)
        if in_turn and self._have_turn(threads, now):
            due += in_turn
        return due

    def _have_turn(self, threads: int, now: ReadingTime) -> bool:
        """Whether as many threads have their turn as are read together."""
        turn = min(max(now.number // _AGE_PER_TURN, 1), _MAX_READINGS_PER_TURN)
        turn = max(turn, -(-threads // _MAX_TOGETHER))
        together = min(threads, _MAX_TOGETHER)
        self._turns_left = min(threads * (now.number - self._turn_number) // turn, together)
        if self._turns_left < together:
            return False
        self._turn_number = now.number
        return True

    def _read_due(
        self, due: Sequence[_Process], budget: _Budget, now: ReadingTime, *, is_required: bool
    ) -> None:
        """Read the counters of these processes' threads, as far as the budget allows."""
        for process in due:
            if not process.is_refused:
                self._set_waits(process, {})
                process.seen = ()
                self._running.discard(process.reading.pid)
            if budget.is_spent:
                continue
            if process.has_known_state and self._read_only_thread(process, now):
                budget.allows()
                continue
            if is_required or not process.is_refused or process.reading.threads == 1:
                self._continue(process, budget, now, None)
            elif self._turns_left > 0:
                self._turns_left -= self._continue(process, budget, now, self._turns_left)

    def _read_only_thread(self, process: _Process, now: ReadingTime) -> bool:
        """Read the counters of a process with one thread; returns False after the thread's end."""
        (thread,) = process.threads.values()
        if not self._read_thread(process, thread, now):
            return False
        reading = process.reading
        process.has_run = False
        process.still_at = now
        del self._changed[reading.pid]
        is_sleeping_again = (
            process.was_sleeping
            and reading.state == _SLEEP_STATE
            and reading.blocks_signals == thread.sleeps_unsignalled
        )
        thread.is_stale = not is_sleeping_again
        if not is_sleeping_again:
            self._stale[reading.pid] = process
        return True

    def _continue(
        self, process: _Process, budget: _Budget, now: ReadingTime, limit: int | None
    ) -> int:
        """Read the threads that are left, up to a ``limit``; returns how many were read."""
        pid = process.reading.pid
        is_first = not process.left
        if is_first:
            process.has_run = False
            process.left = list(reversed(process.threads.values()))
        read: list[Thread] = []
        has_looked = False
        while process.left or not has_looked:
            if not process.left:
                has_looked = True
                process.left = self._find_threads(process, now)
            elif len(read) == limit or not budget.allows():
                break
            elif self._read_thread(process, thread := process.left.pop(), now):
                read.append(thread)
        is_known = not process.left and (is_first or not process.has_run)
        if is_known:
            process.still_at = now
            del self._changed[pid]
        process.seen = process.threads.values() if is_known or process.is_refused else read
        self._stale[pid] = process
        return len(read)

    def _read_thread(self, process: _Process, thread: Thread, now: ReadingTime) -> bool:
        """Read a thread's counters; returns False after its end."""
        try:
            grown = thread.read(process.still_at, now)
        except (ProcessLookupError, ValueError):
            process.threads.pop(thread.thread_id).close()
            return False
        if grown is not None:
            self._is_counting = self._is_counting or grown.run_ns > 0
            self._growth.append(grown)
        return True

    def _find_threads(self, process: _Process, now: ReadingTime) -> list[Thread]:
        """The new threads of a process, if the number of the known ones is not the process's."""
        known = process.threads
        reading = process.reading
        if len(known) == reading.threads:
            # A state may have changed without a run: a signal has stopped the process.
            if len(known) == 1:
                next(iter(known.values())).is_stale = True
            return []
        folder = f"{self._folder}/{reading.pid}/task"
        appeared = []
        thread_ids = [reading.pid]
        if reading.threads > 1:
            thread_ids = proc.all_pids(folder)
        for thread_id in thread_ids:
            if thread_id not in known:
                known[thread_id] = open_thread(
                    thread_id,
                    f"{folder}/{thread_id}",
                    self._files,
                    self._last or ReadingTime(0, now.at_ns),
                )
                appeared.append(known[thread_id])
        return appeared

    def _forget(self, process: _Process) -> None:
        """Close the files of a process that has ended."""
        pid = process.reading.pid
        self._stale.pop(pid, None)
        self._changed.pop(pid, None)
        self._running.discard(pid)
        self._refused.discard(pid)
        self._set_waits(process, {})
        for thread in process.threads.values():
            thread.close()

    def _set_waits(self, process: _Process, waits: Mapping[Wait, int]) -> None:
        total = self._waits
        for wait, count in process.waits.items():
            total[wait] -= count
            if not total[wait]:
                del total[wait]
        for wait, count in waits.items():
            total[wait] = total.get(wait, 0) + count
        process.waits = waits

    def _ask_stale(self, budget: _Budget, now_ns: int) -> None:
        """Ask the threads that have run what they wait for now, as many as the budget allows."""
        left = _MAX_ASKED
        for process in tuple(self._stale.values()):
            if process.has_known_state:
                self._note_state(process, now_ns)
                del self._stale[process.reading.pid]
            else:
                left -= self._ask_threads(process, left, budget, now_ns)

    def _ask_threads(self, process: _Process, most: int, budget: _Budget, now_ns: int) -> int:
        """Ask the threads of a process, at most so many; returns how many were asked."""
        waits: dict[Wait, int] = {}
        asked = 0
        is_open = is_running = False
        for thread in process.seen:
            if thread.is_stale or thread.is_postponed:
                if asked < most and budget.allows():
                    thread.wait = self._ask(process, thread, now_ns)
                    thread.is_stale = False
                    asked += not process.is_refused  # reading a state costs little
                is_open = is_open or thread.is_stale or thread.is_postponed
            wait = thread.wait
            if thread.is_stale or wait is _ENDED:
                continue
            if wait is None:
                is_running = True
            else:
                waits[wait] = waits.get(wait, 0) + 1
        if any(wait.kind == "child" for wait in waits):
            # The other threads may wait for this one, or wake now and then to look.
            waits = {wait: count for wait, count in waits.items() if wait not in _FOR_THREADS}
        self._set_waits(process, waits)
        self._note_running(process, is_running=is_running)
        process.was_sleeping = False
        if not is_open:
            del self._stale[process.reading.pid]
        return asked

    def _note_running(self, process: _Process, *, is_running: bool) -> None:
        if is_running:
            self._running.add(process.reading.pid)
        else:
            self._running.discard(process.reading.pid)

    def _note_state(self, process: _Process, now_ns: int) -> None:
        """Note what the only thread waits for, by the state that was read with the process."""
        (thread,) = process.threads.values()
        thread.is_stale = False
        wait = self._ask(process, thread, now_ns)
        thread.wait = wait
        waits: dict[Wait, int] = {}
        if wait is not None and wait is not _ENDED:
            waits[wait] = 1
        if waits != process.waits:
            self._set_waits(process, waits)
        self._note_running(process, is_running=wait is None)
        process.was_sleeping = process.reading.state == _SLEEP_STATE

    def _ask(self, process: _Process, thread: Thread, now_ns: int) -> Wait | None:
        """None if the thread is not blocked."""
        thread.is_postponed = False
        reading = process.reading
        if reading.state in _STOPPED_STATES:
            return _OTHER
        if process.is_refused or not self._calls:
            process.is_refused = True
            self._refused.add(reading.pid)
            if reading.threads > 1:
                state = thread.read_state()
            else:
                state = ThreadState(reading.state, reading.blocks_signals)
            return self._wait_in_state(reading.pid, thread, state)
        try:
            call = parse_system_call(_read_once(f"{thread.path}/syscall"))
        except PermissionError:
            process.is_refused = True
            return self._ask(process, thread, now_ns)
        except OSError:
            return _ENDED
        self._sees_calls = True
        if call is None:
            return None
        return self._wait_in_call(reading.pid, thread, call, now_ns)

    def _wait_in_call(self, pid: int, thread: Thread, call: SystemCall, now_ns: int) -> Wait | None:
        wait = self._resolver.resolve(pid, call, now_ns)
        thread.is_postponed = self._resolver.sockets.has_postponed
        has_path = wait.kind == _DISK.kind and wait.target is not None
        if has_path and thread.read_state().letter == _SLEEP_STATE:
            wait = self._resolver.asleep(pid, call, wait)
        if wait.kind == _OTHER.kind:
            return self._wait_in_state(pid, thread, thread.read_state())
        if wait is TIMER:
            if thread.is_runtime is None:
                name = proc.read_beginning(f"{thread.path}/comm", _MAX_FILE_BYTES)
                thread.is_runtime = name.decode(errors="replace").rstrip() in _RUNTIME_THREADS
            return _LOCK if thread.is_runtime else TIMER
        return wait

    def _wait_in_state(self, pid: int, thread: Thread, state: ThreadState) -> Wait | None:
        """What a state shows without the system call; None for a thread that can run.

        A parent in vfork sleeps uninterruptibly, too, until its child executes a program. The C
        library and language runtimes block all signals meanwhile, but not in other sleeps.
        """
        if state.letter in _ENDED_STATES:
            return _ENDED
        if state.letter == "R":
            return None
        if state.letter == _SLEEP_STATE:
            thread.sleeps_unsignalled = state.blocks_signals
        if state.letter != _DISK_STATE or self._is_frozen(pid):
            return _OTHER
        is_in_vfork = state.blocks_signals and not thread.sleeps_unsignalled
        return _OTHER if is_in_vfork else _DISK


def _busy_ns(growth: Sequence[ThreadGrowth]) -> float:
    """For how long certainly no thread was blocked, in each of the steps."""
    run_ns = 0.0
    longest_wait_ns = 0.0
    for grown in growth:
        run_ns += grown.run_ns / grown.steps
        longest_wait_ns = max(longest_wait_ns, grown.wait_ns / grown.steps)
    return run_ns + longest_wait_ns


def _read_once(path: str) -> bytes:
    """The contents of a small file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, _MAX_FILE_BYTES)
    finally:
        os.close(descriptor)

"""Reads the threads of processes: time on a CPU, time waiting for one, and what the blocked ones
wait for.

Every user can read ``schedstat`` and the state; the system call only the same user or SYS_PTRACE. A
thread that has not been on a CPU is still blocked in the same call, and not read again.
"""

import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from resource import RLIMIT_NOFILE, getrlimit

from msgspec import Struct

from profiler.core.files import open_or_none
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux import proc
from profiler.readers.linux.cpu_pressure import (
    CpuPressure,
    PressureFiles,
    open_machine_pressure,
)
from profiler.readers.linux.process_tree import ProcessReading
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
# Each thread keeps one file open, up to a quarter of the files that may be open, usually 1024.
_MAX_OPEN_FILES = 256
_MAX_SHARE_OF_FILES = 4
# Without system calls there is little to see: of the threads of processes that have several, this
# many are read at a time, but each of them at least every tenth time.
_IN_TURN = 4
_MAX_TURNS = 10
# The share of a CPU that readings take, and how much of it in advance, as the first one, which
# opens all files. Half of it is for the counters. A reading checks its cost after this many
# threads.
_MAX_CPU_SHARE = 0.002
_ADVANCE_NS = 20 * NS_PER_MS
_UNCHECKED = 16
# Linux 6.18 sometimes counts the time in which a thread was blocked as a wait for a CPU, on a
# machine with much to do. So a thread that was blocked when it was asked, and has not run since,
# can have waited for at most the last step or this time. A longer wait does not count.
_MAX_UNSEEN_WAIT_NS = 500 * NS_PER_MS
_MAX_FILE_BYTES = 1024
_DISK_STATE = "D"
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


class ThreadGrowth(Struct, frozen=True, gc=False):
    """By how much a thread's time on a CPU, and waiting for one, grew in ``steps`` readings."""

    run_ns: int
    wait_ns: int
    steps: int = 1
    thread: int = 0
    is_new: bool = False


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


class _Moment(Struct, frozen=True, gc=False):
    number: int
    at_ns: int


class _Thread(Struct, eq=False):
    """One thread.

    ``is_stale``: it was on a CPU since ``wait`` was determined; ``is_postponed``: its peer was not.
    ``is_runtime``: it belongs to the language's runtime, None if not asked.
    """

    thread_id: int
    path: str
    descriptor: int | None
    read_at: _Moment
    text: bytes = b""
    run_ns: int = 0
    wait_ns: int = 0
    wait: Wait | None = None
    is_stale: bool = True
    is_postponed: bool = False
    is_runtime: bool | None = None

    def read(self, since: _Moment, now: _Moment) -> ThreadGrowth | None:
        """Read the counters; None if they are the same as before.

        Raises ProcessLookupError after the thread's end.

        ``since`` is the last reading before which the thread is known not to have run.
        """
        if self.read_at.number > since.number:
            since = self.read_at
        self.read_at = now
        descriptor = self.descriptor
        if descriptor is None:
            text = proc.read(f"{self.path}/schedstat") or b""
        else:
            text = proc.reread(descriptor)
        if text == self.text:
            # Without counters nothing shows that the thread did not run.
            self.is_stale = self.is_stale or not text
            return None
        run, _, rest = text.partition(b" ")
        wait, separator, _ = rest.partition(b" ")
        if not separator:
            raise ProcessLookupError(self.path)
        run_ns = int(run)
        wait_ns = int(wait)
        is_new = not self.text
        # A thread that executes a program takes the id of the first thread, but keeps its own
        # smaller counters.
        waited_ns = max(wait_ns - self.wait_ns, 0)
        length_ns = now.at_ns - since.at_ns
        if (
            waited_ns > max(length_ns, _MAX_UNSEEN_WAIT_NS)
            and self.wait is not None
            and not self.is_stale
        ):
            waited_ns = 0
        steps = now.number - since.number
        growth = ThreadGrowth(
            max(run_ns - self.run_ns, 0), waited_ns, steps, self.thread_id, is_new
        )
        self.text = text
        self.run_ns = run_ns
        self.wait_ns = wait_ns
        self.is_stale = True
        return growth


class _Process(Struct, eq=False):
    """One process with its threads, by their ids.

    All threads were known last at ``still_at``; ``left`` are those to be read until all are known
    again. ``seen`` are the threads whose ``waits`` count. ``has_run``: it was on a CPU since the
    first of its threads was read. ``is_running``: one of its threads was not blocked when it was
    asked. ``is_refused``: its system calls are not readable.
    """

    reading: ProcessReading
    still_at: _Moment
    threads: dict[int, _Thread] = {}
    left: list[_Thread] = []
    seen: Collection[_Thread] = ()
    waits: Mapping[Wait, int] = {}
    has_run: bool = False
    is_running: bool = False
    is_refused: bool = False


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
    process's control group. Not thread-safe.
    """

    def __init__(
        self,
        own_cpu_ns: Callable[[], int],
        proc_folder: str = "/proc",
        machine: str | None = None,
        peer_inode: Callable[[int], int | None] = lambda _: None,
        open_pressure: Callable[[int], PressureFiles] | None = None,
    ) -> None:
        self._own_cpu_ns = own_cpu_ns
        self._folder = proc_folder
        self._calls = calls_of(os.uname().machine if machine is None else machine)
        self._resolver = WaitResolver(self._calls, proc_folder, own_cpu_ns, peer_inode)
        self._budget_ns = float(_ADVANCE_NS)
        self._processes: dict[int, _Process] = {}
        self._changed: dict[int, _Process] = {}
        self._stale: dict[int, _Process] = {}
        self._turns = 0
        self._max_files = min(_MAX_OPEN_FILES, getrlimit(RLIMIT_NOFILE)[0] // _MAX_SHARE_OF_FILES)
        self._open_files = 0
        self._open_pressure = open_pressure
        self._pressure_files: PressureFiles | None = None
        self._last: _Moment | None = None
        self._growth: list[ThreadGrowth] = []  # of the present reading
        self._is_counting = False
        self._sees_calls = False

    def read(
        self, processes: Collection[ProcessReading], now_ns: int, *, is_required: bool = False
    ) -> ThreadSample | None:
        """Read the threads of these processes; None if that would cost too much now, unless it
        ``is_required``.
        """
        last = self._last or _Moment(0, now_ns)
        length_ns = now_ns - last.at_ns
        budget_ns = min(self._budget_ns + length_ns * _MAX_CPU_SHARE, _ADVANCE_NS)
        if budget_ns < 0 and not is_required:
            return None
        began_ns = self._own_cpu_ns() - self._resolver.sockets.lookup_ns

        def spent_ns() -> int:
            """The cost of this reading, without the search for peers, which has its own limit."""
            return self._own_cpu_ns() - self._resolver.sockets.lookup_ns - began_ns

        now = _Moment(last.number + 1, now_ns)
        self._follow(processes, last)
        reads = _Budget(spent_ns, math.inf if is_required else budget_ns / 2)
        growth = self._growth = []
        self._read_changed(reads, now, is_required=is_required)
        # In this time certainly no thread was blocked.
        busy_ns = sum([grown.run_ns / grown.steps for grown in growth])
        busy_ns += max([grown.wait_ns / grown.steps for grown in growth], default=0.0)
        is_busy = self._last is not None and 0 < length_ns <= busy_ns
        waits: dict[Wait, int] = {}  # a Counter takes several times as long
        if not is_busy:
            self._ask_stale(_Budget(spent_ns, budget_ns), now_ns)
            for process in self._processes.values():
                if not process.waits:
                    continue
                for wait, count in process.waits.items():
                    waits[wait] = waits.get(wait, 0) + count
        self._last = now
        self._budget_ns = budget_ns - spent_ns()
        return self._sample(waits, is_busy=is_busy)

    def read_last(self, now_ns: int) -> ThreadSample:
        """Read the counters of all threads that were seen, for the last time: a zombie's
        counters are readable.
        """
        last = self._last or _Moment(0, now_ns)
        self._growth = []
        for pid, process in self._processes.items():
            if pid not in self._changed:
                process.still_at = last
            for thread in tuple(process.threads.values()):
                self._read_thread(process, thread, _Moment(last.number + 1, now_ns))
        return self._sample({})

    def close(self) -> None:
        for process in self._processes.values():
            self._forget(process)
        self._processes = {}
        if self._pressure_files is not None:
            self._pressure_files.close()
            self._pressure_files = None

    def _sample(self, waits: Mapping[Wait, int], *, is_busy: bool = False) -> ThreadSample:
        has_refused = is_partial = has_running = False
        shows_work = is_busy
        for pid, process in self._processes.items():
            shows_work = shows_work or process.is_running
            if process.is_refused:
                has_refused = True
                continue
            is_partial = is_partial or pid in self._changed or pid in self._stale
            has_running = has_running or process.is_running
        return ThreadSample(
            growth=self._growth if self._is_counting else None,
            waits=waits,
            has_refused=has_refused,
            sees_calls=self._sees_calls,
            is_partial=self._sees_calls and is_partial,
            has_running=self._sees_calls and has_running,
            shows_work=shows_work,
            is_behind=bool(self._changed),
            pressure=self._pressure(),
        )

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

    def _follow(self, processes: Collection[ProcessReading], last: _Moment) -> None:
        """Note the processes whose threads may have run since the last reading."""
        known = self._processes
        for reading in processes:
            process = known.get(reading.pid)
            if process is not None:
                before = process.reading
                # The reader of another container's processes returns an unchanged one again.
                if before is reading:
                    continue
                if before.started_ticks == reading.started_ticks:
                    process.reading = reading
                    now = (reading.own_cpu_ns, reading.state, reading.threads)
                    has_changed = (before.own_cpu_ns, before.state, before.threads) != now
                    process.has_run = process.has_run or has_changed
                    if has_changed and reading.pid not in self._changed:
                        self._changed[reading.pid] = process
                        process.still_at = last
                    continue
                self._forget(process)
            known[reading.pid] = self._changed[reading.pid] = _Process(reading, last)
        if len(known) > len(processes):
            for pid in known.keys() - {reading.pid for reading in processes}:
                self._forget(known.pop(pid))

    def _read_changed(self, budget: _Budget, now: _Moment, *, is_required: bool) -> None:
        """Read the threads that may have run and new ones; processes that take several readings
        come last.
        """
        changed = sorted(
            self._changed.values(),
            key=lambda process: bool(process.left) and not process.is_refused,
        )
        self._turns += max(
            _IN_TURN, -(-sum([process.reading.threads for process in changed]) // _MAX_TURNS)
        )
        for process in changed:
            if not process.is_refused:
                process.waits = {}
                process.seen = ()
                process.is_running = False
            if budget.is_spent:
                continue
            if not process.is_refused or process.reading.threads == 1 or is_required:
                self._continue(process, budget, now, None)
            elif self._turns >= min(
                process.reading.threads, _UNCHECKED
            ):  # reading few at a time costs more
                self._turns -= self._continue(process, budget, now, self._turns)
        most = max([process.reading.threads for process in self._changed.values()], default=0)
        self._turns = min(self._turns, most, _UNCHECKED)

    def _continue(self, process: _Process, budget: _Budget, now: _Moment, limit: int | None) -> int:
        """Read the threads that are left, up to a ``limit``; returns how many were read."""
        pid = process.reading.pid
        is_first = not process.left
        if is_first:
            process.has_run = False
            process.left = list(reversed(process.threads.values()))
        read: list[_Thread] = []
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

    def _read_thread(self, process: _Process, thread: _Thread, now: _Moment) -> bool:
        """Read a thread's counters; returns False after its end."""
        try:
            grown = thread.read(process.still_at, now)
        except (ProcessLookupError, ValueError):
            self._close_file(process.threads.pop(thread.thread_id))
            return False
        if grown is not None:
            self._is_counting = self._is_counting or grown.run_ns > 0
            self._growth.append(grown)
        return True

    def _find_threads(self, process: _Process, now: _Moment) -> list[_Thread]:
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
                path = f"{folder}/{thread_id}"
                descriptor = None
                if self._open_files < self._max_files:
                    descriptor = open_or_none(f"{path}/schedstat")
                self._open_files += descriptor is not None
                known[thread_id] = _Thread(
                    thread_id, path, descriptor, self._last or _Moment(0, now.at_ns)
                )
                appeared.append(known[thread_id])
        return appeared

    def _forget(self, process: _Process) -> None:
        """Close the files of a process that has ended."""
        self._stale.pop(process.reading.pid, None)
        self._changed.pop(process.reading.pid, None)
        for thread in process.threads.values():
            self._close_file(thread)

    def _close_file(self, thread: _Thread) -> None:
        if thread.descriptor is not None:
            os.close(thread.descriptor)
            self._open_files -= 1

    def _ask_stale(self, budget: _Budget, now_ns: int) -> None:
        """Ask the threads that have run what they wait for now, as many as the budget allows."""
        left = _MAX_ASKED
        for pid, process in tuple(self._stale.items()):
            waits: dict[Wait, int] = {}
            is_open = process.is_running = False
            for thread in process.seen:
                if thread.is_stale or thread.is_postponed:
                    if left and budget.allows():
                        thread.wait = self._ask(process, thread, now_ns)
                        thread.is_stale = False
                        left -= not process.is_refused  # reading a state costs little
                    is_open = is_open or thread.is_stale or thread.is_postponed
                wait = thread.wait
                if thread.is_stale or wait is _ENDED:
                    continue
                if wait is None:
                    process.is_running = True
                else:
                    waits[wait] = waits.get(wait, 0) + 1
            if any(wait.kind == "child" for wait in waits):
                # The other threads may wait for this one, or wake now and then to look.
                waits = {wait: count for wait, count in waits.items() if wait not in _FOR_THREADS}
            process.waits = waits
            if not is_open:
                del self._stale[pid]

    def _ask(self, process: _Process, thread: _Thread, now_ns: int) -> Wait | None:
        """None if the thread is not blocked."""
        thread.is_postponed = False
        reading = process.reading
        if reading.state in _STOPPED_STATES:
            return _OTHER
        if process.is_refused or not self._calls:
            process.is_refused = True
            state = reading.state
            if reading.threads > 1:
                state = _state(thread)
            return _wait_in_state(state)
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

    def _wait_in_call(
        self, pid: int, thread: _Thread, call: SystemCall, now_ns: int
    ) -> Wait | None:
        wait = self._resolver.resolve(pid, call, now_ns)
        thread.is_postponed = self._resolver.sockets.has_postponed
        if wait.kind == _OTHER.kind:
            return _wait_in_state(_state(thread))
        if wait is TIMER:
            if thread.is_runtime is None:
                name = proc.read_beginning(f"{thread.path}/comm", _MAX_FILE_BYTES)
                thread.is_runtime = name.decode(errors="replace").rstrip() in _RUNTIME_THREADS
            return _LOCK if thread.is_runtime else TIMER
        return wait


def _state(thread: _Thread) -> str:
    """The letter of a thread's state; empty after its end."""
    text = proc.read_beginning(f"{thread.path}/stat", _MAX_FILE_BYTES)
    return text[text.rfind(b")") + 2 :][:1].decode(errors="replace")


def _wait_in_state(state: str) -> Wait | None:
    """What the letter of a state shows without the system call; None for a thread that can run."""
    if state in _ENDED_STATES:
        return _ENDED
    if state == "R":
        return None
    return _DISK if state == _DISK_STATE else _OTHER


def _read_once(path: str) -> bytes:
    """The contents of a small file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, _MAX_FILE_BYTES)
    finally:
        os.close(descriptor)

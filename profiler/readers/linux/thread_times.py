"""Reads the threads of processes: their time on a CPU, their time waiting for one, and what the blocked ones wait for.

``schedstat`` and the state of a thread are readable for every user. The system call in progress is so only for the same
user or with SYS_PTRACE; without it a blocked thread waits for the disk or for something else.

A reading skips what cannot have changed: a thread that has not been on a CPU is still blocked in the same call.
"""

import os
from collections.abc import Callable, Collection, Sequence
from resource import RLIMIT_NOFILE, getrlimit

from msgspec import Struct

from profiler.core.files import open_or_none
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux import proc
from profiler.readers.linux.process_tree import ProcessReading
from profiler.readers.linux.system_calls import Calls, parse_system_call
from profiler.readers.linux.waited_target import Wait, WaitResolver

# Each thread keeps one file open, up to a quarter of the files that may be open, usually 1024.
_MAX_OPEN_FILES, _MAX_SHARE_OF_FILES = 256, 4
# The most threads whose system call or state is read at once. The others follow in the next readings.
_MAX_ASKED = 64
# Without system calls there is little to see: processes with several threads are read in turn, so many threads a time,
# but each process at least every tenth time.
_IN_TURN, _MAX_TURNS = 4, 10
# Counters lose nothing in a pause. This bounds the cost of thousands of threads, and of an interval of milliseconds.
_MAX_CPU_SHARE = 0.002
# Linux 6.18 sometimes counts the time in which a thread was blocked as a wait for a CPU, on a machine with much to do.
# So a thread that was blocked when it was asked, and has not run since, can have waited for at most the last step or
# this time. A longer wait does not count.
_MAX_UNSEEN_WAIT_NS = 500 * NS_PER_MS
# What a reading may exceed this share by, as the first one that looks for a peer.
_MAX_EXCESS_NS = 20 * NS_PER_MS
_MAX_FILE_BYTES = 1024
_DISK_STATE, _STOPPED_STATES, _NOT_BLOCKED = "D", ("T", "t"), ("R", "Z", "X", "x")
_DISK, _OTHER = Wait("disk"), Wait("other")


class ThreadGrowth(Struct, frozen=True, gc=False):
    """By how much a thread's time on a CPU and its time waiting for one grew. A wait counts only when it has ended.

    ``steps`` is the number of readings since the thread was read: more than one if its process waited for its turn.
    """

    run_ns: int
    wait_ns: int
    steps: int = 1


class ThreadSample(Struct, frozen=True, kw_only=True):
    """The threads since the last reading.

    Attributes:
        growth: The threads that ran or waited for a CPU since then; None if the kernel does not count this.
        waits: What the blocked threads wait for now. Those are missing that were not asked, because no thread can have
            been blocked for long, or because there are too many.
        has_refused: Whether the system calls of a process are not readable.
        sees_calls: Whether any system call was readable so far.
    """

    growth: Sequence[ThreadGrowth] | None = ()
    waits: Sequence[Wait] = ()
    has_refused: bool = False
    sees_calls: bool = False


class _Thread:
    """One thread. ``is_stale`` if it was on a CPU since ``wait`` was determined."""

    __slots__ = ("descriptor", "is_stale", "path", "run_ns", "text", "wait", "wait_ns")

    def __init__(self, path: str, descriptor: int | None) -> None:
        self.path = path
        self.descriptor = descriptor
        self.text = b""
        self.run_ns = 0
        self.wait_ns = 0
        self.wait: Wait | None = None
        self.is_stale = True

    def read(self, steps: int, length_ns: int) -> ThreadGrowth | None:
        """Read the counters; None if they are the same as before. Raises ProcessLookupError after the thread's end.

        Args:
            steps: The number of readings since the last one of this thread.
            length_ns: The time of all these readings.
        """
        descriptor = self.descriptor
        text = proc.read(f"{self.path}/schedstat") or b"" if descriptor is None else proc.reread(descriptor)
        if text == self.text:
            self.is_stale = self.is_stale or not text  # without counters nothing shows that the thread did not run
            return None
        run, _, rest = text.partition(b" ")
        wait, separator, _ = rest.partition(b" ")
        if not separator:
            raise ProcessLookupError(self.path)
        run_ns, wait_ns = int(run), int(wait)
        # A thread that executes a program takes the id of the first thread, but keeps its own smaller counters.
        waited_ns = max(wait_ns - self.wait_ns, 0)
        if waited_ns > max(length_ns, _MAX_UNSEEN_WAIT_NS) and self.wait is not None and not self.is_stale:
            waited_ns = 0
        growth = ThreadGrowth(max(run_ns - self.run_ns, 0), waited_ns, steps)
        self.text, self.run_ns, self.wait_ns, self.is_stale = text, run_ns, wait_ns, True
        return growth


class _Process:
    """One process with its threads, by their ids.

    ``is_refused``: its system calls are not readable. ``steps`` is the number of readings since its threads were read.
    """

    __slots__ = ("is_refused", "reading", "steps", "threads", "waits")

    def __init__(self, reading: ProcessReading) -> None:
        self.reading = reading
        self.threads: dict[int, _Thread] = {}
        self.waits: tuple[Wait, ...] = ()
        self.is_refused = False
        self.steps = 1


class ThreadReader:
    """Reads the threads of all processes of a batch. Not thread-safe.

    Args:
        own_cpu_ns: The CPU time of the calling thread.
        proc_folder: The folder of the processes.
        machine: The architecture as ``uname`` has it; that of this machine by default.
    """

    def __init__(self, own_cpu_ns: Callable[[], int], proc_folder: str = "/proc", machine: str | None = None) -> None:
        self._own_cpu_ns = own_cpu_ns
        self._folder = proc_folder
        self._calls = Calls(os.uname().machine if machine is None else machine)
        self._resolver = WaitResolver(self._calls, proc_folder)
        self._excess_ns = 0.0
        self._processes: dict[int, _Process] = {}
        self._changed: dict[int, _Process] = {}
        self._stale: dict[int, _Process] = {}
        self._turns = 0
        self._max_files = min(_MAX_OPEN_FILES, getrlimit(RLIMIT_NOFILE)[0] // _MAX_SHARE_OF_FILES)
        self._open_files = 0
        self._read_ns: int | None = None
        self._is_counting = False
        self._sees_calls = False
        self._has_refused = False

    def read(
        self, processes: Collection[ProcessReading], now_ns: int, *, is_required: bool = False
    ) -> ThreadSample | None:
        """Read the threads of these processes; None if that would cost too much now, unless it ``is_required``."""
        length_ns = now_ns - (now_ns if self._read_ns is None else self._read_ns)
        if self._excess_ns - length_ns * _MAX_CPU_SHARE > _MAX_EXCESS_NS and not is_required:
            return None
        began_ns = self._own_cpu_ns()
        self._follow(processes)
        growth = self._read_changed(length_ns, is_required=is_required)
        if self._read_ns is None or length_ns > sum([(grown.run_ns + grown.wait_ns) / grown.steps for grown in growth]):
            self._ask_stale(now_ns)
        waits = [wait for process in self._processes.values() for wait in process.waits]
        self._read_ns = now_ns
        cost_ns = self._own_cpu_ns() - began_ns
        self._excess_ns = max(self._excess_ns - length_ns * _MAX_CPU_SHARE, 0) + cost_ns
        return self._sample(growth, waits)

    def read_last(self, now_ns: int) -> ThreadSample:
        """Read the counters of all threads that were seen, for the last time: those of a zombie are readable."""
        length_ns = now_ns - (now_ns if self._read_ns is None else self._read_ns)
        growth: list[ThreadGrowth] = []
        for process in self._processes.values():
            self._grow(process, growth, length_ns)
        return self._sample(growth, [])

    def close(self) -> None:
        for process in self._processes.values():
            self._forget(process)
        self._processes = {}

    def _sample(self, growth: Sequence[ThreadGrowth], waits: Sequence[Wait]) -> ThreadSample:
        return ThreadSample(
            growth=growth if self._is_counting else None,
            waits=waits,
            has_refused=self._has_refused and any(process.is_refused for process in self._processes.values()),
            sees_calls=self._sees_calls,
        )

    def _follow(self, processes: Collection[ProcessReading]) -> None:
        """Update the processes, and note those whose threads may have run."""
        known = self._processes
        for reading in processes:
            process = known.get(reading.pid)
            if process is not None:
                before = process.reading
                if before is reading:  # the reader of another container's processes returns an unchanged one again
                    continue
                if before.started_ticks == reading.started_ticks:
                    process.reading = reading
                    if (before.own_cpu_ns, before.state, before.threads) != (
                        reading.own_cpu_ns,
                        reading.state,
                        reading.threads,
                    ):
                        self._changed[reading.pid] = process
                    continue
                self._forget(process)
            known[reading.pid] = self._changed[reading.pid] = _Process(reading)
        if len(known) > len(processes):
            for pid in known.keys() - {reading.pid for reading in processes}:
                self._forget(known.pop(pid))

    def _read_changed(self, length_ns: int, *, is_required: bool) -> list[ThreadGrowth]:
        """Read the counters of the processes whose threads may have run, and look for new threads."""
        growth: list[ThreadGrowth] = []
        changed_threads = sum([process.reading.threads for process in self._changed.values()])
        self._turns += max(_IN_TURN, -(-changed_threads // _MAX_TURNS))
        for pid, process in tuple(self._changed.items()):
            if process.is_refused and process.reading.threads > 1 and not is_required:
                if process.reading.threads > self._turns:
                    process.steps += 1
                    continue
                self._turns -= process.reading.threads
            self._grow(process, growth, length_ns)
            if self._find_threads(process):
                self._grow(process, growth, length_ns)
            process.steps, process.waits = 1, ()
            self._stale[pid] = process
            del self._changed[pid]
        self._turns = min(self._turns, max((each.reading.threads for each in self._changed.values()), default=0))
        return growth

    def _grow(self, process: _Process, growth: list[ThreadGrowth], length_ns: int) -> None:
        ended = []
        for thread_id, thread in process.threads.items():
            try:
                grown = thread.read(process.steps, process.steps * length_ns)
            except (ProcessLookupError, ValueError):
                ended.append(thread_id)
                continue
            if grown is not None:
                self._is_counting = self._is_counting or grown.run_ns > 0
                growth.append(grown)
        for thread_id in ended:
            self._close_file(process.threads.pop(thread_id))

    def _find_threads(self, process: _Process) -> bool:
        """Look for new threads if the number of the known ones is not the process's; returns False if there is none."""
        known, reading = process.threads, process.reading
        before = len(known)
        if before == reading.threads:
            if before == 1:  # its state may have changed without a run: a signal has stopped the process
                next(iter(known.values())).is_stale = True
            return False
        folder = f"{self._folder}/{reading.pid}/task"
        for thread_id in [reading.pid] if reading.threads == 1 else proc.all_pids(folder):
            if thread_id not in known:
                path = f"{folder}/{thread_id}"
                descriptor = open_or_none(f"{path}/schedstat") if self._open_files < self._max_files else None
                self._open_files += descriptor is not None
                known[thread_id] = _Thread(path, descriptor)
        return len(known) > before

    def _forget(self, process: _Process) -> None:
        self._stale.pop(process.reading.pid, None)
        self._changed.pop(process.reading.pid, None)
        for thread in process.threads.values():
            self._close_file(thread)

    def _close_file(self, thread: _Thread) -> None:
        if thread.descriptor is not None:
            os.close(thread.descriptor)
            self._open_files -= 1

    def _ask_stale(self, now_ns: int) -> None:
        """Determine what the threads wait for that were on a CPU."""
        left = _MAX_ASKED
        for pid, process in tuple(self._stale.items()):
            waits: list[Wait] = []
            for thread in process.threads.values():
                if thread.is_stale and left:
                    thread.wait, thread.is_stale = self._ask(process, thread, now_ns), False
                    left -= not process.is_refused  # a state costs little
                if thread.wait is not None and not thread.is_stale:
                    waits.append(thread.wait)
            process.waits = tuple(waits)
            if not left:
                break
            del self._stale[pid]

    def _ask(self, process: _Process, thread: _Thread, now_ns: int) -> Wait | None:
        """What a thread waits for; None if it is not blocked or has ended."""
        reading = process.reading
        if reading.state in _STOPPED_STATES:
            return _OTHER
        if process.is_refused or not self._calls.are_known:
            process.is_refused = self._has_refused = True
            return _wait_in_state(reading.state if reading.threads == 1 else _state(thread))
        try:
            call = parse_system_call(_read_once(f"{thread.path}/syscall"))
        except PermissionError:
            process.is_refused = True
            return self._ask(process, thread, now_ns)
        except OSError:
            return None
        self._sees_calls = True
        if call is None:
            return None
        wait = self._resolver.resolve(reading.pid, call, now_ns)
        return _wait_in_state(_state(thread)) if wait.kind == _OTHER.kind else wait


def _state(thread: _Thread) -> str:
    """The letter of a thread's state; that of a dead one after its end."""
    try:
        text = _read_once(f"{thread.path}/stat")
    except OSError:
        return "X"
    return text[text.rfind(b")") + 2 :][:1].decode(errors="replace")


def _wait_in_state(state: str) -> Wait | None:
    if state in _NOT_BLOCKED:
        return None
    return _DISK if state == _DISK_STATE else _OTHER


def _read_once(path: str) -> bytes:
    """The contents of a small file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, _MAX_FILE_BYTES)
    finally:
        os.close(descriptor)

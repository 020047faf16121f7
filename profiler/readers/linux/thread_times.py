"""Reads the threads of processes: their time on a CPU, their time waiting for one, and what the blocked ones wait for.

``schedstat`` and the state of a thread are readable for every user. The system call in progress is so only for the same
user or with SYS_PTRACE; without it a blocked thread waits for the disk or for something else.

A reading skips what cannot have changed: a thread that has not been on a CPU is still blocked in the same call.
"""

import os
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from profiler.core.files import open_or_none
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux import proc
from profiler.readers.linux.process_tree import ProcessReading
from profiler.readers.linux.system_calls import Calls, parse_system_call
from profiler.readers.linux.waited_target import Wait, WaitResolver

# Each thread keeps one file open; the usual limit is 1024 open files.
_MAX_OPEN_FILES = 256
# The most threads whose system call or state is read at once. The others follow in the next readings.
_MAX_ASKED = 64
# Counters lose nothing in a pause. This bounds the cost of thousands of threads, and of an interval of milliseconds.
_MAX_CPU_SHARE = 0.002
# What a reading may exceed this share by, as the first one that looks for a peer.
_MAX_EXCESS_NS = 20 * NS_PER_MS
_COUNTERS = 2  # and the number of times that the thread was on a CPU
_MAX_CALL_BYTES = 256
_DISK_STATE, _STOPPED_STATES, _NOT_BLOCKED = "D", ("T", "t"), ("R", "Z", "X", "x")
_DISK, _OTHER = Wait("disk"), Wait("other")


class ThreadGrowth(Struct, frozen=True, gc=False):
    """By how much a thread's time on a CPU and its time waiting for one grew. A wait counts only when it has ended."""

    run_ns: int
    wait_ns: int


class ThreadSample(Struct, frozen=True, kw_only=True):
    """The threads since the last reading.

    Attributes:
        growth: The threads that ran or waited for a CPU since then; None if the kernel does not count this.
        waits: What the blocked threads wait for now. Those are missing that were not asked, because no thread can have
            been blocked for long, or because there are too many.
        has_refused: Whether the system calls of a process are not readable.
        sees_calls: Whether any system call was readable so far.
    """

    growth: tuple[ThreadGrowth, ...] | None = ()
    waits: tuple[Wait, ...] = ()
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

    def read(self) -> ThreadGrowth | None:
        """Read the counters; None if they are the same as before. Raises ProcessLookupError after the thread's end."""
        path, descriptor = f"{self.path}/schedstat", self.descriptor
        text = proc.read(path) or b"" if descriptor is None else proc.reread(descriptor)
        if text == self.text:
            self.is_stale = self.is_stale or not text  # without counters nothing shows that the thread did not run
            return None
        counters = proc.parse_pids(text)
        if len(counters) < _COUNTERS:
            raise ProcessLookupError(self.path)
        run_ns, wait_ns = counters[:_COUNTERS]
        growth = ThreadGrowth(max(run_ns - self.run_ns, 0), max(wait_ns - self.wait_ns, 0))
        self.text, self.run_ns, self.wait_ns, self.is_stale = text, run_ns, wait_ns, True
        return growth


class _Process:
    """One process with its threads, by their ids. ``is_refused``: its system calls are not readable."""

    __slots__ = ("is_refused", "reading", "threads")

    def __init__(self) -> None:
        self.reading: ProcessReading | None = None
        self.threads: dict[int, _Thread] = {}
        self.is_refused = False

    def has_changed(self, now: ProcessReading) -> bool:
        """Whether a thread may have run since the last reading."""
        before = self.reading
        if before is now:  # the reader of another container's processes returns an unchanged reading again
            return False
        return before is None or (before.own_cpu_ns, before.state, before.threads) != (
            now.own_cpu_ns,
            now.state,
            now.threads,
        )


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
        self._processes: dict[tuple[int, int], _Process] = {}
        self._open_files = 0
        self._read_ns: int | None = None
        self._is_counting = False
        self._sees_calls = False

    def read(
        self, processes: Iterable[ProcessReading], now_ns: int, *, is_required: bool = False
    ) -> ThreadSample | None:
        """Read the threads of these processes; None if that would cost too much now, unless it ``is_required``."""
        length_ns = now_ns - (now_ns if self._read_ns is None else self._read_ns)
        if self._excess_ns - length_ns * _MAX_CPU_SHARE > _MAX_EXCESS_NS and not is_required:
            return None
        began_ns = self._own_cpu_ns()
        growth = tuple(self._follow(processes))
        if self._read_ns is None or length_ns > sum(grown.run_ns + grown.wait_ns for grown in growth):
            self._ask_stale(now_ns)
        has_refused = any(process.is_refused for process in self._processes.values())
        waits = tuple(
            thread.wait
            for process in self._processes.values()
            for thread in process.threads.values()
            if thread.wait is not None and not thread.is_stale
        )
        self._read_ns = now_ns
        cost_ns = self._own_cpu_ns() - began_ns
        self._excess_ns = max(self._excess_ns - length_ns * _MAX_CPU_SHARE, 0) + cost_ns
        return self._sample(growth, waits, has_refused=has_refused)

    def read_last(self) -> ThreadSample:
        """Read the counters of all threads that were seen, for the last time: those of a zombie are readable."""
        growth = tuple(grown for process in self._processes.values() for grown in self._grow(process))
        return self._sample(growth, (), has_refused=False)

    def close(self) -> None:
        for process in self._processes.values():
            self._forget(process)
        self._processes = {}

    def _sample(self, growth: tuple[ThreadGrowth, ...], waits: tuple[Wait, ...], *, has_refused: bool) -> ThreadSample:
        return ThreadSample(
            growth=growth if self._is_counting else None,
            waits=waits,
            has_refused=has_refused,
            sees_calls=self._sees_calls,
        )

    def _follow(self, processes: Iterable[ProcessReading]) -> Iterator[ThreadGrowth]:
        """Update the processes and their threads; the growth of their counters."""
        before, self._processes = self._processes, {}
        for reading in processes:
            identity = reading.pid, reading.started_ticks
            process = before.pop(identity, None) or _Process()
            self._processes[identity] = process
            if process.has_changed(reading):
                process.reading = reading
                yield from self._grow(process)
                if self._find_threads(process, reading):
                    yield from self._grow(process)
        for process in before.values():
            self._forget(process)

    def _grow(self, process: _Process) -> Iterator[ThreadGrowth]:
        for thread_id, thread in tuple(process.threads.items()):
            try:
                growth = thread.read()
            except ProcessLookupError:
                self._close_file(thread)
                del process.threads[thread_id]
                continue
            if growth is not None:
                self._is_counting = self._is_counting or growth.run_ns > 0
                yield growth

    def _find_threads(self, process: _Process, reading: ProcessReading) -> bool:
        """Look for new threads if the number of the known ones is not the process's; returns False if there is none."""
        known = process.threads
        before = len(known)
        if before == reading.threads:
            if before == 1:  # its state may have changed without a run: a signal has stopped the process
                next(iter(known.values())).is_stale = True
            return False
        folder = f"{self._folder}/{reading.pid}/task"
        for thread_id in [reading.pid] if reading.threads == 1 else proc.all_pids(folder):
            if thread_id not in known:
                path = f"{folder}/{thread_id}"
                descriptor = open_or_none(f"{path}/schedstat") if self._open_files < _MAX_OPEN_FILES else None
                self._open_files += descriptor is not None
                known[thread_id] = _Thread(path, descriptor)
        return len(known) > before

    def _forget(self, process: _Process) -> None:
        for thread in process.threads.values():
            self._close_file(thread)

    def _close_file(self, thread: _Thread) -> None:
        if thread.descriptor is not None:
            os.close(thread.descriptor)
            self._open_files -= 1

    def _ask_stale(self, now_ns: int) -> None:
        """Determine what the threads wait for that were on a CPU."""
        left = _MAX_ASKED
        for process in self._processes.values():
            for thread in process.threads.values():
                if left and thread.is_stale:
                    thread.wait, thread.is_stale = self._ask(process, thread, now_ns), False
                    left -= 1

    def _ask(self, process: _Process, thread: _Thread, now_ns: int) -> Wait | None:
        """What a thread waits for; None if it is not blocked or has ended."""
        reading = process.reading
        if reading is None or reading.state in _STOPPED_STATES:
            return _OTHER
        if process.is_refused or not self._calls.are_known:
            process.is_refused = True
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
    stat = proc.parse_stat(proc.read(f"{thread.path}/stat") or b"")
    return "X" if stat is None else stat.state


def _wait_in_state(state: str) -> Wait | None:
    if state in _NOT_BLOCKED:
        return None
    return _DISK if state == _DISK_STATE else _OTHER


def _read_once(path: str) -> bytes:
    """The contents of a small file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, _MAX_CALL_BYTES)
    finally:
        os.close(descriptor)

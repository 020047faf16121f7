"""Finds the Python processes of a batch, and chooses those to sample."""

import os
import re
from collections.abc import Callable, Collection, Iterable

from profiler.collectors.stacks.py_spy import Dump
from profiler.collectors.stacks.thread_stacks import ThreadStack
from profiler.collectors.stacks.torn_stacks import ThreadRoots
from profiler.readers.linux import proc
from profiler.readers.linux.process_tree import own_cpu_ns

# Each sample is limited to the processes that have used most CPU time since the last one.
MAX_PROCESSES = 8
_PYTHON = re.compile(r"python[\d.]*[a-z]{0,2}(?: \(deleted\))?")
_LIBRARY = b"/libpython"
_MAX_FAILURES = 5
_MAX_FAILURES_IN_BETWEEN = 20
# What py-spy prints if it lacks the right to read a process.
_REFUSAL = "Permission Denied"
_MAX_PAUSE_SECONDS = 600

Identity = tuple[int, int]  # the process id, and the start in ticks, because the kernel reuses ids


def living_processes(pids: Iterable[int], proc_folder: str = "/proc") -> tuple[Identity, ...]:
    """The identities of the processes that still run."""
    stats = ((pid, proc.parse_stat(proc.read(f"{proc_folder}/{pid}/stat") or b"")) for pid in pids)
    return tuple((pid, stat.started_ticks) for pid, stat in stats if stat is not None and not stat.is_exiting)


def runs_python(pid: int, proc_folder: str = "/proc") -> tuple[str, bool | None]:
    """The program of a process, and whether it is CPython or contains it; None if that may not be read."""
    folder = f"{proc_folder}/{pid}"
    try:
        program = os.readlink(f"{folder}/exe")  # noqa: PTH115  many times a minute
    except PermissionError:
        return "", None
    except OSError:  # it has ended, or is a thread of the kernel
        return "", False
    if _PYTHON.fullmatch(program.rpartition("/")[2]):
        return program, True
    maps = proc.read(f"{folder}/maps")
    return program, None if maps is None else _LIBRARY in maps


def _program(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115  many times a minute
    except OSError:
        return ""


class _Process:
    """What is known of one process."""

    def __init__(self) -> None:
        self.program = ""
        self.is_python: bool | None = False
        self.cpu_ns = 0
        self.failures = 0
        self.next_try_seconds = 0.0
        self.was_read = False
        self.roots = ThreadRoots()


class PythonProcesses:
    """The Python processes of one batch, from sample to sample.

    ``scans`` counts those that have found processes. ``found_python``: one of them was Python. ``is_refused``: one may
    not be read.
    """

    def __init__(
        self,
        runs: Callable[[int], tuple[str, bool | None]] = runs_python,
        program_of: Callable[[int], str] = _program,
        cpu_ns: Callable[[int], int] = lambda pid: own_cpu_ns(pid, 0),
    ) -> None:
        self._runs = runs
        self._program_of = program_of
        self._cpu_ns = cpu_ns
        self._known: dict[Identity, _Process] = {}
        self.scans = 0
        self.found_python = False
        self.is_refused = False

    def choose(self, present: Iterable[Identity], now_seconds: float) -> list[Identity]:
        """Those of the Python processes to sample now: the busiest since the last call."""
        processes: dict[Identity, _Process] = {}
        used: list[tuple[int, Identity]] = []
        for identity in present:
            process = processes[identity] = self._known.get(identity) or _Process()
            self._look_at(process, identity[0])
            if process.is_python and now_seconds >= process.next_try_seconds:
                cpu_ns = self._cpu_ns(identity[0])
                used.append((cpu_ns - process.cpu_ns, identity))
                process.cpu_ns = cpu_ns
        self._known = processes
        self.scans += bool(processes)
        used.sort(key=lambda each: (-each[0], each[1]))
        return [identity for _, identity in used[:MAX_PROCESSES]]

    def _look_at(self, process: _Process, pid: int) -> None:
        """Decide what the process runs, once for each program that it executes."""
        if process.is_python is None:
            return
        program = self._program_of(pid)
        if program and program == process.program:
            return
        process.program, process.is_python = self._runs(pid)
        self.found_python = self.found_python or bool(process.is_python)
        self.is_refused = self.is_refused or process.is_python is None

    def add_stacks(self, identity: Identity, stacks: Collection[ThreadStack]) -> tuple[ThreadStack, ...]:
        """Note that a process was read; returns its stacks without those that cannot be right."""
        process = self._known[identity]
        process.failures, process.was_read = 0, True
        return process.roots.without_torn(stacks)

    def is_worth_repeating(self, identity: Identity, dump: Dump) -> bool:
        """Whether another reading at once may be better, because the stacks changed during this one."""
        process = self._known[identity]
        return process.was_read if dump.failure is not None else process.roots.is_doubtful(dump.stacks)

    def add_failure(self, identity: Identity, now_seconds: float, reason: str) -> bool:
        """Note that a process could not be read; returns True once for one that keeps failing.

        It is then read less and less often. One that may not be read is not tried again. One that could be read before
        is only changing too fast at the moment.
        """
        process = self._known[identity]
        if reason.startswith(_REFUSAL):
            process.is_python, self.is_refused = None, True
            return False
        process.failures += 1
        if process.was_read and process.failures < _MAX_FAILURES_IN_BETWEEN:
            return False
        process.next_try_seconds = now_seconds + min(2.0 ** min(process.failures - 2, 20), _MAX_PAUSE_SECONDS)
        return process.failures == (_MAX_FAILURES_IN_BETWEEN if process.was_read else _MAX_FAILURES)

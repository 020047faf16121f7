"""Finds the Python processes of a batch, and chooses those to sample."""

import os
import re
from collections.abc import Callable, Collection, Iterable

from msgspec import Struct

from profiler.collectors.stacks.py_spy import ThreadStack
from profiler.readers.linux import proc
from profiler.readers.linux.process_tree import own_cpu_ns

# Each sample is limited to the processes that have used most CPU time since the last one.
MAX_PROCESSES = 8
_PYTHON = re.compile(r"python[\d.]*[a-z]{0,2}(?: \(deleted\))?")
_LIBRARY = b"/libpython"
# A process that fails this often in a row waits longer and longer: py-spy does not support it, or
# it is still starting, or its stacks change too fast at the moment.
_MAX_FAILURES = 5
_MAX_PAUSE_SECONDS = 600.0
# The outermost functions of the main thread and of threads of the module threading.
_USUAL_ROOTS = frozenset({"<module>", "_bootstrap", "Thread._bootstrap", "_run_module_as_main"})

Identity = tuple[int, int]  # the process id, and the start in ticks, because the kernel reuses ids


def still_running_identities(pids: Iterable[int]) -> tuple[Identity, ...]:
    """The identities of the processes that still run."""
    identities = []
    for pid in pids:
        stat = proc.parse_stat(proc.read_or_none(f"/proc/{pid}/stat") or b"")
        if stat is not None and not stat.is_exiting:
            identities.append((pid, stat.started_ticks))
    return tuple(identities)


def runs_python(
    pid: int, last_program: str, proc_folder: str = "/proc"
) -> tuple[str, bool | None] | None:
    """The program of a process if it is another than the last, and whether it is CPython (None:
    not permitted).
    """
    folder = f"{proc_folder}/{pid}"
    try:
        program = os.readlink(f"{folder}/exe")  # noqa: PTH115  many times a minute
    except PermissionError:
        return "", None
    except OSError:
        return None
    if program == last_program:
        return None
    if _PYTHON.fullmatch(program.rpartition("/")[2]):
        return program, True
    maps = proc.read_or_none(f"{folder}/maps")
    return program, None if maps is None else _LIBRARY in maps


def without_torn_stacks(
    stacks: Iterable[ThreadStack], roots: dict[int, str]
) -> tuple[ThreadStack, ...]:
    """The stacks of one process without those that were read while they changed: the process
    runs on meanwhile.

    A thread's outermost function stays; ``roots`` has it by thread. A running thread's stack that
    begins elsewhere was read in a change. The stack of a thread that waits does not change.
    """
    for stack in stacks:
        root = stack.frames[0].function
        if root in _USUAL_ROOTS:
            roots[stack.thread_id] = root
    whole = []
    for stack in stacks:
        root = stack.frames[0].function
        if not stack.is_active or roots.get(stack.thread_id, root) == root:
            whole.append(stack)
    return tuple(whole)


class _Process(Struct):
    program: str = ""
    is_python: bool | None = False
    cpu_ns: int = 0
    failures: int = 0
    next_try_seconds: float = 0.0
    roots: dict[int, str] = {}


class PythonProcesses:
    """The Python processes of one batch. ``scans`` counts the searches that found processes."""

    def __init__(
        self,
        runs: Callable[[int, str], tuple[str, bool | None] | None] = runs_python,
        cpu_ns: Callable[[int], int] = lambda pid: own_cpu_ns(pid, 0),
    ) -> None:
        self._runs = runs
        self._cpu_ns = cpu_ns
        self._known: dict[Identity, _Process] = {}
        self.scans = 0
        self.found_python = False
        self.is_refused = False

    def choose_busiest(self, present: Iterable[Identity], now_seconds: float) -> list[Identity]:
        """The busiest Python processes since the last call."""
        processes: dict[Identity, _Process] = {}
        used: list[tuple[int, Identity]] = []
        for identity in present:
            process = processes[identity] = self._known.get(identity) or _Process()
            program = None
            if process.is_python is not None:
                program = self._runs(identity[0], process.program)
            if program is not None:
                process.program, process.is_python = program
                self.found_python = self.found_python or bool(process.is_python)
                self.is_refused = self.is_refused or process.is_python is None
            if process.is_python and now_seconds >= process.next_try_seconds:
                cpu_ns = self._cpu_ns(identity[0])
                used.append((cpu_ns - process.cpu_ns, identity))
                process.cpu_ns = cpu_ns
        self._known = processes
        self.scans += bool(processes)
        used.sort(key=lambda each: (-each[0], each[1]))
        return [identity for _, identity in used[:MAX_PROCESSES]]

    def note_read_and_drop_torn(
        self, identity: Identity, stacks: Collection[ThreadStack]
    ) -> tuple[ThreadStack, ...]:
        """Note that a process was read; returns its stacks without torn ones."""
        process = self._known[identity]
        process.failures = 0
        return without_torn_stacks(stacks, process.roots)

    def is_failing(self, identity: Identity) -> bool:
        return self._known[identity].failures > 0

    def add_failure(self, identity: Identity, now_seconds: float, reason: str) -> bool:
        """Note a failed reading, after which pauses grow.

        True once for a process that keeps failing.
        """
        process = self._known[identity]
        if reason.startswith("Permission Denied"):
            process.is_python = None
            self.is_refused = True
            return False
        process.failures += 1
        pause_seconds = 2.0 ** min(process.failures - _MAX_FAILURES, 10)
        process.next_try_seconds = now_seconds + min(pause_seconds, _MAX_PAUSE_SECONDS)
        return process.failures == _MAX_FAILURES

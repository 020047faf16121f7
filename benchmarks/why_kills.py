"""Read call stacks 1,000 times and kill the reader, the target or the profiler meanwhile: nothing may stay stopped.

    python -m benchmarks.why_kills [--attaches 1000] [--json FILE]

Each round starts py-spy with the sampler's options on one of several Python processes with threads. Three of four
rounds kill py-spy with SIGKILL after a random part of its usual duration, and one of ten kills the target. In addition,
``task-profiler run --stacks`` is killed with SIGKILL around a batch. After each kill the targets are read: no thread
may be stopped (state T or t) or traced, and each process must go on computing.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import BenchmarkResult, Figure, print_and_save
from profiler.collectors.stacks.py_spy import find_py_spy
from profiler.readers.linux import proc
from profiler.readers.linux.process_tree import list_children

_TARGETS = 4
_TARGET_CODE = """
import threading, time
def work():
    while True:
        sum(range(20000))
        time.sleep(0.002)
for _ in range(7):
    threading.Thread(target=work, daemon=True).start()
work()
"""
_START_SECONDS = 0.5
_KILLED_TARGET_EVERY = 10
_PROFILER_KILLS_PER_ATTACH = 0.03
_MAX_PROFILER_SECONDS = 4.0
_SETTLE_SECONDS = 0.3
_MAX_READER_SECONDS = 6.0
_MANY_THREADS = 2  # makes list_children look at all threads


@dataclass
class Counts:
    """What was done, and what was seen after it."""

    attaches: int = 0
    completed: int = 0
    killed_readers: int = 0
    killed_targets: int = 0
    killed_profilers: int = 0
    stopped: int = 0
    idle: int = 0
    left_readers: int = 0


def is_stopped(pid: int) -> bool:
    """Whether a thread of the process is stopped or traced. A process that has ended is neither."""
    try:
        return any(_is_thread_stopped(thread) for thread in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return False


def _is_thread_stopped(thread: Path) -> bool:
    fields = dict(line.split(":\t", 1) for line in (thread / "status").read_text().splitlines() if ":\t" in line)
    return fields["State"][0] in "Tt" or fields["TracerPid"].strip() != "0"


def cpu_ns(pid: int) -> int:
    """The CPU time of all live threads of a process."""
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in Path(f"/proc/{pid}/task").iterdir())


class Targets:
    """Python processes that compute; a killed one is replaced."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.processes = [self._start() for _ in range(_TARGETS)]
        time.sleep(_START_SECONDS)

    def _start(self) -> subprocess.Popen[bytes]:
        return self._stack.enter_context(run_target())

    def kill(self, number: int) -> None:
        """Kill a target and start another one."""
        self.processes[number].kill()
        self.processes[number].wait()
        self.processes[number] = self._start()

    def stopped(self) -> int:
        """The number of stopped targets."""
        return sum(is_stopped(process.pid) for process in self.processes)


@contextmanager
def run_target() -> Iterator[subprocess.Popen[bytes]]:
    """Run a target until the end of the block."""
    with subprocess.Popen([sys.executable, "-c", _TARGET_CODE]) as process:
        try:
            yield process
        finally:
            process.kill()


def attach(py_spy: str, pid: int) -> subprocess.Popen[bytes]:
    """Start py-spy as the sampler does."""
    command = (py_spy, "dump", "--nonblocking", "--json", "--pid", str(pid))
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill_readers(py_spy: str, attaches: int, counts: Counts, randomness: random.Random) -> None:
    """Attach to the targets, and kill py-spy or the target meanwhile."""
    with ExitStack() as stack:
        targets = Targets(stack)
        began = time.monotonic()
        attach(py_spy, targets.processes[0].pid).wait()
        usual_seconds = time.monotonic() - began
        for number in range(attaches):
            target = number % _TARGETS
            reader = attach(py_spy, targets.processes[target].pid)
            counts.attaches += 1
            if number % 4:
                time.sleep(randomness.uniform(0, 1.2 * usual_seconds))
                if number % _KILLED_TARGET_EVERY == 1:
                    targets.kill(target)
                    counts.killed_targets += 1
                reader.kill()
            exit_code = reader.wait()
            counts.killed_readers += exit_code == -signal.SIGKILL
            counts.completed += exit_code == 0
            counts.stopped += targets.stopped()
        before = [cpu_ns(process.pid) for process in targets.processes]
        time.sleep(_SETTLE_SECONDS)
        counts.stopped += targets.stopped()
        counts.idle += sum(
            cpu_ns(process.pid) == start for process, start in zip(targets.processes, before, strict=True)
        )


def kill_profilers(kills: int, counts: Counts, randomness: random.Random) -> None:
    """Kill ``run --stacks`` while it samples; its batch must go on, and its py-spy must end."""
    command = [sys.executable, "-m", "profiler", "run", "--no-history", "--stacks", "--interval", "0.1", "--output"]
    for _ in range(kills):
        profiler = subprocess.Popen([*command, "/dev/null", "--", sys.executable, "-c", _TARGET_CODE])
        time.sleep(randomness.uniform(_START_SECONDS, _MAX_PROFILER_SECONDS))
        batches = [pid for pid in list_children(profiler.pid, _MANY_THREADS) if _TARGET_CODE in _arguments(pid)]
        if not batches:
            raise SystemExit("task-profiler run did not start its command.")
        profiler.kill()
        profiler.wait()
        counts.killed_profilers += 1
        for pid in batches:
            counts.left_readers += has_reader_after(pid, _MAX_READER_SECONDS)
            counts.stopped += is_stopped(pid)
            before_ns = cpu_ns(pid)
            time.sleep(_SETTLE_SECONDS)
            counts.idle += cpu_ns(pid) == before_ns
            os.kill(pid, signal.SIGKILL)


def has_reader_after(pid: int, max_seconds: float) -> bool:
    """Whether a py-spy still reads the process after this time."""
    until = time.monotonic() + max_seconds
    while any(_reads(other, pid) for other in proc.all_pids()):
        if time.monotonic() > until:
            return True
        time.sleep(_SETTLE_SECONDS)
    return False


def _reads(reader: int, pid: int) -> bool:
    arguments = _arguments(reader)
    return arguments[0].endswith("py-spy") and str(pid) in arguments


def _arguments(pid: int) -> list[str]:
    return (proc.read(f"/proc/{pid}/cmdline") or b"").decode(errors="replace").split("\0")


def figures_of(counts: Counts) -> Iterator[Figure]:
    """What was done, and what went wrong."""
    note = (
        f"{counts.completed} completed; killed: py-spy {counts.killed_readers} times, the target "
        f"{counts.killed_targets} times"
    )
    yield Figure(name="attaches", value=counts.attaches, unit="", digits=0, note=note)
    yield Figure(name="killed profilers", value=counts.killed_profilers, unit="", digits=0)
    yield Figure(name="stopped or traced processes after a kill", value=counts.stopped, unit="", digits=0, at_most=0)
    yield Figure(name="processes that no longer computed", value=counts.idle, unit="", digits=0, at_most=0)
    yield Figure(
        name="py-spy still running after the profiler was killed",
        value=counts.left_readers,
        unit="",
        digits=0,
        at_most=0,
    )


def measure(attaches: int, seed: int) -> BenchmarkResult:
    """Attach and kill."""
    py_spy = find_py_spy(os.environ.get("PATH"), sys.executable)
    if py_spy is None:
        raise SystemExit("py-spy is not installed: run make bench-why, or pip install 'task-profiler[stacks]'")
    counts, randomness = Counts(), random.Random(seed)
    kill_readers(py_spy, attaches, counts, randomness)
    kill_profilers(round(attaches * _PROFILER_KILLS_PER_ATTACH), counts, randomness)
    return BenchmarkResult(title="Kills while call stacks are read", figures=tuple(figures_of(counts)))


def main(arguments: Sequence[str]) -> None:
    """Attach and kill, print the results, and write them as JSON on request."""
    parser = argparse.ArgumentParser(description="Read call stacks and kill the reader, the target or the profiler.")
    parser.add_argument("--attaches", type=int, default=1000, help="how often py-spy is started")
    parser.add_argument("--seed", type=int, default=1, help="repeats the same moments of the kills")
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args(arguments)
    print_and_save(measure(options.attaches, options.seed), options.json)


if __name__ == "__main__":
    main(sys.argv[1:])

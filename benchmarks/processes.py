"""Measure the cost of reading a batch's processes: CPU time of a tick with 50 and with 2,000 processes.

    python -m benchmarks.processes [--processes 50 2000] [--ticks 30] [--json FILE]

The processes are real and run in their own cgroup, which represents the batch's container (this requires root). At most
ten of them continuously allocate memory, the others sleep. A tick includes reading and aggregation. The first tick,
which discovers the processes, is reported separately. For comparison, the program measures reading ``stat`` and
``status`` of every process.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.figures import BenchmarkResult, Figure, print_and_save
from benchmarks.measured_process import read_memory
from profiler.collectors.processes.process_reader import ContainerProcesses
from profiler.collectors.processes.process_usage import BatchProcesses, ReadingContext
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers.linux import proc
from profiler.settings import DEFAULT_SERIES_POINTS

_MAX_TICK_MS = {50: 1.0}
_CONTAINER_ID = "b" * 64
_CGROUP_ROOTS = ("/sys/fs/cgroup/pids", "/sys/fs/cgroup")
_BUSY_EVERY = 10
_BUSY_CODE = "import time\nwhile True:\n    b = bytearray(1 << 20)\n    time.sleep(0.05)\n"
_WARM_UP_SECONDS = 1.0
_PAUSE_SECONDS = 0.1


def run_batch(count: int) -> contextlib.AbstractContextManager[str]:
    """Run processes of which at most ten continuously allocate memory."""
    busy = [sys.executable, "-c", _BUSY_CODE]
    return run_commands(
        [
            busy if number % _BUSY_EVERY == 0 and number < _BUSY_EVERY * _BUSY_EVERY else ["sleep", "600"]
            for number in range(count)
        ]
    )


@contextlib.contextmanager
def run_commands(commands: Sequence[Sequence[str]]) -> Iterator[str]:
    """Run commands in a cgroup whose name is a container id. Yields the id."""
    root = next(folder for folder in map(Path, _CGROUP_ROOTS) if (folder / "cgroup.procs").exists())
    cgroup = root / _CONTAINER_ID
    cgroup.mkdir()
    started = [subprocess.Popen(command) for command in commands]
    try:
        for process in started:
            (cgroup / "cgroup.procs").write_text(str(process.pid))
        time.sleep(_WARM_UP_SECONDS)
        yield _CONTAINER_ID
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()
        cgroup.rmdir()


def cpu_ms(work: Callable[[], object]) -> float:
    """The CPU time of this thread during the work."""
    started_ns = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - started_ns) / 1e6


def measure(count: int, ticks: int) -> Iterator[Figure]:
    """Measure the ticks of one container with this number of processes: CPU time, and growth of resident memory."""
    with run_batch(count):
        batch_processes = BatchProcesses(
            NS_PER_SECOND, lambda _: None, DEFAULT_SERIES_POINTS, started_ns=time.time_ns()
        )
        source = ContainerProcesses(_CONTAINER_ID, time.monotonic_ns)

        def tick() -> None:
            now_ns, wall_ns = time.monotonic_ns(), time.time_ns()
            moment = ReadingContext(docker_id=_CONTAINER_ID, incarnation=1, monotonic_ns=now_ns, wall_ns=wall_ns)
            batch_processes.add(source.read(), None, None, moment)

        before_mib = read_memory(os.getpid()).rss_mib
        first_ms = cpu_ms(tick)
        tick_costs_ms = []
        for _ in range(ticks):
            time.sleep(_PAUSE_SECONDS)
            tick_costs_ms.append(cpu_ms(tick))
        growth_mib = read_memory(os.getpid()).rss_mib - before_mib
        pids = [process.pid for process in source.read().processes]
        if len(pids) != count:
            raise SystemExit(f"Found only {len(pids)} of {count} processes.")
        full_read_costs_ms = [cpu_ms(lambda: _read_fully(pids)) for _ in range(5)]
        source.close()
    yield Figure(name=f"{count} processes: first tick", value=first_ms, unit="ms")
    tick_ms = statistics.median(tick_costs_ms)
    yield Figure(name=f"{count} processes: tick", value=tick_ms, unit="ms", at_most=_MAX_TICK_MS.get(count))
    full_read_ms = statistics.median(full_read_costs_ms)
    yield Figure(name=f"{count} processes: stat and status of each", value=full_read_ms, unit="ms")
    yield Figure(name=f"{count} processes: memory growth", value=growth_mib, unit="MiB", digits=1)


def _read_fully(pids: Sequence[int]) -> None:
    for pid in pids:
        for name in ("stat", "status"):
            proc.read(f"/proc/{pid}/{name}")


def main(arguments: Sequence[str]) -> None:
    """Measure, print the results, and write them as JSON on request."""
    parser = argparse.ArgumentParser(description="Measure the cost of reading a batch's processes.")
    parser.add_argument("--processes", type=int, nargs="+", default=[50, 2000], help="numbers of processes")
    parser.add_argument("--ticks", type=int, default=30, help="ticks per measurement")
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args(arguments)
    if os.geteuid() != 0:
        raise SystemExit("This benchmark creates a cgroup: run it as root.")
    figures = tuple(figure for count in options.processes for figure in measure(count, options.ticks))
    print_and_save(BenchmarkResult(title="Processes of the batch", figures=figures), options.json)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Measure what reading the batch's threads costs, relative to the process collector without it.

    python -m benchmarks.why_threads [--ticks 80] [--json FILE]

Two collectors, one with and one without the thread reader, read the same real processes in turn,
once a second as in a task. Their CPU times are compared, without SYS_PTRACE and with it. The
processes run in a cgroup of their own, which represents the batch's container (this requires root;
those that wait for a disk have one of version 1 that limits their reads, too), and everything in a process namespace of its own: a task sees no new processes of others, each of
which costs the collector a look at its cgroup.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.figures import BenchmarkResult, Figure, benchmark_parser
from profiler.collectors.processes.container_processes import ContainerProcesses
from profiler.collectors.processes.machine_processes import MachineProcesses
from profiler.collectors.processes.process_collector import ProcessAccess, ProcessCollector
from profiler.core.clock import SystemClock
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers.cgroup.container_group import find_container_cgroup
from profiler.readers.cgroup.group_pressure import open_group_pressure
from profiler.readers.cgroup.hierarchy import machine_oom_kills
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.readers.linux.followed_process import ProcessExitWaiter
from profiler.readers.linux.sockets import KernelSockets
from profiler.readers.linux.thread_reader import ThreadReader
from profiler.settings import SettingsReader

_MAX_MORE_PERCENT = 15
# Threads have their turn ever more rarely, at least in every 40th reading.
_WARM_UP_TICKS = 420
_WARM_UP_PAUSE_SECONDS = 0.03
_TICKS_PER_BLOCK = 40
_CONTAINER_ID = "b" * 64
_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
_WITHOUT_CAPABILITIES = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all")
_CGROUP_ROOTS = ("/sys/fs/cgroup/pids", "/sys/fs/cgroup")
_BUSY_EVERY = 10
_BUSY_CODE = "import time\nwhile True:\n    b = bytearray(1 << 20)\n    time.sleep(0.05)\n"
_WARM_UP_SECONDS = 1.0
_BLKIO_ROOT = Path("/sys/fs/cgroup/blkio")
_READS_PER_SECOND = 300
_DISK_FILE_BYTES = 16 << 20
_THREADS_CODE = """
import threading, time
def work():
    while True:
        sum(range(2000))
        time.sleep(0.1)
for _ in range(7):
    threading.Thread(target=work).start()
work()
"""
# The threads wait for the disk most of the time, because the group may read so rarely.
_DISK_CODE = """
import mmap, os, random, sys, threading
file = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
blocks = os.fstat(file).st_size // 4096
def work():
    buffer = mmap.mmap(-1, 4096)
    while True:
        sum(range(2000))
        os.preadv(file, [buffer], random.randrange(blocks) * 4096)
for _ in range(7):
    threading.Thread(target=work).start()
work()
"""


def run_batch(count: int) -> contextlib.AbstractContextManager[str]:
    """Run processes of which at most ten continuously allocate memory."""
    busy = [sys.executable, "-c", _BUSY_CODE]
    return run_commands(
        [
            busy
            if number % _BUSY_EVERY == 0 and number < _BUSY_EVERY * _BUSY_EVERY
            else ["sleep", "600"]
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


@contextlib.contextmanager
def run_disk_readers(count: int) -> Iterator[str]:
    """Run processes with 8 threads each that wait for a slow disk. Yields the id of the batch."""
    group = _BLKIO_ROOT / f"slow-{os.getpid()}-{time.monotonic_ns()}"
    with tempfile.NamedTemporaryFile(prefix="bench-disk-") as file:
        file.write(os.urandom(_DISK_FILE_BYTES))
        file.flush()
        os.fsync(file.fileno())
        device = os.fstat(file.fileno()).st_dev
        group.mkdir()
        try:
            limit = f"{os.major(device)}:{os.minor(device)} {_READS_PER_SECOND}"
            (group / "blkio.throttle.read_iops_device").write_text(limit)
            enter = ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
            readers = [*enter, sys.executable, "-c", _DISK_CODE, file.name]
            with run_commands([readers] * count) as docker_id:
                yield docker_id
        finally:
            group.rmdir()


def cpu_ms(work: Callable[[], object]) -> float:
    """The CPU time of this thread during the work."""
    started_ns = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - started_ns) / 1e6


_BATCHES: dict[str, Callable[[], contextlib.AbstractContextManager[str]]] = {
    "50 processes": lambda: run_batch(50),
    "4 processes with 8 threads each": lambda: run_commands(
        [[sys.executable, "-c", _THREADS_CODE]] * 4
    ),
}
if (_BLKIO_ROOT / "cgroup.procs").exists():
    _BATCHES["4 processes with 8 threads each that wait for a disk"] = lambda: run_disk_readers(4)


class TickCosts(Struct, frozen=True):
    """The CPU times of single ticks in milliseconds."""

    with_threads: list[float]
    without: list[float]

    @property
    def more_percent(self) -> float:
        """How much more CPU time the thread reader takes."""
        return 100 * (typical_ms(self.with_threads) / typical_ms(self.without) - 1)


def typical_ms(ticks: Sequence[float]) -> float:
    """The median of the means of blocks, each with all turns of the threads, and as many ticks that
    came first in their second, with cold caches, as others.
    """
    starts = range(0, len(ticks), _TICKS_PER_BLOCK)
    return statistics.median(
        [statistics.mean(ticks[start : start + _TICKS_PER_BLOCK]) for start in starts]
    )


def make_collector(docker_id: str, *, reads_threads: bool) -> ProcessCollector:
    """The collector of the monitor that watches the batch, with or without the thread reader."""
    processes = MachineProcesses(time.monotonic_ns)
    access = ProcessAccess(
        begin_tick=processes.mark_out_of_date,
        open_processes=lambda docker_id: ContainerProcesses(docker_id, processes),
        open_cgroup=find_container_cgroup,
        oom_kills=machine_oom_kills,
        # No pause after an expensive first tick, so that each tick is measured.
        own_cpu_ns=lambda: 0,
        exit_waiter=ProcessExitWaiter(),
        open_threads=(
            lambda: ThreadReader(
                time.thread_time_ns,
                sockets=KernelSockets(),
                open_pressure=open_group_pressure,
            )
        )
        if reads_threads
        else None,
    )
    points: int = SettingsReader({}).value("series_points")
    collector = ProcessCollector(access, SystemClock(), NS_PER_SECOND, lambda _: None, points)
    collector.on_batch_started(ContainerMetadata(docker_id=docker_id, name="batch"))
    return collector


def measure_ticks(docker_id: str, ticks: int) -> TickCosts:
    """Let both collectors read in turn, once a second.

    The first of them changes from second to second.
    """
    collectors = {
        reads_threads: make_collector(docker_id, reads_threads=reads_threads)
        for reads_threads in (True, False)
    }
    costs: dict[bool, list[float]] = {True: [], False: []}
    for number in range(_WARM_UP_TICKS + ticks):
        for reads_threads in (True, False) if number % 2 else (False, True):
            cost_ms = cpu_ms(partial(_read_once, collectors[reads_threads]))
            if number >= _WARM_UP_TICKS:
                costs[reads_threads].append(cost_ms)
        time.sleep(_WARM_UP_PAUSE_SECONDS if number < _WARM_UP_TICKS else 1)
    return TickCosts(costs[True], costs[False])


def _read_once(collector: ProcessCollector) -> None:
    """One reading of the processes, and one look at the threads."""
    collector.tick()
    collector.look()


def measure_in_process(docker_id: str, ticks: int, prefix: Sequence[str]) -> TickCosts:
    """Measure in a process of its own, which may have fewer privileges."""
    options = ("--batch", docker_id, "--ticks", str(ticks))
    command = [*prefix, sys.executable, "-m", "benchmarks.why_threads", *options]
    root = Path(__file__).resolve().parent.parent
    return msgspec.json.decode(
        subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE).stdout, type=TickCosts
    )


def measure(ticks: int) -> Iterator[Figure]:
    """Both levels with both batches."""
    for scope, run in _BATCHES.items():
        with run() as docker_id:
            for level, prefix in ((1, _WITHOUT_CAPABILITIES), (2, ())):
                costs = measure_in_process(docker_id, ticks, prefix)
                without_ms, with_ms = typical_ms(costs.without), typical_ms(costs.with_threads)
                yield Figure(
                    f"more CPU of the process collector with threads, level {level}, {scope}",
                    costs.more_percent,
                    "%",
                    digits=1,
                    at_most=_MAX_MORE_PERCENT if level == 1 else None,
                    note=f"{without_ms:.2f} → {with_ms:.2f} ms a tick",
                )


def main(arguments: Sequence[str]) -> None:
    """Measure, print the results, and write them as JSON on request."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--ticks", type=int, default=80, help="ticks per measurement, one a second")
    parser.add_argument(
        "--batch", help="id of a running batch: measure it in this process, and print JSON"
    )
    parser.add_argument(
        "--in-namespace",
        action="store_true",
        help="this process has a process namespace of its own",
    )
    options = parser.parse_args(arguments)
    if options.batch is not None:
        sys.stdout.buffer.write(msgspec.json.encode(measure_ticks(options.batch, options.ticks)))
        return
    if os.geteuid() == 0 and not options.in_namespace:
        command = (sys.executable, "-m", "benchmarks.why_threads", "--in-namespace", *arguments)
        raise SystemExit(subprocess.run((*_NAMESPACE, *command), check=False).returncode)
    title = "Cost of the time breakdown"
    if os.geteuid() == 0:
        result = BenchmarkResult(title, figures=tuple(measure(options.ticks)))
    else:
        result = BenchmarkResult(
            title=title, tables=("Not measured, because it creates a cgroup: run it as root.",)
        )
    result.print_and_save(options.json)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Measure what reading the batch's threads costs, relative to the process collector without it.

    python -m benchmarks.why_threads [--seconds 80] [--watchers 4] [--beside TREE] [--json FILE]

Of each batch, several monitors' collectors read the same real processes at the same time, once a
second as in a task, each in a process of its own and in its own thread: as many without the thread
reader as with it, with SYS_PTRACE and without. Compared are the CPU times of the whole processes in
the same blocks of time, with whatever else wakes them: a busy machine makes both dearer. No reading
finds the caches warm that another one has just filled, so they are spread over the second.

The CPU time of ``task-profiler run`` itself is measured around programs of its own, once all looks
have found the same for a minute. ``--beside`` also measures another tree of this project,
such as a worktree of an older commit, at the same time, and says the ratio: figures of different
times are those of different loads.

The processes run in a cgroup of their own, which represents the batch's container (this requires
root; those that wait for a disk have one of version 1 that limits their reads, too), and everything
in a process namespace of its own: a task sees no new processes of others, each of which costs the
collector a look at its cgroup.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.figures import BenchmarkResult, Figure, benchmark_parser
from profiler.collectors.processes.container_processes import ContainerProcesses
from profiler.collectors.processes.machine_processes import MachineProcesses
from profiler.collectors.processes.process_collector import ProcessAccess, ProcessCollector
from profiler.core.clock import Clock, SystemClock
from profiler.core.look_times import MAX_LOOKS
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers.cgroup.container_group import find_container_cgroup
from profiler.readers.cgroup.group_pressure import open_group_pressure
from profiler.readers.cgroup.hierarchy import MachineOomKills
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.readers.linux.followed_process import ProcessExitWaiter
from profiler.readers.linux.sockets import KernelSockets
from profiler.readers.linux.thread_reader import ThreadReader
from profiler.settings import SettingsReader

_MAX_MORE_PERCENT = 15
# Threads have their turn ever more rarely, at least in every 40th reading, and the first minute has
# more looks.
_WARM_UP_TICKS = 420
_WARM_UP_PAUSE_SECONDS = 0.03
# All turns of the threads.
_BLOCK_SECONDS = 40
_CONTAINER_ID = "b" * 64
_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
_WITHOUT_CAPABILITIES = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all")
_CGROUP_ROOTS = ("/sys/fs/cgroup/pids", "/sys/fs/cgroup")
_BUSY_EVERY = 10
_BUSY_CODE = "import time\nwhile True:\n    b = bytearray(1 << 20)\n    time.sleep(0.05)\n"
_WARM_UP_SECONDS = 1.0
_RUN_WARM_UP_SECONDS = 90
_ROOT = Path(__file__).resolve().parent.parent
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
# Starts the given number of threads, of which each sleeps again and again until the end.
_SLEEPERS_CODE = """
import sys, threading, time
count, pause, seconds = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
end = time.monotonic() + seconds
def work():
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(pause, left))
for _ in range(count - 1):
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


def sleepers(count: int, pause_seconds: float, seconds: float = 3600) -> list[str]:
    """The command of a program with this number of threads, which only sleep."""
    return [sys.executable, "-c", _SLEEPERS_CODE, str(count), str(pause_seconds), str(seconds)]


_SLEEPERS = {
    "16 threads asleep": (16, 3600.0),
    "16 threads that wake each second": (16, 1.0),
    "300 threads that wake each second": (300, 1.0),
}
_BATCHES: dict[str, Callable[[], contextlib.AbstractContextManager[str]]] = {
    "1 process": lambda: run_batch(1),
    "50 processes": lambda: run_batch(50),
    "500 processes": lambda: run_batch(500),
    "4 processes with 8 threads each": lambda: run_commands(
        [[sys.executable, "-c", _THREADS_CODE]] * 4
    ),
    **{
        scope: partial(run_commands, [sleepers(count, pause)])
        for scope, (count, pause) in _SLEEPERS.items()
    },
}
if (_BLKIO_ROOT / "cgroup.procs").exists():
    _BATCHES["4 processes with 8 threads each that wait for a disk"] = lambda: run_disk_readers(4)


class WatcherKind(Struct, frozen=True):
    """A collector with or without the thread reader, of which tree it is, and how its process is
    started.
    """

    reads_threads: bool
    prefix: tuple[str, ...] = ()
    tree: Path = _ROOT


_WITHOUT = WatcherKind(reads_threads=False)
_LEVELS = {
    1: WatcherKind(reads_threads=True, prefix=_WITHOUT_CAPABILITIES),
    2: WatcherKind(reads_threads=True),
}


def make_collector(docker_id: str, clock: Clock, *, reads_threads: bool) -> ProcessCollector:
    """The collector of the monitor that watches the batch, with or without the thread reader."""
    processes = MachineProcesses(clock.monotonic_ns)
    access = ProcessAccess(
        begin_tick=processes.mark_out_of_date,
        open_processes=lambda docker_id: ContainerProcesses(docker_id, processes),
        open_cgroup=find_container_cgroup,
        oom_kills=MachineOomKills().count,
        own_cpu_ns=time.thread_time_ns,
        exit_waiter=ProcessExitWaiter(),
        open_threads=(
            lambda _: ThreadReader(
                time.thread_time_ns,
                sockets=KernelSockets(),
                open_pressure=open_group_pressure,
            )
        )
        if reads_threads
        else None,
    )
    points: int = SettingsReader({}).value("series_points")
    collector = ProcessCollector(access, clock, NS_PER_SECOND, lambda _: None, points)
    collector.on_batch_started(ContainerMetadata(docker_id=docker_id, name="batch"))
    return collector


class _FastClock(SystemClock):
    """A clock that can be ahead of the system's."""

    def __init__(self) -> None:
        self.ahead_ns = 0

    def monotonic_ns(self) -> int:
        return time.monotonic_ns() + self.ahead_ns

    def wall_ns(self) -> int:
        return time.time_ns() + self.ahead_ns


def watch(docker_id: str, blocks: int, *, reads_threads: bool) -> None:
    """Watch the batch in this process: warm up, wait for a line on the standard input, and print
    the CPU time of each block in seconds as JSON.
    """
    clock = _FastClock()
    collector = make_collector(docker_id, clock, reads_threads=reads_threads)
    for _ in range(_WARM_UP_TICKS):
        collector.tick()
        for _ in range(MAX_LOOKS):
            collector.look()
            clock.ahead_ns += NS_PER_SECOND // MAX_LOOKS
        time.sleep(_WARM_UP_PAUSE_SECONDS)
    print(flush=True)
    sys.stdin.readline()
    collector.start()
    time.sleep(1)
    used: list[float] = []
    end, before = time.monotonic(), time.process_time()
    for _ in range(blocks):
        end += _BLOCK_SECONDS
        time.sleep(max(end - time.monotonic(), 0))
        used.append(time.process_time() - before)
        before += used[-1]
    sys.stdout.buffer.write(msgspec.json.encode(used))


def measure_watchers(
    docker_id: str, kinds: Sequence[WatcherKind], blocks: int, watchers: int
) -> list[list[float]]:
    """Let several watchers of each kind watch the batch at the same time; returns the CPU seconds
    of each kind in each block.
    """
    module = (sys.executable, "-m", "benchmarks.why_threads")
    started = [
        subprocess.Popen(
            [
                *kind.prefix,
                *module,
                *("--batch", docker_id, "--seconds", str(blocks * _BLOCK_SECONDS)),
                *(() if kind.reads_threads else ("--without",)),
            ],
            cwd=kind.tree,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(watchers)
        for kind in kinds
    ]
    try:
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        begin = time.monotonic()
        for number, process in enumerate(started):
            time.sleep(max(begin + number / len(started) - time.monotonic(), 0))
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.flush()
        used = [
            msgspec.json.decode(process.communicate()[0], type=list[float]) for process in started
        ]
    finally:
        for process in started:
            process.kill()
            process.wait()
    return [
        [sum(block) for block in zip(*used[number :: len(kinds)], strict=True)]
        for number in range(len(kinds))
    ]


def measure(options: argparse.Namespace) -> Iterator[Figure]:
    """Both levels with all batches."""
    blocks, watchers = max(options.seconds // _BLOCK_SECONDS, 1), options.watchers
    for scope, run in _BATCHES.items():
        if not any(text in scope for text in options.only):
            continue
        with run() as docker_id:
            kinds = [_WITHOUT, *_LEVELS.values()]
            if options.beside is not None:
                kinds.append(msgspec.structs.replace(_LEVELS[2], tree=options.beside))
            without, *others = measure_watchers(docker_id, kinds, blocks, watchers)
        if options.beside is not None:
            yield _ratio(f"the process collector, level 2, {scope}", sum(others[1]), sum(others[2]))
        for level, used in zip(_LEVELS, others, strict=False):
            more_percent = [
                100 * (ours / other - 1) for ours, other in zip(used, without, strict=True)
            ]
            ms = [
                1000 * sum(each) / (blocks * _BLOCK_SECONDS * watchers) for each in (without, used)
            ]
            spread = f"{min(more_percent):.0f} to {max(more_percent):.0f} %"
            yield Figure(
                f"more CPU of the process collector with threads, level {level}, {scope}",
                100 * (sum(used) / sum(without) - 1),
                "%",
                digits=1,
                at_most=_MAX_MORE_PERCENT if level == 1 else None,
                note=f"{spread} in {blocks} blocks, {ms[0]:.2f} → {ms[1]:.2f} ms a second",
            )


def _ratio(what: str, own_seconds: float, other_seconds: float) -> Figure:
    note = f"{own_seconds:.3f} for {other_seconds:.3f} s"
    return Figure(
        f"CPU of {what}: beside the other tree", own_seconds / other_seconds, "×", note=note
    )


def measure_runs(options: argparse.Namespace) -> Iterator[Figure]:
    """The CPU time of ``run`` itself, without its start and its end."""
    trees = [_ROOT, *([] if options.beside is None else [options.beside])]
    for scope, (count, pause) in _SLEEPERS.items():
        if not any(text in f"run {scope}" for text in options.only):
            continue
        program = sleepers(count, pause, _RUN_WARM_UP_SECONDS + options.seconds + 10)
        used = [sum(each) for each in zip(*_seconds_of_runs(options, trees, program), strict=True)]
        share = used[0] / options.seconds / options.watchers
        yield Figure(f"CPU of run itself, {scope}", 100 * share, "% of a core", digits=3)
        if options.beside is not None:
            yield _ratio(f"run itself, {scope}", *used)


def _seconds_of_runs(
    options: argparse.Namespace, trees: Sequence[Path], program: Sequence[str]
) -> list[list[float]]:
    """The CPU seconds of ``run`` around the program, of each tree, several times at once."""
    command = (sys.executable, "-m", "profiler", "run", "--no-history", "--output", os.devnull)
    started = [
        [
            subprocess.Popen([*command, "--", *program], cwd=tree, stderr=subprocess.DEVNULL)
            for tree in trees
        ]
        for _ in range(options.watchers)
    ]
    try:
        time.sleep(_RUN_WARM_UP_SECONDS)
        before = [[_cpu_seconds(process) for process in runs] for runs in started]
        time.sleep(options.seconds)
        return [
            [_cpu_seconds(process) - began for process, began in zip(*each, strict=True)]
            for each in zip(started, before, strict=True)
        ]
    finally:
        for process in chain.from_iterable(started):
            process.terminate()
            process.wait()


def _cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    """The CPU time of a process so far, as clock_getcpuclockid(3) names its clock."""
    return time.clock_gettime((~process.pid << 3) | 2)


def main(arguments: Sequence[str]) -> None:
    """Measure, print the results, and write them as JSON on request."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--seconds", type=int, default=80, help="duration of each measurement")
    parser.add_argument("--watchers", type=int, default=4, help="collectors of each kind at once")
    parser.add_argument("--only", nargs="+", default=[""], help="parts of the names of batches")
    parser.add_argument(
        "--beside", type=Path, help="another tree of this project, measured at the same time"
    )
    parser.add_argument(
        "--batch", help="id of a running batch: watch it in this process, and print JSON"
    )
    parser.add_argument(
        "--without", action="store_true", help="with --batch: without the thread reader"
    )
    parser.add_argument(
        "--in-namespace",
        action="store_true",
        help="this process has a process namespace of its own",
    )
    options = parser.parse_args(arguments)
    if options.batch is not None:
        blocks = options.seconds // _BLOCK_SECONDS
        watch(options.batch, blocks, reads_threads=not options.without)
        return
    if os.geteuid() == 0 and not options.in_namespace:
        command = (sys.executable, "-m", "benchmarks.why_threads", "--in-namespace", *arguments)
        raise SystemExit(subprocess.run((*_NAMESPACE, *command), check=False).returncode)
    title = "Cost of the time breakdown"
    figures = tuple(measure_runs(options))
    tables: tuple[str, ...] = ()
    if os.geteuid() == 0:
        figures = (*measure(options), *figures)
    else:
        tables = ("No collector was measured, because that creates a cgroup: run it as root.",)
    BenchmarkResult(title, figures=figures, tables=tables).print_and_save(options.json)


if __name__ == "__main__":
    main(sys.argv[1:])

"""What reading a batch's processes costs: CPU time of a tick beside 50 and 2,000 of them.

    python -m benchmarks.processes [--processes 50 2000] [--ticks 30] [--json FILE]

Real processes in a control group of their own, which stands for the batch's container (so: as root).
One in ten touches fresh memory all the time, the others sleep. A tick is a reading of the processes
and all that is made of it; the one that finds them is told apart. Beside it, what one ``stat`` and
one ``status`` of each process cost without anything left out.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from profiler.collectors.processes.reader import ContainerProcesses
from profiler.collectors.processes.usage import BatchProcesses, ReadingContext
from profiler.core.timestamps import NS_PER_SECOND
from profiler.sources.linux import proc

_FIGURES_MS = {50: 1.0}
_ID = "b" * 64
_FOLDERS = ("/sys/fs/cgroup/pids", "/sys/fs/cgroup")
_BUSY_ONE_IN = 10
_TOUCH = "import time\nwhile True:\n    b = bytearray(1 << 20)\n    time.sleep(0.05)\n"
_SETTLE_SECONDS = 1.0
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class Cost:
    """Milliseconds of CPU time (medians but for the first reading), and MiB that the first reading added."""

    processes: int
    first_ms: float
    tick_ms: float
    plain_ms: float
    grown_mib: float


@contextlib.contextmanager
def batch(count: int) -> Iterator[None]:
    """So many processes in a group whose name is a container's id."""
    above = next(folder for folder in map(Path, _FOLDERS) if (folder / "cgroup.procs").exists())
    group = above / _ID
    group.mkdir()
    busy = [sys.executable, "-c", _TOUCH]
    started = [
        subprocess.Popen(
            busy if number % _BUSY_ONE_IN == 0 and number < _BUSY_ONE_IN * _BUSY_ONE_IN else ["sleep", "600"]
        )
        for number in range(count)
    ]
    try:
        for process in started:
            (group / "cgroup.procs").write_text(str(process.pid))
        time.sleep(_SETTLE_SECONDS)
        yield
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()
        group.rmdir()


def cpu_ms(work: Callable[[], object]) -> float:
    """CPU time of this thread."""
    began_ns = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - began_ns) / 1e6


def resident_mib() -> float:
    """VmRSS."""
    return (proc.parse_status(proc.read("/proc/self/status") or b"").rss_bytes or 0) / 2**20


def measure(count: int, ticks: int) -> Cost:
    """A life beside so many processes."""
    with batch(count):
        known = BatchProcesses(NS_PER_SECOND, lambda _: None)
        source = ContainerProcesses(_ID, time.monotonic_ns)

        def tick() -> None:
            moment = ReadingContext(incarnation=_ID, monotonic_ns=time.monotonic_ns(), wall_ns=time.time_ns())
            known.add(source.read(), None, None, moment)

        before_mib = resident_mib()
        first_ms = cpu_ms(tick)
        costs = []
        for _ in range(ticks):
            time.sleep(_PAUSE_SECONDS)
            costs.append(cpu_ms(tick))
        grown_mib = resident_mib() - before_mib
        pids = [process.pid for process in source.read().processes]
        if len(pids) != count:
            raise SystemExit(f"{len(pids)} of {count} processes were found.")
        plain = [cpu_ms(lambda: _read_plainly(pids)) for _ in range(5)]
        source.close()
    return Cost(
        processes=count,
        first_ms=first_ms,
        tick_ms=statistics.median(costs),
        plain_ms=statistics.median(plain),
        grown_mib=grown_mib,
    )


def _read_plainly(pids: Sequence[int]) -> None:
    for pid in pids:
        for name in ("stat", "status"):
            proc.read(f"/proc/{pid}/{name}")


def main(arguments: Sequence[str]) -> None:
    """Measure, print the table, and write it as JSON if asked to."""
    parser = argparse.ArgumentParser(description="Measure what reading a batch's processes costs.")
    parser.add_argument("--processes", type=int, nargs="+", default=[50, 2000], help="how many")
    parser.add_argument("--ticks", type=int, default=30, help="readings of each")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    options = parser.parse_args(arguments)
    if os.geteuid() != 0:
        raise SystemExit("The processes get a control group of their own: run this as root.")
    costs = [measure(count, options.ticks) for count in options.processes]
    for cost in costs:
        figure = _FIGURES_MS.get(cost.processes)
        met = "" if figure is None else f" (≤ {figure:g}: {'met' if cost.tick_ms <= figure else 'NOT MET'})"
        print(
            f"{cost.processes:5} processes   first {cost.first_ms:7.2f} ms   tick {cost.tick_ms:6.2f} ms{met}   "
            f"stat and status of each alone {cost.plain_ms:6.2f} ms   memory {cost.grown_mib:+.1f} MiB"
        )
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(cost) for cost in costs], indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])

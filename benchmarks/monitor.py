"""What the monitor costs beside a batch, against the project's figures and against the floor.

    python -m benchmarks.monitor [--seconds 30] [--json FILE]

CPU is the kernel's schedstat of all threads over a steady stretch, memory the high-water mark
(VmHWM) before the final put and after it, latency the time from the batch's end (or SIGTERM) to
the event in a played CloudWatch Logs. The floor is measured in the same run, so that the ratio
holds on any machine.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.endpoint import TASK_ID
from tests.aws import PlayedAws, played_aws

_MONITOR = (sys.executable, "-m", "profiler", "monitor")
_WARM_UP_SECONDS = 4
_MIB_IN_KIB = 1024
_GROUP = "/ecs/bench"
# Containers of the task -> (largest share of a core in percent, largest peak in MiB).
_FIGURES = {3: (0.15, 32.0), 20: (0.30, None), 100: (0.80, None)}
_LATENCY_SECONDS = {"polled": 2.5, "sigterm": 2.0}


@dataclass(frozen=True)
class Steady:
    """A sampler over a steady stretch."""

    what: str
    containers: int
    cpu_percent: float
    peak_mib: float
    cpu_figure: float | None = None
    peak_figure: float | None = None

    def row(self) -> str:
        """One line of the table."""
        met = _met(self.cpu_percent, self.cpu_figure), _met(self.peak_mib, self.peak_figure)
        return (
            f"{self.what:18} {self.containers:4} containers   CPU {self.cpu_percent:6.3f} % {met[0]:16} "
            f"peak {self.peak_mib:5.1f} MiB {met[1]}"
        )


@contextmanager
def endpoint(containers: int) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a served task, and its process: ``end`` on stdin ends the batch."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.endpoint", str(containers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None  # noqa: S101  for the type checker
    try:
        yield process.stdout.readline().strip(), process
    finally:
        process.communicate()


@contextmanager
def monitor(address: str, aws: PlayedAws) -> Iterator[subprocess.Popen[bytes]]:
    """A running monitor."""
    environment = {
        **os.environ,
        **aws.environment(),
        "ECS_CONTAINER_METADATA_URI_V4": address,
        "TASK_PROFILER_CONTAINER": "batch",
    }
    process = subprocess.Popen(_MONITOR, env=environment, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads in the scheduler's own accounting (nanoseconds)."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def peak_mib(pid: int) -> float:
    """VmHWM."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / _MIB_IN_KIB


def steady(pid: int, seconds: float) -> tuple[float, float]:
    """Share of a core in percent over so many seconds after the warm-up, and the peak."""
    time.sleep(_WARM_UP_SECONDS)
    before, began = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    used, passed = cpu_seconds(pid) - before, time.monotonic() - began
    return 100 * used / passed, peak_mib(pid)


def measure_monitor(containers: int, seconds: float, aws: PlayedAws) -> Steady:
    """The monitor beside so many containers."""
    with endpoint(containers) as (address, _), monitor(address, aws) as process:
        cpu_percent, peak = steady(process.pid, seconds)
    cpu_figure, peak_figure = _FIGURES[containers]
    return Steady("monitor", containers, cpu_percent, peak, cpu_figure, peak_figure)


def measure_floor(containers: int, seconds: float) -> Steady:
    """Requests and json alone."""
    with endpoint(containers) as (address, _):
        process = subprocess.Popen([sys.executable, "-m", "benchmarks.floor", address])
        try:
            cpu_percent, peak = steady(process.pid, seconds)
        finally:
            process.kill()
            process.wait()
    return Steady("requests + json", containers, cpu_percent, peak)


def measure_latency(how: str, aws: PlayedAws) -> float:
    """Seconds from the batch's end, or from SIGTERM at the same moment, to the report in the stream."""
    stream = f"ecs/batch/{TASK_ID}"
    before = len(aws.events(_GROUP, stream))
    with endpoint(3) as (address, task), monitor(address, aws) as process:
        time.sleep(_WARM_UP_SECONDS)
        assert task.stdin is not None  # noqa: S101  for the type checker
        ended = time.monotonic()
        task.stdin.write("end\n")
        task.stdin.flush()
        if how == "sigterm":
            time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
        process.wait()
        passed = time.monotonic() - ended
    if len(aws.events(_GROUP, stream)) != before + 1:
        raise SystemExit(f"The {how} report did not arrive.")
    return passed


def _met(value: float, figure: float | None) -> str:
    if figure is None:
        return ""
    return f"(≤ {figure:g}: {'met' if value <= figure else 'NOT MET'})"


def main(arguments: Sequence[str]) -> None:
    """Measure, print the table, and write it as JSON if asked to."""
    parser = argparse.ArgumentParser(description="Measure the monitor.")
    parser.add_argument("--seconds", type=float, default=30, help="length of each steady stretch")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    options = parser.parse_args(arguments)
    with played_aws() as aws:
        aws.create_log_group(_GROUP)
        aws.create_log_stream(_GROUP, f"ecs/batch/{TASK_ID}")
        rows = []
        for containers in _FIGURES:
            rows += [measure_floor(containers, options.seconds), measure_monitor(containers, options.seconds, aws)]
            for row in rows[-2:]:
                print(row.row(), flush=True)
            print(f"{'':18} ratio of CPU to the floor {rows[-1].cpu_percent / rows[-2].cpu_percent:.2f}")
        latencies = {how: measure_latency(how, aws) for how in _LATENCY_SECONDS}
    for how, seconds in latencies.items():
        print(f"batch exit -> report, process gone ({how}): {seconds:.2f} s {_met(seconds, _LATENCY_SECONDS[how])}")
    if options.json is not None:
        options.json.write_text(
            json.dumps({"steady": [asdict(row) for row in rows], "latency_seconds": latencies}, indent=2)
        )


if __name__ == "__main__":
    main(sys.argv[1:])

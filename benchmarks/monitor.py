"""What the monitor costs beside a batch, against the project's figures and against the floor.

    python -m benchmarks.monitor [--seconds 30] [--json FILE]

CPU is the kernel's schedstat of all threads over a steady stretch; memory RSS and PSS
(smaps_rollup) and the high-water mark (VmHWM), before the final put and after it; latency the time
from the batch's end (or SIGTERM) to the end of the monitor, with the event in a played CloudWatch
Logs. The floor is measured in the same run, so that the ratio holds on any machine; so is Telegraf,
where it is installed.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.endpoint import TASK_ID
from benchmarks.figures import Figure, Part, tell
from benchmarks.process_memory import Memory, memory, watch_to_the_end
from benchmarks.running import running
from benchmarks.telegraf import telegraf
from tests.aws import FakeAws, fake_aws

_MONITOR = (sys.executable, "-m", "profiler", "monitor")
_WARM_UP_SECONDS = 4
_GROUP = "/ecs/bench"
# Containers of the task -> (largest share of a core in percent, largest peak in MiB).
_FIGURES = {3: (0.15, 32.0), 20: (0.30, None), 100: (0.80, None)}
_LATENCY_SECONDS = {"polled": 2.5, "sigterm": 2.0}
_ENDINGS = {"polled": "batch exit to report, seen by polling at 1 Hz", "sigterm": "batch exit and SIGTERM to report"}


@dataclass(frozen=True)
class Steady:
    """A sampler over a steady stretch: its share of a core, and its memory at the end of it."""

    cpu_percent: float
    memory: Memory


@dataclass(frozen=True)
class CommandExit:
    """The monitor's last moments."""

    seconds: float
    memory: Memory


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
def monitor(
    address: str, aws: FakeAws, more_environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A running monitor."""
    environment = {
        **aws.environment(),
        "ECS_CONTAINER_METADATA_URI_V4": address,
        "TASK_PROFILER_CONTAINER": "batch",
        **(more_environment or {}),
    }
    with running(_MONITOR, environment) as process:
        yield process


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads in the scheduler's own accounting (nanoseconds)."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def steady(pid: int, seconds: float) -> Steady:
    """Over so many seconds after the warm-up."""
    time.sleep(_WARM_UP_SECONDS)
    before, began = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    used, passed = cpu_seconds(pid) - before, time.monotonic() - began
    return Steady(100 * used / passed, memory(pid))


def measure_monitor(
    containers: int, seconds: float, aws: FakeAws, more_environment: Mapping[str, str] | None = None
) -> Steady:
    """The monitor beside so many containers."""
    with endpoint(containers) as (address, _), monitor(address, aws, more_environment) as process:
        return steady(process.pid, seconds)


def measure_floor(containers: int, seconds: float) -> Steady:
    """Requests and json alone."""
    with endpoint(containers) as (address, _), running((sys.executable, "-m", "benchmarks.floor", address)) as process:
        return steady(process.pid, seconds)


def measure_telegraf(program: str, containers: int, seconds: float) -> Steady:
    """Telegraf beside so many containers."""
    with endpoint(containers) as (address, _), telegraf(program, address) as process:
        return steady(process.pid, seconds)


def measure_ending(how: str, aws: FakeAws) -> CommandExit:
    """From the batch's end, or from SIGTERM at the same moment, to the report in the stream and the monitor gone."""
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
        last = watch_to_the_end(process)
        passed = time.monotonic() - ended
    if len(aws.events(_GROUP, stream)) != before + 1:
        raise SystemExit(f"The {how} report did not arrive.")
    return CommandExit(passed, last)


def steady_figures(containers: int, ours: Steady, floor: Steady) -> Iterator[Figure]:
    """The monitor beside so many containers, and what it is of the floor."""
    beside = f"{containers} containers"
    most_percent, most_mib = _FIGURES[containers]
    yield Figure(
        what=f"CPU at 1 Hz, {beside}", value=ours.cpu_percent, unit="% of a core", digits=3, at_most=most_percent
    )
    yield Figure(what=f"requests + json alone, {beside}", value=floor.cpu_percent, unit="% of a core", digits=3)
    yield Figure(what=f"ratio of the monitor to it, {beside}", value=ours.cpu_percent / floor.cpu_percent, unit="×")
    if most_mib is None:
        yield Figure(what=f"memory peak (VmHWM), {beside}", value=ours.memory.peak_mib, unit="MiB", digits=1)
        return
    yield Figure(
        what=f"memory peak (VmHWM) before the put, {beside}",
        value=ours.memory.peak_mib,
        unit="MiB",
        digits=1,
        at_most=most_mib,
    )
    yield Figure(what=f"RSS before the put, {beside}", value=ours.memory.rss_mib, unit="MiB", digits=1)
    yield Figure(what=f"PSS before the put, {beside}", value=ours.memory.pss_mib, unit="MiB", digits=1)
    yield Figure(what=f"requests + json alone, peak, {beside}", value=floor.memory.peak_mib, unit="MiB", digits=1)


def telegraf_figures(containers: int, ours: Steady, rival: Steady) -> Iterator[Figure]:
    """Telegraf beside so many containers, and what the monitor is of it."""
    beside = f"{containers} containers"
    yield Figure(what=f"Telegraf's ECS input, {beside}", value=rival.cpu_percent, unit="% of a core", digits=3)
    yield Figure(
        what=f"ratio of the monitor to Telegraf, {beside}", value=ours.cpu_percent / rival.cpu_percent, unit="×"
    )
    yield Figure(what=f"Telegraf's ECS input, peak, {beside}", value=rival.memory.peak_mib, unit="MiB", digits=1)


def ending_figures(how: str, ending: CommandExit) -> Iterator[Figure]:
    """One way to end."""
    yield Figure(what=_ENDINGS[how], value=ending.seconds, unit="s", at_most=_LATENCY_SECONDS[how])
    if how == "sigterm":
        yield Figure(what="memory peak (VmHWM) after the put", value=ending.memory.peak_mib, unit="MiB", digits=1)
        yield Figure(what="PSS, the largest during the put", value=ending.memory.pss_mib, unit="MiB", digits=1)


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and write it as JSON if asked to."""
    parser = argparse.ArgumentParser(description="Measure the monitor.")
    parser.add_argument("--seconds", type=float, default=30, help="length of each steady stretch")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    options = parser.parse_args(arguments)
    figures: list[Figure] = []
    program = shutil.which("telegraf")
    with fake_aws() as aws:
        aws.create_log_group(_GROUP)
        aws.create_log_stream(_GROUP, f"ecs/batch/{TASK_ID}")
        for containers in _FIGURES:
            floor = measure_floor(containers, options.seconds)
            ours = measure_monitor(containers, options.seconds, aws)
            figures += steady_figures(containers, ours, floor)
            if program is not None:
                figures += telegraf_figures(containers, ours, measure_telegraf(program, containers, options.seconds))
        for how in _ENDINGS:
            figures += ending_figures(how, measure_ending(how, aws))
    tell(Part(title="Monitor", figures=tuple(figures)), options.json)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Measure the cost of the monitor, and compare it with its targets and Telegraf.

    python -m benchmarks.monitor [--seconds 30] [--json FILE]

CPU: schedstat of all threads in steady state.
Memory: RSS and PSS (smaps_rollup) and the high-water mark (VmHWM), before and after the upload of
the report.
Latency: the time from the batch's end (or SIGTERM) to the monitor's exit. CloudWatch Logs is
simulated.

Telegraf is measured at the same time, in several turns of which the median ratio counts, so that it
is valid on any machine, if ``telegraf`` is on the PATH. To build it: ``go install -tags
custom,inputs.ecs,outputs.discard github.com/influxdata/telegraf/cmd/telegraf@v1.36.2``.
"""

import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import BenchmarkResult, Figure, benchmark_parser
from benchmarks.machine import describe_machine
from benchmarks.measured_process import ProcessMemory, read_memory, run_process, watch_until_exit
from tools.moto_server import FakeAws, fake_aws

# As in tests/task_endpoint.py, which is started as a program.
TASK_ID = "0123456789abcdef0123456789abcdef"

_MONITOR = (sys.executable, "-m", "profiler", "monitor")
_WARM_UP_SECONDS = 4
_GROUP = "/ecs/bench"
# Containers of the task -> (maximum share of a core in percent, maximum memory peak in MiB).
_TARGETS = {3: (0.15, 32.0), 20: (0.30, None), 100: (0.80, None)}
_FARGATE_PERIOD_SECONDS = 10
# A multiple of the period of the stats and of the checkpoints.
_FARGATE_SECONDS = 60
_FARGATE_PAIRS = 3
_TURNS = 5  # of the monitor beside Telegraf
_MAX_FARGATE_RATIO = 0.5
# Up to its fifth read of the task the monitor looks for the batch among all processes that it sees.
# In a container on Fargate these are its own; here they are all processes of the machine, which may
# take as long as the sampling.
_SEARCH_SECONDS = 52
_LATENCY_SECONDS = {"polled": 2.5, "sigterm": 2.0}
_SHUTDOWN_NAMES = {
    "polled": "batch exit to report, detected by polling at 1 Hz",
    "sigterm": "batch exit and SIGTERM to report",
}
# One reading a second; the output is discarded.
_TELEGRAF_SETTINGS = """
[agent]
  interval = "1s"
  flush_interval = "10s"
  omit_hostname = true
[[outputs.discard]]
"""


@dataclass(frozen=True)
class SteadyState:
    """A sampler in steady state: its share of a core, and its memory at the end."""

    cpu_percent: float
    memory: ProcessMemory


@dataclass(frozen=True)
class Shutdown:
    """The end of the monitor: its latency, and its maximum memory during it."""

    seconds: float
    memory: ProcessMemory


@contextmanager
def run_endpoint(
    containers: int, stats_period_seconds: float = 0
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the endpoint. Yields its address and its process; ``end`` on stdin ends the batch."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.task_endpoint", str(containers), str(stats_period_seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), process
    finally:
        process.communicate()


@contextmanager
def run_monitor(
    address: str,
    aws: FakeAws,
    extra_environment: Mapping[str, str] | None = None,
    *,
    folder: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the monitor; in another checkout's folder, the checkout's monitor."""
    environment = {
        **aws.environment(),
        "ECS_CONTAINER_METADATA_URI_V4": address,
        "TASK_PROFILER_CONTAINER": "batch",
        **(extra_environment or {}),
    }
    # With -m, Python searches the working directory before the installed packages.
    with run_process(_MONITOR, environment, folder=folder) as process:
        yield process


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads. The scheduler accounts for it in nanoseconds."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def measure_steady_states(
    pids: Sequence[int], seconds: float, warm_up_seconds: float = _WARM_UP_SECONDS
) -> tuple[SteadyState, ...]:
    """Measure samplers over the same time, after the warm-up."""
    time.sleep(warm_up_seconds)
    before, started_at = [cpu_seconds(pid) for pid in pids], time.monotonic()
    time.sleep(seconds)
    after, elapsed_seconds = [cpu_seconds(pid) for pid in pids], time.monotonic() - started_at
    return tuple(
        SteadyState(100 * (used - start) / elapsed_seconds, read_memory(pid))
        for pid, start, used in zip(pids, before, after, strict=True)
    )


def measure_steady_state(pid: int, seconds: float) -> SteadyState:
    """Measure a sampler for this time, after the warm-up."""
    (state,) = measure_steady_states((pid,), seconds)
    return state


def measure_monitor(
    containers: int,
    seconds: float,
    aws: FakeAws,
    extra_environment: Mapping[str, str] | None = None,
) -> SteadyState:
    """Measure the monitor of a task with this number of containers."""
    with (
        run_endpoint(containers) as (address, _),
        run_monitor(address, aws, extra_environment) as process,
    ):
        return measure_steady_state(process.pid, seconds)


def measure_slow_stats_cpu_ratios(seconds: float, aws: FakeAws) -> list[float]:
    """The CPU time with stats that change every 10 s, relative to stats that change every
    second, in ascending order.

    All monitors run at the same time.
    """
    with ExitStack() as stack:
        pids = []
        for period_seconds in (_FARGATE_PERIOD_SECONDS, 0) * _FARGATE_PAIRS:
            address, _ = stack.enter_context(run_endpoint(3, period_seconds))
            pids.append(stack.enter_context(run_monitor(address, aws)).pid)
        states = measure_steady_states(pids, seconds, _SEARCH_SECONDS)
    shares = [state.cpu_percent for state in states]
    return sorted(fargate / usual for fargate, usual in zip(shares[::2], shares[1::2], strict=True))


@contextmanager
def run_telegraf(
    program: str, inputs: str, extra_environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run Telegraf with the settings of its inputs."""
    with tempfile.TemporaryDirectory(prefix="bench-telegraf-") as folder:
        settings = Path(folder) / "telegraf.conf"
        settings.write_text(f"{_TELEGRAF_SETTINGS}{inputs}")
        command = (program, "--config", str(settings), "--quiet")
        with run_process(command, extra_environment) as process:
            yield process


def measure_beside_telegraf(
    program: str, containers: int, seconds: float, aws: FakeAws
) -> tuple[SteadyState, SteadyState]:
    """Measure the monitor and Telegraf, each on a task with this number of containers, at the
    same time; the turn with the median ratio.
    """
    names = ("ECS_CONTAINER_METADATA_URI_V4", "ECS_CONTAINER_METADATA_URI")
    with (
        run_endpoint(containers) as (address, _),
        run_monitor(address, aws) as ours,
        run_endpoint(containers) as (telegraf_address, _),
        run_telegraf(program, "[[inputs.ecs]]", dict.fromkeys(names, telegraf_address)) as telegraf,
    ):
        time.sleep(_SEARCH_SECONDS)
        turns = []
        for _ in range(_TURNS):
            turns.append(measure_steady_states((ours.pid, telegraf.pid), seconds / _TURNS, 0))
    own_state, telegraf_state = sorted(turns, key=_ratio)[_TURNS // 2]
    return own_state, telegraf_state


def _ratio(states: Sequence[SteadyState]) -> float:
    ours, telegraf = states
    return ours.cpu_percent / telegraf.cpu_percent


def measure_shutdown(trigger: str, aws: FakeAws) -> Shutdown:
    """Measure the time from the batch's end until the monitor has uploaded the report and exited.

    With the trigger "sigterm" the monitor receives SIGTERM right after the batch's end.
    """
    stream = f"ecs/batch/{TASK_ID}"
    before = len(aws.events(_GROUP, stream))
    with run_endpoint(3) as (address, task), run_monitor(address, aws) as process:
        time.sleep(_WARM_UP_SECONDS)
        assert task.stdin is not None
        ended_at = time.monotonic()
        task.stdin.write("end\n")
        task.stdin.flush()
        if trigger == "sigterm":
            time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
        final_memory = watch_until_exit(process)
        elapsed_seconds = time.monotonic() - ended_at
    if len(aws.events(_GROUP, stream)) != before + 1:
        raise SystemExit(f"The {trigger} report did not arrive.")
    return Shutdown(elapsed_seconds, final_memory)


def steady_figures(containers: int, ours: SteadyState) -> Iterator[Figure]:
    """The figures of the monitor."""
    scope = f"{containers} containers"
    max_percent, max_mib = _TARGETS[containers]
    yield Figure(
        f"CPU at 1 Hz, {scope}",
        ours.cpu_percent,
        "% of a core",
        digits=3,
        at_most=max_percent,
        note=f"Python {describe_machine().python}",
    )
    if max_mib is None:
        yield Figure(f"memory peak (VmHWM), {scope}", ours.memory.peak_mib, "MiB", digits=1)
        return
    yield Figure(
        f"memory peak (VmHWM) before the upload, {scope}",
        ours.memory.peak_mib,
        "MiB",
        digits=1,
        at_most=max_mib,
    )
    yield Figure(f"RSS before the upload, {scope}", ours.memory.rss_mib, "MiB", digits=1)
    yield Figure(f"PSS before the upload, {scope}", ours.memory.pss_mib, "MiB", digits=1)


def telegraf_figures(
    containers: int, ours: SteadyState, telegraf_state: SteadyState
) -> Iterator[Figure]:
    """The figures of Telegraf, and the monitor's ratio to it."""
    scope = f"{containers} containers"
    yield Figure(
        f"Telegraf's ECS input, {scope}", telegraf_state.cpu_percent, "% of a core", digits=3
    )
    yield Figure(
        f"ratio of the monitor to Telegraf, {scope}",
        ours.cpu_percent / telegraf_state.cpu_percent,
        "×",
    )
    yield Figure(
        f"Telegraf's ECS input, peak, {scope}", telegraf_state.memory.peak_mib, "MiB", digits=1
    )


def fargate_figure(ratios: Sequence[float]) -> Figure:
    """The median of the ratios."""
    return Figure(
        "CPU with Fargate's stats every 10 s, relative to every second, 3 containers",
        statistics.median(ratios),
        "×",
        at_most=_MAX_FARGATE_RATIO,
        note=f"{ratios[0]:.2f} to {ratios[-1]:.2f} in {len(ratios)} pairs",
    )


def shutdown_figures(trigger: str, shutdown: Shutdown) -> Iterator[Figure]:
    """The figures of one trigger."""
    yield Figure(_SHUTDOWN_NAMES[trigger], shutdown.seconds, "s", at_most=_LATENCY_SECONDS[trigger])
    if trigger == "sigterm":
        yield Figure(
            "memory peak (VmHWM) after the upload", shutdown.memory.peak_mib, "MiB", digits=1
        )
        yield Figure("PSS, maximum during the upload", shutdown.memory.pss_mib, "MiB", digits=1)


def main(arguments: Sequence[str]) -> None:
    """Measure, print the results, and write them as JSON on request."""
    parser = benchmark_parser(__doc__)
    parser.add_argument(
        "--seconds", type=float, default=30, help="duration of each measurement in steady state"
    )
    options = parser.parse_args(arguments)
    figures: list[Figure] = []
    program = shutil.which("telegraf")
    with fake_aws() as aws:
        aws.create_log_group(_GROUP)
        aws.create_log_stream(_GROUP, f"ecs/batch/{TASK_ID}")
        for containers in _TARGETS:
            if program is None:
                ours = measure_monitor(containers, options.seconds, aws)
            else:
                ours, telegraf = measure_beside_telegraf(program, containers, options.seconds, aws)
                figures += telegraf_figures(containers, ours, telegraf)
            figures += steady_figures(containers, ours)
        figures.append(
            fargate_figure(
                measure_slow_stats_cpu_ratios(max(options.seconds, _FARGATE_SECONDS), aws)
            )
        )
        for trigger in _SHUTDOWN_NAMES:
            figures += shutdown_figures(trigger, measure_shutdown(trigger, aws))
    BenchmarkResult("Monitor", figures=tuple(figures)).print_and_save(options.json)


if __name__ == "__main__":
    main(sys.argv[1:])

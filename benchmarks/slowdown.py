"""Compare ``slowdownAtVcpu`` with the slowdown of real programs under CPU limits.

    python -m benchmarks.slowdown [--quick] [--seconds 8] [--rounds 2] [--program NAME …] [--json FILE]

Each program (benchmarks/slowdown_programs.py) does a fixed amount of work in a Docker container: without a CPU limit,
and with limits of 1, 0.5 and 0.25 CPUs. The measured factor is the median duration with a limit, divided by the
duration of the median run without one. The bounds come from that run only. They are calculated by the code of
the monitor:

- from Docker's stats, which arrive once a second, as in a sidecar on EC2;
- from the kernel's CPU counter of the same run, in steps of 0.1 s, as ``run --interval 0.1`` has them;
- from the same counter in steps of 10 s, as a sidecar on Fargate has them.

The containers get the highest CPU weight, so that they rarely wait for other programs. Runs with and without limits
alternate. On a shared machine, the same work still takes more or less CPU time from run to run, because the cores
share caches, memory and clock frequency with other work. Therefore the factor is also calculated for equal CPU time:
the difference in CPU time, divided by the limit, is subtracted from the duration with the limit.

This benchmark needs two CPU cores and a Docker daemon, or root and ``dockerd``. The first run on a machine makes a
container image with ``debootstrap``.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.figures import BenchmarkResult, Figure, markdown_table, print_and_save
from benchmarks.slowdown_programs import PROGRAMS
from profiler.aggregation.container_usage import ContainerUsage
from profiler.aggregation.slowdown import CpuDemand
from profiler.core.timestamps import NS_PER_SECOND, parse_ns
from profiler.readers import Unavailable
from profiler.readers.ecs.container_stats import decode_stats
from profiler.record.record_model import SlowdownBounds
from tests.e2e.docker_api import DockerError
from tests.e2e.engine import Engine, EngineMissingError, running_engine
from tests.e2e.images import BASE_IMAGE, default_cache, image_exists, make_base_image, remove_image
from tests.e2e.kernel import KernelAccounting, accounting_of

CORES = 2
LIMITS = (1.0, 0.5, 0.25)
TOLERANCE_PERCENT = 7
_MIN_INSIDE_PERCENT = 95
STEPS = STATS, FINE, COARSE = "1 s", "0.1 s", "10 s"
_STEP_NS = {FINE: NS_PER_SECOND // 10, COARSE: 10 * NS_PER_SECOND}
_READ_SECONDS = 0.05
_READER_NICENESS = -20
_MAX_RUN_SECONDS = 600.0
_MAX_CPU_SHARES = 262144
_CGROUP = "/bench-slowdown"
_CGROUP_FOLDERS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/cpu,cpuacct"))
_PROGRAMS_FILE = Path(__file__).with_name("slowdown_programs.py")

Bounds = Mapping[float, SlowdownBounds]
# The CPU time that the container had used at a time, in nanoseconds each.
Trace = Sequence[tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run of a program: its duration, its CPU time, and, without a CPU limit, the bounds by step length."""

    seconds: float
    cpu_seconds: float
    bounds: Mapping[str, Bounds]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A program under a CPU limit.

    ``spread`` is the difference between the longest and the shortest run without a limit, relative to the median run.
    ``factor`` is the measured slowdown, ``equal_cpu_factor`` the slowdown if the work had taken the same CPU time with
    the limit as without. ``cpu_factor`` is the CPU time with the limit, divided by the CPU time without.
    """

    program: str
    vcpu_used: float
    seconds: float
    spread: float
    limit: float
    factor: float
    equal_cpu_factor: float
    cpu_factor: float
    bounds: Mapping[str, SlowdownBounds]

    def is_inside(self, factor: float, step: str) -> bool:
        """Whether a factor is within the bounds, with the tolerance."""
        bound, tolerance = self.bounds[step], TOLERANCE_PERCENT / 100
        return bound.min * (1 - tolerance) <= factor <= bound.max * (1 + tolerance)


def merge_steps(trace: Trace, step_ns: int) -> list[tuple[float, int]]:
    """The vCPUs used and the length of each step of at least ``step_ns``; the last step may be shorter."""
    steps = []
    (start_ns, start_cpu_ns), *rest = trace
    for number, (at_ns, cpu_ns) in enumerate(rest, 1):
        held_ns = at_ns - start_ns
        if held_ns > 0 and (held_ns >= step_ns or number == len(rest)):
            steps.append(((cpu_ns - start_cpu_ns) / held_ns, held_ns))
            start_ns, start_cpu_ns = at_ns, cpu_ns
    return steps


def bounds_of(steps: Sequence[tuple[float, int]], max_threads: int | None) -> Bounds:
    """The bounds that the record of a task with two vCPUs would have."""
    demand = CpuDemand(CORES)
    for vcpu, held_ns in steps:
        demand.add(vcpu, held_ns)
    return demand.slowdown(vcpu_size=CORES, max_threads=max_threads) or {}


class ContainerState(Struct, frozen=True, rename="pascal"):
    """The state of a container's process, as Docker reports it."""

    pid: int
    exit_code: int
    started_at: str
    finished_at: str


class StatsFollower:
    """Follows Docker's stats of a container, and calculates the bounds as the sidecar does."""

    def __init__(self, engine: Engine, container: str, started_ns: int) -> None:
        self._engine = engine
        self._container = container
        self._started_ns = started_ns
        self._usage = ContainerUsage(NS_PER_SECOND)
        self._steps: list[tuple[float, int]] = []

    def follow(self) -> None:
        """Read until the container ends."""
        path = f"/containers/{self._container}/stats"
        with contextlib.suppress(DockerError, OSError):
            for document in self._engine.api.stream(path, query={"stream": "1"}):
                if not document.get("cpu_stats", {}).get("cpu_usage", {}).get("total_usage"):
                    continue  # the container has ended
                self._add(document)

    def _add(self, document: Mapping[str, object]) -> None:
        reading = decode_stats(json.dumps({self._container: document}).encode())
        if isinstance(reading, Unavailable) or self._container not in reading.samples:
            return
        sample = reading.samples[self._container]
        received_ns = time.monotonic_ns()
        self._usage.add(sample, epoch=self._container, received_ns=received_ns, started_ns=self._started_ns)
        held_ns = self._usage.take_ended_step_ns()
        if held_ns:
            self._steps.append((self._usage.last_vcpu or 0.0, held_ns))

    @property
    def max_threads(self) -> int | None:
        """The largest number of threads in a sample."""
        return self._usage.max_pids

    def bounds(self) -> Bounds:
        """The bounds of the record."""
        return bounds_of(self._steps, self.max_threads)


def follow_kernel(accounting: KernelAccounting, stop: threading.Event, trace: list[tuple[int, int]]) -> None:
    """Read the CPU time of a container until it ends."""
    with contextlib.suppress(PermissionError):  # a delay between the clock and the counter would distort short steps
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _READER_NICENESS)
    with contextlib.suppress(OSError):
        while not stop.is_set():
            read_ns = time.time_ns()
            trace.append((read_ns, round(accounting.read().cpu_seconds * NS_PER_SECOND)))
            stop.wait(_READ_SECONDS)


class Laboratory:
    """Runs programs in containers.

    Args:
        engine: The Docker daemon; it has the base image.
        arguments: The arguments that all programs get.
    """

    def __init__(self, engine: Engine, arguments: Sequence[str]) -> None:
        self._engine = engine
        self._arguments = arguments

    def run(self, program: str, limit: float | None) -> Run:
        """Run a program to its end.

        Raises:
            SystemExit: The program failed.
        """
        container = create_container(self._engine, (program, *self._arguments), limit)
        try:
            self._engine.api.call("POST", f"/containers/{container}/start")
            state = self._state(container)
            started_ns = parse_ns(state.started_at) or time.time_ns()
            trace = [(started_ns, 0)]
            follower = StatsFollower(self._engine, container, started_ns)
            stop = threading.Event()
            threads = [
                threading.Thread(target=follow_kernel, args=(accounting_of(state.pid), stop, trace), daemon=True),
                threading.Thread(target=follower.follow, daemon=True),
            ]
            for thread in threads:
                thread.start()
            self._engine.api.call("POST", f"/containers/{container}/wait", seconds=_MAX_RUN_SECONDS)
            stop.set()
            state = self._state(container)
            if state.exit_code:
                raise SystemExit(f"The program {program} failed: {self._engine.logs(container)[1]}")
        finally:
            self._engine.api.call("DELETE", f"/containers/{container}", query={"force": "true"})
        for thread in threads:
            thread.join()
        return Run(
            seconds=((parse_ns(state.finished_at) or 0) - started_ns) / NS_PER_SECOND,
            cpu_seconds=trace[-1][1] / NS_PER_SECOND,
            bounds={
                STATS: follower.bounds(),
                **{
                    name: bounds_of(merge_steps(trace, step_ns), follower.max_threads)
                    for name, step_ns in _STEP_NS.items()
                },
            },
        )

    def _state(self, container: str) -> ContainerState:
        document = self._engine.api.call("GET", f"/containers/{container}/json")
        return msgspec.convert(document["State"], ContainerState)


def create_container(engine: Engine, command: Sequence[str], limit: float | None) -> str:
    """Create a container that runs a program on two cores; returns its id."""
    host = {
        "NetworkMode": "none",
        "CpusetCpus": f"0-{CORES - 1}",
        "CpuShares": _MAX_CPU_SHARES,
        "NanoCpus": round((limit or 0) * 1e9),
        "Binds": [f"{_PROGRAMS_FILE}:/programs.py:ro"],
    }
    if engine.owns_cgroups:
        host["CgroupParent"] = _CGROUP
    body = {"Image": BASE_IMAGE, "Cmd": ["python3", "/programs.py", *command], "HostConfig": host}
    return str(engine.api.call("POST", "/containers/create", body=body)["Id"])


@contextlib.contextmanager
def favoured_cgroup(engine: Engine) -> Iterator[None]:
    """Give the containers' parent cgroup the highest weight among all programs of the machine, where it can be set."""
    root = next((folder for folder in _CGROUP_FOLDERS if (folder / "cpu.shares").exists()), None)
    if root is None or not engine.owns_cgroups:
        yield
        return
    group = root / _CGROUP.lstrip("/")
    group.mkdir(exist_ok=True)
    (group / "cpu.shares").write_text(str(_MAX_CPU_SHARES))
    try:
        yield
    finally:
        for folder in root.parent.glob(f"*{_CGROUP}"):
            with contextlib.suppress(OSError):
                folder.rmdir()


@contextlib.contextmanager
def engine_with_image() -> Iterator[Engine]:
    """A Docker daemon with the base image and, where possible, a favoured cgroup."""
    with contextlib.ExitStack() as stack:
        try:
            engine = stack.enter_context(running_engine())
            if not image_exists(engine, BASE_IMAGE):
                make_base_image(engine, default_cache())
                stack.callback(remove_image, engine, BASE_IMAGE)
        except EngineMissingError as reason:
            raise SystemExit(f"This benchmark needs Docker: {reason}") from None
        stack.enter_context(favoured_cgroup(engine))
        yield engine


def calibrate(engine: Engine) -> list[str]:
    """The CPU seconds of the units of work on this machine."""
    container = create_container(engine, ("calibrate",), None)
    try:
        engine.api.call("POST", f"/containers/{container}/start")
        engine.api.call("POST", f"/containers/{container}/wait", seconds=_MAX_RUN_SECONDS)
        return [f"{seconds:.9f}" for seconds in json.loads(engine.logs(container)[0])]
    finally:
        engine.api.call("DELETE", f"/containers/{container}", query={"force": "true"})


def rows_of(program: str, unlimited: Sequence[Run], limited: Mapping[float, Sequence[Run]]) -> list[Row]:
    """Compare the runs of a program with the run without a limit that has the median duration."""
    by_duration = sorted(unlimited, key=lambda run: run.seconds)
    base = by_duration[(len(by_duration) - 1) // 2]
    not_slower = SlowdownBounds(min=1.0, max=1.0)  # a record leaves out sizes that are not slower
    return [
        Row(
            program=program,
            vcpu_used=base.cpu_seconds / base.seconds,
            seconds=base.seconds,
            spread=(by_duration[-1].seconds - by_duration[0].seconds) / base.seconds,
            limit=limit,
            factor=statistics.median(run.seconds for run in runs) / base.seconds,
            equal_cpu_factor=statistics.median(seconds_at_cpu_time(run, base.cpu_seconds, limit) for run in runs)
            / base.seconds,
            cpu_factor=statistics.median(run.cpu_seconds for run in runs) / base.cpu_seconds,
            bounds={step: bounds.get(limit, not_slower) for step, bounds in base.bounds.items()},
        )
        for limit, runs in limited.items()
    ]


def seconds_at_cpu_time(run: Run, cpu_seconds: float, limit: float) -> float:
    """How long a run with a limit would have taken if the same work had taken this CPU time.

    CPU time passes at the rate of the limit while the program is throttled, and hardly faster otherwise: the limits
    are at most 1, and most programs compute on one core.
    """
    return run.seconds - (run.cpu_seconds - cpu_seconds) / limit


def measure(laboratory: Laboratory, program: str, rounds: int) -> list[Row]:
    """Run a program with and without limits, alternately."""
    unlimited: list[Run] = []
    limited: dict[float, list[Run]] = {limit: [] for limit in LIMITS}
    for _ in range(rounds):
        for limit in (None, *LIMITS[:-1], None, LIMITS[-1]):
            (unlimited if limit is None else limited[limit]).append(laboratory.run(program, limit))
    return rows_of(program, unlimited, limited)


def table(rows: Sequence[Row]) -> str:
    """Format the rows as a Markdown table. Bounds that do not contain the factor at equal CPU time are bold."""
    head = [
        *("program", "vCPU used", "seconds (spread)", "limit", "measured", "CPU time", "at equal CPU time"),
        *("bounds, 1 s", "0.1 s", "10 s"),
    ]
    lines = [
        [
            row.program,
            f"{row.vcpu_used:.2f}",
            f"{row.seconds:.1f} (± {50 * row.spread:.0f} %)",
            f"{row.limit:g}",
            f"{row.factor:.2f}",
            f"× {row.cpu_factor:.2f}",
            f"{row.equal_cpu_factor:.2f}",
            *(_bounds_cell(row, step) for step in STEPS),
        ]
        for row in rows
    ]
    return markdown_table(head, lines, right_aligned=range(1, len(head)))


def _bounds_cell(row: Row, step: str) -> str:
    bound = row.bounds[step]
    text = f"{bound.min:.2f} to {bound.max:.2f}"
    return text if row.is_inside(row.equal_cpu_factor, step) else f"**{text}**"


def figures_of(rows: Sequence[Row]) -> Iterator[Figure]:
    """The share of the factors inside the bounds for each step length, and the median width of the bounds."""
    for step in STEPS:
        inside = sum(row.is_inside(row.equal_cpu_factor, step) for row in rows)
        yield Figure(
            name=f"slowdowns at equal CPU time inside the bounds ± {TOLERANCE_PERCENT} %, samples every {step}",
            value=100 * inside / len(rows),
            unit="%",
            digits=0,
            note=f"{inside} of {len(rows)}",
        )
        raw = sum(row.is_inside(row.factor, step) for row in rows)
        yield Figure(
            name=f"measured slowdowns inside the bounds ± {TOLERANCE_PERCENT} %, samples every {step}",
            value=100 * raw / len(rows),
            unit="%",
            digits=0,
            at_least=_MIN_INSIDE_PERCENT if step == STATS else None,
            note=f"{raw} of {len(rows)}",
        )
        widths = [row.bounds[step].max / row.bounds[step].min for row in rows]
        yield Figure(
            name=f"upper bound relative to the lower bound, median, samples every {step}",
            value=statistics.median(widths),
            unit="×",
        )


def main(arguments: Sequence[str]) -> None:
    """Measure, print the results, and write them as JSON on request."""
    parser = argparse.ArgumentParser(description="Compare slowdownAtVcpu with the slowdown of real programs.")
    parser.add_argument("--quick", action="store_true", help="one round of shorter programs (eight minutes)")
    parser.add_argument("--seconds", type=float, default=8, help="duration of each program without a limit")
    parser.add_argument("--rounds", type=int, default=2, help="runs with each limit")
    parser.add_argument("--program", nargs="+", choices=PROGRAMS, default=list(PROGRAMS), help="programs to run")
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args(arguments)
    seconds, rounds = (5.0, 1) if options.quick else (options.seconds, options.rounds)
    rows: list[Row] = []
    with engine_with_image() as engine:
        laboratory = Laboratory(engine, (str(seconds), *calibrate(engine)))
        for program in options.program:
            program_rows = measure(laboratory, program, rounds)
            rows += program_rows
            print(table(program_rows), flush=True)
    result = BenchmarkResult(title="Slowdown with fewer vCPUs", figures=tuple(figures_of(rows)), tables=(table(rows),))
    print_and_save(result, options.json)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Measure what the call stacks cost: CPU time of the sampler, and slowdown of the batch.

    python -m benchmarks.why_cost [--seconds 600] [--pairs 6] [--json FILE]

CPU: ``task-profiler run`` with and without ``--stacks`` run at the same time around a program that
computes half the time. The CPU time of the profiler and of py-spy is the whole run's, less the
program's own. Slowdown: two programs do the same fixed amount of work at the same time on one CPU,
which they share with the samplers; one of them has ``--stacks``. Compared are their CPU times. On a
shared machine, durations differ by more, and so do the CPU times of programs that run one after the
other.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from benchmarks.figures import BenchmarkResult, Figure, benchmark_parser

_PROFILER = (sys.executable, "-m", "profiler", "run", "--no-history", "--output", "/dev/null")
_MAX_STACKS_PERCENT = 0.3
_MAX_SLOWDOWN_PERCENT = 1.0
_TEN_MINUTES = 600
_WORK_SECONDS = 20.0
_ONE_CPU = ("taskset", "--cpu-list", str((os.cpu_count() or 1) - 1))
# Writes the CPU time and the duration of its work.
_HALF_BUSY_CODE = """
import sys, time
until = time.monotonic() + float(sys.argv[2])
while time.monotonic() < until:
    busy_until = time.monotonic() + 0.1
    while time.monotonic() < busy_until: sum(range(1000))
    time.sleep(0.1)
open(sys.argv[1], "w").write(f"{time.process_time()} {float(sys.argv[2])}")
"""
_WORK_CODE = """
import sys, time
began, used = time.monotonic(), time.process_time()
for _ in range(int(sys.argv[2])): sum(range(100000))
open(sys.argv[1], "w").write(f"{time.process_time() - used} {time.monotonic() - began}")
"""


class RunCost(Struct, frozen=True, kw_only=True):
    """A program under ``run``: its own CPU time and duration, and the CPU time of the profiler
    and its helpers.
    """

    program_cpu_seconds: float
    program_seconds: float
    profiler_cpu_seconds: float


class StartedProgram:
    """A program under ``run``, until its end."""

    def __init__(
        self,
        folder: Path,
        name: str,
        code: str,
        amount: float,
        *,
        has_stacks: bool,
        bind: Sequence[str] = (),
    ) -> None:
        self._output = folder / name
        stacks = ["--stacks"] if has_stacks else []
        program = [sys.executable, "-c", code, str(self._output), str(amount)]
        self._process = subprocess.Popen([*bind, *_PROFILER, *stacks, "--", *program])

    def wait(self) -> RunCost:
        """Wait for the end."""
        _, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = status
        if status:
            raise SystemExit(f"task-profiler run failed with status {status}.")
        cpu_seconds, seconds = map(float, self._output.read_text().split())
        return RunCost(
            program_cpu_seconds=cpu_seconds,
            program_seconds=seconds,
            profiler_cpu_seconds=usage.ru_utime + usage.ru_stime - cpu_seconds,
        )


def measure_stacks(folder: Path, seconds: float) -> float:
    """The CPU seconds that the call stacks of one run take, measured beside a run without."""
    started = [
        StartedProgram(
            folder, f"half-{has_stacks}", _HALF_BUSY_CODE, seconds, has_stacks=has_stacks
        )
        for has_stacks in (True, False)
    ]
    with_stacks, without = (run.wait() for run in started)
    return with_stacks.profiler_cpu_seconds - without.profiler_cpu_seconds


def units_of(seconds: float) -> int:
    """The amount of work that takes about this time."""
    began = time.monotonic()
    for _ in range(200):
        sum(range(100_000))
    return round(seconds * 200 / (time.monotonic() - began))


def measure_slowdown(folder: Path, pairs: int, seconds: float) -> Iterator[tuple[RunCost, RunCost]]:
    """A program with stacks and one without, at the same time.

    The first of them changes from pair to pair.
    """
    units = units_of(seconds)
    for number in range(pairs):
        started = {
            has_stacks: StartedProgram(
                folder,
                f"work-{has_stacks}",
                _WORK_CODE,
                units,
                has_stacks=has_stacks,
                bind=_ONE_CPU,
            )
            for has_stacks in ((True, False) if number % 2 else (False, True))
        }
        yield started[True].wait(), started[False].wait()


def figures_of(
    stacks_seconds: float, seconds: float, pairs: Sequence[tuple[RunCost, RunCost]]
) -> Iterator[Figure]:
    """The costs and their bounds.

    The bound of the sampler's CPU time is for runs of ten minutes and more.
    """
    yield Figure(
        f"call stacks, CPU over {seconds:.0f} s",
        100 * stacks_seconds / seconds,
        "% of a core",
        digits=3,
        at_most=_MAX_STACKS_PERCENT if seconds >= _TEN_MINUTES else None,
        note=f"{stacks_seconds:.2f} s",
    )
    cpu = sorted(
        100 * (ours.program_cpu_seconds / other.program_cpu_seconds - 1) for ours, other in pairs
    )
    yield Figure(
        "more CPU time of the batch with call stacks",
        statistics.median(cpu),
        "%",
        at_most=_MAX_SLOWDOWN_PERCENT,
        note=_range_text(cpu),
    )


def _range_text(values: Sequence[float]) -> str:
    return f"{values[0]:.1f} to {values[-1]:.1f} in {len(values)} pairs"


def main(arguments: Sequence[str]) -> None:
    """Measure, print the results, and write them as JSON on request."""
    parser = benchmark_parser(__doc__)
    parser.add_argument(
        "--seconds", type=float, default=_TEN_MINUTES, help="duration of the run with call stacks"
    )
    parser.add_argument(
        "--pairs", type=int, default=6, help="runs with and without call stacks of the same work"
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-why-") as name:
        folder = Path(name)
        stacks_seconds = measure_stacks(folder, options.seconds)
        pairs = list(measure_slowdown(folder, options.pairs, _WORK_SECONDS))
    figures = tuple(figures_of(stacks_seconds, options.seconds, pairs))
    BenchmarkResult("Cost of the call stacks", figures=figures).print_and_save(options.json)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Compare the monitor with the monitor of another revision. Both run at the same time.

    python -m benchmarks.revision 1c553c7 [--seconds 60] [--pairs 3] [--stats-period 10] [--json FILE]

Monitors that run one after the other differ by more than a few percent on a machine that does other work, too.
Each pair starts one monitor of each revision on an endpoint of its own, and both are measured over the same seconds.
The ratio of a pair is therefore independent of the load. The result is the median of the pairs.

The other revision is checked out into a temporary folder and runs in the same Python environment.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import BenchmarkResult, Figure, print_and_save
from benchmarks.monitor import SteadyState, measure_steady_states, run_endpoint, run_monitor
from tests.aws import FakeAws, fake_aws

_ROOT = Path(__file__).resolve().parent.parent
_WARM_UP_SECONDS = 10
_MAX_RATIO = 1.03
_MAX_EXTRA_MIB = 0.3


@dataclass(frozen=True)
class Pair:
    """The two monitors of one measurement."""

    ours: SteadyState
    other: SteadyState

    @property
    def ratio(self) -> float:
        """Our CPU time divided by the other revision's."""
        return self.ours.cpu_percent / self.other.cpu_percent

    @property
    def extra_mib(self) -> float:
        """The difference of the high-water marks."""
        return self.ours.memory.peak_mib - self.other.memory.peak_mib


@contextmanager
def check_out(revision: str) -> Iterator[Path]:
    """Check a revision out into a temporary folder."""
    git = shutil.which("git") or "git"
    with tempfile.TemporaryDirectory(prefix="bench-revision-") as folder:
        path = Path(folder) / "checkout"
        subprocess.run((git, "worktree", "add", "--quiet", "--detach", path, revision), cwd=_ROOT, check=True)
        try:
            yield path
        finally:
            subprocess.run((git, "worktree", "remove", "--force", path), cwd=_ROOT, check=True)


def measure_pair(
    folders: Sequence[Path], containers: int, seconds: float, aws: FakeAws, stats_period_seconds: float = 0
) -> Pair:
    """Run one monitor out of each folder at the same time."""
    with ExitStack() as stack:
        pids = []
        for folder in folders:
            address, _ = stack.enter_context(run_endpoint(containers, stats_period_seconds))
            pids.append(stack.enter_context(run_monitor(address, aws, folder=folder)).pid)
        ours, other = measure_steady_states(pids, seconds, _WARM_UP_SECONDS)
    return Pair(ours, other)


def figures(containers: int, pairs: Sequence[Pair]) -> Iterator[Figure]:
    """The ratio of the CPU times and the difference of the memory, as medians."""
    scope = f"{containers} containers"
    ratios = sorted(pair.ratio for pair in pairs)
    ours = statistics.median(pair.ours.cpu_percent for pair in pairs)
    yield Figure(name=f"CPU, {scope}", value=ours, unit="% of a core", digits=3)
    yield Figure(
        name=f"CPU relative to the other revision, {scope}",
        value=statistics.median(ratios),
        unit="×",
        digits=3,
        at_most=_MAX_RATIO,
        note=f"{ratios[0]:.3f} to {ratios[-1]:.3f} in {len(pairs)} pairs",
    )
    yield Figure(
        name=f"extra memory peak, {scope}",
        value=statistics.median(pair.extra_mib for pair in pairs),
        unit="MiB",
        at_most=_MAX_EXTRA_MIB,
    )


def main(arguments: Sequence[str]) -> None:
    """Measure, print the results, and write them as JSON on request."""
    parser = argparse.ArgumentParser(description="Compare the monitor with the monitor of another revision.")
    parser.add_argument("revision", help="the other revision, as git names it")
    parser.add_argument("--seconds", type=float, default=60, help="duration of each measurement")
    parser.add_argument("--pairs", type=int, default=3, help="number of measurements for each number of containers")
    parser.add_argument(
        "--stats-period", type=float, default=0, help="seconds between new stats, 10 on Fargate; 0: none"
    )
    parser.add_argument("--containers", type=int, nargs="+", default=[3, 20])
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args(arguments)
    results: list[Figure] = []
    with fake_aws() as aws, check_out(options.revision) as other:
        for containers in options.containers:
            pairs = [
                measure_pair((_ROOT, other), containers, options.seconds, aws, options.stats_period)
                if number % 2 == 0
                else _swapped(measure_pair((other, _ROOT), containers, options.seconds, aws, options.stats_period))
                for number in range(options.pairs)
            ]
            results += figures(containers, pairs)
    title = f"Monitor, compared with {options.revision}"
    print_and_save(BenchmarkResult(title=title, figures=tuple(results)), options.json)


def _swapped(pair: Pair) -> Pair:
    """The order of the starts alternates, so that neither revision always has the same phase."""
    return Pair(pair.other, pair.ours)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Compare simulated sets of runs, and count how often the comparison is right.

    python -m benchmarks.comparison [--comparisons 500] [--json FILE]

- **Alarms**: both sets have the same median. A verdict ``more`` or ``less`` is an alarm, and at
  most 5 % are expected. The other intervals contain the true change, so that the coverage is 100 %
  less the alarms. A change by a factor moves the interval by this factor, and the coverage stays.
- **Power**: the second set has 3, 5 or 10 % more, and the verdict should be ``more``.
- **Runs needed**: first runs give the number of runs that show a change of 5 %. New sets of that
  size, with such a change, should have the verdict ``more`` in about 80 % of comparisons.
"""

import bisect
import math
import random
from collections.abc import Callable, Mapping, Sequence
from statistics import mean, median
from typing import Final

from benchmarks.figures import (
    BenchmarkResult,
    Figure,
    benchmark_parser,
    markdown_table,
)
from profiler.runs.comparison.change_interval import MedianChange, median_change

SEED: Final = 20261122
MAX_ALARMS: Final = 5
_EQUAL_SIZES: Final = (5, 6, 8, 10, 20, 50, 200)
SIZES: Final = (*((runs, runs) for runs in _EQUAL_SIZES), (5, 500), (7, 1000), (20, 200))
POWER_SIZES: Final = (5, 10, 20, 50)
FIRST_RUNS: Final = (3, 5, 10, 20)
_NOISES: Final = (0.02, 0.05, 0.1)
_CHANGES: Final = (1.03, 1.05, 1.1)
_LIKELY_PERCENT: Final = 80
_MAX_NEEDED: Final = 1000
# Each is 5 % more than the one before.
_NUMBERS: Final = sorted({round(5 * 1.05**step) for step in range(109)})

Distribution = Callable[[random.Random], float]


def normal_distribution(noise: float) -> Distribution:
    """Values around 100 with a standard deviation of a share of it."""
    return lambda rng: max(1.0, rng.gauss(100, 100 * noise))


def two_modes(slow_share: float) -> Distribution:
    """Cold and warm caches: a share of the runs takes half as long again."""
    return lambda rng: rng.gauss(100, 2) * (1.5 if rng.random() < slow_share else 1)


def heavy_tail(rng: random.Random) -> float:
    """Student's t with 2 degrees of freedom, which has no variance, as an exponent."""
    return 100 * math.exp(
        0.03 * max(-100, min(100, rng.gauss(0, 1) / math.sqrt(rng.expovariate(1))))
    )


DISTRIBUTIONS: Final[Mapping[str, Distribution]] = {
    "normal, 2 %": normal_distribution(0.02),
    "normal, 10 %": normal_distribution(0.1),
    "log-normal, 50 %": lambda rng: rng.lognormvariate(5, 0.5),
    "exponential": lambda rng: 100 + rng.expovariate(1 / 20),
    "heavy tail": heavy_tail,
    "two modes, 80:20": two_modes(0.2),
    "two modes, 50:50": two_modes(0.5),
    "a few whole numbers": lambda rng: 10.0 * round(rng.gauss(10, 0.8)),
}

_UNLIKE: Final[Mapping[str, tuple[Distribution, Distribution]]] = {
    "normal, 2 % and 10 %": (normal_distribution(0.02), normal_distribution(0.1)),
    "normal, 0 % and 10 %": (normal_distribution(0), normal_distribution(0.1)),
}


def draw_values(
    distribution: Distribution, rng: random.Random, runs: int, factor: float = 1
) -> list[float]:
    """The values of a set of runs."""
    return [factor * distribution(rng) for _ in range(runs)]


def alarm_percent(changes: Sequence[MedianChange]) -> float:
    """The share of the verdicts that name a difference."""
    return 100 * mean(change.verdict in {"more", "less"} for change in changes)


def false_alarm_figures(comparisons: int) -> tuple[list[Figure], list[str]]:
    """Compare sets with the same median."""
    rows: dict[str, list[str]] = {}
    figures = []
    pairs = {name: (distribution, distribution) for name, distribution in DISTRIBUTIONS.items()}
    for name, (one, other) in {**pairs, **_UNLIKE}.items():
        shares = []
        for runs_a, runs_b in SIZES:
            rng = random.Random(f"{SEED} {name} {runs_a} {runs_b}")
            changes = [
                median_change(draw_values(one, rng, runs_a), draw_values(other, rng, runs_b))
                for _ in range(comparisons)
            ]
            shares.append(alarm_percent(changes))
        rows[name] = [f"{share:.1f} %" for share in shares]
        note = f"{min(shares):.1f} to {max(shares):.1f} % for one pair of sizes"
        figures.append(
            Figure(
                f"Alarms on equal sets, {name}", mean(shares), "%", at_most=MAX_ALARMS, note=note
            )
        )
    head = [f"{a}" if a == b else f"{a} and {b}" for a, b in SIZES]
    return figures, [_table("alarms on equal sets, by runs a side", head, rows)]


def detection_figures(comparisons: int) -> tuple[list[Figure], list[str]]:
    """Count how often a change is seen."""
    rows: dict[str, list[str]] = {}
    for noise in _NOISES:
        for change in _CHANGES:
            name = f"{100 * (change - 1):+.0f} %, noise {100 * noise:.0f} %"
            rows[name] = [
                f"{seen_percent(normal_distribution(noise), runs, change, comparisons):.0f} %"
                for runs in POWER_SIZES
            ]
    always = Figure(
        "+10 % seen, 10 runs a side, 2 % noise",
        seen_percent(normal_distribution(0.02), 10, 1.1, 2 * comparisons),
        "%",
        at_least=100,
        note=f"{2 * comparisons:,} comparisons",
    )
    return [always], [_table("change seen", [f"{runs} runs a side" for runs in POWER_SIZES], rows)]


def seen_percent(distribution: Distribution, runs: int, factor: float, comparisons: int) -> float:
    """The share of comparisons with the verdict ``more``."""
    rng = random.Random(f"{SEED} {runs} {factor}")
    changes = [
        median_change(
            draw_values(distribution, rng, runs), draw_values(distribution, rng, runs, factor)
        )
        for _ in range(comparisons)
    ]
    return 100 * mean(change.verdict == "more" for change in changes)


def runs_needed(comparisons: int) -> list[str]:
    """Compare the estimated number of runs with the true one, and count what the estimated
    number shows.
    """
    rows: dict[str, list[str]] = {}
    for name, distribution in DISTRIBUTIONS.items():

        def is_likely(runs: int, distribution: Distribution = distribution) -> bool:
            return seen_percent(distribution, runs, 1.05, comparisons // 4) >= _LIKELY_PERCENT

        # The first number for which it is true.
        index = bisect.bisect_left(_NUMBERS, True, key=is_likely)  # noqa: FBT003
        true = str(_NUMBERS[index]) if index < len(_NUMBERS) else f"> {_NUMBERS[-1]}"
        rows[name] = [
            true,
            *(
                _planned_runs_row(name, distribution, first, comparisons // 4)
                for first in FIRST_RUNS
            ),
        ]
    return [
        _table(
            "runs needed to see +5 %",
            ["true", *(f"from {first} runs" for first in FIRST_RUNS)],
            rows,
        )
    ]


def _planned_runs_row(name: str, distribution: Distribution, first: int, comparisons: int) -> str:
    rng = random.Random(f"{SEED} {name} {first}")
    estimates, seen = [], []
    for _ in range(comparisons):
        change = median_change(
            draw_values(distribution, rng, first), draw_values(distribution, rng, first)
        )
        if change.verdict == "too few runs" and change.runs_needed is not None:
            estimates.append(change.runs_needed)
            if change.runs_needed <= _MAX_NEEDED:
                one, other = (
                    draw_values(distribution, rng, change.runs_needed, factor)
                    for factor in (1, 1.05)
                )
                seen.append(median_change(one, other).verdict == "more")
    if len(estimates) <= comparisons // 10:
        return "enough runs"
    share = f" ({mean(seen):.0%} seen)" if len(seen) > comparisons // 10 else ""
    return f"{median(estimates):.0f}{share}"


def _table(title: str, head: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    body = [[name, *row] for name, row in rows.items()]
    return markdown_table([title, *head], body, right_aligned=range(1, len(head) + 1))


def measure(comparisons: int) -> BenchmarkResult:
    """Count everything."""
    parts = [
        false_alarm_figures(comparisons),
        detection_figures(comparisons),
        ([], runs_needed(comparisons)),
    ]
    return BenchmarkResult(
        title="Comparison of two sets of runs",
        figures=tuple(figure for figures, _ in parts for figure in figures),
        tables=tuple(table for _, tables in parts for table in tables),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = benchmark_parser(__doc__)
    parser.add_argument(
        "--comparisons", type=int, default=500, help="of each pair of sizes (default 500)"
    )
    options = parser.parse_args(arguments)
    measure(options.comparisons).print_and_save(options.json)


if __name__ == "__main__":
    main()

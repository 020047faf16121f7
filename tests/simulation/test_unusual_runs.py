"""Generated families of runs, and the successes that the forwarder reports as unlike their
family.

No run of these families is unusual, so each notification is a false alarm. The measures of a run
are its duration, CPU seconds, and bytes read and written. All of them follow the amount of the
run's work, which has log-normal noise, and each has noise of its own. Some families do not read or
write at all. The comparison begins with a family's 9th run.

After every 10th run, the next one is also compared as if it had gone wrong: it did nothing, it did
a part of the work, or ten times as much. The share of these that are sent is the recall.
"""

import math
import random
from collections.abc import Iterator, Mapping
from typing import Final

import pytest
from msgspec import Struct

from profiler.forwarder.family_runs import Measures, find_unusual
from profiler.record.family_statistics import LAST_SUCCESSES
from profiler.record.unusual import MIN_FAR_RUNS

SEED: Final = 20261121
MAX_FALSE_ALARMS_PERCENT: Final = 0.2
USUAL: Final = "usual"
_INJECTED_EVERY: Final = 10
_NOISES: Final = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)
_OWN_NOISES: Final = (0.01, 0.05, 0.1, 0.2)
_READS_SHARE = _WRITES_SHARE = 0.8
_MAX_GROWTH: Final = math.log(1e4)


class Kind(Struct, frozen=True, kw_only=True):
    """How the work of a family changes from run to run.

    ``growth`` is the largest change per run. Every ``period``-th run does up to 30 times as much or
    as little work, and each run does so with a probability of up to ``other_share``. A longer
    period than a week's is left out: the first of these runs comes after the comparison begins, and
    its notification cannot be avoided.
    """

    name: str
    growth: float = 0.0
    period: int = 0
    other_share: float = 0.0


KINDS: Final = (
    Kind(name="steady"),
    Kind(name="growing", growth=0.05),
    Kind(name="shrinking", growth=-0.03),
    Kind(name="weekly larger or smaller run", period=7),
    Kind(name="weekly and growing", period=7, growth=0.05),
    Kind(name="two sorts of runs at random", other_share=0.5),
    Kind(name="two sorts of runs, weekly, and growing", other_share=0.5, period=7, growth=0.05),
)
INJECTED: Final[Mapping[str, float]] = {
    "nothing": 0,
    "nothing, the second time in a row": 0,
    "a tenth of the work": 0.1,
    "a quarter of the work": 0.25,
    "half of the work": 0.5,
    "10 times the work": 10,
}


class Family:
    """A family of runs whose measures are drawn from a random number generator."""

    def __init__(self, kind: Kind, rng: random.Random) -> None:
        duration_ms = _between(rng, 10_000, 3 * 3_600_000)
        self._usual = {
            "duration_ms": duration_ms,
            "cpu_seconds": duration_ms / 1000 * _between(rng, 0.02, 4),
            "block_read_bytes": _between(rng, 1e6, 2e10) if rng.random() < _READS_SHARE else 0,
            "block_write_bytes": _between(rng, 1e6, 2e10) if rng.random() < _WRITES_SHARE else 0,
        }
        self._rng = rng
        self._noise, self._own_noise = rng.choice(_NOISES), rng.choice(_OWN_NOISES)
        self._growth = math.log(1 + rng.uniform(0, kind.growth)) if kind.growth else 0.0
        self._period = kind.period
        self._phase = rng.randrange(kind.period) if kind.period else 0
        self._other = _between(rng, 2, 30) ** rng.choice((1, -1))
        self._other_share = rng.uniform(0.05, kind.other_share) if kind.other_share else 0.0

    def runs(self, count: int) -> Iterator[dict[str, float]]:
        for number in range(count):
            work = self._rng.gauss(0, self._noise) + max(
                -_MAX_GROWTH, min(_MAX_GROWTH, self._growth * number)
            )
            is_periodic = self._period > 0 and number % self._period == self._phase
            if is_periodic or self._rng.random() < self._other_share:
                work += math.log(self._other)
            yield {
                name: usual * math.exp(work + self._rng.gauss(0, self._own_noise))
                for name, usual in self._usual.items()
            }


def _between(rng: random.Random, low: float, high: float) -> float:
    """Draw a number whose logarithm is uniformly distributed."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def reported_percent(
    kind: Kind, *, families: int, runs: int, injected: Mapping[str, float]
) -> dict[str, float]:
    """The reported share of the usual runs of several families of one kind, and of each injected
    run.
    """
    rng, found = (
        random.Random(f"{SEED} {kind.name}"),
        {name: list[bool]() for name in (USUAL, *injected)},
    )
    for _ in range(families):
        earlier: list[Measures] = []
        for number, run in enumerate(Family(kind, rng).runs(runs)):
            if number >= MIN_FAR_RUNS:
                found[USUAL].append(bool(find_unusual(run, earlier)))
                for name, factor in injected.items() if number % _INJECTED_EVERY == 0 else ():
                    before = (
                        [_nothing(run, rng), *earlier] if name.endswith("in a row") else earlier
                    )
                    wrong = (
                        {one: (value or 0) * factor for one, value in run.items()}
                        if factor
                        else _nothing(run, rng)
                    )
                    found[name].append(bool(find_unusual(wrong, before[:LAST_SUCCESSES])))
            earlier = [run, *earlier[: LAST_SUCCESSES - 1]]
    return {name: 100 * sum(reported) / len(reported) for name, reported in found.items()}


def _nothing(run: Measures, rng: random.Random) -> Measures:
    """A run that only starts an interpreter, finds no work, and ends."""
    nothing = {
        "duration_ms": rng.uniform(500, 5000),
        "cpu_seconds": rng.uniform(0.05, 1),
        "block_read_bytes": rng.uniform(0, 2e7),
        "block_write_bytes": 0,
    }
    return {name: min(nothing[name], value or 0) for name, value in run.items()}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_few_usual_runs_of_each_kind_are_reported(kind: Kind) -> None:
    found = reported_percent(kind, families=100, runs=200, injected={})
    assert found[USUAL] <= MAX_FALSE_ALARMS_PERCENT


def test_most_runs_that_did_nothing_are_sent_and_no_half_run() -> None:
    recall = reported_percent(Kind(name="steady"), families=6, runs=80, injected=INJECTED)
    assert (
        min(
            recall["nothing"],
            recall["nothing, the second time in a row"],
            recall["10 times the work"],
        )
        > 85
    )
    assert recall["half of the work"] < 10
    assert recall[USUAL] <= MAX_FALSE_ALARMS_PERCENT

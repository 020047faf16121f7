"""Generated families of every kind: the family's own margin kills no more runs than one of 20 %,
and wastes less.

What a run needs is known here only. Each run gets the size that ``recommend`` gives outside
Fargate, by the runs before it: the need with the margin, rounded up to 64 MiB. A killed run is
repeated with enough, so that its need is known then.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

import pytest
from msgspec import Struct, field

from profiler.record.record_model import Sampling
from profiler.sizing.choose_size import SizePolicy, recommend_size
from profiler.sizing.evidence import Evidence, evidence_of_runs
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.run_collector import LAST_RUNS
from profiler.sizing.run_facts import RunFacts
from tests.runs import report, reported_facts
from tests.values import present

SEED: Final = 20261126
FAMILIES: Final = 16

OWN: Final = SizePolicy()
FIXED: Final = SizePolicy(memory_margin_percent=20)
# How the peaks are measured.
KERNEL: Final[Mapping[str, Any]] = {"metrics": {"memory_peak_source": "kernel"}}
SLOWLY: Final[Mapping[str, Any]] = {"sampling": Sampling(samples=60, stats_period_ms=10_000)}

# The needs of a family's runs in the order of time, as shares of the first one's.
Needs = Callable[[Random], Iterator[float]]


def steady(rng: Random) -> Iterator[float]:
    """The same work each night."""
    noise = rng.choice([0.0, 0.003, 0.01, 0.02])
    while True:
        yield math.exp(rng.gauss(0, noise))


def wide(rng: Random) -> Iterator[float]:
    """Inputs of many sizes."""
    noise = rng.choice([0.1, 0.2, 0.4])
    while True:
        yield math.exp(rng.gauss(0, noise))


def growing(rng: Random) -> Iterator[float]:
    """A little more each night."""
    per_run = rng.uniform(0.002, 0.02)
    for number in range(10_000):
        yield (1 + per_run * number) * math.exp(rng.gauss(0, 0.01))


def two_sorts(rng: Random) -> Iterator[float]:
    """A large run among small ones."""
    share = rng.uniform(0.05, 0.4)
    times = rng.uniform(1.5, 4)
    while True:
        large = times if rng.random() < share else 1
        yield large * math.exp(rng.gauss(0, 0.02))


class Kind(Struct, frozen=True, kw_only=True):
    """Families of a kind, and at most which share of the waste at 20 % is left.

    The runs from ``first`` to ``last`` get a size.
    """

    needs: Needs
    most_waste: float
    measured: Mapping[str, Any] = field(default_factory=lambda: KERNEL)
    first: int = 20
    last: int = 60


KINDS: Final[Mapping[str, Kind]] = {
    "steady": Kind(needs=steady, most_waste=0.4),
    "growing": Kind(needs=growing, most_waste=1),
    # Their own margin is larger for the sake of fewer kills.
    "wide": Kind(needs=wide, most_waste=1.2),
    "two sorts": Kind(needs=two_sorts, most_waste=1.2),
    "few": Kind(needs=steady, most_waste=1, first=3, last=20),
    "few and wide": Kind(needs=wide, most_waste=1.2, first=3, last=20),
    "slowly sampled": Kind(needs=steady, most_waste=1, measured=SLOWLY),
}


class Judged(Struct, kw_only=True):
    """The runs that were killed at their sizes, and the unused shares of what the others had."""

    killed: int = 0
    wasted: float = 0

    def add(self, need_mb: float, size_mb: float, usual_mb: float) -> None:
        is_killed = need_mb > size_mb
        self.killed += is_killed
        self.wasted += (size_mb if is_killed else size_mb - need_mb) / usual_mb


def replay(kind: Kind, name: str, policies: Sequence[SizePolicy]) -> list[Judged]:
    """The same families under each policy."""
    judged = [Judged() for _ in policies]
    for number in range(FAMILIES):
        rng = Random(f"{SEED} {name} {number}")
        usual_mb = rng.uniform(4_000, 20_000)
        needs = kind.needs(rng)
        runs = [run_of(at, usual_mb * next(needs), kind.measured) for at in range(kind.last)]
        for at in range(kind.first, kind.last):
            need_mb = present(runs[at].needed_memory_mb)
            evidence = evidence_of(runs[max(at - LAST_RUNS, 0) : at])
            for of_policy, policy in zip(judged, policies, strict=True):
                of_policy.add(need_mb, size_mb(evidence, policy), usual_mb)
    return judged


def run_of(number: int, need_mb: float, measured: Mapping[str, Any]) -> RunFacts:
    """A run whose task has no size, so that none is kept."""
    return reported_facts(report(number, peak_mb=need_mb, size=None, launch_type="EC2", **measured))


def evidence_of(runs: list[RunFacts]) -> Evidence:
    return present(evidence_of_runs(runs[0].family, runs))


def size_mb(evidence: Evidence, policy: SizePolicy) -> float:
    return present(recommend_size(evidence, policy, PriceOverrides()).size.memory_mb)


# A second of a CPU for each kind of many runs.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name.startswith("few") else pytest.mark.slow)
        for name in KINDS
    ],
)
def test_the_own_margin_kills_no_more_runs_and_wastes_less(name: str) -> None:
    kind = KINDS[name]
    own, fixed = replay(kind, name, (OWN, FIXED))
    assert own.killed <= fixed.killed
    assert own.wasted <= kind.most_waste * fixed.wasted + 1e-9

"""What a growing memory peak changes in the recommended size."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.record.record_model import Metrics, Report
from profiler.sizing.advice import Advice, advise
from profiler.sizing.choose_size import GROWTH_RUNS, Policy
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.trend import growth
from tests.runs import evidence_of, report


def advice(reports: list[Report]) -> Advice:
    return advise(evidence_of(reports), Policy(), PriceOverrides())


def growing(per_run: float, *, runs: int = 12, first_mb: float = 700) -> list[Report]:
    return [report(n, peak_mb=first_mb + per_run * n) for n in range(runs)]


def test_a_size_that_the_growth_passes_within_30_runs_is_not_recommended() -> None:
    """853 MB need 1 GB. With 12 MB more in each run, 1 GB is passed after 15 runs."""
    found = advice(growing(12, runs=12, first_mb=721))
    assert (found.choice.size.vcpu, found.choice.size.memory_mb) == (0.25, 2048)
    (reason,) = (one for one in found.reasons if "grows" in one)
    assert "12 MB a run (over 12 runs): 0.25 vCPU, 1 GB would be too small in about 15 runs" in reason
    assert not any("with a margin" in one for one in found.reasons)
    recommended = [row for row in found.choice.options if (row.size.vcpu, row.size.memory_mb) == (0.25, 2048)]
    assert [row.acceptable for row in recommended] == [True]


def test_a_growth_that_the_size_holds_for_30_runs_changes_nothing() -> None:
    found = advice(growing(5, first_mb=600))
    assert (found.choice.size.memory_mb, found.choice.outgrown) == (1024, None)


def test_the_other_containers_grow_too() -> None:
    def beside(peak_mb: float) -> dict[str, Metrics]:
        return {"side": Metrics(max_memory_used_mb=peak_mb)}

    found = advice([report(n, peak_mb=400, others=beside(100 + 30 * n)) for n in range(12)])
    assert found.choice.size.memory_mb == 2048
    assert found.choice.outgrown is not None


def test_beyond_the_largest_size_the_largest_is_recommended() -> None:
    found = advice([report(n, peak_mb=90_000 + 5000 * n, size=(16, 122_880)) for n in range(10)])
    assert found.choice.size.memory_mb == max(size.memory_mb for size in found.choice.legal)


@given(st.floats(min_value=0.1, max_value=200), st.integers(min_value=8, max_value=50), st.integers(100, 10_000))
def test_the_recommended_size_holds_every_straight_growth_for_30_runs(per_run: float, runs: int, first: int) -> None:
    found = advice(growing(per_run, runs=runs, first_mb=first))
    need = evidence_of(growing(per_run, runs=runs, first_mb=first)).needs_mb
    trend = growth(need)
    assert trend is not None
    assert (found.choice.size.memory_mb or 0) >= trend.after(GROWTH_RUNS) - 1e-6


@pytest.mark.parametrize("spread", [0.01, 0.05, 0.2])
def test_steady_families_are_hardly_ever_given_more_memory(spread: float) -> None:
    random = Random(round(1000 * spread))
    changed = 0
    for _ in range(200):
        level, runs = random.uniform(200, 20_000), random.choice([8, 12, 20, 50])
        reports = [report(n, peak_mb=level * random.lognormvariate(0, spread), size=(4, 30_720)) for n in range(runs)]
        changed += advice(reports).choice.outgrown is not None
    assert changed <= 200 * 0.05

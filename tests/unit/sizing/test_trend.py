"""The growth of a memory peak, and what it changes in the recommended size."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.record.record_model import Metrics, Report
from profiler.sizing.choose_size import GROWTH_RUNS
from profiler.sizing.trend import Growth, growth
from tests.runs import evidence_of, report
from tests.unit.sizing.test_what_if import advice
from tests.values import present


def test_a_straight_line_grows_by_its_slope() -> None:
    found = growth([100.0 + 10 * n for n in range(12)])
    assert found == Growth(per_run=10, now=210, runs=12)
    assert found is not None
    assert (found.runs_until(240), found.runs_until(235), found.runs_until(200)) == (4, 3, None)

    # A few odd runs do not move it.
    values = [100.0 + 10 * n for n in range(20)]
    values[3], values[11] = 900, 5
    assert present(growth(values)).per_run == pytest.approx(10, abs=0.5)


def test_what_does_not_clearly_grow_does_not_grow() -> None:
    too_few, level = [100.0 * n for n in range(7)], [100.0] * 30
    up_and_down, down = [100.0 + n % 2 for n in range(30)], [300.0 - n for n in range(30)]
    assert [growth(values) for values in ([], too_few, level, up_and_down, down)] == [None] * 5


def steady(random: Random, runs: int) -> list[float]:
    """Peaks around a level: with little or much noise, with or without rare large inputs."""
    spread = random.choice([0.005, 0.03, 0.1, 0.3])
    rare = random.choice([0, 0.1])
    return [1000 * random.lognormvariate(0, spread) * (1.5 if random.random() < rare else 1) for _ in range(runs)]


@pytest.mark.parametrize("runs", [8, 12, 20, 50])
def test_steady_families_hardly_ever_seem_to_grow(runs: int) -> None:
    """One side of a 90 % interval is 5 %."""
    random = Random(runs)
    grown = sum(growth(steady(random, runs)) is not None for _ in range(600))
    assert grown <= 600 * 0.08


@pytest.mark.parametrize(("runs", "percent"), [(8, 2), (12, 1), (20, 0.5), (50, 0.2)])
def test_growth_beyond_the_noise_is_seen(runs: int, percent: float) -> None:
    """With 2 % noise: the rise over the runs is at least five times the noise."""
    random = Random(runs)
    families = [
        growth([1000 * (1 + percent / 100 * n) * random.lognormvariate(0, 0.02) for n in range(runs)])
        for _ in range(100)
    ]
    found = [one.per_run for one in families if one is not None]
    assert len(found) >= 97
    assert found == pytest.approx([10 * percent] * len(found), rel=0.8)


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

    found = advice(growing(5, first_mb=600))
    assert (found.choice.size.memory_mb, found.choice.outgrown) == (1024, None), "enough for 30 runs"
    found = advice([report(n, peak_mb=90_000 + 5000 * n, size=(16, 122_880)) for n in range(10)])
    assert found.choice.size.memory_mb == 244 * 1024, "there is no larger size"


def test_the_other_containers_grow_too() -> None:
    side = [{"side": Metrics(max_memory_used_mb=100 + 30 * n)} for n in range(12)]
    found = advice([report(n, peak_mb=400, others=beside) for n, beside in enumerate(side)])
    assert found.choice.size.memory_mb == 2048
    assert found.choice.outgrown is not None


@given(st.floats(min_value=0.1, max_value=200), st.integers(min_value=8, max_value=50), st.integers(100, 10_000))
def test_the_recommended_size_holds_every_straight_growth_for_30_runs(per_run: float, runs: int, first: int) -> None:
    found = advice(growing(per_run, runs=runs, first_mb=first))
    need = evidence_of(growing(per_run, runs=runs, first_mb=first)).needs_mb
    trend = present(growth(need))
    assert (found.choice.size.memory_mb or 0) >= trend.after(GROWTH_RUNS) - 1e-6


def test_a_limit_that_killed_a_run_is_not_to_be_passed_in_some_runs() -> None:
    """The trend of what was measured is below the limit, because the kernel killed the run there."""
    runs = growing(40, runs=9, first_mb=500)
    killed = report(9, peak_mb=900, size=(1, 2048), likely_out_of_memory=True, metrics={"memory_size_mb": 1000})
    text = "\n".join(advice([*runs, killed]).reasons)
    assert "With 1000 MB a run ran out of memory" in text
    assert "grows by about" in text
    assert "the limit of 1000 MB" not in text
    at_task_size = report(9, peak_mb=1990, size=(1, 2048), likely_out_of_memory=True)
    again = "\n".join(advice([*growing(40, runs=9, first_mb=1600), at_task_size]).reasons)
    assert "will pass the limit of 2 GB" not in again


@given(st.lists(st.floats(min_value=0, max_value=1e6), max_size=40))
def test_any_growth_is_upward_and_ends(values: list[float]) -> None:
    found = growth(values)
    if found is not None:
        assert found.per_run > 0
        left = present(found.runs_until(found.now + 100))
        assert left >= 1

"""A family's past: the order in which runs are added, and in which parts, does not matter; and one
answer to each question.
"""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_DAY
from profiler.record.family_statistics import (
    LAST_DURATIONS,
    LAST_SUCCESSES,
    Family,
    FamilyRun,
    HighestPeak,
    NeedAtSize,
    UsualDuration,
    family_of_reports,
    highest_peak_of,
    measured_month,
)
from profiler.record.unusual import MIN_RUNS
from tests.runs import report
from tests.values import present

RUN = FamilyRun(task_id="1", container="batch", ended_ns=NS_PER_DAY, outcome="success")
CLUSTERS = (None, "jobs", "test")


def runs(count: int, **changes: object) -> list[FamilyRun]:
    """One a day, the oldest first; each takes a minute more and needs 10 MB more."""
    return [
        replace(
            RUN,
            task_id=str(number),
            ended_ns=(number + 1) * NS_PER_DAY,
            **{"duration_ms": 60_000.0 * (number + 1), "peak_mb": 10.0 * (number + 1), **changes},
        )
        for number in range(count)
    ]


def family_of(added: Sequence[FamilyRun]) -> Family:
    family = Family()
    for run in added:
        family.add_run(run)
    return family


def merged(*families: Family) -> Family:
    whole = Family()
    for family in families:
        whole.merge(family)
    return whole


def answers(family: Family) -> list[object]:
    """Everything that people ask."""
    said: list[object] = [family.outcomes, family.task_count, family.month, family.last_successes()]
    for cluster in CLUSTERS:
        said += [family.usual_duration(cluster), family.last_success(cluster)]
    for container in ("batch", "other"):
        said += [family.highest_peak(container)]
        said += [family.memory_need(container, size_mb) for size_mb in (512, 1024)]
    return said


numbers = st.none() | st.floats(0, 1e9)
any_run = st.builds(
    FamilyRun,
    task_id=st.sampled_from([str(number) for number in range(200)]),
    container=st.sampled_from(["batch", "other"]),
    ended_ns=st.integers(0, 90).map(lambda day: day * NS_PER_DAY),
    outcome=st.sampled_from(["success", "success", "failure", "oom", "spot", "unknown"]),
    ecs_cluster=st.sampled_from(CLUSTERS),
    duration_ms=numbers,
    peak_mb=numbers,
    task_memory_mb=st.sampled_from([None, 512, 1024]),
)
different_runs = st.lists(any_run, max_size=150, unique_by=lambda run: (run.task_id, run.container))


@given(different_runs, st.randoms(use_true_random=False))
def test_the_order_of_the_runs_does_not_matter(
    added: list[FamilyRun], chance: random.Random
) -> None:
    shuffled = [*added, *added[:5]]  # some lines come twice
    chance.shuffle(shuffled)
    assert answers(family_of(shuffled)) == answers(family_of(added))


@given(different_runs, st.integers(0, 150), st.integers(0, 150))
def test_families_of_parts_are_the_family_of_all(
    added: list[FamilyRun], one: int, other: int
) -> None:
    first, second = sorted((one, other))
    parts = [added[:first], added[first:second], added[second:]]
    whole = answers(family_of(added))
    left, middle, right = map(family_of, parts)
    assert answers(merged(left, middle, right)) == whole
    assert answers(merged(right, left, middle)) == whole
    assert answers(merged(left, merged(middle, right))) == whole
    assert answers(merged(merged(left, middle), right)) == whole
    assert answers(merged(Family(), family_of(added))) == whole


def test_only_the_last_successes_are_kept() -> None:
    family = family_of(runs(300))
    assert [run.task_id for run in family.last_successes()[:2]] == ["299", "298"]
    assert len(family.last_successes()) == LAST_SUCCESSES
    assert present(family.usual_duration()).runs == LAST_DURATIONS
    assert present(family.usual_duration()).median_ms == 60_000 * 290.5
    assert family.highest_peak("batch") == HighestPeak(
        peak_mb=3000, runs=LAST_SUCCESSES, median_mb=2755, counts_files=True
    )
    assert family.task_count == 300


def test_five_successes_in_the_ecs_cluster_are_enough() -> None:
    others = runs(30, ecs_cluster="test")
    few = runs(MIN_RUNS - 1, ecs_cluster="jobs", duration_ms=5.0)
    own = [replace(run, task_id=f"own-{run.task_id}") for run in few]
    family = family_of([*others, *own])
    assert present(family.usual_duration("jobs")).runs == LAST_DURATIONS
    family.add_run(replace(own[0], task_id="own-4"))
    assert family.usual_duration("jobs") == UsualDuration(median_ms=5, p95_ms=5, runs=MIN_RUNS)
    assert present(family.last_success("jobs")).task_id == "own-3"
    assert present(family.last_success("unknown")).task_id == "29"


def test_a_peak_is_known_from_five_successes_of_the_container_on() -> None:
    family = family_of(runs(MIN_RUNS - 1))
    sidecars = [replace(run, container="log", peak_mb=9000.0) for run in runs(20)]
    unmeasured = [replace(run, task_id=f"u{run.task_id}", peak_mb=None) for run in runs(20)]
    failed = [replace(run, task_id=f"f{run.task_id}", outcome="failure") for run in runs(20)]
    for run in (*sidecars, *unmeasured, *failed):
        family.add_run(run)
    assert family.highest_peak("batch") is None
    family.add_run(replace(RUN, task_id="fifth", peak_mb=7.0))
    assert family.highest_peak("batch") == HighestPeak(
        peak_mb=40, runs=5, median_mb=20, counts_files=True
    )


@pytest.mark.parametrize(
    ("used_mb", "is_news"), [(699, False), (714, False), (715, True), (1000, True)]
)
def test_news_is_above_every_peak_by_two_percent_and_near_the_size(
    used_mb: float, *, is_news: bool
) -> None:
    assert HighestPeak(peak_mb=700, runs=5).is_exceeded_by(used_mb, 1000) is is_news
    assert HighestPeak(peak_mb=100, runs=5).is_exceeded_by(used_mb, 1000) is (used_mb >= 700)


@pytest.mark.parametrize(
    ("peaks_mb", "expected_mb"),
    [
        ([100.0] * 50, 102),
        ([100.0] * 49 + [110], 110 * 1.02),
        ([100.0] * 9 + [110], 110 * 1.02),
        ([100.0] * 9 + [130], 130 * 1.06),
        ([100.0] * 4 + [130], 130 * 1.1),
        ([100.0] * 19 + [150], 150 * 1.05),
        ([0.0] * 4 + [150], 150 * 1.02),
    ],
)
def test_of_few_runs_that_differ_much_the_next_one_can_exceed_the_highest(
    peaks_mb: list[float], expected_mb: float
) -> None:
    assert highest_peak_of(peaks_mb).expected_mb == pytest.approx(expected_mb)


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=60))
def test_a_run_within_two_percent_is_never_news_and_one_above_a_tenth_always(
    peaks_mb: list[float],
) -> None:
    highest_mb = max(peaks_mb)
    assert 1.02 * highest_mb <= highest_peak_of(peaks_mb).expected_mb * (1 + 1e-9)
    assert highest_peak_of(peaks_mb).expected_mb <= 1.1 * highest_mb * (1 + 1e-9)


def test_needs_are_those_at_one_size() -> None:
    family = family_of(
        [
            *runs(3, task_memory_mb=2048),
            replace(RUN, task_id="k", outcome="oom", task_memory_mb=2048),
            replace(RUN, task_id="by hand", peak_mb=30_000.0, task_memory_mb=65_536),
        ]
    )
    assert family.memory_need("batch", 2048) == NeedAtSize(peak_mb=30, was_killed=True)
    assert family.memory_need("batch", 65_536) == NeedAtSize(peak_mb=30_000)
    assert family.memory_need("batch", 512) == NeedAtSize()
    assert family.outcomes == {"success": 4, "oom": 1}


@pytest.mark.parametrize(("apart", "peak_mb"), [(0, 400), (4, 400), (5, 50), (6, 60)])
def test_an_older_peak_is_no_need_once_five_successes_say_mapped_files_apart(
    apart: int, peak_mb: float
) -> None:
    older = replace(RUN, task_id="older", peak_mb=400.0, task_memory_mb=2048)
    killed = replace(older, task_id="killed", outcome="oom", peak_mb=2000.0, mapped_files_mb=1.0)
    newer = runs(apart, task_memory_mb=2048, mapped_files_mb=300.0)
    need = NeedAtSize(peak_mb=peak_mb, was_killed=True)
    assert family_of([older, killed, *newer]).memory_need("batch", 2048) == need
    first, second = family_of(newer[:3]), family_of([older, killed, *newer[3:]])
    assert merged(first, second).memory_need("batch", 2048) == need
    assert merged(second, first).memory_need("batch", 2048) == need


def test_a_run_is_slow_from_half_more_than_nearly_all_on() -> None:
    usual = UsualDuration(median_ms=10, p95_ms=20, runs=8)
    assert usual.is_exceeded_by(21)
    assert not usual.is_exceeded_by(20)
    assert not usual.is_slow(30)
    assert usual.is_slow(31)
    assert not replace(usual, runs=7).is_slow(31)


def test_counted_tasks_and_added_ones_make_one_month() -> None:
    counted = Family()
    counted.add_counts(21, NS_PER_DAY, 11 * NS_PER_DAY)
    assert counted.month == measured_month(21, 10 * NS_PER_DAY)
    counted.merge(family_of(runs(5)))
    assert counted.task_count == 26


def test_reports_make_a_family() -> None:
    family = family_of_reports([report(number) for number in range(10)])
    assert family.usual_duration() == UsualDuration(median_ms=590_000, p95_ms=590_000, runs=10)
    assert family.highest_peak("batch") == HighestPeak(
        peak_mb=400, runs=10, median_mb=400, counts_files=True
    )
    assert family.memory_need("batch", 2048) == NeedAtSize(peak_mb=400)
    assert present(family.month).runs == pytest.approx(30.4375)

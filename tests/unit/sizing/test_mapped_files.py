"""Mapped files never make a size larger, and hold a smaller one back; older peaks may have them."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.record.record_model import (
    NO_READINGS,
    AverageAndMaximum,
    Metrics,
    Report,
    Sampling,
    TaskSize,
)
from profiler.sizing.advice import Advice
from profiler.sizing.sized_revision import SizedRevision
from profiler.sizing.trend import NO_GROWTH
from profiler.sizing.window_evidence import spread_of_window_needs
from tests.family_windows import decision_on, window_of
from tests.runs import report
from tests.sized_runs import GB, Need, advice, families, runs_of
from tests.values import present

RUNS = 12
KEPT = "of its files in memory: a smaller size would read them again"


def with_files(
    number: int, files_mb: float | None, usage_mb: float | None = None, **more: Any
) -> Report:
    """A run that says what it kept of mapped files; None: it counts them as used."""
    made = report(number, **more)
    apart = NO_READINGS if files_mb is None else AverageAndMaximum(avg=files_mb / 2, max=files_mb)
    metrics = replace(
        made.record.metrics,
        memory_mapped_file_mb=apart,
        memory_cache_mb=apart,
        memory_usage_peak_mb=usage_mb,
    )
    return replace(made, record=replace(made.record, metrics=metrics))


def ladder(
    size: tuple[float, float], *, used_mb: float = 150, files_mb: float | None = None
) -> list[Report]:
    """Twelve runs of a batch whose index fills the task."""
    usage_mb = 0.985 * size[1]
    kept_mb = usage_mb - used_mb if files_mb is None else files_mb
    return [
        with_files(
            number, kept_mb, used_mb + kept_mb, peak_mb=used_mb, p95=0.9 * size[0], size=size
        )
        for number in range(RUNS)
    ]


def recommended(reports: Sequence[Report]) -> tuple[float | None, float | None]:
    size = advice(reports).choice.size
    return size.vcpu, size.memory_mb


def has_no_reason_to_change(found: Advice) -> bool:
    return not (found.risk_sentence or found.possible_saving_sentence(10))


@pytest.mark.parametrize(
    "size", [(0.5, 2 * GB), (1, 3 * GB), (1, 4 * GB), (1, 5 * GB), (1, 8 * GB)]
)
def test_an_index_that_fills_the_task_keeps_its_size(size: tuple[float, float]) -> None:
    found = advice(ladder(size))
    assert recommended(ladder(size)) == size
    assert has_no_reason_to_change(found)
    assert KEPT in "\n".join(found.reasons)
    assert found.evidence.needs.required_memory_mb == 150
    assert not [
        row for row in found.choice.options if row.is_acceptable and row.size.memory_mb < size[1]
    ]


def test_without_mapped_files_the_same_runs_shrink() -> None:
    found = advice(ladder((1, 8 * GB), files_mb=0))
    assert found.choice.size.memory_mb == 2 * GB
    assert KEPT not in "\n".join(found.reasons)


def test_memory_used_up_to_the_limit_still_gets_more() -> None:
    found = advice(ladder((1, 2 * GB), used_mb=1900, files_mb=100))
    assert found.choice.size.memory_mb == 3 * GB
    assert found.risk_sentence


@pytest.mark.parametrize(
    ("files_mb", "usage_mb", "memory_mb"),
    [
        (2800, None, 3 * GB),
        (3000, None, 4 * GB),  # 150 + 3000 do not fit
        (3000, 2900, 3 * GB),  # at no moment both
        (7100, None, 8 * GB),
        (90_000, None, 8 * GB),
    ],
)
def test_a_smaller_size_holds_the_files_of_the_same_moment(
    files_mb: float, usage_mb: float | None, memory_mb: float
) -> None:
    runs = [
        with_files(number, files_mb, usage_mb, peak_mb=150, p95=0.9, size=(1, 8 * GB))
        for number in range(RUNS)
    ]
    assert recommended(runs)[1] == memory_mb


def test_the_files_of_other_containers_count_too() -> None:
    beside = {
        "proxy": Metrics(
            max_memory_used_mb=100, memory_mapped_file_mb=AverageAndMaximum(avg=1, max=3000)
        )
    }
    runs = [
        with_files(number, 0, peak_mb=150, p95=0.9, size=(1, 8 * GB), others=beside)
        for number in range(RUNS)
    ]
    assert recommended(runs)[1] == 4 * GB


def test_a_larger_size_of_the_past_does_not_enlarge_the_present_one() -> None:
    runs = [*ladder((1, 8 * GB)), *_later(ladder((1, 4 * GB)))]
    assert recommended(runs) == (1, 4 * GB)
    assert has_no_reason_to_change(advice(runs))


@pytest.mark.parametrize("apart", [0, 1, 3, 4])
def test_files_that_a_new_version_says_apart_are_no_spread(apart: int) -> None:
    """They were used before: 400 MB, of which 350 are files, differ in nothing from 50."""
    local: dict[str, Any] = {"launch_type": "LOCAL", "size": None}
    older = [with_files(number, None, peak_mb=400, **local) for number in range(3)]
    newer = [with_files(10 + number, 350, peak_mb=50, **local) for number in range(apart)]
    runs = [*older, *newer]
    assert present(spread_of_window_needs(window_of(runs))).largest_above_median_percent == 0
    found = advice(runs)
    assert found.choice.size.memory_mb == 512
    reasons = "\n".join(found.reasons)
    assert "3 runs do not show how much the next one needs" in reasons
    assert "median" not in reasons


def test_a_kill_still_asks_for_more() -> None:
    killed = replace(
        ladder((1, 2 * GB))[0].record,
        task_id="killed",
        status="failure",
        exit_code=137,
        likely_out_of_memory=True,
    )
    runs = [*ladder((1, 2 * GB)), replace(report(40), record=killed)]
    assert advice(runs).choice.size.memory_mb == 3 * GB


@pytest.mark.parametrize(("limit_mb", "memory_mb"), [(64, 64), (100, 100), (512, 512), (None, 640)])
def test_outside_fargate_no_advice_is_above_the_limit(
    limit_mb: float | None, memory_mb: float
) -> None:
    """A program of 20 MB with a file of 600 MB, in groups of several sizes; 16 GB is the machine's
    memory.
    """
    files_mb = min(600, 0.97 * (limit_mb or 16 * GB) - 20)
    run = with_files(0, files_mb, peak_mb=20, launch_type="LOCAL", size=None)
    metrics = replace(run.record.metrics, memory_size_mb=limit_mb or 16 * GB)
    found = advice([replace(run, record=replace(run.record, metrics=metrics))])
    assert found.choice.size.memory_mb == memory_mb
    assert (KEPT in "\n".join(found.reasons)) is (limit_mb != 64)


def test_a_reservation_is_not_raised_for_mapped_files() -> None:
    runs = [
        with_files(number, 1900, peak_mb=20, size=(1, 2000), launch_type="EC2")
        for number in range(9)
    ]
    assert recommended(runs) == (0.25, 2000)


def test_resize_leaves_the_size_and_names_the_files() -> None:
    size = (1.0, 8.0 * GB)
    window = window_of(
        with_files(number, 7900, peak_mb=150, p95=0.9, size=size, revision="3")
        for number in range(30)
    )
    revision = SizedRevision(revision="3", size=TaskSize(vcpu=1, memory_mb=8 * GB))
    decision = decision_on(window, revision)
    assert decision.action == "none"
    assert decision.reason == f"the size fits: a run also keeps up to 7.7 GB {KEPT}"
    bare = window_of(
        with_files(number, 0, peak_mb=150, p95=0.9, size=size, revision="3") for number in range(30)
    )
    assert decision_on(bare, revision).size == TaskSize(vcpu=1, memory_mb=2 * GB)


# --- older records, whose memory used counts mapped files ----------------------------------------


def _later(runs: Sequence[Report], days: int = 100) -> list[Report]:
    """The same runs, so many days later."""
    return [
        replace(
            later,
            record=replace(
                later.record, metrics=run.record.metrics, task_size=run.record.task_size
            ),
        )
        for number, run in enumerate(runs)
        for later in (report(days + number),)
    ]


def older(count: int, peak_mb: float, size: tuple[float, float] = (1, 4 * GB)) -> list[Report]:
    return [
        with_files(number, None, peak_mb=peak_mb, p95=0.9, size=size) for number in range(count)
    ]


def newer(count: int, **more: Any) -> list[Report]:
    run = {"files_mb": 100, "peak_mb": 150, "p95": 0.9, "size": (1, 4 * GB), **more}
    return [with_files(100 + number, **run) for number in range(count)]


def test_older_runs_alone_mean_what_they_meant() -> None:
    found = advice(older(12, 4000))
    assert found.choice.size.memory_mb == 5 * GB
    assert found.risk_sentence
    assert "pages of mapped files" not in "\n".join(found.reasons)


@pytest.mark.parametrize(("count", "memory_mb"), [(1, 5 * GB), (4, 5 * GB), (5, 4 * GB)])
def test_an_older_peak_enlarges_nothing_once_five_runs_say_files_apart(
    count: int, memory_mb: float
) -> None:
    found = advice([*older(12, 4000), *newer(count)])
    assert found.choice.size.memory_mb == memory_mb
    assert (found.risk_sentence == "") is (count >= 5)
    worth = "only keeps the size from getting smaller" if count >= 5 else "may have been less"
    assert (
        "The memory of some of the runs may include pages of mapped files, as older versions, "
        f"Container Insights and very short runs count them: it {worth}."
    ) in found.reasons


def test_an_older_peak_holds_a_smaller_size_back_with_its_margin() -> None:
    """Nobody knows what of it was used: 2.6 GB with a margin of a fifth are more than 3 GB."""
    assert recommended([*older(12, 2662), *newer(30)])[1] == 4 * GB
    assert recommended([*older(12, 1500), *newer(30)])[1] == 2 * GB
    assert recommended(newer(30))[1] == 2 * GB


def test_no_growth_is_seen_across_the_change_of_meaning() -> None:
    """Peaks that fall with the new meaning, and then grow, do not grow by the older ones."""
    falling = [*older(30, 1000), *newer(10)]
    assert advice(falling).choice.growth == NO_GROWTH
    growing = [
        with_files(100 + number, 100, peak_mb=150 + 20 * number, p95=0.9, size=(1, 4 * GB))
        for number in range(12)
    ]
    grown = advice([*older(30, 1000), *growing]).choice.growth
    assert grown.runs == 12
    assert grown.per_run == pytest.approx(20)


def test_container_insights_beside_reports_is_the_older_meaning() -> None:
    minutes = [
        replace(
            one,
            record=replace(
                one.record, sampling=Sampling(interval_ms=60_000, sources=("container-insights",))
            ),
        )
        for one in older(3, 4000)
    ]
    assert advice([*minutes, *newer(8)]).risk_sentence == ""


def test_resize_is_not_enlarged_by_older_peaks_and_shrinks_by_no_guess() -> None:
    revision = SizedRevision(revision="3", size=TaskSize(vcpu=1, memory_mb=4 * GB))

    def decided(*runs: Report) -> Any:
        named = [replace(run, record=replace(run.record, revision="3")) for run in runs]
        return decision_on(window_of(named), revision)

    full = decided(*older(30, 4000))
    assert full.action == "resize"
    assert full.size == TaskSize(vcpu=1, memory_mb=5 * GB)
    mixed = decided(*older(30, 4000), *newer(5))
    assert mixed.action == "none"
    assert mixed.evidence.peak.value == 150
    assert decided(*older(30, 2600), *newer(30)).action == "none"
    small = decided(*older(30, 1000), *newer(30))
    assert small.size == TaskSize(vcpu=1, memory_mb=2 * GB)


def test_the_largest_run_that_says_files_apart_counts_however_large_older_ones_were() -> None:
    """Of 400 runs a window keeps few, but each meaning's largest."""
    large = with_files(120, 100, peak_mb=3500, p95=0.9, size=(1, 4 * GB))
    runs = [
        *older(100, 3900),
        large,
        *(
            replace(run, record=replace(run.record, task_id=f"n{number}"))
            for number, run in enumerate(newer(300))
        ),
    ]
    named = [replace(run, record=replace(run.record, revision="3")) for run in runs]
    revision = SizedRevision(revision="3", size=TaskSize(vcpu=1, memory_mb=4 * GB))
    decision = decision_on(window_of(named), revision)
    assert decision.evidence is not None
    assert decision.evidence.peak.value == 3500


# --- what holds for any runs ----------------------------------------------------------------------


@given(found=families, shares=st.lists(st.floats(0, 1), min_size=8, max_size=8))
def test_files_never_make_a_size_larger_and_never_smaller(
    found: list[Need], shares: list[float]
) -> None:
    bare: list[Report] = []
    full: list[Report] = []
    for run, share in zip(runs_of(found), shares, strict=False):
        size_mb = run.record.task_size.memory_mb or 0
        apart = [AverageAndMaximum(avg=0, max=files_mb) for files_mb in (0, share * size_mb)]
        for reports, files in zip((bare, full), apart, strict=True):
            metrics = replace(run.record.metrics, memory_mapped_file_mb=files)
            reports.append(replace(run, record=replace(run.record, metrics=metrics)))
    without = advice(bare)
    with_them = advice(full)
    assert with_them.risk_sentence == without.risk_sentence
    assert with_them.choice.needs_more_memory == without.choice.needs_more_memory
    least_mb = without.choice.size.memory_mb or 0
    most_mb = max(least_mb, without.choice.current.memory_mb or 0)
    assert least_mb <= (with_them.choice.size.memory_mb or 0) <= most_mb

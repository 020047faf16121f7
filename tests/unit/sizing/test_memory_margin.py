"""The margin above the memory that a family's runs needed: the least, the largest, and its reason."""

import math
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.record.record_model import PeakSource, Report, Sampling, TaskSize
from profiler.sizing.advice import Advice
from profiler.sizing.choose_size import SizePolicy, memory_margin_of
from profiler.sizing.memory_margin import (
    EACH_SECOND_PERCENT,
    KERNEL_PERCENT,
    MAX_SPREAD_PERCENT,
    MIN_SPREAD_RUNS,
    MINUTE_PERCENT,
    UNKNOWN_MARGIN,
    UNKNOWN_PERCENT,
    MemoryMargin,
    NeedSpread,
    PeakPrecision,
    memory_margin,
    spread_of_needs,
)
from profiler.sizing.sizing_rules import advice_verdict
from profiler.sizing.window_evidence import evidence_at_size, spread_of_window_needs
from tests.cases import each_case
from tests.family_windows import window_of
from tests.runs import evidence_of, report
from tests.sized_runs import advice

KERNEL = PeakPrecision(source="kernel")
EACH_SECOND = PeakPrecision(source="sampled", period_ms=1004)
SLOW = PeakPrecision(source="sampled", period_ms=10_000)
BY_MINUTE = PeakPrecision(source="sampled", period_ms=60_000, is_by_minute=True)

needs = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=120)
precisions = st.builds(
    PeakPrecision,
    source=st.none() | st.sampled_from(get_args(PeakSource)),
    period_ms=st.none() | st.floats(1, 1e5),
)


def spread(runs: int, percent: float) -> NeedSpread:
    return NeedSpread(largest_mb=100 + percent, median_mb=100, runs=runs)


@each_case(
    ("runs", "percent", "precision", "expected"),
    [
        (40, 2, KERNEL, KERNEL_PERCENT),
        (40, 2, EACH_SECOND, EACH_SECOND_PERCENT),
        (40, 2, SLOW, UNKNOWN_PERCENT),
        (40, 2, PeakPrecision(source="sampled"), UNKNOWN_PERCENT),
        (40, 2, PeakPrecision(), UNKNOWN_PERCENT),
        (19, 2, KERNEL, UNKNOWN_PERCENT),
        (1, 0, KERNEL, UNKNOWN_PERCENT),
        (20, 12, KERNEL, 12),
        (20, 25, SLOW, 25),
        (5, 25, KERNEL, 25),
        (80, 24, KERNEL, 12),
        (80, 24, EACH_SECOND, 12),
        (80, 24, SLOW, UNKNOWN_PERCENT),
        (20, 300, KERNEL, MAX_SPREAD_PERCENT),
        (8000, 300, KERNEL, 15),
    ],
)
def test_the_margin_is_the_spread_of_so_many_runs_within_limits(
    runs: int, percent: float, precision: PeakPrecision, expected: float
) -> None:
    assert memory_margin(spread(runs, percent), precision).percent == pytest.approx(expected)


@given(needs, precisions)
def test_no_margin_is_below_its_floor_or_above_thirty_percent(
    needs_mb: list[float], precision: PeakPrecision
) -> None:
    margin = memory_margin(spread_of_needs(needs_mb), precision)
    assert KERNEL_PERCENT <= margin.percent <= MAX_SPREAD_PERCENT
    if len(needs_mb) < MIN_SPREAD_RUNS or precision.source is None:
        assert margin.percent >= UNKNOWN_PERCENT
    if precision.source == "sampled":
        assert margin.percent >= EACH_SECOND_PERCENT
    assert margin.why


@given(needs, precisions, st.floats(0.1, 10))
def test_the_margin_is_the_same_in_any_unit(
    needs_mb: list[float], precision: PeakPrecision, scale: float
) -> None:
    scaled = memory_margin(spread_of_needs([need * scale for need in needs_mb]), precision)
    assert scaled.percent == pytest.approx(
        memory_margin(spread_of_needs(needs_mb), precision).percent
    )


@given(st.integers(1, 10_000), st.integers(1, 10_000), st.floats(0, 1000), precisions)
def test_of_equally_different_runs_more_need_no_larger_margin(
    runs: int, more: int, percent: float, precision: PeakPrecision
) -> None:
    few = memory_margin(spread(runs, percent), precision)
    many = memory_margin(spread(runs + more, percent), precision)
    assert many.percent <= few.percent


@given(st.integers(1, 10_000), st.floats(0, 1000), st.floats(0, 1000), precisions)
def test_runs_that_differ_more_need_no_smaller_margin(
    runs: int, percent: float, more: float, precision: PeakPrecision
) -> None:
    like = memory_margin(spread(runs, percent), precision)
    unlike = memory_margin(spread(runs, percent + more), precision)
    assert unlike.percent >= like.percent


@given(needs)
def test_less_exact_peaks_need_no_smaller_margin(needs_mb: list[float]) -> None:
    of_runs = spread_of_needs(needs_mb)
    margins = [
        memory_margin(of_runs, precision).percent
        for precision in (KERNEL, EACH_SECOND, SLOW, BY_MINUTE)
    ]
    assert margins == sorted(margins)


@given(needs, precisions, st.floats(0, 10_000))
def test_a_margin_that_was_asked_for_is_taken(
    needs_mb: list[float], precision: PeakPrecision, asked: float
) -> None:
    margin = memory_margin(spread_of_needs(needs_mb), precision, asked_percent=asked)
    assert margin == MemoryMargin(percent=asked)
    assert margin.margin_of_one_value == margin


def test_means_of_minutes_need_more_than_any_spread() -> None:
    assert memory_margin(spread(40, 2), BY_MINUTE).percent == MINUTE_PERCENT
    assert memory_margin(None, BY_MINUTE).percent == MINUTE_PERCENT
    assert memory_margin(spread(40, 2), BY_MINUTE, asked_percent=10).percent == MINUTE_PERCENT
    assert memory_margin(spread(40, 2), BY_MINUTE, asked_percent=120).percent == 120


def test_a_kill_hides_how_far_the_largest_need_lies_above_the_others() -> None:
    at_limit = memory_margin(spread(40, 2), KERNEL, killed_at_mb=102)
    assert at_limit.percent == UNKNOWN_PERCENT
    assert at_limit.why == "how much more the killed run needed is not known"
    assert memory_margin(spread(20, 28), KERNEL, killed_at_mb=200).percent > 27
    # Since then, runs have needed more than it had.
    assert memory_margin(spread(40, 2), KERNEL, killed_at_mb=50).percent == KERNEL_PERCENT


def test_without_a_need_nothing_is_known() -> None:
    assert spread_of_needs([]) is None
    assert memory_margin(None, KERNEL) == UNKNOWN_MARGIN
    assert MemoryMargin(percent=5, why="they differ").margin_of_one_value == UNKNOWN_MARGIN
    assert MemoryMargin(percent=30, why="they differ").margin_of_one_value.percent == 30


def test_a_median_of_nothing_is_as_far_as_can_be() -> None:
    wide = spread_of_needs([0.0] * 20 + [5.0])
    assert wide is not None
    assert math.isinf(wide.largest_above_median_percent)
    margin = memory_margin(wide, KERNEL)
    assert margin.percent == MAX_SPREAD_PERCENT
    assert margin.why == "the largest of 21 runs lies far above their median"
    assert memory_margin(spread_of_needs([0.0] * 21), KERNEL).percent == KERNEL_PERCENT


@pytest.mark.parametrize(
    ("runs", "period_ms", "source", "sentence"),
    [
        (
            40,
            1000,
            "kernel",
            "a margin of 5 %: the largest of 40 runs lies 2 % above their median.",
        ),
        (40, 1000, "sampled", "of 10 %: the largest of 40 runs lies 2 % above their median."),
        (
            40,
            9980,
            "sampled",
            "a margin of 20 %: the peaks were sampled every 10 s.",
        ),
        (
            40,
            None,
            "sampled",
            "of 20 %: the peaks were sampled not each second.",
        ),
        (7, 1000, "kernel", "of 20 %: 7 runs do not show how much the next one needs."),
        (1, 1000, "kernel", "of 20 %: 1 run does not show how much the next one needs."),
    ],
)
def test_the_reason_says_why_the_margin_is_as_large(
    runs: int, period_ms: int | None, source: str, sentence: str
) -> None:
    peaks_mb = [1000.0] * (runs - 1) + [1020.0]
    found = advice(
        report(
            number,
            peak_mb=peak_mb,
            size=(1, 8192),
            metrics={"memory_peak_source": source},
            sampling=Sampling(samples=60, stats_period_ms=period_ms),
        )
        for number, peak_mb in enumerate(peaks_mb)
    )
    (said,) = [reason for reason in found.reasons if reason.startswith("The memory has a margin")]
    assert said.endswith(sentence)
    assert found.choice.need.memory_mb == pytest.approx(1020 * found.choice.margin.factor)


def test_no_reason_stands_for_a_margin_that_was_asked_for() -> None:
    found = advice([report(number) for number in range(30)], memory_margin_percent=10)
    assert not any("has a margin" in reason for reason in found.reasons)


def test_a_size_that_holds_the_margin_is_no_risk_although_it_is_nearly_full() -> None:
    """974 of 1024 MB are 95 %, and 1023 MB with the margin."""
    kernel = {"memory_peak_source": "kernel"}
    right = advice(report(n, peak_mb=974, size=(0.25, 1024), metrics=kernel) for n in range(40))
    assert right.risk_sentence == ""
    assert right.choice.is_current_size_right
    assert advice_verdict(right) == "fits"
    full = advice(report(n, peak_mb=980, size=(0.25, 1024), metrics=kernel) for n in range(40))
    assert full.risk_sentence == "a run needed 980 MB of the task's 1 GB of memory"
    assert full.choice.size.memory_mb == 2048


def kernels(number: int, peak_mb: float, **record: Any) -> Report:
    return report(number, peak_mb=peak_mb, metrics={"memory_peak_source": "kernel"}, **record)


@given(st.lists(st.floats(1, 1000), min_size=20, max_size=50))
def test_resize_and_recommend_take_the_same_margin(peaks_mb: list[float]) -> None:
    runs = [kernels(number, peak_mb) for number, peak_mb in enumerate(peaks_mb)]
    evidence = evidence_at_size(window_of(runs), TaskSize(vcpu=1, memory_mb=2048))
    assert evidence is not None
    assert memory_margin_of(evidence, SizePolicy()) == memory_margin_of(
        evidence_of(runs), SizePolicy()
    )


def test_after_a_change_of_size_the_runs_at_the_old_one_say_how_much_the_family_differs() -> None:
    """Otherwise 5 runs at the new size would call for another one at once."""
    before = [kernels(number, 950 + 10 * (number % 3)) for number in range(40)]
    since = [kernels(number, 960, size=(0.25, 1024)) for number in range(40, 45)]
    evidence = evidence_at_size(window_of([*before, *since]), TaskSize(vcpu=0.25, memory_mb=1024))
    assert evidence is not None
    assert evidence.needs.spread == NeedSpread(largest_mb=970, median_mb=960, runs=45)
    assert memory_margin_of(evidence, SizePolicy()).percent == KERNEL_PERCENT
    assert evidence.needs.required_memory_mb == 960


def test_of_many_runs_all_count_and_the_newest_have_the_median() -> None:
    runs = [kernels(number, 500 if number == 3 else 400) for number in range(180)]
    found = spread_of_window_needs(window_of(runs))
    assert found == NeedSpread(largest_mb=500, median_mb=400, runs=180)
    assert memory_margin(found, KERNEL).percent == pytest.approx(25 / 3)


def ran(number: int, peak_mb: float, *, is_killed: bool = False, size_mb: float = 4096) -> Report:
    killed = {"status": "failure", "exit_code": 137, "likely_out_of_memory": True}
    return kernels(number, peak_mb, size=(1, size_mb), **(killed if is_killed else {}))


@pytest.mark.parametrize("killed_size_mb", [1024, 4096], ids=["at another size", "at its size"])
def test_of_many_kills_since_the_median_is_that_of_the_runs_before(killed_size_mb: float) -> None:
    before = [ran(number, 1500 + number) for number in range(150)]
    killed = [
        ran(number, 1000, is_killed=True, size_mb=killed_size_mb) for number in range(150, 260)
    ]
    found = spread_of_window_needs(window_of([*before, *killed]))
    assert found is not None
    assert 1500 <= found.median_mb <= found.largest_mb == 1649
    assert found.runs == 150


@pytest.mark.parametrize(
    ("runs", "spread_of_runs", "percent", "why"),
    [
        pytest.param(
            [(2000, True)] * 10 + [(2600, False)] * 10,
            NeedSpread(largest_mb=2600, median_mb=2600, runs=10),
            UNKNOWN_PERCENT,
            "10 runs do not show how much the next one needs",
            id="kills-at-the-size-before",
        ),
        pytest.param(
            [(2000, True)] * 10 + [(2600, False)] * 30,
            NeedSpread(largest_mb=2600, median_mb=2600, runs=30),
            KERNEL_PERCENT,
            "the largest of 30 runs lies 0 % above their median",
            id="enough-others",
        ),
        pytest.param(
            [(1000, False)] * 25 + [(1900, True)] * 25,
            NeedSpread(largest_mb=1900, median_mb=1000, runs=25, is_largest_killed=True),
            MAX_SPREAD_PERCENT,
            "a killed run lies at least 90 % above the median of 25 runs",
            id="the-largest-was-killed",
        ),
        pytest.param(
            [(2000, True)] * 30,
            NeedSpread(largest_mb=2000, median_mb=2000, runs=0, is_largest_killed=True),
            UNKNOWN_PERCENT,
            "how much more the killed run needed is not known",
            id="all-were-killed",
        ),
        pytest.param(
            [(2000, False)] * 10 + [(2600, False)] * 10,
            NeedSpread(largest_mb=2600, median_mb=2300, runs=20),
            100 * (2600 / 2300 - 1),
            "the largest of 20 runs lies 13 % above their median",
            id="none-was-killed",
        ),
    ],
)
def test_a_killed_run_does_not_show_what_it_needed(
    runs: list[tuple[float, bool]], spread_of_runs: NeedSpread, percent: float, why: str
) -> None:
    """It counts neither in the median nor in the number, in ``recommend`` and ``resize`` alike."""
    size_mb = max(peak_mb for peak_mb, _ in runs) * 1.5
    of_runs = [
        ran(
            number,
            peak_mb,
            is_killed=is_killed,
            size_mb=peak_mb + 48 if is_killed else size_mb,
        )
        for number, (peak_mb, is_killed) in enumerate(runs)
    ]
    evidence = evidence_of(of_runs)
    assert evidence.needs.spread == spread_of_runs
    assert spread_of_window_needs(window_of(of_runs)) == spread_of_runs
    margin = memory_margin_of(evidence, SizePolicy())
    assert margin.percent == pytest.approx(percent)
    assert margin.why == why


def margin_reasons(found: Advice) -> list[str]:
    """What the reasons say of the margin of the memory."""
    starts = ("The memory has ", "The memory must be ")
    return [reason for reason in found.reasons if reason.startswith(starts)]


KILLED_AT_4_GB = "The memory must be more than 4 GB, with no margin above that: "
ABOVE_USED = "The memory has a margin of 20 % above the {} that a run used: "


@pytest.mark.parametrize(
    ("launch_type", "peak_mb", "memory_mb", "sentence"),
    [
        # That is 1.6 % more than 4 GB, beside "a margin of 20 %".
        ("EC2", 3300, 4160, KILLED_AT_4_GB),
        ("FARGATE", 3300, 5120, KILLED_AT_4_GB),
        ("EC2", 3450, 4160, ABOVE_USED.format("3.4 GB")),
        ("EC2", 4090, 4928, ABOVE_USED.format("4 GB")),
    ],
)
def test_the_margin_beside_a_kill_is_the_one_that_the_number_has(
    launch_type: str, peak_mb: float, memory_mb: float, sentence: str
) -> None:
    killed = report(
        peak_mb=peak_mb,
        size=(1, 4096),
        launch_type=launch_type,
        likely_out_of_memory=True,
        status="failure",
        exit_code=137,
    )
    found = advice([killed])
    assert found.choice.size.memory_mb == memory_mb
    (said,) = margin_reasons(found)
    assert said == f"{sentence}how much more the killed run needed is not known."


JOBS = "AWSBatch-spot-0a1b2c3d-1111-2222-3333-444455556666"


def test_a_margin_for_which_an_instance_has_no_room_is_not_said_to_be_there() -> None:
    """9 % are left of 10: the sentence that the memory had 10 % stood beside it."""
    found = advice(
        report(number, peak_mb=7_300, size=(4, 16_384), launch_type="EC2", cluster=JOBS)
        for number in range(30)
    )
    assert found.choice.size.memory_mb == 7_936
    (said,) = margin_reasons(found)
    assert said.startswith("The memory has less than a margin of 10 %, which it should have: the")


killable_runs = st.lists(
    st.tuples(st.floats(1, 300_000), st.booleans()),  # used; whether it was killed
    min_size=1,
    max_size=6,
)


@given(
    killable_runs,
    st.sampled_from([512, 2048, 4096, 8192, 122_880, 250_000]),
    st.sampled_from(["FARGATE", "EC2"]),
    st.sampled_from(["batch", JOBS]),
)
def test_a_reason_names_no_margin_that_the_memory_does_not_have(
    runs: list[tuple[float, bool]], size_mb: int, launch_type: str, cluster: str
) -> None:
    found = advice(
        report(
            number,
            peak_mb=min(used_mb, size_mb),
            size=(1, size_mb),
            launch_type=launch_type,
            cluster=cluster,
            likely_out_of_memory=is_killed,
            status="failure" if is_killed else "success",
        )
        for number, (used_mb, is_killed) in enumerate(runs)
    )
    memory_mb = found.choice.size.memory_mb or 0
    used_mb = found.evidence.needs.required_memory_mb or 0
    killed_mb = found.evidence.needs.oom_size_mb or 0
    with_margin_mb = used_mb * found.choice.margin.factor
    for reason in margin_reasons(found):
        if reason.startswith("The memory has a margin"):
            assert memory_mb >= with_margin_mb - 1e-6
            # Where a run was killed with more than it used, the reason says what the margin is of.
            assert (" that a run used: " in reason) == (killed_mb >= used_mb)
        elif reason.startswith("The memory has less than"):
            assert memory_mb < with_margin_mb
        else:
            assert memory_mb > killed_mb >= with_margin_mb

"""What each size would take and cost, by hand, and what holds for any runs."""

import math
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.record.record_model import (
    Distribution,
    Metrics,
    Processor,
    Report,
    Sampling,
    SlowdownBounds,
    TaskSize,
)
from profiler.record.task_needs import vcpu_limit
from profiler.sizing.advice import Advice, advise_on_size
from profiler.sizing.choose_size import SizePolicy
from profiler.sizing.evidence import Evidence
from profiler.sizing.fargate_sizes import LEGAL_SIZES
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.sizing_rules import advice_verdict
from profiler.sizing.slowdown_factors import (
    MIN_SLOWER_FACTOR,
    duration_factors_of_runs,
    smaller_vcpus,
)
from tests.runs import evidence_of, report, reported_facts, slowdown
from tests.sized_runs import GB, Need, advice, families, reasons, rows, runs_of, size
from tests.values import present

VCPU_USD, GB_USD = 0.04048, 0.004445
Bounds = Mapping[str, tuple[float, float]]


def measured(
    number: int = 0, bounds: Bounds | None = None, *, saturated: float = 0.0, **more: Any
) -> Report:
    """A run with the bounds of its slowdown, which began without an image pull."""
    metrics = {
        "duration_ms": 600_000,
        "init_duration_ms": 0,
        "slowdown_at_vcpu": slowdown(**(bounds or {})),
        "vcpu_saturated_percent": saturated,
        **more.pop("metrics", {}),
    }
    return report(number, metrics=metrics, **more)


# --- the factor -------------------------------------------------------------------------------


def factors(current: float | None, *bounds: Bounds) -> dict[float, tuple[float, float]]:
    runs = [reported_facts(measured(number, one)) for number, one in enumerate(bounds)]
    found = present(duration_factors_of_runs(runs, current))
    return {vcpu: (factor.min, factor.max) for vcpu, factor in found.items()}


def test_the_factor_is_the_largest_of_any_run_compared_with_the_current_size() -> None:
    found = factors(1, {"v0_25": (1.2, 1.9), "v0_5": (1.1, 1.1)}, {"v0_25": (1.5, 1.6)}, {})
    assert found == {0.25: (1.5, 1.9), 0.5: (1.1, 1.1)}
    # At 0.25 vCPU 2.4 to 3.0, at 0.5 vCPU 1.5 to 2.0: from 2.4 / 2.0 to 3.0 / 1.5 times as long.
    assert factors(0.5, {"v0_25": (2.4, 3.0), "v0_5": (1.5, 2.0)}) == {0.25: (1.2, 2.0)}
    # At least as long as with more vCPUs, although the bounds would allow less.
    assert factors(0.5, {"v0_25": (1.5, 2.5), "v0_5": (1.5, 2.0)}) == {0.25: (1.0, 1.667)}
    # Half the vCPUs take at most twice as long.
    assert factors(1, {"v0_5": (2.06, 2.1)})[0.5] == (2, 2)
    assert factors(0.5, {"v0_25": (4, 8), "v0_5": (2, 4)}) == {0.25: (1, 2)}


def test_saturation_and_wait_are_means_over_runs_at_the_current_size() -> None:
    """Saturation and wait are means over the time of the runs at the current size."""
    reports = [
        measured(0, saturated=80.0, metrics={"duration_ms": 3000, "cpu_wait_percent": 30.0}),
        measured(1, saturated=20.0, metrics={"duration_ms": 1000, "cpu_wait_percent": 10.0}),
        measured(2, saturated=100.0, metrics={"cpu_wait_percent": 90.0}, size=(2, 4096)),
    ]
    for vcpu, saturated, waited in ((1, 65, 25), (2, 100, 90), (4, None, None)):
        evidence = evidence_of([*reports, report(4, size=(vcpu, 2048 * vcpu))])
        assert evidence.usage.saturated_percent == saturated
        assert evidence.usage.cpu_wait_percent.value == waited
    for duration_ms, percent in ((None, 50), (0, None)):
        unknown = measured(saturated=50.0, metrics={"duration_ms": duration_ms})
        assert evidence_of([unknown]).usage.saturated_percent == percent


# --- the table and the choice -----------------------------------------------------------------


def test_each_row_has_duration_price_and_saving_by_hand() -> None:
    """A run is billed for ten minutes: 1 vCPU with 4 GB costs (0.04048 + 4 x 0.004445) / 6 =
    0.00971 USD.
    """
    runs = [
        measured(n, {"v0_25": (1.2, 1.6), "v0_5": (1.0, 1.12)}, peak_mb=700, size=(1, 4 * GB))
        for n in range(8)
    ]
    found = rows(runs)
    larger = ((c, 2 * GB * c) for c in (2, 4, 8, 16))
    assert list(found) == [(0.25, GB), (0.5, GB), (1, 2 * GB), (1, 4 * GB), *larger, (32, 60 * GB)]
    half = found[0.5, GB]
    assert half.factor == SlowdownBounds(min=1, max=1.12)
    assert half.usd_per_run == round((0.5 * VCPU_USD + GB_USD) / 6 * 1.12, 8) == 0.00460787
    assert half.saving_percent == round(100 * (1 - 0.00460787 / 0.00971), 1) == 52.5
    assert half.is_acceptable is True
    assert found[0.25, GB].is_acceptable is False
    current = found[1, 4 * GB]
    assert current.usd_per_run == 0.00971
    assert current.saving_percent == 0.0
    assert current.is_acceptable is True
    assert size(runs) == (0.5, GB)


def test_a_saturated_task_is_not_enlarged() -> None:
    busy = measured(
        0, {"v0_25": (3.6, 4), "v0_5": (1.83, 2)}, saturated=83.0, p95=0.99, peak_mb=1500
    )
    found = advice([busy])
    assert not found.choice.is_other_size_better
    assert found.choice.saving_percent == 0
    text = "\n".join(found.reasons)
    assert (
        "For 83 % of the time, the task used all of its 1 vCPU: with 2 vCPU, a run would take "
        "0.59 to 1 times as long and cost 17 to 100 % more, depending on how much of its work is "
        "parallel (--faster recommends it)."
    ) in text
    (double,) = [option for option in found.choice.options if option.size.vcpu == 2]
    assert double.factor == SlowdownBounds(min=0.585, max=1)
    assert double.saving_percent_at(0.585) == -17
    assert double.saving_percent == -100
    assert (
        "With 0.5 vCPU, a run would take 1.83 to 2 times as long and cost 8 to 18 % more." in text
    )
    assert "The current size is right." in text
    assert "thread" not in text


@pytest.mark.parametrize(("saturated", "vcpu"), [(4.999, 1), (5.0, 2)])
def test_faster_takes_the_next_size_if_the_task_is_saturated(saturated: float, vcpu: float) -> None:
    busy = measured(0, {"v0_5": (1.83, 2)}, saturated=saturated, peak_mb=1500)
    found = advice([busy], faster=True)
    assert found.choice.size.vcpu == vcpu
    assert (present(found.choice.options[-1].factor).min < 1) is (vcpu > 1)
    assert found.choice.size.memory_mb == (4 * GB if vcpu > 1 else 2 * GB)
    if vcpu > 1:
        assert found.choice.saving_percent == -100
        costs = (
            "The recommended size costs 100 % more: $0.0082 a run, if a run takes as long as "
            "before."
        )
        assert costs in found.reasons


def test_one_thread_is_said_to_need_no_second_vcpu() -> None:
    said = (
        "The latest run never had more than 1 thread, so more than 1 vCPU would hardly make it "
        "faster."
    )
    assert said in reasons(measured(0, saturated=90.0, metrics={"max_pids": 1}))
    assert "thread" not in reasons(measured(0, saturated=90.0, metrics={"max_pids": 2}))
    assert "For 90 %" not in reasons(measured(0, saturated=4.9))


def test_threads_that_were_fewer_than_the_cpus_in_use_are_no_reason_against_more() -> None:
    used = {"max_pids": 1, "vcpu_used": Distribution(p95=2, max=2)}
    told = reasons(measured(0, saturated=90.0, size=(2, 4096), metrics=used))
    assert "For 90 %" in told
    assert "thread" not in told


def test_a_task_that_waits_unsaturated_is_said_to_share_its_cpu() -> None:
    """A task that waits although it is never saturated is said to share its CPU. Of one run, the
    sentence is the run's own.
    """

    def waiting(percent: float | None, saturated: float | None = 0.0, **more: Any) -> str:
        metrics = {
            "cpu_wait_percent": percent,
            "cpu_wait_seconds": 600,
            "vcpu_saturated_percent": saturated,
        }
        return reasons(*(measured(number, metrics=metrics, **more) for number in range(2)))

    shared = "in the latest run, it shares its CPU with others, or its threads run in short bursts."
    waits = "On average of the runs, threads that could run waited for a CPU 14 % of the time"
    for saturated, share in ((3, "3"), (0.3, "0.3")):
        said = (
            f"{waits}, although the task used all of its vCPUs for only {share} % of it: {shared}"
        )
        assert said in waiting(14.2, saturated)
    assert f"{waits}, although the task was never saturated: {shared}" in waiting(14.2)
    assert f"{waits}: {shared}" in waiting(14.2, 90)
    of_half = Sampling(cpu_wait_covered_percent=50)
    assert "waited for a CPU at least 14 % of the time: in" in waiting(14.2, 90, sampling=of_half)
    assert "waited" not in waiting(9.9) + waiting(None) + waiting(50.0, None)
    one = measured(metrics={"cpu_wait_percent": 14.2, "cpu_wait_seconds": 600})
    sentence = (
        "Its threads waited 10m 00s in total for a CPU: it shares its CPU with others, or its"
    )
    assert sentence in reasons(one)


def test_runs_on_different_processors_are_named_with_their_numbers() -> None:
    models = ["Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz"] * 3 + [
        "Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz"
    ]
    runs = [
        measured(n, processor=Processor(model=model, count=4)) for n, model in enumerate(models)
    ]
    text = reasons(*runs, measured(4))
    assert (
        "The runs had different processors, so their durations and CPU use are hard to compare: "
        "Xeon 8259CL (3 runs), Xeon 8375C (1 run)." in text
    )
    assert "processor" not in reasons(*runs[:3], measured(4))


def test_the_memory_need_may_ask_for_a_larger_vcpu_size() -> None:
    """What keeps the memory from being smaller is said."""
    least = reasons(measured(0, {"v0_5": (1.4, 2)}, peak_mb=400))
    assert "2 GB of memory is the least that Fargate allows with 1 vCPU." in least
    assert "512 MB of memory would be too little: with a margin of 20 %" in reasons(
        measured(0, peak_mb=500)
    )
    found = advice([measured(0, peak_mb=8 * GB, size=(1, 8 * GB))])
    assert found.choice.size.vcpu == 2
    assert found.choice.size.memory_mb == 10 * GB
    assert "1 vCPU allows at most 8 GB of memory, which would be too little." in found.reasons
    assert (
        "9 GB of memory would be too little: with a margin of 20 %, the task needs 9.6 GB."
        in found.reasons
    )
    assert "1 GB of memory would be too little: with a margin of 10 %, the task needs 1029 MB." in (
        reasons(*[measured(n, peak_mb=935) for n in range(20)])
    )


def test_reports_of_schema_1_0_need_their_p95() -> None:
    """Reports of schema 1.0 need what they used for 95 percent of the time."""
    runs = [report(0, p95=0.3), measured(1, {"v0_25": (1, 1.01)})]
    found = advice(runs)
    assert found.choice.size.vcpu == 0.5
    quarter = next(row for row in found.choice.options if row.size.vcpu == 0.25)
    shown = (quarter.factor, quarter.usd_per_run, quarter.saving_percent, quarter.is_acceptable)
    assert shown == (None, None, None, False)
    assert "0.25 vCPU was not considered: some runs used up to 0.3 vCPU for 95 %" in "\n".join(
        found.reasons
    )
    assert size([report(0, p95=0.25)]) == (0.25, 512)


def saturated_runs(count: int) -> list[Report]:
    """Runs at 1 vCPU, of which all was used for nine tenths of their time: with 4 vCPU they would
    take 0.325 to 1 times as long.
    """
    slower = {"v0_5": (1.9, 1.9), "v0_25": (3.7, 3.7)}
    return [measured(number, slower, saturated=90, size=(1, 2048)) for number in range(count)]


@pytest.mark.parametrize(("runs_now", "vcpu"), [(1, 4), (4, 4), (5, 1)])
def test_runs_that_used_all_of_fewer_vcpus_forbid_these_until_five_show_the_current_ones(
    runs_now: int, vcpu: float
) -> None:
    runs = [measured(20 + number, size=(4, 8192)) for number in range(runs_now)]
    assert size([*saturated_runs(10), *runs])[0] == vcpu


def test_a_run_that_used_all_of_fewer_vcpus_would_take_longer_with_them_than_now() -> None:
    found = rows([*saturated_runs(1), measured(1, size=(4, 8192))])[1, 2048].factor
    assert found == SlowdownBounds(min=1, max=round(1 / 0.325, 3))


def test_without_any_cpu_measurement_the_vcpu_size_stays() -> None:
    choice = advice([report(0, p95=None, metrics={"billed_duration_ms": None})]).choice
    assert {row.usd_per_run for row in choice.options} == {None}, "no duration, no cost"
    by_vcpu = {row.size.vcpu: row for row in choice.options}
    assert choice.size.vcpu == 1
    assert by_vcpu[0.5].factor is None
    assert [by_vcpu[vcpu].is_fast_enough for vcpu in (0.5, 1, 2)] == [False, True, True]


DAY_NS = 24 * 3600 * 10**9


def of_window(evidence: Evidence, tasks: int, window_ns: int) -> Evidence:
    usage = replace(evidence.usage, window_tasks=tasks, window_ns=window_ns)
    return replace(evidence, usage=usage)


@pytest.mark.parametrize(
    ("runs", "window_ns", "by_month"),
    [
        (5, DAY_NS, 4 * 30.4),
        (6, 2 * DAY_NS, 2.5 * 30.4),
        (5, DAY_NS - 1, None),
        (4, 9 * DAY_NS, None),
    ],
)
def test_runs_by_month_need_five_runs_and_a_day(
    runs: int, window_ns: int, by_month: float | None
) -> None:
    evidence = evidence_of([measured()])
    found = of_window(evidence, runs, window_ns).usage.runs_per_month
    assert found == (None if by_month is None else pytest.approx(by_month, rel=0.01))


@pytest.mark.parametrize(
    ("days", "text"),
    [(4, "30 runs"), (30, "4.1 runs"), (4 * 30.4, "1 run"), (4 * 91.3, "0.33 runs")],
)
def test_a_rare_batch_has_a_part_of_a_run_in_a_month(days: float, text: str) -> None:
    evidence = of_window(evidence_of([measured()]), 5, round(days * DAY_NS))
    (monthly,) = re.findall(
        r"a month at (\S+ runs?)\b",
        " ".join(advise_on_size(evidence, SizePolicy(), PriceOverrides()).reasons),
    )
    assert monthly == text


# --- the reasons ------------------------------------------------------------------------------


def test_the_next_smaller_size_is_named_with_the_limit_that_accepts_it() -> None:
    text = reasons(measured(0, {"v0_25": (1.2, 1.6), "v0_5": (1, 1.12)}))
    smaller = "With 0.25 vCPU, a run would take 1.2 to 1.6 times as long and cost 60 to 70 % less"
    assert f"{smaller}: --max-slowdown 60 accepts that." in text
    assert (
        "The recommended size saves at least 44 %: $0.0036 a run. A run takes 1 to 1.12 "
        "times as long."
    ) in text
    either = "1.4 to 2 times as long and cost between 17 % less and 18 % more."
    for run, said in (
        (
            measured(0, {"v0_5": (1.4, 2), "v0_25": (2, 4)}),
            "1.4 to 2 times as long and cost 0 to 30 % less.",
        ),
        (measured(0, {"v0_5": (1.4, 2)}, peak_mb=1200), either),
        (measured(0, {"v0_5": (2, 2)}), "2 times as long and cost the same."),
        (
            measured(0, {"v0_5": (1.4, 1.5)}, region="mars-1"),
            "1.4 to 1.5 times as long: --max-slowdown 50 accepts",
        ),
    ):
        assert f"With 0.5 vCPU, a run would take {said}" in reasons(run)

    # The record of a run has no reason about options of the command.
    evidence = evidence_of([measured(0, {"v0_5": (1.4, 1.9)}, saturated=60.0)])
    brief = "\n".join(advise_on_size(evidence, SizePolicy(), PriceOverrides()).brief_reasons)
    assert "--" not in brief
    assert "For 60 % of the time" in brief


# --- the check --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "risk"),
    [
        (measured(peak_mb=1843.2), "a run needed 1.8 GB of the task's 2 GB of memory"),
        (measured(peak_mb=1843), None),
        (
            measured(peak_mb=1843, others={"side": Metrics(max_memory_used_mb=1)}),
            "a run needed 1.8 GB",
        ),
        (measured(likely_out_of_memory=True), "1 run ran out of memory"),
        (
            measured(likely_out_of_memory=True, size=None, launch_type="LOCAL"),
            "1 run ran out of memory",
        ),
        (measured(peak_mb=10, size=None), None),
    ],
)
def test_a_risk_is_a_kill_or_a_need_above_90_percent(one: Report, risk: str | None) -> None:
    advised = advice([one])
    assert advised.risk_sentence.startswith(risk or "")
    assert (advised.risk_sentence == "") is (risk is None)
    assert ("memory-bound" in " ".join(advised.reasons)) is (risk or "").startswith(
        "a run needed"
    ), "one limit"
    killed = measured(0, likely_out_of_memory=True)
    assert advice([killed, measured(1, size=(1, 3 * GB))]).risk_sentence == "", (
        "a kill below the current size is none"
    )
    assert advice([killed, measured(1)]).risk_sentence


def test_the_verdict_on_the_current_size() -> None:
    waste = measured(size=(2, 8 * GB))
    growing = [
        measured(number, peak_mb=500 + 30 * number, size=(1, 2 * GB)) for number in range(30)
    ]
    assert [
        advice_verdict(advice([one])) for one in (waste, measured(size=(2, 8 * GB), region="x"))
    ] == [
        "saves",
        "saves",
    ]
    assert advice_verdict(advice(growing)) == "too small"
    unknown = (
        measured(size=None, launch_type="EC2"),
        measured(status="failure", size=(0.25, 512), peak_mb=300),
    )
    assert [advice_verdict(advice([one])) for one in unknown] == ["without a size", "not known"]
    assert advice_verdict(advice([measured(size=(0.25, 512), peak_mb=300)])) == "fits"


# --- for any runs -----------------------------------------------------------------------------


def cost(vcpu: float, memory_mb: float, factor: float) -> float:
    """Of 10 s of image pull and 590 s of run, in whole seconds."""
    billed_hours = math.ceil(round(10 + 590 * factor, 6)) / 3600
    return (vcpu * VCPU_USD + memory_mb / GB * GB_USD) * billed_hours


def factor_of(found: Advice, vcpu: float) -> float | None:
    """The upper bound, None if unknown, straight from the definition."""
    current = found.choice.current
    evidence = found.evidence
    if vcpu >= (current.vcpu or 0) or not evidence.needs.has_cpu:
        return 1.0 if vcpu >= (current.vcpu or 0) else None
    if (
        evidence.needs.vcpu_without_slowdown is not None
        and vcpu < evidence.needs.vcpu_without_slowdown
    ):
        return None
    return (evidence.needs.slowdowns or {}).get(vcpu, SlowdownBounds(min=1, max=1)).max


@given(families, st.floats(min_value=0, max_value=100), st.floats(min_value=0, max_value=300))
def test_the_choice_is_that_of_a_search_through_all_pairs(
    found: list[Need], margin_percent: float, max_slowdown_percent: float
) -> None:
    chosen = advice(
        runs_of(found),
        memory_margin_percent=margin_percent,
        max_slowdown_percent=max_slowdown_percent,
    )
    evidence, current = chosen.evidence, chosen.choice.current
    need_mb = (
        current.memory_mb or 0
        if evidence.needs.required_memory_mb is None
        else evidence.needs.required_memory_mb * (1 + margin_percent / 100)
    )
    holding = [
        one
        for one in LEGAL_SIZES
        if one.memory_mb >= need_mb - 1e-9 and one.memory_mb > (evidence.needs.oom_size_mb or 0)
    ]
    if not holding:
        is_killed_there = (evidence.needs.oom_size_mb or 0) >= 244 * GB
        largest = TaskSize() if is_killed_there else TaskSize(vcpu=32, memory_mb=244 * GB)
        assert chosen.choice.size == largest
        assert chosen.choice.needs_more_memory
        return
    ranked = sorted(
        (round(cost(one.vcpu, one.memory_mb, factor), 12), -one.vcpu, one.memory_mb)
        for one in holding
        if (factor := factor_of(chosen, one.vcpu)) is not None
        and factor <= 1 + max_slowdown_percent / 100 + 1e-9
    )
    assert -ranked[0][1] == chosen.choice.size.vcpu
    assert ranked[0][2] == chosen.choice.size.memory_mb


@given(families)
def test_no_size_is_faster_than_a_larger_one_and_bounds_are_in_order(found: list[Need]) -> None:
    choice = advice(runs_of(found)).choice
    options, current = choice.options, choice.current
    known = [row.factor for row in options if row.factor is not None]
    assert all(0 < factor.min <= factor.max for factor in known)
    assert all(smaller.min >= larger.min for smaller, larger in pairwise(known))
    slower = [
        row.factor
        for row in options
        if row.factor is not None and row.size.vcpu <= (current.vcpu or 0)
    ]
    assert all(factor.min >= 1 for factor in slower)
    assert all(smaller.max >= larger.max for smaller, larger in pairwise(known))
    vcpus = [row.size.vcpu for row in options if row.holds_memory]
    assert vcpus == sorted(vcpus)


@given(families, st.sampled_from(["FARGATE", "EC2", "LOCAL"]))
def test_no_smaller_size_that_slows_down_no_run_contradicts_the_advice(
    found: list[Need], launch_type: str
) -> None:
    made = advice(runs_of(found, launch_type))
    evidence, chosen = made.evidence, made.choice.size.vcpu
    limit = vcpu_limit(evidence.latest)
    if (
        chosen is None
        or evidence.needs.slowdowns is None
        or evidence.needs.vcpu_without_slowdown is not None
    ):
        return
    held = {row.size.vcpu for row in made.choice.options if row.holds_memory}
    for vcpu in smaller_vcpus(limit):
        is_slower = (
            evidence.needs.slowdowns.get(vcpu, SlowdownBounds(min=1, max=1)).max
            >= MIN_SLOWER_FACTOR
        )
        assert vcpu >= chosen or is_slower or (launch_type == "FARGATE" and vcpu not in held)
    assert (
        limit is None
        or launch_type == "FARGATE"
        or (evidence.needs.required_vcpu or 0) > limit
        or chosen <= limit
    )

"""Recommended sizes: the growth of a memory peak, the advice, and what a run costs: resized,
repeated, on Fargate.
"""

import math
from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.record.bounded_json_line import encode_line
from profiler.record.model_base import MAX_LINE_BYTES
from profiler.record.record_model import (
    NOT_MEASURED,
    UNKNOWN_COST,
    UNKNOWN_SIZE,
    Container,
    Cost,
    Distribution,
    Gpu,
    Metrics,
    Neuron,
    NeuronCore,
    Processor,
    Recommendation,
    Report,
    Sampling,
    SlowdownBounds,
    TaskSize,
    decode,
    encode,
)
from profiler.record.spot_price import cost_on_provider
from profiler.sizing.advice import with_recommendation
from profiler.sizing.advice_document import advice_as_json
from profiler.sizing.billed_tasks import mean_billed_ms
from profiler.sizing.choose_size import GROWTH_RUNS
from profiler.sizing.prices import (
    PRICE_TABLE_DATE,
    PriceOverrides,
    charged_storage_gb,
    cost_of,
    fargate_prices,
    priced_record,
)
from profiler.sizing.run_collector import FamilyRunCollector
from profiler.sizing.run_facts import priced_as_if_on_fargate, record_on_fargate
from profiler.sizing.trend import NO_GROWTH, Growth, find_growth
from tests.changed_records import changed_lines
from tests.gpu_runs import gpu_run
from tests.runs import add_reports, evidence_of, report, slowdown
from tests.sized_runs import GB, advice, reasons, rows, size
from tests.values import present


def test_a_straight_line_grows_by_its_slope() -> None:
    found = find_growth([100.0 + 10 * n for n in range(12)])
    assert found == Growth(per_run=10, now=210, runs=12, is_sure=True)
    assert found.runs_until(240) == 4
    assert found.runs_until(235) == 3
    assert found.runs_until(200) is None

    # A few odd runs do not move it.
    values = [100.0 + 10 * n for n in range(20)]
    values[3], values[11] = 900, 5
    assert find_growth(values).per_run == pytest.approx(10, abs=0.5)


def test_chance_alone_is_not_said_as_a_change() -> None:
    """Few orders of the same figures grow surely; a size is on the safe side more often."""
    orders = Random(7)
    values = [1000 * math.exp(orders.gauss(0, 0.3)) for _ in range(20)]
    found = [find_growth(orders.sample(values, 20)) for _ in range(500)]
    assert sum(one.is_notable for one in found) <= 8
    assert sum(one.runs > 0 for one in found) > 10
    noisy = [1000 * (1 + 0.02 * n) * math.exp(orders.gauss(0, 0.05)) for n in range(20)]
    assert find_growth(noisy).is_notable


def test_what_does_not_clearly_grow_does_not_grow() -> None:
    too_few, level = [100.0 * n for n in range(7)], [100.0] * 30
    up_and_down, down = [100.0 + n % 2 for n in range(30)], [300.0 - n for n in range(30)]
    assert [find_growth(values) for values in ([], too_few, level, up_and_down, down)] == [
        NO_GROWTH
    ] * 5


def steady(random: Random, runs: int) -> list[float]:
    """Peaks around a level: with little or much noise, with or without rare large inputs."""
    spread = random.choice([0.005, 0.03, 0.1, 0.3])
    rare = random.choice([0, 0.1])
    return [
        1000 * random.lognormvariate(0, spread) * (1.5 if random.random() < rare else 1)
        for _ in range(runs)
    ]


@pytest.mark.parametrize(("runs", "percent"), [(8, 2), (12, 1), (20, 0.5), (50, 0.2)])
def test_growth_beyond_the_noise_is_seen_and_hardly_ever_in_steady_families(
    runs: int, percent: float
) -> None:
    """One side of a 90 % interval is 5 %.

    The rise over the runs is at least five times the noise of 2 %.
    """
    random = Random(runs)
    assert sum(find_growth(steady(random, runs)) != NO_GROWTH for _ in range(600)) <= 600 * 0.08
    families = (
        find_growth(
            [1000 * (1 + percent / 100 * n) * random.lognormvariate(0, 0.02) for n in range(runs)]
        )
        for _ in range(100)
    )
    found = [one.per_run for one in families if one != NO_GROWTH]
    assert len(found) >= 97
    assert found == pytest.approx([10 * percent] * len(found), rel=0.8)


def growing(per_run: float, *, runs: int = 12, first_mb: float = 700) -> list[Report]:
    return [report(n, peak_mb=first_mb + per_run * n) for n in range(runs)]


def test_a_size_that_the_growth_passes_within_30_runs_is_not_recommended() -> None:
    """853 MB need 1 GB. With 12 MB more in each run, 1 GB is passed after 15 runs."""
    found = advice(growing(12, runs=12, first_mb=721))
    assert found.choice.size.vcpu == 0.25
    assert found.choice.size.memory_mb == 2048
    (reason,) = (one for one in found.reasons if "grows" in one)
    assert (
        "12 MB a run (over 12 runs): 0.25 vCPU, 1 GB would be too small in about 15 runs, so a size"
        in reason
    )
    assert not any("with a margin" in one for one in found.reasons)
    assert rows(growing(12, runs=12, first_mb=721))[0.25, 2048].is_acceptable

    found = advice(growing(5, first_mb=600))
    assert found.choice.size.memory_mb == 1024, "enough for 30 runs"
    assert not found.choice.will_soon_be_outgrown, "enough for 30 runs"
    found = advice([report(n, peak_mb=90_000 + 5000 * n, size=(16, 122_880)) for n in range(10)])
    assert found.choice.size.memory_mb == 244 * 1024, "there is no larger size"


def test_the_other_containers_grow_too() -> None:
    side = [{"side": Metrics(max_memory_used_mb=100 + 20 * n)} for n in range(12)]
    found = advice([report(n, peak_mb=400, others=beside) for n, beside in enumerate(side)])
    assert found.choice.size.memory_mb == 2048
    assert found.choice.will_soon_be_outgrown


@given(
    st.floats(min_value=0.1, max_value=200),
    st.integers(min_value=8, max_value=50),
    st.integers(100, 10_000),
)
def test_the_recommended_size_holds_every_straight_growth_for_30_runs(
    per_run: float, runs: int, first: int
) -> None:
    found = advice(growing(per_run, runs=runs, first_mb=first))
    need = evidence_of(growing(per_run, runs=runs, first_mb=first)).needs.needs_mb
    trend = need.growth
    assert (found.choice.size.memory_mb or 0) >= trend.value_after_runs(GROWTH_RUNS) - 1e-6


def test_a_limit_that_killed_a_run_is_not_to_be_passed_in_some_runs() -> None:
    """The trend of what was measured is below the limit, because the kernel killed the run
    there.
    """
    runs = growing(40, runs=9, first_mb=500)
    killed = report(
        9, peak_mb=900, size=(1, 2048), likely_out_of_memory=True, metrics={"memory_size_mb": 1000}
    )
    text = "\n".join(advice([*runs, killed]).reasons)
    assert "With 1,000 MB a run ran out of memory" in text
    assert "grows by about" in text
    assert "the limit of 1,000 MB" not in text
    at_task_size = report(9, peak_mb=1990, size=(1, 2048), likely_out_of_memory=True)
    again = "\n".join(advice([*growing(40, runs=9, first_mb=1600), at_task_size]).reasons)
    assert "will pass the limit of 2 GB" not in again


@given(st.lists(st.floats(min_value=0, max_value=1e6), max_size=40))
def test_any_growth_is_upward_and_ends(values: list[float]) -> None:
    found = find_growth(values)
    if found != NO_GROWTH:
        assert found.per_run > 0
        left = present(found.runs_until(found.now + 100))
        assert left >= 1


NONE = PriceOverrides()


def test_storage_above_20_gib_is_charged_and_20496_mib_are_20_gib() -> None:
    sizes_mb = (None, 20480, 20496, 21 * GB, 30 * GB + 16, 200 * GB)
    assert [charged_storage_gb(storage_mb) for storage_mb in sizes_mb] == [0, 0, 0, 1, 10, 180]


def cost(own: PriceOverrides = NONE, **record: Any) -> tuple[float | None, str | None] | None:
    found = cost_of(replace(report().record, **record), own)
    return None if found == UNKNOWN_COST else (found.usd, found.price_basis)


def test_a_gpu_machine_has_the_price_of_its_owner() -> None:
    """18.574 s at 4.10 USD an hour, of which the GPU was idle 97 %."""
    record = gpu_run("starved").record
    own = PriceOverrides(hour_usd=4.1)
    priced = priced_record(record, own)
    assert present(priced.cost).usd == pytest.approx(18.574 / 3600 * 4.1, rel=1e-4)
    assert present(priced.cost).price_basis == "LOCAL with TASK_PROFILER_PRICE_HOUR"
    idle = present(priced.gpu_idle)
    assert idle.usd == pytest.approx(18.073 / 3600 * 4.1, rel=1e-3)
    assert priced_as_if_on_fargate(record, own, None) == priced
    assert with_recommendation(record, own, time=TIME).cost == priced.cost
    assert priced_record(record, NONE) == record
    assert priced_record(priced, PriceOverrides(hour_usd=9)) == priced
    without = gpu_run("neighbour").record
    assert priced_record(without, own) == without


def test_the_cost_is_billed_duration_times_size() -> None:
    """Ten minutes of 1 vCPU and 2 GiB: (0.04048 + 2 x 0.004445) / 6 = 0.00822833."""
    assert cost() == (0.00822833, f"us-east-1 FARGATE X86_64 {PRICE_TABLE_DATE} on-demand price")
    places = (
        {"region": "ap-southeast-3"},
        {"region": None},
        {"cpu_architecture": "ARM64", "region": "eu-west-3"},
    )
    for unknown in (
        *places,
        {"launch_type": "EC2"},
        {"cpu_architecture": None},
        {"task_size": UNKNOWN_SIZE},
    ):
        assert cost(**unknown) is None, unknown
    record = report(metrics={"ephemeral_storage_size_mb": 30 * GB}, region="eu-central-1").record
    assert cost_of(record, NONE) == UNKNOWN_COST, "the price of its storage is not known"
    found = present(cost_of(record, PriceOverrides(storage_gb_hour_usd=0.0006)))
    assert found.usd == pytest.approx((0.04656 + 2 * 0.00511 + 10 * 0.0006) / 6, abs=1e-8)


def test_the_settings_replace_the_table_and_on_ec2_only_the_hourly_price_counts() -> None:
    own = PriceOverrides(vcpu_hour_usd=0.06, gb_hour_usd=0.006)
    basis = (
        "us-east-1 FARGATE X86_64 with TASK_PROFILER_PRICE_VCPU_HOUR, TASK_PROFILER_PRICE_GB_HOUR"
    )
    assert cost(own) == (0.012, basis)
    assert cost(own, region="ap-southeast-3") == (
        0.012,
        basis.replace("us-east-1", "ap-southeast-3"),
    )
    assert cost(own, launch_type="EC2") is None
    hourly = PriceOverrides(hour_usd=0.6)
    for launch_type in ("EC2", "MANAGED_INSTANCES"):
        basis = f"{launch_type} with TASK_PROFILER_PRICE_HOUR"
        assert cost(hourly, launch_type=launch_type, task_size=UNKNOWN_SIZE) == (0.1, basis)
    assert cost(hourly) == cost()


TIME = "2026-11-20T03:12:45.123Z"


def test_a_run_gets_its_cost_and_what_it_says_about_the_size() -> None:
    record = with_recommendation(report(peak_mb=400, p95=0.2).record, NONE, time=TIME)
    assert present(record.cost).usd == 0.00822833
    found = present(record.recommendation)
    assert found.vcpu == 0.25
    assert found.memory_mb == 512
    assert found.saving_percent == 75.0
    assert found.reasons[0].startswith("1 run used up to 400 MB or more of memory (sampled)")
    assert any("1 run is a small sample" in reason for reason in found.reasons)


def test_what_is_said_of_gpus_comes_after_the_size() -> None:
    said = "No GPU was ever used: run the task without one, or check why the batch did not find it."
    unused = Distribution(max=0.0)
    idle = (
        Gpu(
            uuid="GPU-a",
            index=0,
            utilization_percent=unused,
            utilization_source="driver-samples",
            memory_used_mb=unused,
        ),
    )
    found = present(
        with_recommendation(replace(report().record, gpus=idle), NONE, time=TIME).recommendation
    )
    assert found.vcpu == 0.25
    assert found.reasons[-1] == said
    unmeasured = with_recommendation(
        replace(report(peak_mb=None, p95=None).record, gpus=idle), NONE, time=TIME
    )
    assert unmeasured.recommendation == Recommendation(reasons=(said,))


NO_SIZE = {"many": SlowdownBounds(min=1, max=2)}


@example(encode(report(family="x" * 300, metrics={"slowdown_at_vcpu": NO_SIZE})))
@given(changed_lines())
def test_no_record_is_lost_for_its_advice(line: bytes) -> None:
    """For any record, the line is written, is short enough and has no invalid number."""
    try:
        record = msgspec.json.decode(line, type=Report).record
    except msgspec.DecodeError:
        return
    line = encode_line(
        Report(time=TIME, type="task.report", record=with_recommendation(record, NONE, time=TIME))
    )
    assert len(line) < MAX_LINE_BYTES
    assert msgspec.json.decode(line, type=Report).record.metrics == record.metrics
    decode(line)
    assert b"nan" not in line
    assert b"inf " not in line


def billed(number: int, seconds: float, **more: Any) -> Report:
    return report(
        number, metrics={"billed_duration_ms": 1000 * seconds, "slowdown_at_vcpu": {}}, **more
    )


def hour_usd(vcpu: float, memory_mb: float) -> float:
    return present(fargate_prices("us-east-1", "X86_64", NONE)).size_hour_price_usd(vcpu, memory_mb)


def test_after_a_resize_the_runs_at_the_current_vcpu_size_are_the_money() -> None:
    """Without a run at this size, the mean is over all runs: the latest one died before its
    first sample.
    """
    runs = [billed(n, 3600, size=(4, 8192)) for n in range(9)] + [
        billed(n, 1200, size=(1, 2048)) for n in (9, 10)
    ]
    assert rows(runs)[1, 2048].usd_per_run == pytest.approx(hour_usd(1, 2048) / 3, abs=1e-8)
    died = report(
        9, size=(2, 4096), peak_mb=None, p95=None, likely_out_of_memory=True, status="failure"
    )
    smaller = [*(billed(n, 3600, size=(1, 2048)) for n in range(5)), died]
    assert advice(smaller).choice.current == TaskSize(vcpu=2, memory_mb=4096)
    assert rows(smaller)[2, 4096].usd_per_run == round(hour_usd(2, 4096), 8)
    assert "No measured run had 2 vCPU: the costs come from runs with other vCPU sizes." in reasons(
        *smaller
    )
    assert "costs come from" not in reasons(report(metrics={"billed_duration_ms": None}), died), (
        "there are none"
    )


@pytest.mark.parametrize(
    ("samples", "source", "memory_mb"),
    [(1, "sampled", 8192), (9, "sampled", 8192), (10, "sampled", 512), (1, "kernel", 512)],
)
def test_a_few_samples_do_not_prove_that_less_memory_is_enough(
    samples: int, source: str, memory_mb: float
) -> None:
    """A run of 15 s on Fargate has one: 10 s after its start."""
    runs = [
        report(
            number,
            size=(2, 8192),
            peak_mb=100,
            metrics={"memory_peak_source": source},
            sampling=Sampling(samples=samples),
        )
        for number in range(6)
    ]
    assert advice(runs).choice.size.memory_mb == memory_mb
    assert ("No run has 10 samples of its memory" in reasons(*runs)) is (memory_mb == 8192)
    assert "too little" not in reasons(*runs)


def test_one_run_with_enough_samples_allows_less_memory() -> None:
    short = [report(n, size=(2, 8192), peak_mb=900, sampling=Sampling(samples=1)) for n in (0, 1)]
    long = report(2, size=(2, 8192), peak_mb=100)
    assert advice([*short, long]).choice.size.memory_mb == 2048


def on_spot(number: int) -> Report:
    run = billed(number, 3600)
    cost = cost_on_provider("FARGATE_SPOT", cost_of(run.record, NONE))
    return replace(run, record=replace(run.record, cost=cost))


def test_each_size_of_a_spot_family_has_the_price_of_its_runs() -> None:
    runs = [on_spot(number) for number in range(6)]
    option = rows(runs)[1, 2048]
    assert (
        option.usd_per_run
        == present(runs[0].record.cost).usd
        == pytest.approx(0.3 * hour_usd(1, 2048), abs=1e-8)
    )
    (saving,) = [text for text in advice(runs).reasons if "saves" in text]
    assert " %: at least $0." in saving
    own = PriceOverrides(vcpu_hour_usd=0.06)
    assert fargate_prices("us-east-1", "X86_64", own, on_spot=True) == fargate_prices(
        "us-east-1", "X86_64", own
    )


def test_a_family_that_is_partly_on_spot_has_the_least_price_whatever_its_last_run() -> None:
    """A capacity provider strategy mixes both: which of them started the last run is chance."""
    on_demand = [billed(number, 3600) for number in (0, 7)]
    spot = [on_spot(number) for number in range(1, 7)]
    for mixed in ([on_demand[0], *spot], [*spot, on_demand[1]]):
        assert rows(mixed)[1, 2048].usd_per_run == present(spot[0].record.cost).usd
        assert " %: at least $0." in reasons(*mixed)
        assert ", at least $0." in reasons(*mixed)


def test_a_task_with_several_reports_is_paid_once() -> None:
    one = [billed(n, 3600) for n in range(6)]
    other = [billed(n, 600, container=Container(name="side")) for n in range(6)]
    both, alone = evidence_of([*one, *other]), evidence_of(one)
    assert (
        mean_billed_ms(both.usage.billed, 1) == mean_billed_ms(alone.usage.billed, 1) == 3_600_000
    )
    assert mean_billed_ms(alone.usage.billed, 2) == 3_600_000 + 590_000, (
        "the time before the start does not change"
    )
    known = report(metrics={"init_duration_ms": 5000})
    assert [mean_billed_ms(evidence_of([known]).usage.billed, factor) for factor in (1, 2)] == [
        600_000,
        1_185_000,
    ]
    assert both.usage.runs_per_month == alone.usage.runs_per_month
    assert both.outcomes.runs == 6


@pytest.mark.parametrize("is_newest_on_ec2", [True, False])
def test_of_a_family_on_fargate_and_on_ec2_the_runs_on_fargate_are_priced(
    *, is_newest_on_ec2: bool
) -> None:
    """Who ran last decides nothing, and what runs on EC2 needed counts."""
    nightly = [billed(number, 600) for number in range(0, 30, 2)]
    hourly = [billed(number, 3600, launch_type="EC2") for number in range(1, 31, 2)]
    mixed = [*nightly, *hourly][: None if is_newest_on_ec2 else -1]
    alone = advice(nightly)
    found = advice(mixed)
    assert found.choice.size == alone.choice.size
    assert found.evidence.latest.launch_type == "FARGATE"
    assert found.usd_per_run == alone.usd_per_run
    assert found.usd_per_month == alone.usd_per_month
    assert found.evidence.outcomes.runs == len(mixed)
    families = FamilyRunCollector(10)
    add_reports(families, mixed)
    assert [read.tasks for read in families.tasks_read_by_row().values()] == [15]
    needy = advice([*mixed, billed(0, 600, peak_mb=1900, launch_type="EC2", task_id="needy")])
    assert (needy.choice.size.memory_mb or 0) > (alone.choice.size.memory_mb or 0)


def test_a_family_with_hundreds_of_runs_elsewhere_keeps_the_month_of_fargate() -> None:
    families = FamilyRunCollector(10)
    add_reports(
        families,
        (
            billed(number, 600, launch_type="FARGATE" if number % 8 else "EC2")
            for number in range(400)
        ),
    )
    (read,) = families.tasks_read_by_row().values()
    assert read.tasks == 350
    only_ec2 = FamilyRunCollector(10)
    add_reports(only_ec2, (billed(number, 600, launch_type="EC2") for number in range(400)))
    assert [of.tasks for of in only_ec2.tasks_read_by_row().values()] == [400]


def test_a_task_with_several_reports_is_one_run_with_its_worst_end() -> None:
    failed: dict[str, Any] = {"status": "failure", "exit_code": 1}
    killed = {**failed, "exit_code": 137, "likely_out_of_memory": True}
    ends: list[dict[str, Any]] = [{}, failed, killed]
    both = [
        *(report(number) for number in range(12)),
        *(report(n, container=Container(name="side"), **ends[n % 3]) for n in range(12)),
    ]
    outcomes = evidence_of(both).outcomes
    assert (outcomes.runs, outcomes.failed, outcomes.out_of_memory) == (12, 4, 4)
    text = reasons(*both)
    assert text.startswith("12 runs in ")
    assert " (4 failed, 4 out of memory) used" in text


def local(number: int = 0, *, machine: tuple[float, float] = (8, 16_000), **more: Any) -> Report:
    metrics = {
        "vcpu_size": machine[0],
        "memory_size_mb": machine[1],
        "billed_duration_ms": None,
        "duration_ms": 90_400,
        "slowdown_at_vcpu": slowdown(v0_25=(3.0, 4.0), v0_5=(1.5, 2.0), v1=(1.1, 1.2)),
    }
    record: dict[str, Any] = {"launch_type": "LOCAL", "region": None, **more}
    return report(number, size=None, metrics=metrics, **record)


def starved(number: int = 0, *, others: float | None = 1.8, **more: Any) -> Report:
    """A local run that wanted a CPU all the time, on a machine of two."""
    one = local(number, machine=(2, 16_000), p95=0.3, peak_mb=50, **more)
    waited = replace(
        one.record.metrics,
        vcpu_used=Distribution(avg=0.2, p95=0.3),
        cpu_seconds=18.0,
        cpu_wait_seconds=72.0,
        cpu_wait_percent=80.0,
        max_pids=1,
    )
    processor = Processor(count=2, others_vcpu_used=others)
    return replace(one, record=replace(one.record, metrics=waited, processor=processor))


NO_VCPU = "which does not show how many vCPUs"


@pytest.mark.parametrize("on_fargate", [None, "us-east-1"])
def test_runs_that_lacked_cpus_which_others_used_show_no_vcpu_size(on_fargate: str | None) -> None:
    """Its memory is known, and its machine is no size to compare with."""
    found = advice([starved()], on_fargate=on_fargate)
    why = "without the vCPUs that it needs" if on_fargate else "outside Fargate"
    assert found.reasons[-1] == f"This is the requirement rounded up: {why}, a size has no price."
    assert (found.choice.size.vcpu, found.choice.size.memory_mb) == (None, 64)
    assert not found.choice.is_other_size_better
    text = "\n".join(found.reasons)
    assert f"It had less CPU than it could use, {NO_VCPU} it needs" in text
    assert "Less is enough" not in text
    assert "With 0.5 vCPU" not in text
    assert f"Each run had less CPU than it could use, {NO_VCPU}" in reasons(starved(), starved(1))


@pytest.mark.parametrize("others", [None, 0.0, 0.05])
def test_a_wait_that_others_did_not_cause_is_no_lack_of_cpus(others: float | None) -> None:
    """Such as that of threads in short bursts: what the run used is what it needs."""
    assert size([starved(others=others)])[0] == 0.5
    assert NO_VCPU not in reasons(starved(others=others))


def test_one_run_with_enough_cpus_shows_the_size_and_the_others_what_it_has_at_least() -> None:
    quiet = local(1, machine=(2, 16_000), p95=0.1, peak_mb=50)
    found = advice([starved(), quiet])
    assert found.evidence.needs.required_vcpu == 0.3
    assert found.choice.size.vcpu == 0.5
    assert NO_VCPU not in "\n".join(found.reasons)


def test_a_run_on_fargate_that_lacked_cpus_keeps_its_vcpu_size() -> None:
    """Its other containers used them."""
    one = starved(launch_type="FARGATE", region="us-east-1")
    sized = replace(one, record=replace(one.record, task_size=TaskSize(vcpu=2, memory_mb=16_384)))
    assert size([sized]) == (2, 4096)
    assert NO_VCPU in reasons(sized)


def test_local_runs_have_prices_as_if_on_fargate() -> None:
    """90.4 s are billed as 91 s; the machine is the current size, and one that Fargate does not
    have, has no price.
    """
    found = rows([local(n) for n in range(3)], on_fargate="us-east-1")
    one = found[1, 2048]
    assert present(one.factor).max == 1.2
    assert one.usd_per_run == pytest.approx(
        hour_usd(1, 2048) * 109 / 3600, abs=1e-8
    )  # 90.4 s x 1.2 = 108.48 s
    assert found[8, 16_000].usd_per_run is None
    assert one.saving_percent is None


def test_the_advice_says_where_the_runs_count() -> None:
    def shown(run: Report, region: str | None) -> Mapping[str, object]:
        return advice_as_json(advice([run], on_fargate=region))

    found, without = shown(local(), "us-east-1"), shown(local(), None)
    assert found["onFargate"] == "us-east-1"
    assert found["region"] is None
    assert found["recommended"] == {"vcpu": 1, "memoryMB": 2048}
    assert "onFargate" not in without
    assert without["sizes"] == ()
    assert "onFargate" not in shown(report(), "us-east-1")
    failed = shown(local(status="failure"), "us-east-1")
    assert failed["recommended"] == failed["current"] == {"vcpu": 8, "memoryMB": 16_000}


def test_a_run_is_priced_in_a_sentence_or_the_sentence_says_why_not() -> None:
    def sentences(**more: Any) -> str:
        return "\n".join(
            advice([local(n, **more) for n in range(6)], on_fargate="eu-south-1").reasons
        )

    costs = (
        "With 1 vCPU, 2 GB on Fargate in eu-south-1, a run costs at most $0.0018, about $0.055 a "
        "month at 30 r"
    )
    assert costs in sentences()
    unknown = "Fargate's prices in eu-south-1 for ARM64 are unknown, so a run has no price."
    assert unknown in sentences(cpu_architecture="ARM64")
    assert "depend on the CPU architecture, which is unknown" in sentences(cpu_architecture=None)
    assert "on Fargate in" not in reasons(report())


def gpu(use: float | None) -> tuple[Gpu, ...]:
    return (
        Gpu(
            uuid="GPU-1",
            utilization_percent=NOT_MEASURED if use is None else Distribution(avg=use, max=use),
        ),
    )


NEURON = Neuron(cores=(NeuronCore(index=0),))


@pytest.mark.parametrize(
    "devices",
    [{"gpus": gpu(80)}, {"gpus": gpu(None)}, {"gpus": (*gpu(0), *gpu(1))}, {"neuron": NEURON}],
)
def test_runs_that_used_gpus_or_neuron_devices_are_not_moved(devices: dict[str, Any]) -> None:
    used = local(**devices)
    assert record_on_fargate(used.record, "us-east-1") == used.record
    found = advice([used], on_fargate="us-east-1")
    assert not found.choice.is_fargate
    assert found.reasons[-1].endswith(
        "a size has no price, and Fargate has neither GPUs nor Neuron devices."
    )
    assert priced_as_if_on_fargate(used.record, NONE, "us-east-1").cost == UNKNOWN_COST


def test_a_run_costs_what_a_size_costs_that_fargate_has() -> None:
    def cost(machine: tuple[float, float]) -> Cost:
        return priced_as_if_on_fargate(local(machine=machine).record, NONE, "us-east-1").cost

    legal = present(cost((8, 16_384)))
    assert legal.usd == pytest.approx(hour_usd(8, 16_384) * 91 / 3600, abs=1e-8)
    assert cost((8, 16_000)) == UNKNOWN_COST
    brief = report(launch_type="EC2", metrics={"duration_ms": 300}).record  # a minute is billed
    assert present(priced_as_if_on_fargate(brief, NONE, "us-east-1").cost).usd == pytest.approx(
        hour_usd(1, 2048) / 60, abs=1e-8
    )
    own = report(cost=Cost(usd=1.5)).record
    assert priced_as_if_on_fargate(own, NONE, "us-east-1").cost == Cost(usd=1.5)
    assert priced_record(local().record, NONE).cost == UNKNOWN_COST


def short(number: int = 0, seconds: float = 20, pull_seconds: float = 15, **more: Any) -> Report:
    """A run as the monitor writes it: the image pull and the run are billed together, for a
    minute at least.
    """
    times = {
        "init_duration_ms": round(1000 * pull_seconds),
        "duration_ms": round(1000 * seconds),
        "billed_duration_ms": 1000 * max(60, math.ceil(round(seconds + pull_seconds, 3))),
    }
    bounds = more.pop("bounds", {"v0_25": (1.5, 2.0), "v0_5": (1.1, 1.2)})
    return report(number, metrics={**times, "slowdown_at_vcpu": slowdown(**bounds)}, **more)


@given(
    st.lists(st.tuples(st.floats(0.01, 4000), st.floats(0, 300)), min_size=1, max_size=8),
    st.sampled_from([0.5, 1.0, 2.0, 4.0]),
    st.floats(1, 2),
)
@settings(max_examples=100)
def test_every_figure_is_the_price_of_explicit_billed_times(
    times: list[tuple[float, float]], vcpu: float, factor: float
) -> None:
    runs = [
        short(
            n,
            round(seconds, 3),
            round(pull, 3),
            size=(vcpu, 2048 * vcpu),
            bounds={str(vcpu / 2): (1, factor)},
        )
        for n, (seconds, pull) in enumerate(times)
    ]
    for row in advice(runs).choice.options:
        most = present(row.factor).max
        explicit = [
            max(60, math.ceil(round(round(pull, 3) + round(seconds, 3) * most, 9)))
            for seconds, pull in times
        ]
        now = [
            max(60, math.ceil(round(round(pull, 3) + round(seconds, 3), 3)))
            for seconds, pull in times
        ]
        then_usd = hour_usd(row.size.vcpu, row.size.memory_mb) * sum(explicit) / len(times) / 3600
        now_usd = hour_usd(vcpu, 2048 * vcpu) * sum(now) / len(times) / 3600
        assert row.usd_per_run == pytest.approx(then_usd, abs=1.01e-8)
        assert row.saving_percent == pytest.approx(100 * (1 - then_usd / now_usd), abs=0.051)
        assert row.usd_saved_at(most) == pytest.approx(now_usd - then_usd, abs=2.01e-8)


def test_half_the_price_is_recommended_to_a_short_run_whose_duration_would_hide_it() -> None:
    """With 0.25 vCPU, a second more of a minute: the cost would be the same if the minute took
    longer.
    """
    runs = [short(n, seconds=10, size=(0.5, 1024), bounds={"v0_25": (1.8, 2.0)}) for n in range(6)]
    found = advice(runs, max_slowdown_percent=100)
    assert found.choice.size == TaskSize(vcpu=0.25, memory_mb=512)
    assert found.choice.saving_percent == 50
    assert "The current size is right." not in found.reasons

"""What a run costs: after a resize, with several reports of a task, and as if it had run on Fargate."""

import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.record.record_model import Container, Cost, Distribution, Gpu, Neuron, NeuronCore, Report, TaskSize
from profiler.record.spot_price import cost_on
from profiler.sizing.advice import advise, as_json
from profiler.sizing.choose_size import Policy
from profiler.sizing.evidence import mean_billed_ms
from profiler.sizing.fargate_sizes import Size
from profiler.sizing.prices import PriceOverrides, cost_of, prices
from profiler.sizing.run_facts import cost_on_fargate, record_on_fargate
from profiler.sizing.what_if import SizeOption, runs_per_month
from tests.runs import evidence_of, report, slowdown
from tests.values import present

NONE = PriceOverrides()


def priced(reports: list[Report], on_fargate: str | None = None) -> dict[tuple[float, float], SizeOption]:
    options = advise(evidence_of(reports, on_fargate=on_fargate), Policy(), NONE).choice.options
    return {(row.size.vcpu, row.size.memory_mb): row for row in options}


def billed(number: int, seconds: float, **more: Any) -> Report:
    return report(number, metrics={"billed_duration_ms": 1000 * seconds, "slowdown_at_vcpu": {}}, **more)


def hour_usd(vcpu: float, memory_mb: float) -> float:
    return present(prices("us-east-1", "X86_64", NONE)).size_hour_usd(vcpu, memory_mb)


def test_after_a_resize_the_runs_at_the_current_vcpu_size_are_the_money() -> None:
    """Without a run at this size, the mean is over all runs: the latest one died before its first sample."""
    runs = [billed(n, 3600, size=(4, 8192)) for n in range(9)] + [billed(n, 1200, size=(1, 2048)) for n in (9, 10)]
    assert priced(runs)[1, 2048].usd_per_run == pytest.approx(hour_usd(1, 2048) / 3, abs=1e-8)
    died = report(9, size=(2, 4096), peak_mb=None, p95=None, likely_out_of_memory=True, status="failure")
    found = advise(evidence_of([*(billed(n, 3600, size=(1, 2048)) for n in range(5)), died]), Policy(), NONE)
    assert found.choice.current == TaskSize(vcpu=2, memory_mb=4096)
    (now,) = [option for option in found.choice.options if option.size == Size(2, 4096)]
    assert now.usd_per_run == round(hour_usd(2, 4096), 8)
    assert "No measured run had 2 vCPU: the costs come from runs with other vCPU sizes." in found.reasons
    unbilled = advise(evidence_of([report(metrics={"billed_duration_ms": None}), died]), Policy(), NONE)
    assert not any("costs come from" in reason for reason in unbilled.reasons), "there are none"


def on_spot(number: int) -> Report:
    run = billed(number, 3600)
    cost = cost_on("FARGATE_SPOT", cost_of(run.record, NONE))
    return replace(run, record=replace(run.record, cost=cost))


def test_each_size_of_a_spot_family_has_the_price_of_its_runs() -> None:
    runs = [on_spot(number) for number in range(6)]
    option = priced(runs)[1, 2048]
    assert option.usd_per_run == present(runs[0].record.cost).usd == pytest.approx(0.3 * hour_usd(1, 2048), abs=1e-8)
    (saving,) = [text for text in advise(evidence_of(runs), Policy(), NONE).reasons if "saves" in text]
    assert " %: at least $0." in saving
    own = PriceOverrides(vcpu_hour_usd=0.06)
    assert prices("us-east-1", "X86_64", own, on_spot=True) == prices("us-east-1", "X86_64", own)


def test_a_task_with_several_reports_is_paid_once() -> None:
    one = [billed(n, 3600) for n in range(6)]
    other = [billed(n, 600, container=Container(name="side")) for n in range(6)]
    both, alone = evidence_of([*one, *other]), evidence_of(one)
    assert mean_billed_ms(both.billed, 1) == mean_billed_ms(alone.billed, 1) == 3_600_000
    assert mean_billed_ms(alone.billed, 2) == 3_600_000 + 590_000, "the time before the start does not change"
    known = report(metrics={"init_duration_ms": 5000})
    assert [mean_billed_ms(evidence_of([known]).billed, factor) for factor in (1, 2)] == [600_000, 1_185_000]
    assert runs_per_month(both) == runs_per_month(alone)
    assert both.runs == 12


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


def test_local_runs_have_prices_as_if_on_fargate() -> None:
    """90.4 s are billed as 91 s; the machine is the current size, and one that Fargate does not have, has no price."""
    rows = priced([local(n) for n in range(3)], "us-east-1")
    one = rows[1, 2048]
    assert present(one.factor).max == 1.2
    assert one.usd_per_run == pytest.approx(hour_usd(1, 2048) * 109 / 3600, abs=1e-8)  # 90.4 s x 1.2 = 108.48 s
    assert (rows[8, 16_000].usd_per_run, one.saving_percent) == (None, None)


def test_the_advice_says_where_the_runs_count() -> None:
    def shown(run: Report, region: str | None) -> Mapping[str, object]:
        return as_json(advise(evidence_of([run], on_fargate=region), Policy(), NONE))

    found, without = shown(local(), "us-east-1"), shown(local(), None)
    assert (found["onFargate"], found["region"]) == ("us-east-1", None)
    assert found["recommended"] == {"vcpu": 1, "memoryMB": 2048}
    assert ("onFargate" in without, without["sizes"]) == (False, [])
    assert "onFargate" not in shown(report(), "us-east-1")
    failed = shown(local(status="failure"), "us-east-1")
    assert failed["recommended"] == failed["current"] == {"vcpu": 8, "memoryMB": 16_000}


def test_a_run_is_priced_in_a_sentence_or_the_sentence_says_why_not() -> None:
    def sentences(**more: Any) -> str:
        advice = advise(evidence_of([local(n, **more) for n in range(6)], on_fargate="eu-south-1"), Policy(), NONE)
        return "\n".join(advice.reasons)

    costs = "With 1 vCPU, 2 GB on Fargate in eu-south-1, a run costs at most $0.0018, about $0.055 a month at 30 r"
    assert costs in sentences()
    unknown = "Fargate's prices in eu-south-1 for ARM64 are unknown, so a run has no price."
    assert unknown in sentences(cpu_architecture="ARM64")
    assert "depend on the CPU architecture, which is unknown" in sentences(cpu_architecture=None)
    assert "on Fargate in" not in "\n".join(advise(evidence_of([report()]), Policy(), NONE).reasons)


def gpu(use: float | None) -> tuple[Gpu, ...]:
    return (Gpu(uuid="GPU-1", utilization_percent=None if use is None else Distribution(avg=use, max=use)),)


NEURON = Neuron(cores=(NeuronCore(index=0),))


@pytest.mark.parametrize(
    "devices", [{"gpus": gpu(80)}, {"gpus": gpu(None)}, {"gpus": (*gpu(0), *gpu(1))}, {"neuron": NEURON}]
)
def test_runs_that_used_gpus_or_neuron_devices_are_not_moved(devices: dict[str, Any]) -> None:
    used = local(**devices)
    assert record_on_fargate(used.record, "us-east-1") == used.record
    advice = advise(evidence_of([used], on_fargate="us-east-1"), Policy(), NONE)
    assert not advice.choice.is_fargate
    assert advice.reasons[-1].endswith("a size has no price, and Fargate has neither GPUs nor Neuron devices.")
    assert cost_on_fargate(used.record, "us-east-1", NONE) is None


def test_a_run_costs_what_a_size_costs_that_fargate_has() -> None:
    def cost(machine: tuple[float, float]) -> Cost | None:
        return cost_on_fargate(local(machine=machine).record, "us-east-1", NONE)

    legal = present(cost((8, 16_384)))
    assert legal.usd == pytest.approx(hour_usd(8, 16_384) * 91 / 3600, abs=1e-8)
    assert cost((8, 16_000)) is None
    brief = report(launch_type="EC2", metrics={"duration_ms": 300}).record  # a minute is billed
    assert present(cost_on_fargate(brief, "us-east-1", NONE)).usd == pytest.approx(hour_usd(1, 2048) / 60, abs=1e-8)
    own = report(cost=Cost(usd=1.5)).record
    assert cost_on_fargate(own, "us-east-1", NONE) == Cost(usd=1.5)
    assert cost_on_fargate(local().record, None, NONE) is None


def short(number: int = 0, seconds: float = 20, pull_seconds: float = 15, **more: Any) -> Report:
    """A run as the monitor writes it: the image pull and the run are billed together, for a minute at least."""
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
        short(n, round(seconds, 3), round(pull, 3), size=(vcpu, 2048 * vcpu), bounds={str(vcpu / 2): (1, factor)})
        for n, (seconds, pull) in enumerate(times)
    ]
    for row in advise(evidence_of(runs), Policy(), NONE).choice.options:
        most = present(row.factor).max
        explicit = [max(60, math.ceil(round(round(pull, 3) + round(seconds, 3) * most, 9))) for seconds, pull in times]
        now = [max(60, math.ceil(round(round(pull, 3) + round(seconds, 3), 3))) for seconds, pull in times]
        then_usd = hour_usd(row.size.vcpu, row.size.memory_mb) * sum(explicit) / len(times) / 3600
        now_usd = hour_usd(vcpu, 2048 * vcpu) * sum(now) / len(times) / 3600
        assert row.usd_per_run == pytest.approx(then_usd, abs=1.01e-8)
        assert row.saving_percent == pytest.approx(100 * (1 - then_usd / now_usd), abs=0.051)
        assert row.usd_saved_at(most) == pytest.approx(now_usd - then_usd, abs=2.01e-8)


def test_half_the_price_is_recommended_to_a_short_run_whose_duration_would_hide_it() -> None:
    """With 0.25 vCPU, a second more of a minute: the cost would be the same if the minute took longer."""
    runs = [short(n, seconds=10, size=(0.5, 1024), bounds={"v0_25": (1.8, 2.0)}) for n in range(6)]
    found = advise(evidence_of(runs), Policy(max_slowdown_percent=100), NONE)
    assert found.choice.size == TaskSize(vcpu=0.25, memory_mb=512)
    assert found.choice.saving_percent == 50
    assert "The current size is right." not in found.reasons

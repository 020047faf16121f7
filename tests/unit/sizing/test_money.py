"""What a run costs: after a resize, with several reports of a task, and as if it had run on Fargate."""

from typing import Any

import pytest

from profiler.record.hardware import WHOLE_INSTANCE
from profiler.record.record_model import Container, Cost, Distribution, Gpu, Neuron, NeuronCore, Report, TaskSize
from profiler.sizing.advice import advise, as_json
from profiler.sizing.choose_size import Policy
from profiler.sizing.on_fargate import cost_on_fargate, record_on_fargate
from profiler.sizing.prices import PriceOverrides, cost_of, prices
from profiler.sizing.what_if import SizeOption, runs_per_month
from tests.runs import evidence_of, report, slowdown

NONE = PriceOverrides()


def priced(reports: list[Report], on_fargate: str | None = None) -> dict[tuple[float, float], SizeOption]:
    options = advise(evidence_of(reports, on_fargate=on_fargate), Policy(), NONE).choice.options
    return {(row.size.vcpu, row.size.memory_mb): row for row in options}


def billed(number: int, seconds: float, **more: Any) -> Report:
    return report(number, metrics={"billed_duration_ms": 1000 * seconds, "slowdown_at_vcpu": {}}, **more)


def hour_usd(vcpu: float, memory_mb: float) -> float:
    found = prices("us-east-1", "X86_64", NONE)
    assert found is not None
    return found.size_hour_usd(vcpu, memory_mb)


def test_after_a_resize_the_runs_at_the_current_vcpu_size_are_the_money() -> None:
    runs = [billed(n, 3600, size=(4, 8192)) for n in range(9)] + [billed(n, 1200, size=(1, 2048)) for n in (9, 10)]
    assert priced(runs)[1, 2048].usd_per_run == pytest.approx(hour_usd(1, 2048) / 3, abs=1e-8)


def test_another_memory_size_is_no_other_duration() -> None:
    runs = [billed(0, 3600, size=(1, 8192)), billed(1, 1800, size=(1, 2048))]
    assert priced(runs)[1, 2048].usd_per_run == pytest.approx(hour_usd(1, 2048) * 0.75, abs=1e-8)


def test_a_task_with_several_reports_is_paid_once() -> None:
    one = [billed(n, 3600) for n in range(6)]
    other = [billed(n, 600, container=Container(name="side")) for n in range(6)]
    both, alone = evidence_of([*one, *other]), evidence_of(one)
    assert both.mean_billed_ms == alone.mean_billed_ms == 3_600_000
    assert runs_per_month(both) == runs_per_month(alone)
    assert both.runs == 12


def test_the_recommended_size_is_in_the_table_even_if_no_size_is_enough() -> None:
    found = as_json(advise(evidence_of([report(peak_mb=300_000, size=(16, 122_880))]), Policy(), NONE))
    sizes, recommended = found["sizes"], found["recommended"]
    assert isinstance(sizes, list)
    assert recommended in [{"vcpu": row["vcpu"], "memoryMB": row["memoryMB"]} for row in sizes]


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
    assert one.factor is not None
    assert one.factor.max == 1.2
    assert one.usd_per_run == pytest.approx(hour_usd(1, 2048) * 91 / 3600 * 1.2, abs=1e-8)
    assert (rows[8, 16_000].usd_per_run, one.saving_percent) == (None, None)


def test_the_advice_says_where_the_runs_count() -> None:
    found = as_json(advise(evidence_of([local()], on_fargate="us-east-1"), Policy(), NONE))
    assert (found["onFargate"], found["region"]) == ("us-east-1", None)
    assert found["recommended"] == {"vcpu": 1, "memoryMB": 2048}
    without = as_json(advise(evidence_of([local()]), Policy(), NONE))
    assert "onFargate" not in without
    assert isinstance(without["reasons"], list)
    assert any("--on-fargate REGION" in reason for reason in without["reasons"])
    assert without["sizes"] == []


def test_a_run_on_fargate_stays_as_it_is() -> None:
    assert record_on_fargate(report().record, "eu-west-1") == report().record


def test_a_short_run_is_billed_for_a_minute_and_a_run_without_duration_not_at_all() -> None:
    brief = record_on_fargate(report(launch_type="EC2", metrics={"duration_ms": 300}).record, "us-east-1")
    assert (brief.metrics.billed_duration_ms, brief.task_size) == (60_000, report().record.task_size)
    cost = cost_of(brief, NONE)
    assert cost is not None
    assert cost.usd == pytest.approx(hour_usd(1, 2048) / 60, abs=1e-8)
    unknown = record_on_fargate(report(launch_type="EC2", metrics={"duration_ms": None}).record, "us-east-1")
    assert unknown.metrics.billed_duration_ms is None


def test_a_run_is_priced_in_a_sentence_or_the_sentence_says_why_not() -> None:
    def sentences(**more: Any) -> str:
        advice = advise(evidence_of([local(n, **more) for n in range(6)], on_fargate="eu-central-1"), Policy(), NONE)
        return "\n".join(advice.reasons)

    assert (
        "With 1 vCPU, 2 GB on Fargate in eu-central-1, a run costs at most $0.0017, about $0.052 a month at 30 r"
        in sentences()
    )
    assert "Fargate's prices in eu-central-1 for ARM64 are unknown, so a run has no price." in sentences(
        cpu_architecture="ARM64"
    )
    assert "depend on the CPU architecture, which is unknown" in sentences(cpu_architecture=None)
    assert "on Fargate in" not in "\n".join(advise(evidence_of([report()]), Policy(), NONE).reasons)


def test_the_machine_counts_for_the_part_of_the_size_that_a_task_does_not_have() -> None:
    moved = record_on_fargate(local(task_size=TaskSize(memory_mb=4096)).record, "us-east-1")
    assert moved.task_size == TaskSize(vcpu=8, memory_mb=4096)
    assert record_on_fargate(local().record, "us-east-1").task_size == TaskSize(vcpu=8, memory_mb=16_000)
    nothing = report(size=None, launch_type="EC2")
    assert record_on_fargate(nothing.record, "us-east-1").task_size is None


def gpu(use: float | None) -> tuple[Gpu, ...]:
    return (Gpu(uuid="GPU-1", utilization_percent=None if use is None else Distribution(avg=use, max=use)),)


@pytest.mark.parametrize(
    "devices",
    [
        {"gpus": gpu(80)},
        {"gpus": gpu(None)},
        {"gpus": (*gpu(0), *gpu(1))},
        {"neuron": Neuron(cores=(NeuronCore(index=0),))},
    ],
)
def test_runs_that_used_gpus_or_neuron_devices_are_not_moved(devices: dict[str, Any]) -> None:
    used = local(**devices)
    assert record_on_fargate(used.record, "us-east-1") == used.record
    advice = advise(evidence_of([used], on_fargate="us-east-1"), Policy(), NONE)
    assert not advice.choice.is_fargate
    assert advice.reasons[-1].endswith("a size has no price, and Fargate has neither GPUs nor Neuron devices.")
    assert cost_on_fargate(used.record, "us-east-1", NONE) is None


@pytest.mark.parametrize("devices", [{"gpus": gpu(0)}, {"gpus": gpu(80), "gpu_scope": WHOLE_INSTANCE}])
def test_gpus_that_were_idle_or_may_be_those_of_others_move(devices: dict[str, Any]) -> None:
    assert record_on_fargate(local(**devices).record, "us-east-1").launch_type == "FARGATE"


def test_a_run_costs_what_a_size_costs_that_fargate_has() -> None:
    def cost(machine: tuple[float, float]) -> Cost | None:
        return cost_on_fargate(local(machine=machine).record, "us-east-1", NONE)

    legal = cost((8, 16_384))
    assert legal is not None
    assert legal.usd == pytest.approx(hour_usd(8, 16_384) * 91 / 3600, abs=1e-8)
    assert cost((8, 16_000)) is None
    own = report(cost=Cost(usd=1.5)).record
    assert cost_on_fargate(own, "us-east-1", NONE) == Cost(usd=1.5)
    assert cost_on_fargate(local().record, None, NONE) is None

"""The metric catalogue against the record that it reads and the outputs that are made from it."""

import json
from collections import Counter
from typing import Any

import pytest

from profiler.record.activity_model import TimeBreakdown
from profiler.record.hardware import GpuTotals, NeuronTotals, gpu_totals, neuron_totals
from profiler.record.metric_catalogue import METRICS, TIME_PARTS, Metric, view_of
from profiler.record.record_model import (
    AverageAndMaximum,
    Container,
    Cost,
    Distribution,
    Gpu,
    GpuIdle,
    Interval,
    MemoryKills,
    Metrics,
    Monitor,
    Neuron,
    NeuronCore,
    Processor,
    Recommendation,
    Record,
    Report,
    Sampling,
    SlowdownBounds,
    TaskSize,
    encode,
)
from profiler.record.search_document_fields import FIELDS, DocumentField
from tests.values import present

NUMBERS = iter(range(1, 1000))


def distribution() -> Distribution:
    """All statistics different from each other and from every other number."""
    return Distribution(**{name: float(next(NUMBERS)) for name in ("avg", "p50", "p95", "p99", "max")})


def time_breakdown() -> TimeBreakdown:
    parts: dict[str, Any] = {f"{part}_percent": float(next(NUMBERS)) for part in TIME_PARTS}
    return TimeBreakdown(**parts)


# Each number is there once, so that a getter that reads another field is noticed.
FULL = Record(
    task_id="0123",
    task_arn="arn",
    cluster="jobs",
    family="nightly",
    revision="7",
    region="eu-west-1",
    account_id="111122223333",
    availability_zone="eu-west-1a",
    launch_type="FARGATE",
    processor=Processor(model="Xeon", count=4),
    container=Container(name="batch", id="b", image="etl:7", image_digest="sha256:1"),
    log_group="/ecs/jobs",
    log_stream="ecs/batch/0123",
    status="failure",
    exit_code=137,
    likely_out_of_memory=True,
    memory_kills=MemoryKills(count=2),
    started_at="2026-03-01T00:00:10.500Z",
    finished_at="2026-03-01T00:10:10.750Z",
    metrics=Metrics(
        duration_ms=next(NUMBERS),
        billed_duration_ms=next(NUMBERS),
        memory_size_mb=next(NUMBERS),
        max_memory_used_mb=next(NUMBERS),
        init_duration_ms=next(NUMBERS),
        vcpu_size=next(NUMBERS),
        cpu_seconds=float(next(NUMBERS)),
        cpu_wait_seconds=float(next(NUMBERS)),
        vcpu_used=distribution(),
        cpu_utilization_percent=distribution(),
        memory_used_mb=distribution(),
        memory_utilization_percent=distribution(),
        memory_cache_mb=AverageAndMaximum(avg=float(next(NUMBERS)), max=float(next(NUMBERS))),
        memory_peak_source="kernel",
        vcpu_saturated_percent=float(next(NUMBERS)),
        slowdown_at_vcpu={
            size: SlowdownBounds(min=float(next(NUMBERS)), max=float(next(NUMBERS)))
            for size in ("0.25", "0.5", "1", "2", "4", "8", "16")
        },
        memory_usage_peak_mb=next(NUMBERS),
        network_rx_bytes=next(NUMBERS),
        network_tx_bytes=next(NUMBERS),
        block_read_bytes=next(NUMBERS),
        block_write_bytes=next(NUMBERS),
        ephemeral_storage_used_mb=next(NUMBERS),
    ),
    time_breakdown=time_breakdown(),
    interval=Interval(
        started_at="2026-03-01T00:01:00.000Z",
        finished_at="2026-03-01T00:02:00.000Z",
        cpu_utilization_percent=distribution(),
        memory_used_mb=distribution(),
        memory_utilization_percent=distribution(),
        gpu_utilization_percent=AverageAndMaximum(avg=float(next(NUMBERS)), max=float(next(NUMBERS))),
        gpu_memory_used_mb=AverageAndMaximum(avg=float(next(NUMBERS)), max=float(next(NUMBERS))),
        neuron_utilization_percent=AverageAndMaximum(avg=float(next(NUMBERS)), max=float(next(NUMBERS))),
    ),
    sampling=Sampling(stats_period_ms=next(NUMBERS)),
    task_size=TaskSize(vcpu=next(NUMBERS), memory_mb=next(NUMBERS)),
    cost=Cost(usd=float(next(NUMBERS))),
    recommendation=Recommendation(vcpu=next(NUMBERS), memory_mb=next(NUMBERS), saving_percent=float(next(NUMBERS))),
    monitor=Monitor(version="0.1.0", cpu_seconds=float(next(NUMBERS)), max_rss_mb=next(NUMBERS)),
    gpus=(
        Gpu(
            uuid="G",
            utilization_percent=distribution(),
            sm_active_percent=distribution(),
            tensor_active_percent=distribution(),
            dram_active_percent=distribution(),
            memory_used_mb=distribution(),
            energy_joules=5.0,
        ),
    ),
    gpu_idle=GpuIdle(percent=float(next(NUMBERS)), gpu_hours=float(next(NUMBERS))),
    neuron=Neuron(
        cores=(NeuronCore(index=0, utilization_percent=distribution()),), device_memory_used_mb=distribution()
    ),
)
LINE: dict[str, Any] = json.loads(encode(Report(time="2026-03-01T00:10:12Z", type="task.report", record=FULL)))


IN_RECORD: list[Metric | DocumentField] = [
    *(metric for metric in METRICS if metric.record_path is not None),
    *(field for field in FIELDS if field.record_path is not None),
]


def at(path: str) -> Any:
    """The value at a path of the record's JSON."""
    found: Any = LINE["record"]
    for name in path.split("."):
        found = found[name]
    return found


@pytest.mark.parametrize("row", IN_RECORD, ids=lambda row: row.record_path)
def test_a_getter_reads_the_value_at_the_rows_path(row: Metric | DocumentField) -> None:
    assert row.record_path is not None
    value = present(row.get)(view_of(FULL))
    assert value == ([at(row.record_path)] if isinstance(value, list) else at(row.record_path))


@pytest.mark.parametrize("attribute", ["document_field", "text_label", "emf_name"])
def test_a_name_is_used_once(attribute: str) -> None:
    names = Counter(getattr(metric, attribute) for metric in METRICS)
    del names[None]
    assert set(names.values()) == {1}


def test_every_part_of_the_time_is_in_the_document() -> None:
    """So that the parts of a document add up to 100 % too."""
    parts = {name for name in TimeBreakdown.__struct_fields__ if name.endswith("_percent")} - {"covered_percent"}
    assert {f"{part}_percent" for part in TIME_PARTS} == parts
    assert {f"usage.time.{part}.percent" for part in TIME_PARTS} <= {field.name for field in FIELDS}


def test_gpus_are_combined() -> None:
    gpus = (
        Gpu(
            uuid="a",
            utilization_percent=Distribution(avg=10, max=90),
            sm_active_percent=Distribution(avg=4, max=80),
            memory_used_mb=Distribution(avg=7, max=9),
            energy_joules=5,
        ),
        Gpu(
            uuid="b",
            utilization_percent=Distribution(avg=0, max=0),
            sm_active_percent=Distribution(avg=0, max=0),
            energy_joules=6.5,
        ),
        Gpu(uuid="c"),
    )
    assert gpu_totals(gpus) == GpuTotals(
        count=3,
        idle=1,
        utilization_percent=Distribution(avg=5, max=90),
        sm_active_percent=Distribution(avg=2, max=80),
        memory_used_mb=Distribution(avg=7, max=9),
        energy_joules=11.5,
    )
    assert gpu_totals(()) is None


def test_neuron_cores_are_combined_and_the_memory_is_that_of_the_devices() -> None:
    cores = (NeuronCore(index=0, utilization_percent=Distribution(avg=50, max=97)), NeuronCore(index=1))
    neuron = Neuron(cores=cores, device_memory_used_mb=Distribution(avg=3, max=77))
    assert neuron_totals(neuron) == NeuronTotals(
        cores=2, utilization_percent=Distribution(avg=50, max=97), device_memory_used_mb=Distribution(avg=3, max=77)
    )
    assert neuron_totals(Neuron()) == NeuronTotals(cores=0)
    assert neuron_totals(None) is None


def test_a_size_without_slowdown_has_the_factor_1_where_cpu_was_measured() -> None:
    slowdown = {"0.25": SlowdownBounds(min=2.0, max=3.5)}
    measured = Record(
        task_id="1", container=Container(name="x"), status="success", metrics=Metrics(slowdown_at_vcpu=slowdown)
    )
    factors = {
        metric.document_field: metric.get(view_of(measured))
        for metric in METRICS
        if (metric.document_field or "").startswith("usage.cpu.slowdown.")
    }
    sizes = ("v0_25", "v0_5", "v1", "v2", "v4", "v8", "v16", "v32")
    assert set(factors) == {f"usage.cpu.slowdown.{name}.{size}" for name in ("min", "max") for size in sizes}
    assert factors.pop("usage.cpu.slowdown.min.v0_25") == 2.0
    assert factors.pop("usage.cpu.slowdown.max.v0_25") == 3.5
    assert set(factors.values()) == {1.0}

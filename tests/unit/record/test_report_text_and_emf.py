"""The metric catalogue against the record that it reads, and a report's metrics as text and for
CloudWatch.
"""

import json
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.record.activity_model import TimeBreakdown
from profiler.record.bounded_json_line import encode_line
from profiler.record.device_totals import GpuTotals, NeuronTotals, gpu_totals, neuron_totals
from profiler.record.metric_catalogue import METRICS, TIME_PARTS, Metric
from profiler.record.model_base import MAX_LINE_BYTES
from profiler.record.record_model import (
    NO_NEURON,
    NOT_MEASURED,
    Container,
    Cost,
    Distribution,
    Gpu,
    Interval,
    Metrics,
    Neuron,
    NeuronCore,
    Recommendation,
    Record,
    Report,
    Sampling,
    SlowdownBounds,
    decode,
    encode,
)
from profiler.record.record_paths import RunView
from profiler.record.report_text_and_emf import EMF_METRICS, emf_members, report_text
from profiler.record.search_document_fields import FIELDS, DocumentField
from profiler.settings import DEFAULT_EMF_METRICS
from tests.cases import each_case
from tests.full_record import FULL
from tests.values import present

SUCCESS = Record(
    task_id="158d1c80",
    family="nightly-etl",
    container=Container(name="batch"),
    status="success",
    exit_code=0,
    likely_out_of_memory=False,
    metrics=Metrics(
        duration_ms=612345,
        billed_duration_ms=631000,
        init_duration_ms=18000,
        vcpu_size=0.5,
        vcpu_used=Distribution(avg=0.39, max=0.5),
        cpu_utilization_percent=Distribution(avg=78.4),
        cpu_seconds=240.1,
        memory_size_mb=2048,
        memory_used_mb=Distribution(avg=300.25),
        max_memory_used_mb=512,
        memory_peak_source="sampled",
    ),
)
RECORD = replace(
    SUCCESS,
    status="failure",
    exit_code=137,
    likely_out_of_memory=True,
    metrics=Metrics(
        duration_ms=600_250,
        max_memory_used_mb=1990.5,
        cpu_utilization_percent=Distribution(avg=78.4, max=100.0),
        memory_utilization_percent=Distribution(avg=14.7, max=97.2),
    ),
    cost=Cost(usd=0.0123),
)


def report(record: Record = RECORD) -> Report:
    return Report(time="2026-11-20T03:12:45.123Z", type="task.report", record=record)


def test_a_whole_report_in_which_cost_and_advice_come_last() -> None:
    assert report_text(report(SUCCESS)).split("\t") == [
        "REPORT TaskId: 158d1c80",
        "Duration: 612345.00 ms",
        "Billed Duration: 631000 ms",
        "vCPU Size: 0.5",
        "Max vCPU Used: 0.5",
        "Memory Size: 2048 MB",
        "Max Memory Used: 512 MB",
        "Memory Peak Source: sampled",
        "Init Duration: 18000.00 ms",
        "CPU Time: 240.1 s",
        "Avg vCPU Used: 0.39",
        "Avg CPU: 78.4 %",
        "Avg Memory Used: 300.25 MB",
        "Name: nightly-etl",
        "Status: success",
        "Exit Code: 0",
    ]
    advice = Recommendation(
        vcpu=0.25, memory_mb=1024, saving_percent=50.5, reasons=("One run\tused little.", "Few.")
    )
    text = report_text(report(replace(SUCCESS, cost=Cost(usd=0.00822833), recommendation=advice)))
    assert text.endswith(
        "\tCost: 0.008228 USD\tRecommended vCPU: 0.25\tRecommended Memory: 1024 MB\tSaving: 50.5 %"
        "\tAdvice: One run used little. Few."
    )


def test_a_part_of_the_line() -> None:
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"exit_code": 137, "likely_out_of_memory": True}, "Likely Out Of Memory: true"),
        ({"family": "a\tb\nc"}, "Name: a b c\t"),
        ({"metrics": Metrics(cpu_seconds=0.000825)}, "CPU Time: 0.0008 s"),
        (
            {"metrics": Metrics(cpu_seconds=9), "sampling": Sampling(cpu_covered_percent=94.9)},
            "CPU Time: ≥9 s",
        ),
        (
            {"metrics": Metrics(cpu_seconds=9), "sampling": Sampling(cpu_covered_percent=95)},
            "CPU Time: 9 s",
        ),
        ({"gpus": (Gpu(uuid="a"),)}, "\tGPUs: 1\tName: "),
        ({"cost": Cost(usd=12.5)}, "\tCost: 12.5000 USD"),
        ({"cost": Cost(usd=0)}, "\tCost: 0 USD"),
    )
    for changes, said in cases:
        assert said in report_text(report(replace(SUCCESS, **changes)))


def members(record: Record = RECORD, names: tuple[str, ...] = tuple(EMF_METRICS)) -> dict[str, Any]:
    return emf_members(report(record), names)


def line_with_members(made: Report, names: tuple[str, ...] = tuple(EMF_METRICS)) -> bytes:
    return encode_line(made, emf_members(made, names))


def values(record: Record) -> dict[str, Any]:
    """The metrics alone."""
    return {
        name: value for name, value in members(record).items() if name not in {"_aws", "family"}
    }


def test_the_default_metrics_of_a_run() -> None:
    expected = (
        ("durationMs", "Milliseconds", 600_250),
        ("maxMemoryUsedMB", "Megabytes", 1990.5),
        ("cpuUtilizationPercent", "Percent", 78.4),
        ("costUsd", "None", 0.0123),
        ("failed", "Count", 1),
    )
    metrics = [{"Name": name, "Unit": unit} for name, unit, _ in expected]
    directive = {"Namespace": "TaskProfiler", "Dimensions": [["family"]], "Metrics": metrics}
    assert emf_members(report(), DEFAULT_EMF_METRICS) == {
        "_aws": {"Timestamp": 1_795_144_365_123, "CloudWatchMetrics": [directive]},
        "family": "nightly-etl",
        **{name: value for name, _, value in expected},
    }


def test_a_failure_is_counted_once_a_run_and_only_where_the_end_is_known() -> None:
    failed = {"success": 0, "failure": 1, "stopped": 0, "running": None, "unknown": None}
    assert {
        status: values(replace(RECORD, status=status)).get("failed") for status in failed
    } == failed


def test_a_checkpoint_tells_the_averages_since_the_last_one_and_the_rest_so_far() -> None:
    interval = Interval(
        cpu_seconds=1.0,
        cpu_utilization_percent=Distribution(avg=5.0, max=6.0),
        memory_utilization_percent=Distribution(avg=90.0, max=95.0),
    )
    so_far = values(replace(RECORD, status="running"))
    lately = values(replace(RECORD, status="running", interval=interval))
    assert lately == {**so_far, "cpuUtilizationPercent": 5.0, "memoryUtilizationPercent": 90.0}


def test_a_run_of_which_nothing_chosen_was_measured_carries_nothing() -> None:
    assert (
        members(replace(SUCCESS, metrics=Metrics(), status="unknown", likely_out_of_memory=None))
        == {}
    )
    assert members(RECORD, ()) == {}


def test_where_nothing_else_is_left_to_cut_the_metrics_go() -> None:
    bare = replace(RECORD, labels={"note": ""})
    room_bytes = MAX_LINE_BYTES - 1 - len(encode_line(report(bare)))
    added_bytes = len(line_with_members(report(bare))) - len(encode_line(report(bare)))
    fits, full = (
        report(replace(bare, labels={"note": "x" * length}))
        for length in (room_bytes - added_bytes, room_bytes)
    )
    assert len(line_with_members(fits)) == MAX_LINE_BYTES - 1
    assert b"_aws" in line_with_members(fits)
    assert line_with_members(full) == encode_line(full)
    assert decode(line_with_members(full)) == full


LINE: dict[str, Any] = json.loads(
    encode(Report(time="2026-03-01T00:10:12Z", type="task.report", record=FULL))
)


IN_RECORD: list[Metric | DocumentField] = [
    *(metric for metric in METRICS if metric.record_path),
    *(field for field in FIELDS if field.record_path),
]


def at(path: str) -> Any:
    """The value at a path of the record's JSON."""
    found: Any = LINE["record"]
    for name in path.split("."):
        found = found[name]
    return found


@each_case("row", IN_RECORD, ids=lambda row: row.record_path)
def test_a_getter_reads_the_value_at_the_rows_path(row: Metric | DocumentField) -> None:
    value = present(row.get)(RunView(FULL))
    assert value == ([at(row.record_path)] if isinstance(value, list) else at(row.record_path))


def test_every_part_of_the_time_is_in_the_document_once() -> None:
    """So that the parts of a document add up to 100 % too."""
    for attribute in ("document_field", "text_label", "emf_name"):
        names = Counter(getattr(metric, attribute) for metric in METRICS)
        del names[""]
        assert set(names.values()) == {1}
    parts = {name for name in TimeBreakdown.__struct_fields__ if name.endswith("_percent")} - {
        "covered_percent"
    }
    assert {f"{part}_percent" for part in TIME_PARTS} == parts
    assert {f"usage.time.{part}.percent" for part in TIME_PARTS} <= {field.name for field in FIELDS}


def test_gpus_and_neuron_cores_are_combined() -> None:
    """GPUs and Neuron cores are combined and the memory of Neuron is that of the devices."""
    used, memory = Distribution(avg=10, max=90), Distribution(avg=7, max=9)
    busy = Gpu(
        uuid="a",
        utilization_percent=used,
        sm_active_percent=used,
        memory_used_mb=memory,
        energy_joules=5,
    )
    unused = Distribution(avg=0, max=0)
    idle = Gpu(
        uuid="b",
        utilization_percent=unused,
        sm_active_percent=unused,
        memory_used_mb=unused,
        utilization_source="driver-samples",
        energy_joules=6.5,
    )
    totals = GpuTotals(
        count=2,
        idle=1,
        utilization_percent=Distribution(avg=5, max=90),
        sm_active_percent=Distribution(avg=5, max=90),
        is_use_approximate=True,
        memory_used_mb=Distribution(avg=3.5, max=9),
    )
    assert gpu_totals(replace(SUCCESS, gpus=(busy, idle))) == totals
    # Of a third one nothing is known: the mean of two is not that of three.
    three = replace(SUCCESS, gpus=(busy, idle, Gpu(uuid="c")))
    assert gpu_totals(three) == replace(
        totals, count=3, utilization_percent=NOT_MEASURED, sm_active_percent=NOT_MEASURED
    )
    assert gpu_totals(replace(SUCCESS, gpus=())) == GpuTotals()
    cores = (
        NeuronCore(index=0, utilization_percent=Distribution(avg=50, max=97)),
        NeuronCore(index=1, utilization_percent=Distribution(avg=10, max=20)),
    )
    neuron = Neuron(cores=cores, device_memory_used_mb=Distribution(avg=3, max=77))
    of_cores = NeuronTotals(
        is_watched=True,
        cores=2,
        utilization_percent=Distribution(avg=30, max=97),
        device_memory_used_mb=Distribution(avg=3, max=77),
    )
    assert neuron_totals(neuron) == of_cores
    with_unknown = replace(neuron, cores=(*cores, NeuronCore(index=2)))
    assert neuron_totals(with_unknown) == replace(
        of_cores, cores=3, utilization_percent=NOT_MEASURED
    )
    assert neuron_totals(Neuron()) == NeuronTotals(is_watched=True, cores=0)
    assert neuron_totals(NO_NEURON) == NeuronTotals()


@pytest.mark.parametrize(
    ("used_mb", "size_mb", "memory"),
    [
        (6_144, 16_384, "6 GB of 16 GB"),
        (6_144, 0, "6 GB"),
        (6_144, None, "6 GB"),
        (None, 16_384, ""),
    ],
)
def test_the_memory_of_neuron_devices_names_a_size_that_they_have(
    used_mb: float | None, size_mb: float | None, memory: str
) -> None:
    totals = NeuronTotals(
        is_watched=True,
        cores=2,
        device_memory_used_mb=Distribution(max=used_mb),
        device_memory_size_mb=size_mb,
    )
    assert totals.memory_text == memory
    assert totals.text == ", ".join(filter(None, ("2 NeuronCores use unknown", memory)))


def test_a_size_without_slowdown_has_the_factor_1_where_cpu_was_measured() -> None:
    slowdown = {"0.25": SlowdownBounds(min=2.0, max=3.5)}
    measured = replace(SUCCESS, metrics=Metrics(slowdown_at_vcpu=slowdown))
    factors = {
        metric.document_field: metric.get(RunView(measured))
        for metric in METRICS
        if metric.document_field.startswith("usage.cpu.slowdown.")
    }
    sizes = ("v0_25", "v0_5", "v1", "v2", "v4", "v8", "v16", "v32")
    assert set(factors) == {
        f"usage.cpu.slowdown.{name}.{size}" for name in ("min", "max") for size in sizes
    }
    assert factors.pop("usage.cpu.slowdown.min.v0_25") == 2.0
    assert factors.pop("usage.cpu.slowdown.max.v0_25") == 3.5
    assert set(factors.values()) == {1.0}

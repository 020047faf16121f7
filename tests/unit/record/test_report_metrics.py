"""The metrics in a report's lines: as text, and the members that CloudWatch reads, against the record beside them."""

from typing import Any

import pytest
from msgspec.structs import replace

from profiler.record.bounded_json_line import MAX_LINE_BYTES, encode_line
from profiler.record.record_model import (
    Container,
    Cost,
    Distribution,
    Gpu,
    Interval,
    Metrics,
    Recommendation,
    Record,
    Report,
    decode,
)
from profiler.record.report_metrics import EMF_METRICS, emf_members, report_text
from profiler.settings import DEFAULT_EMF_METRICS

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
RECORD = Record(
    task_id="0123",
    family="nightly-etl",
    container=Container(name="batch"),
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


def test_a_whole_report() -> None:
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


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"exit_code": 137, "likely_out_of_memory": True}, "Likely Out Of Memory: true"),
        ({"family": "a\tb\nc"}, "Name: a b c\t"),
        ({"metrics": Metrics(cpu_seconds=0.000825)}, "CPU Time: 0.0008 s"),
        ({"gpus": (Gpu(uuid="a"),)}, "\tGPUs: 1\tName: "),
        ({"cost": Cost(usd=12.5)}, "\tCost: 12.5000 USD"),
        ({"cost": Cost(usd=0)}, "\tCost: 0 USD"),
    ],
)
def test_a_part_of_the_line(changes: dict[str, Any], said: str) -> None:
    assert said in report_text(report(replace(SUCCESS, **changes)))


def test_cost_and_advice_come_last() -> None:
    advice = Recommendation(vcpu=0.25, memory_mb=1024, saving_percent=50.5, reasons=("One run\tused little.", "Few."))
    text = report_text(report(replace(SUCCESS, cost=Cost(usd=0.00822833), recommendation=advice)))
    assert text.endswith(
        "\tCost: 0.008228 USD\tRecommended vCPU: 0.25\tRecommended Memory: 1024 MB\tSaving: 50.5 %"
        "\tAdvice: One run used little. Few."
    )


def members(record: Record = RECORD, names: tuple[str, ...] = tuple(EMF_METRICS)) -> dict[str, Any]:
    return emf_members(report(record), names)


def line_with_members(made: Report, names: tuple[str, ...] = tuple(EMF_METRICS)) -> bytes:
    return encode_line(made, emf_members(made, names))


def values(record: Record) -> dict[str, Any]:
    """The metrics alone."""
    return {name: value for name, value in members(record).items() if name not in {"_aws", "family"}}


def test_the_default_metrics_of_a_run() -> None:
    assert emf_members(report(), DEFAULT_EMF_METRICS) == {
        "_aws": {
            "Timestamp": 1_795_144_365_123,
            "CloudWatchMetrics": [
                {
                    "Namespace": "TaskProfiler",
                    "Dimensions": [["family"]],
                    "Metrics": [
                        {"Name": "durationMs", "Unit": "Milliseconds"},
                        {"Name": "maxMemoryUsedMB", "Unit": "Megabytes"},
                        {"Name": "cpuUtilizationPercent", "Unit": "Percent"},
                        {"Name": "costUsd", "Unit": "None"},
                        {"Name": "failed", "Unit": "Count"},
                    ],
                }
            ],
        },
        "family": "nightly-etl",
        "durationMs": 600_250,
        "maxMemoryUsedMB": 1990.5,
        "cpuUtilizationPercent": 78.4,
        "costUsd": 0.0123,
        "failed": 1,
    }


@pytest.mark.parametrize(
    ("status", "failed"), [("success", 0), ("failure", 1), ("stopped", 0), ("running", None), ("unknown", None)]
)
def test_a_failure_is_counted_once_a_run_and_only_where_the_end_is_known(status: Any, failed: int | None) -> None:
    assert values(replace(RECORD, status=status)).get("failed") == failed


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
    bare = Record(task_id="1", family="nightly-etl", container=Container(name="x"), status="unknown")
    assert members(bare) == {}
    assert members(RECORD, ()) == {}


def test_where_nothing_else_is_left_to_cut_the_metrics_go() -> None:
    bare = replace(RECORD, labels={"note": ""})
    room_bytes = MAX_LINE_BYTES - 1 - len(encode_line(report(bare)))
    added_bytes = len(line_with_members(report(bare))) - len(encode_line(report(bare)))
    fits, full = (
        report(replace(bare, labels={"note": "x" * length})) for length in (room_bytes - added_bytes, room_bytes)
    )
    assert len(line_with_members(fits)) == MAX_LINE_BYTES - 1
    assert b"_aws" in line_with_members(fits)
    assert line_with_members(full) == encode_line(full)
    assert decode(line_with_members(full)) == full

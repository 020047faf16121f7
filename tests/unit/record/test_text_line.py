from typing import Any

import pytest
from msgspec.structs import replace

from profiler.record.record_model import Container, Cost, Distribution, Gpu, Metrics, Recommendation, Record, Report
from profiler.record.report_metrics import report_text

_METRICS = Metrics(
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
)
_RECORD = Record(
    task_id="158d1c80",
    family="nightly-etl",
    container=Container(name="batch"),
    status="success",
    exit_code=0,
    likely_out_of_memory=False,
    metrics=_METRICS,
)


def _text(record: Record) -> str:
    return report_text(Report(time="2026-11-20T03:12:45.123Z", type="task.report", record=record))


def test_a_whole_report() -> None:
    assert _text(_RECORD).split("\t") == [
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
    assert said in _text(replace(_RECORD, **changes))


def test_cost_and_advice_come_last() -> None:
    advice = Recommendation(vcpu=0.25, memory_mb=1024, saving_percent=50.5, reasons=("One run\tused little.", "Few."))
    text = _text(replace(_RECORD, cost=Cost(usd=0.00822833), recommendation=advice))
    assert text.endswith(
        "\tCost: 0.008228 USD\tRecommended vCPU: 0.25\tRecommended Memory: 1024 MB\tSaving: 50.5 %"
        "\tAdvice: One run used little. Few."
    )

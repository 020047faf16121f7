"""The signals of a run: valid by the published schema, and what they say.

Ids, and the parent of a run.
"""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_SECOND
from profiler.otlp.run_signals import (
    ExportedRun,
    SpanParent,
    find_parent,
    signals_of,
    span_id,
    trace_id,
)
from profiler.record.batch_job import BatchJob
from profiler.record.record_model import (
    AverageAndMaximum,
    Container,
    Distribution,
    Gpu,
    Metrics,
    RaisedNotice,
    Record,
    Report,
    decode,
    encode,
)
from tests import shown_runs
from tests.changed_records import changed_lines
from tests.documentation import ROOT
from tests.full_record import FULL
from tests.otlp_schema import attributes_of, check, spans
from tests.shown_runs import STARTED_NS

ETL = shown_runs.etl().record
PULL = STARTED_NS - 18 * NS_PER_SECOND, STARTED_NS - 3 * NS_PER_SECOND
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


def exported(record: Record = ETL, **values: Any) -> ExportedRun:
    return ExportedRun(record=record, observed_ns=STARTED_NS + 3600 * NS_PER_SECOND, **values)


def log_record(run: ExportedRun) -> Any:
    return signals_of(run)["logs"]["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]


def gauges(record: Record) -> dict[str, tuple[str, list[Any]]]:
    request = signals_of(exported(record)).get("metrics")
    metrics = request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"] if request else []
    return {metric["name"]: (metric["unit"], metric["gauge"]["dataPoints"]) for metric in metrics}


def named(attributes: list[Any]) -> dict[str, Any]:
    return attributes_of({"attributes": attributes})


@given(changed_lines())
def test_every_record_that_decodes_gives_valid_signals(line: bytes) -> None:
    try:
        record = decode(line).record
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    check(exported(record))
    check(
        exported(
            record,
            pull_started_ns=PULL[0],
            pull_stopped_ns=PULL[1],
            context={"TRACEPARENT": PARENT},
        )
    )


def test_a_run_is_a_span_with_its_phases() -> None:
    root, pull, init = spans(exported(pull_started_ns=PULL[0], pull_stopped_ns=PULL[1]))
    assert root["name"] == "nightly-etl"
    assert pull["name"] == "pull"
    assert init["name"] == "init"
    assert int(root["startTimeUnixNano"]) == int(pull["startTimeUnixNano"]) == PULL[0]
    assert int(pull["endTimeUnixNano"]) == int(init["startTimeUnixNano"]) == PULL[1]
    assert int(init["endTimeUnixNano"]) == STARTED_NS
    assert int(root["endTimeUnixNano"]) == STARTED_NS + 1182 * NS_PER_SECOND
    assert root["status"] == {"code": 0}
    assert "parentSpanId" not in root


def test_what_is_impossible_is_exported_as_missing() -> None:
    """Whoever made the record, and in the printed line, too."""
    honest = replace(
        ETL,
        gpus=(Gpu(uuid="g", xids=(79,), temperature_celsius=Distribution(avg=60)),),
        recommendation=replace(ETL.recommendation, saving_percent=None),
    )
    absurd = replace(
        honest,
        gpus=(Gpu(uuid="g", xids=(10**30, 79), temperature_celsius=Distribution(avg=60, max=511)),),
        recommendation=replace(ETL.recommendation, saving_percent=-1e300),
        metrics=replace(ETL.metrics, network_rx_bytes=10**30),
    )
    honest = replace(honest, metrics=replace(ETL.metrics, network_rx_bytes=None))
    line = encode(Report(time="2026-11-20T03:12:45Z", type="task.report", record=absurd)).decode()
    assert signals_of(exported(absurd, line=line)) == signals_of(exported(honest))
    check(exported(absurd))


def test_a_parent_leads_to_the_trace_of_the_caller() -> None:
    run = exported(
        replace(ETL, labels={"traceparent": PARENT}),
        pull_started_ns=PULL[0],
        pull_stopped_ns=PULL[1],
    )
    root, pull, _ = spans(run)
    assert {root["traceId"], pull["traceId"], log_record(run)["traceId"]} == {TRACE}
    assert root["parentSpanId"] == SPAN
    assert root["flags"] == 0x301
    assert pull["parentSpanId"] == root["spanId"] == log_record(run)["spanId"]


@pytest.mark.parametrize(
    ("record", "reason", "message"),
    [
        ({"status": "failure", "exit_code": 137}, None, "Exit code 137 (SIGKILL)"),
        ({"status": "failure", "exit_code": 1}, "out of disk", "Exit code 1: out of disk"),
        ({"status": "failure"}, None, "Failure"),
        ({"status": "success"}, "ignored", None),
        ({"status": "stopped"}, None, None),
        ({"status": "a newer word"}, None, None),
    ],
)
def test_only_a_failure_is_an_error(record: Any, reason: str | None, message: str | None) -> None:
    run = exported(replace(ETL, **{"exit_code": None, **record}), reason=reason)
    assert spans(run)[0]["status"] == ({"code": 2, "message": message} if message else {"code": 0})
    assert log_record(run)["severityText"] == ("ERROR" if message else "INFO")


def test_moments_and_notices_are_span_events() -> None:
    notices = RaisedNotice(kind="stuck", at="2026-11-20T03:20:00Z"), RaisedNotice(kind="x", at="?")
    events = spans(exported(replace(ETL, notices=notices)))[0]["events"]
    names = [event["name"] for event in events]
    assert names.count("task_profiler.notice") == 1
    assert {"task_profiler.moment.memory-peak", "task_profiler.moment.idle"} <= set(names)
    (idle,) = [event for event in events if event["name"] == "task_profiler.moment.idle"]
    assert named(idle["attributes"])["task_profiler.moment.text"].startswith("idle from +")
    assert STARTED_NS <= int(idle["timeUnixNano"]) <= STARTED_NS + 1182 * NS_PER_SECOND


def test_the_page_names_each_metric_of_a_run() -> None:
    """There, a name that begins with a dot continues the beginning of the one before it."""
    page = (ROOT / "docs" / "metrics.md").read_text().partition("| `task_profiler.*`")[2]
    known: set[str] = set()
    beginnings: list[str] = []
    for name in re.findall(r"`([\w.]+)`", page):
        if name.startswith("."):
            known |= {f"task_profiler.{beginning}{name}" for beginning in beginnings}
            continue
        known.add(f"task_profiler.{name}")
        parts = name.split(".")
        beginnings = [".".join(parts[:count]) for count in range(1, len(parts))]
    run = shown_runs.gpu().record
    share = Distribution(avg=1, max=2)
    gpus = [
        replace(gpu, tensor_active_percent=share, dram_active_percent=share) for gpu in run.gpus
    ]
    found = gauges(FULL).keys() | gauges(replace(run, gpus=tuple(gpus))).keys()
    assert len(found) > 20
    assert found - known == set()


def test_metrics_are_gauges_in_base_units() -> None:
    found = gauges(replace(ETL, metrics=replace(ETL.metrics, cpu_wait_seconds=1.5)))
    assert {name.removeprefix("task_profiler.run."): unit for name, (unit, _) in found.items()} == {
        **dict.fromkeys(
            ("duration", "billed_duration", "init_duration", "cpu.time", "cpu.wait"), "s"
        ),
        **dict.fromkeys(("cpu.utilization.avg", "cpu.utilization.max"), "1"),
        **dict.fromkeys(
            ("memory.used.avg", "memory.peak", "memory.limit", "network.io", "disk.io"), "By"
        ),
        "cost": "{USD}",
    }
    end = str(STARTED_NS + 1182 * NS_PER_SECOND)
    assert found["task_profiler.run.duration"][1] == [{"asDouble": 1182.0, "timeUnixNano": end}]
    assert found["task_profiler.run.memory.limit"][1] == [
        {"asInt": str(4096 * 2**20), "timeUnixNano": end}
    ]
    assert found["task_profiler.run.cpu.utilization.avg"][1][0]["asDouble"] == 0.546
    assert [named(point["attributes"]) for point in found["task_profiler.run.network.io"][1]] == [
        {"network.io.direction": "receive"},
        {"network.io.direction": "transmit"},
    ]


def test_a_number_that_may_have_been_larger_is_marked() -> None:
    exact = replace(ETL, metrics=replace(ETL.metrics, memory_peak_source="kernel"))
    sampled = replace(ETL, metrics=replace(ETL.metrics, memory_peak_source="sampled"))
    for record, marks in ((exact, {}), (sampled, {"task_profiler.at_least": True})):
        _, (point,) = gauges(record)["task_profiler.run.memory.peak"]
        assert named(point.get("attributes", [])) == marks
    partial = replace(sampled, sampling=replace(ETL.sampling, cpu_covered_percent=60.0))
    found = gauges(partial)
    _, (cpu_time,) = found["task_profiler.run.cpu.time"]
    assert named(cpu_time["attributes"]) == {"task_profiler.at_least": True}
    assert "attributes" not in found["task_profiler.run.duration"][1][0]


def test_what_a_run_keeps_of_its_files_is_apart_from_what_it_uses() -> None:
    apart = replace(
        ETL.metrics,
        memory_mapped_file_mb=AverageAndMaximum(avg=300, max=600),
        memory_huge_pages_mb=AverageAndMaximum(avg=20, max=32),
    )
    found = gauges(replace(ETL, metrics=apart))
    for name, size_mb in (("mapped_file", 600), ("huge_pages", 32)):
        unit, (point,) = found[f"task_profiler.run.memory.{name}.max"]
        assert (unit, point["asInt"]) == ("By", str(size_mb * 2**20))


def test_what_the_gpus_did_is_measured() -> None:
    found = gauges(shown_runs.gpu().record)
    values = {
        name.removeprefix("task_profiler.run."): points[0].get("asDouble", points[0].get("asInt"))
        for name, (_, points) in found.items()
    }
    assert {name: value for name, value in values.items() if name.startswith("gpu.")} == {
        "gpu.utilization.avg": 0.6,
        "gpu.sm_active.avg": 0.3,
        "gpu.idle": 0.38,
        "gpu.idle.time": pytest.approx(1796.6412),
        "gpu.memory.peak": str(64_800 * 2**20),
    }


def test_what_is_unknown_is_left_out() -> None:
    record = Record(
        task_id="t", container=Container(name="batch"), metrics=Metrics(network_tx_bytes=0)
    )
    assert gauges(record)["task_profiler.run.network.io"][1][0]["asInt"] == "0"
    assert len(gauges(record)) == 1
    assert "metrics" not in signals_of(exported(replace(record, metrics=Metrics())))
    (root,) = spans(exported(record))
    assert root["startTimeUnixNano"] == root["endTimeUnixNano"] == str(exported().observed_ns)


def test_the_resource_has_the_names_of_the_semantic_conventions() -> None:
    container = Container(
        name="batch",
        id="c1",
        arn="arn:aws:ecs:us-west-2:111122223333:container/default/t/c",
        image="localhost:5000/team/etl:7@sha256:ab",
        image_digest="sha256:cd",
    )
    record = replace(
        ETL,
        task_id="t",
        task_arn="arn:aws:ecs:us-west-2:111122223333:task/jobs/t",
        container=container,
    )
    resource = signals_of(exported(record))["logs"]["resourceLogs"][0]["resource"]
    assert named(resource["attributes"]) == {
        "service.name": "nightly-etl",
        "service.version": "26",
        "cloud.provider": "aws",
        "cloud.platform": "aws_ecs",
        "cloud.region": "us-west-2",
        "cloud.availability_zone": "us-west-2d",
        "cloud.account.id": "111122223333",
        "aws.ecs.cluster.arn": "arn:aws:ecs:us-west-2:111122223333:cluster/jobs",
        "aws.ecs.container.arn": "arn:aws:ecs:us-west-2:111122223333:container/default/t/c",
        "aws.ecs.launchtype": "fargate",
        "aws.ecs.task.arn": "arn:aws:ecs:us-west-2:111122223333:task/jobs/t",
        "aws.ecs.task.id": "t",
        "aws.ecs.task.family": "nightly-etl",
        "aws.ecs.task.revision": "26",
        "aws.log.group.names": ["/ecs/nightly-etl"],
        "aws.log.stream.names": [f"ecs/batch/{ETL.task_id}"],
        "container.id": "c1",
        "container.name": "batch",
        "container.image.name": "localhost:5000/team/etl",
        "container.image.tags": ["7"],
        "container.image.repo_digests": ["localhost:5000/team/etl@sha256:cd"],
    }


def test_a_job_of_aws_batch_is_named_in_span_and_log_record() -> None:
    job = BatchJob(job_id="4109", queue="nightly", attempt=2, array_index=0)
    signals = signals_of(exported(replace(ETL, batch=job)))
    (span, *_) = signals["traces"]["resourceSpans"][0]["scopeSpans"][0]["spans"]
    (line,) = signals["logs"]["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    for holder in (span, line):
        values = named(holder["attributes"])
        of_job = {name: value for name, value in values.items() if ".batch." in name}
        assert of_job == {
            "task_profiler.batch.job_id": "4109",
            "task_profiler.batch.queue": "nightly",
            "task_profiler.batch.attempt": 2,
            "task_profiler.batch.array_index": 0,
        }


def test_ids_are_those_of_all_releases() -> None:
    """A replay by a newer forwarder must meet the spans of an older one."""
    assert trace_id("158d1c80") == "4f4db8e886003c013a725edd5842a1e8"
    assert span_id("158d1c80", "run") == "5f394b3474cd7718"


@pytest.mark.parametrize(
    "text",
    [
        *("", f"00-{TRACE}-{SPAN}", f"00-{TRACE}-{SPAN}-01-more", f"00-{TRACE.upper()}-{SPAN}-01"),
        *(f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"ff-{TRACE}-{SPAN}-01"),
    ],
)
def test_a_valid_parent_is_found_in_any_letter_case(text: str) -> None:
    """A valid parent is found in any letter case and an invalid one is none."""
    assert find_parent({"traceparent": text}) is None
    for name in ("TRACEPARENT", "traceparent", "TraceParent"):
        found = find_parent(
            None, {"host": "x", "TRACEPARENT": text}, {name: f" 00-{TRACE}-{SPAN}-01 "}
        )
        assert found == SpanParent(trace_id=TRACE, span_id=SPAN, flags=1)

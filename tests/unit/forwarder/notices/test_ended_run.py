"""The event's detail and the log line of an ended run: same shape, bounded size, valid against the schema."""

import json
from datetime import UTC, datetime
from typing import Any

import jsonschema
import msgspec
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from hypothesis import given, settings
from msgspec.structs import replace

from forwarder.delivery_errors import NoticeError
from forwarder.notices.ended_run import MAX_DETAIL_BYTES, EndedRun, LogLineChannel, ended_run, json_schema
from forwarder.notices.ended_task import EndedTask
from forwarder.notices.event_bus import EventBusChannel
from profiler.record.activity_model import TimeBreakdown, WaitTarget
from profiler.record.record_model import Container, Cost, Metrics, Recommendation, Record
from tests.documentation import ROOT
from tests.unit.forwarder.notices.test_slack_message import (
    DID_NOTHING,
    NOTICE,
    NOTICES,
    OOM,
    ended,
    in_task,
    report_line,
)

KIBANA = "https://kibana.example.com"
RECORD = Record(
    task_id="0123",
    container=Container(name="batch"),
    metrics=Metrics(duration_ms=7_980_000, billed_duration_ms=60_000, vcpu_size=0.5, max_memory_used_mb=993.3),
    cost=Cost(usd=0.0123, price_basis="fargate"),
    recommendation=Recommendation(vcpu=0.25, memory_mb=2048, reasons=("x" * 500,) * 9),
    finished_at="2026-03-01T12:00:00.000Z",
)
RUN = ended(replace(NOTICE, report_line=report_line(RECORD)), out_of_memory=True, reason="why")


class Bus:
    """Keeps the entries of EventBridge's client."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def put_events(self, *, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        self.entries += Entries
        return {"FailedEntryCount": 0}


class RefusingBus(Bus):
    """Responds like EventBridge for a missing bus, or raises botocore's error."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self._error = error

    def put_events(self, *, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        if self._error is not None:
            raise self._error
        return {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "ResourceNotFound"} for _ in Entries]}


@pytest.mark.parametrize(
    ("bus", "code"),
    [
        (RefusingBus(), "ResourceNotFound"),
        (RefusingBus(ClientError({"Error": {"Code": "AccessDenied"}}, "PutEvents")), "AccessDenied"),
        (RefusingBus(EndpointConnectionError(endpoint_url="https://events")), "EndpointConnectionError"),
    ],
)
def test_a_bus_that_rejects_the_event_is_named(bus: RefusingBus, code: str) -> None:
    with pytest.raises(NoticeError, match=rf"^The event bus runs did not accept the event \({code}\).*EVENT_BUS_NAME"):
        EventBusChannel("runs", lambda: bus).post(RUN, "failure")


def detail(notice: EndedTask) -> dict[str, Any]:
    bus = Bus()
    EventBusChannel("default", lambda: bus, kibana_url=KIBANA).post(notice, "failure")
    (entry,) = bus.entries
    assert (entry["Source"], entry["DetailType"]) == ("task-profiler", "Task Run Ended")
    assert len(entry["Detail"].encode()) < MAX_DETAIL_BYTES
    parsed: dict[str, Any] = json.loads(entry["Detail"])
    return parsed


def test_the_detail_of_a_run_with_a_report() -> None:
    run = detail(RUN)
    links, advice = run.pop("links"), run.pop("recommendation")
    assert run == {
        "text": "etl_daily:7 succeeded: why.",
        "taskId": "0123",
        "taskArn": "arn:aws:ecs:eu-west-1:111122223333:task/jobs/0123",
        "cluster": "jobs",
        "family": "etl_daily",
        "revision": "7",
        "container": "batch",
        "status": "success",
        "stopCategory": "exit",
        "stoppedReason": "why",
        "exitCode": 0,
        "startedAt": "2026-03-01T10:00:03.000Z",
        "finishedAt": "2026-03-01T12:00:00.000Z",
        "metrics": {
            "durationMs": 7_980_000,
            "billedDurationMs": 60_000,
            "vcpuSize": 0.5,
            "maxMemoryUsedMB": 993.3,
        },
        "cost": {"usd": 0.0123, "priceBasis": "fargate"},
    }
    assert set(links) == {"logStream", "ecsTask", "kibana"}
    assert (advice["vcpu"], advice["memoryMB"]) == (0.25, 2048)
    assert [len(reason) for reason in advice["reasons"]] == [400] * 5


def test_the_detail_of_a_success_unlike_its_family() -> None:
    run = detail(DID_NOTHING)
    SCHEMA.validate(run)
    assert run["status"] == "success"
    assert run["text"] == (
        "etl_daily:7 ended with success, but unlike its family: took 3.0 s (usually 41m 10s), "
        "read 0 MB (usually 2.1 GB)."
    )
    assert run["unusual"] == [
        {"metric": "durationMs", "value": 3000, "usual": 2_470_000},
        {"metric": "blockReadBytes", "value": 0, "usual": 2_254_857_830},
    ]


def test_the_time_breakdown_has_its_three_largest_targets_and_a_sentence() -> None:
    targets = tuple(WaitTarget(kind="network", target=f"10.0.0.{n}:{'9' * 300}", percent=40.0 - n) for n in range(8))
    breakdown = TimeBreakdown(on_cpu_percent=10.0, network_percent=90.0, other_percent=0.0, waiting_for=targets)
    record = replace(RECORD, time_breakdown=breakdown)
    run = detail(ended(replace(RUN, report_line=report_line(record)), status="failure", exit_code=1))
    assert run["text"].startswith(
        "etl_daily:7 failed with exit code 1: why. 90 % of the time it waited for the network"
    )
    found = run["timeBreakdown"]
    assert (found["onCpuPercent"], found["networkPercent"], found["otherPercent"]) == (10, 90, 0)
    assert "sleepPercent" not in found
    assert [(each["percent"], len(each["target"])) for each in found["waitingFor"]] == [(40, 255), (39, 255), (38, 255)]


def test_a_checkpoint_has_neither_cost_nor_billed_time() -> None:
    run = detail(replace(RUN, report_line=report_line(RECORD, "task.checkpoint")))
    assert "cost" not in run
    assert run["metrics"] == {"vcpuSize": 0.5, "maxMemoryUsedMB": 993.3}


def test_without_a_report_the_metrics_have_at_most_the_duration() -> None:
    alone = replace(RUN, report_line=None)
    assert "metrics" not in detail(alone)
    ended_at = datetime(2026, 3, 1, 10, 0, 4, tzinfo=UTC)
    assert detail(in_task(alone, execution_stopped_at=ended_at))["metrics"] == {"durationMs": 1000}


def test_the_line_is_the_detail_with_its_type() -> None:
    lines: list[str] = []
    LogLineChannel(lines.append, kibana_url=KIBANA).post(RUN, "success")
    (line,) = lines
    assert "\n" not in line
    assert json.loads(line) == {"type": "task.ended", **detail(RUN)}


def test_numbers_of_thousands_of_digits_are_left_out() -> None:
    fields = ("billedDurationMs", "memorySizeMB", "networkRxBytes", "networkTxBytes", "blockReadBytes", "maxPids")
    many = (*fields, "blockWriteBytes", "vcpuSize", "initDurationMs", "maxMemoryUsedMB")
    metrics = msgspec.convert(dict.fromkeys(many, 10**4000), type=Metrics)
    run = detail(replace(RUN, report_line=report_line(replace(RECORD, metrics=metrics))))
    assert "metrics" not in run
    assert run["taskId"] == "0123"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {},
            "etl_daily:7 failed with exit code 137 (SIGKILL): OutOfMemoryError: Container killed due to memory usage.",
        ),
        ({"exit_code": None, "reason": None}, "etl_daily:7 failed."),
        ({"status": "stopped", "exit_code": None, "reason": "by user."}, "etl_daily:7 was stopped: by user."),
        ({"status": "unknown", "exit_code": None, "reason": ""}, "etl_daily:7 ended with an unknown result."),
        (
            {"exit_code": 1, "reason": 'exec: "C:\\etl": \n not found'},
            "etl_daily:7 failed with exit code 1: exec: 'C:/etl':   not found.",
        ),
    ],
)
def test_the_text_is_a_sentence(changes: dict[str, Any], text: str) -> None:
    assert detail(ended(OOM, **changes))["text"] == text


def embedded(value: Any, path: str = "") -> dict[str, str]:
    """The texts of a detail by their paths."""
    if isinstance(value, dict):
        return {name: text for key, item in value.items() for name, text in embedded(item, f"{path}.{key}").items()}
    if isinstance(value, list):
        return {
            name: text for index, item in enumerate(value) for name, text in embedded(item, f"{path}.{index}").items()
        }
    return {path: value} if isinstance(value, str) else {}


RAW = {".stoppedReason", ".cost.priceBasis"}
HOSTILE = replace(
    RECORD,
    finished_at='"\\',
    recommendation=replace(RECORD.recommendation or Recommendation(), reasons=('say "more"\\\x07',)),
    time_breakdown=TimeBreakdown(
        network_percent=90.0, waiting_for=(WaitTarget(kind='a"', target='"/\\\x07', percent=1.0),)
    ),
)


@settings(deadline=None)
@given(NOTICES, NOTICES)
def test_all_texts_but_the_stopped_reason_can_be_embedded_in_templates(notice: EndedTask, other: EndedTask) -> None:
    """EventBridge inserts a value as it is: a quotation mark would end the string of the template."""
    record = replace(HOSTILE, finished_at=other.outcome.reason)
    run = detail(ended(replace(notice, report_line=report_line(record)), reason=f'"{notice.outcome.reason}\\'))
    for path, text in embedded(run).items():
        if path not in RAW and not path.startswith(".metrics"):
            assert json.loads(f'"{text}"') == text, path


def test_the_schema_in_the_docs_is_that_of_the_type() -> None:
    written = json.loads((ROOT / "docs" / "task-run-ended.schema.json").read_text())
    assert written == json.loads(json.dumps(json_schema()))


def test_the_schema_names_the_fields_of_the_type() -> None:
    assert set(json_schema()["$defs"]["EndedRun"]["properties"]) == set(EndedRun.__struct_encode_fields__)


SCHEMA = jsonschema.Draft202012Validator(json_schema())


@settings(deadline=None)
@given(NOTICES)
def test_any_notice_becomes_a_bounded_detail_that_matches_the_schema(notice: EndedTask) -> None:
    breakdown = None if notice.record is None else notice.record.time_breakdown
    run = detail(replace(notice, report_line=report_line(replace(RECORD, time_breakdown=breakdown))))
    SCHEMA.validate(run)
    assert ended_run(notice, kibana_url=KIBANA).status == notice.outcome.status

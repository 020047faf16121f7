"""The documents of reports and notices; that of a run is the same for any order and repetition
of its parts.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from profiler.core.index_names import IndexNames
from profiler.core.json_fields import mapping_or_empty
from profiler.forwarder.document_fields import record_fields
from profiler.forwarder.document_updates import (
    Document,
    ReportDocument,
    StoredRun,
    report_fields_with_event,
    with_runs_per_month,
)
from profiler.forwarder.ended_run import MemoryRetry
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.line_kinds import InvalidReport, decode_report_line
from profiler.forwarder.notice_documents import notice_document, schedule_notice_document
from profiler.forwarder.report_finder import ReportLine
from profiler.forwarder.run_documents import event_documents, report_document
from profiler.forwarder.run_links import TASK_RUN_DASHBOARD_ID, ecs_task_url, log_stream_url
from profiler.forwarder.search_cluster.bulk_client import ItemResult
from profiler.forwarder.search_cluster.document_delivery import DeliveryResult, deliver_documents
from profiler.forwarder.subscription import LogEvent, SubscriptionPayload, log_line_document
from profiler.record import record_model as model
from profiler.record.ecs_event_outcome import end_of_event
from profiler.record.notice_model import NoticeLine, ScheduleNoticeLine, encode_notice_line
from profiler.record.record_model import NO_INTERVAL
from profiler.record.record_paths import RunView
from profiler.record.search_document_fields import FIELDS
from profiler.record.stopped_task import UNKNOWN_CONTAINER, StoppedTask
from profiler.sinks import LogTarget
from tests.cases import each_case
from tests.ended_runs import RUN_NOTICES, run_of
from tests.fake_search import FakeSearchCluster
from tests.fakes import FakeInvocationTime
from tests.full_record import FULL as EVERY_FIELD
from tests.notices import report_line
from tests.shown_runs import missed_notice, stuck_notice
from tests.stopped_tasks import report
from tests.task_events import task
from tests.values import present

TEMPLATES = Path(__file__).parents[3] / "kibana" / "index-templates"
FULL = model.Record(
    task_id="0123",
    task_arn="arn:aws:ecs:eu-west-1:111122223333:task/jobs/0123",
    cluster="jobs",
    family="nightly",
    region="eu-west-1",
    account_id="111122223333",
    container=model.Container(name="batch", image="etl:7", image_digest="sha256:1"),
    log_group="/ecs/jobs",
    log_stream="ecs/batch/0123",
    status="failure",
    exit_code=137,
    started_at="2026-03-01T00:00:10.500Z",
    finished_at="2026-03-01T00:10:10.750Z",
    metrics=model.Metrics(duration_ms=600250, init_duration_ms=30000, max_memory_used_mb=1990.5),
    cost=model.Cost(usd=0.5),
    recommendation=model.Recommendation(vcpu=0.25, saving_percent=20.0),
    tags={"team": "data", "stage": ""},
)

BARE = model.Record(task_id="0123", container=model.Container(name="batch"))


def document(
    record: model.Record = FULL, kind: Any = "task.report", kibana_url: str | None = None
) -> Document:
    report = model.Report(time="2026-03-01T00:10:12.000Z", type=kind, record=record)
    made = report_document(
        report, model.encode(report).decode(), ForwarderSettings(kibana_url=kibana_url)
    )
    assert isinstance(made, Document)
    return made


def test_the_document_has_exactly_the_expected_fields() -> None:
    """The run started on March 1, after an image pull of 30 s from February on."""
    made = document()
    assert made.index == "task-reports-2026.02"
    assert made.id == "0123/batch"
    fields = dict(made.fields)
    assert json.loads(fields.pop("record"))["record"]["taskId"] == "0123"
    assert fields == {
        "@timestamp": "2026-03-01T00:10:10.750Z",
        "event": {
            "kind": "metric",
            "dataset": "task.report",
            "outcome": "failure",
            "duration": 600_250_000_000,
            "start": "2026-03-01T00:00:10.500Z",
            "end": "2026-03-01T00:10:10.750Z",
        },
        "cloud": {"provider": "aws", "region": "eu-west-1", "account": {"id": "111122223333"}},
        "orchestrator": {"type": "ecs", "cluster": {"name": "jobs"}},
        "service": {"name": "nightly"},
        "container": {"name": "batch", "image": {"name": "etl:7", "hash": {"all": ["sha256:1"]}}},
        "aws": {"cloudwatch": {"log_group": "/ecs/jobs", "log_stream": "ecs/batch/0123"}},
        "links": {
            "logs": "https://eu-west-1.console.aws.amazon.com/cloudwatch/home?region=eu-west-1"
            "#logsV2:log-groups/log-group/$252Fecs$252Fjobs/log-events/ecs$252Fbatch$252F0123",
            "task": "https://eu-west-1.console.aws.amazon.com/ecs/v2/clusters/jobs/tasks/0123/configuration?region=eu-west-1",
        },
        "task": {
            "id": "0123",
            "arn": "arn:aws:ecs:eu-west-1:111122223333:task/jobs/0123",
            "family": "nightly",
            "status": "failure",
            "outcome": "failure",
            "exit_code": 137,
            "complete": True,
            "report_account": "111122223333",
        },
        "usage": {
            "at_least": ["usage.memory.used_mb.max"],
            "duration_ms": 600250,
            "init_duration_ms": 30000,
            "memory": {"used_mb": {"max": 1990.5}},
            "task": {"memory_mb": 1990.5},
        },
        "cost": {"usd": 0.5, "waste_usd": 0.1},
        "recommendation": {
            "vcpu": 0.25,
            "saving_percent": 20.0,
            "saving_usd_per_month": 0.1,
        },
        "tags": ["team=data", "stage="],
    }


def test_each_checkpoint_has_its_own_id_and_time() -> None:
    interval = model.Interval(
        started_at="2026-03-01T00:01:00.000Z",
        finished_at="2026-03-01T00:02:00.000Z",
        cpu_utilization_percent=model.Distribution(avg=50.0),
        memory_used_mb=model.Distribution(avg=5.0, max=8.0),
    )
    running = replace(FULL, status="running", exit_code=None, finished_at=None, interval=interval)
    made = document(running, "task.checkpoint")
    assert made.index == "task-checkpoints-2026.02"
    assert made.id == "0123/batch/2026-03-01T00:10:12.000Z"
    assert made.fields["@timestamp"] == "2026-03-01T00:10:12.000Z"
    assert made.fields["event"]["outcome"] == "unknown"
    assert "complete" not in made.fields["task"]
    assert made.fields["interval"] == {
        "start": "2026-03-01T00:01:00.000Z",
        "end": "2026-03-01T00:02:00.000Z",
        "cpu_percent": 50.0,
        "memory_mb": 8.0,
    }


SERIES = model.Series(
    started_at="2026-03-01T00:00:10.500Z",
    step_ms=1000,
    vcpu_used=(0.25, None, 0.75),
    memory_used_mb=(100.0, 200.0, None),
)


def test_a_report_has_its_curves_as_they_were_measured() -> None:
    series = document(replace(FULL, series=SERIES)).fields["series"]
    assert series["start"] == "2026-03-01T00:00:10.500Z"
    assert series["step_ms"] == 1000
    assert list(series["vcpu_used"]) == [0.25, None, 0.75]
    assert list(series["memory_used_mb"]) == [100.0, 200.0, None]


def test_long_curves_have_240_points_of_mean_cpu_and_highest_memory() -> None:
    long = replace(
        SERIES,
        vcpu_used=(1.0, 2.0, None) * 160,
        memory_used_mb=(5.0, None, 7.0, None) * 120,
    )
    series = document(replace(FULL, series=long)).fields["series"]
    assert series["step_ms"] == 2000
    assert len(series["vcpu_used"]) == 240
    assert series["vcpu_used"][:3] == [1.5, 1.0, 2.0]
    assert series["memory_used_mb"][:2] == [5.0, 7.0]
    assert len(json.dumps(series)) <= 8192


@pytest.mark.parametrize(
    "series",
    [
        None,
        replace(SERIES, vcpu_used=None, memory_used_mb=()),
        replace(SERIES, step_ms=0),
        replace(SERIES, started_at="yesterday"),
        replace(SERIES, vcpu_used=(0.12345678901234567,) * 240, memory_used_mb=(1 / 3,) * 240),
    ],
)
def test_curves_without_values_or_times_or_of_more_than_8_kb_are_left_out(
    series: model.Series | None,
) -> None:
    assert "series" not in document(replace(FULL, series=series)).fields


def test_a_checkpoint_has_no_curves() -> None:
    running = replace(FULL, series=SERIES, interval=model.Interval())
    assert "series" not in document(running, "task.checkpoint").fields


def test_the_saving_of_a_month_is_of_the_familys_runs() -> None:
    made = with_runs_per_month(document(FULL), 30.0)
    assert made.fields["recommendation"]["saving_usd_per_month"] == pytest.approx(3.0)
    assert document(FULL).fields["recommendation"]["saving_usd_per_month"] == 0.1


def test_a_report_that_completes_the_events_document_keeps_the_saving_of_a_month() -> None:
    late = with_runs_per_month(document(FULL), 30.0)
    assert isinstance(late, ReportDocument)
    fields = report_fields_with_event(late, StoredRun(fields={}, seq_no=1, primary_term=1))
    assert fields["recommendation"]["saving_usd_per_month"] == pytest.approx(3.0)


def test_waste_is_absent_where_nothing_can_be_saved() -> None:
    dearer = replace(FULL, recommendation=model.Recommendation(vcpu=1, saving_percent=-30.0))
    assert document(dearer).fields["cost"] == {"usd": 0.5}
    assert "saving_usd_per_month" not in document(dearer).fields["recommendation"]


@pytest.mark.parametrize(
    "time",
    ["yesterday", "", "2026-03-01T00:00:00", "0001-01-01T00:00:00+14:00", "1969-01-01T00:00:00Z"],
)
def test_a_report_without_a_time_is_invalid(time: str) -> None:
    report = model.Report(time=time, type="task.report", record=FULL)
    assert isinstance(report_document(report, "", ForwarderSettings()), InvalidReport)


TASK_ID = "158d1c8083dd49d6b527399fd6414f5c"


def log_line(stream: str) -> Document:
    payload = SubscriptionPayload(log_group="/ecs/jobs", log_stream=stream)
    return log_line_document(payload, LogEvent("77", 1772359202507, "hello"), ForwarderSettings())


def test_the_document_of_a_log_line_has_its_task() -> None:
    made = log_line(f"team/a/batch/{TASK_ID}")
    assert made.index == "task-logs-2026.03"
    assert made.id == "77"
    assert made.fields["@timestamp"] == "2026-03-01T10:00:02.507Z"
    assert made.fields["task"] == {"id": TASK_ID}
    assert made.fields["container"] == {"name": "batch"}


@pytest.mark.parametrize(
    "stream",
    [
        "one",
        f"2026/11/20/[$LATEST]{TASK_ID}",
        f"2026/11/20/report[1]{TASK_ID}",
        "app/web/i-0abc",
        f"batch/{TASK_ID}",
    ],
)
def test_streams_of_other_programs_name_no_task(stream: str) -> None:
    assert {"task", "container"}.isdisjoint(log_line(stream).fields)


@pytest.mark.parametrize(
    ("record", "kind", "period"),
    [
        (FULL, "task.report", ("'2026-02-28T23:55:10.500Z'", "'2026-03-01T00:15:10.750Z'")),
        (FULL, "task.checkpoint", ("'2026-02-28T23:55:10.500Z'", "now")),
        (BARE, "task.report", ("'2026-03-01T00:05:12.000Z'", "'2026-03-01T00:15:12.000Z'")),
    ],
)
def test_the_link_to_the_dashboard_has_the_times_of_the_run(
    record: model.Record, kind: str, period: tuple[str, str]
) -> None:
    link = document(record, kind, kibana_url="https://kibana/s/ops/").fields["links"]["run"]
    start, end = period
    assert link.startswith(f"https://kibana/s/ops/app/dashboards#/view/{TASK_RUN_DASHBOARD_ID}?")
    assert f"?_g=(time:(from:{start},to:{end}))&_a=" in link
    assert unquote(link).endswith("query:'task.id:\"0123\"'))")


def leaves(fields: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{path}{name}.")
        else:
            yield path + name


def mapped(properties: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in properties.items():
        if "properties" in field:
            assert field["dynamic"] is False
            yield from mapped(field["properties"], f"{path}{name}.")
        else:
            yield path + name, field


def template(name: str) -> dict[str, Any]:
    return dict(json.loads((TEMPLATES / f"{name}.json").read_text()))


@pytest.mark.parametrize("name", ["report", "checkpoint"])
def test_every_field_that_is_written_is_mapped(name: str) -> None:
    started, finished = "2026-03-01T00:01:00Z", "2026-03-01T00:02:00Z"
    interval = replace(EVERY_FIELD.interval, started_at=started, finished_at=finished)
    own = interval if name == "checkpoint" else NO_INTERVAL
    record = replace(EVERY_FIELD, started_at=started, finished_at=finished, interval=own)
    known = dict(mapped(template(f"task-{name}s")["template"]["mappings"]["properties"]))
    assert set(leaves(document(record, f"task.{name}", kibana_url="https://kibana").fields)) <= set(
        known
    )


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.json")), ids=lambda path: path.stem)
def test_user_data_cannot_cause_a_mapping_conflict(path: Path) -> None:
    loaded = template(path.stem)
    assert loaded["index_patterns"] == [f"{path.stem}-*"]
    mappings = loaded["template"]["mappings"]
    assert mappings["dynamic"] is False
    assert loaded["template"]["settings"]["index"]["mapping"] == {"ignore_malformed": True}
    for name, field in mapped(mappings["properties"]):
        if name == "series":
            assert field == {"type": "object", "enabled": False}
            continue
        assert field["type"] in {"keyword", "date", "float", "double", "long", "boolean", "text"}
        if field["type"] == "keyword" and name != "record":
            assert field["ignore_above"] >= 1024
    assert "lifecycle" not in json.dumps(loaded)


STUCK, MISSED = stuck_notice(), missed_notice()
KIBANA = "https://kibana.example.com"


def made_of(line: NoticeLine | ScheduleNoticeLine, **settings: Any) -> Document:
    text, given = encode_notice_line(line).decode(), ForwarderSettings(**settings)
    if isinstance(line, ScheduleNoticeLine):
        return schedule_notice_document(line, text, given)
    made = notice_document(line, text, given)
    assert isinstance(made, Document)
    return made


def test_the_document_of_a_stuck_run() -> None:
    made, record = made_of(STUCK), STUCK.record
    assert made.index == "task-notices-2026.11"
    assert made.id == f"{record.task_id}/batch/stuck"
    assert made.notice is STUCK
    assert json.loads(made.fields["record"])["type"] == "task.notice"
    assert made.fields["@timestamp"] == STUCK.time
    assert made.fields["event"]["dataset"] == "task.notice"
    assert made.fields["notice"] == {
        "kind": "stuck",
        "message": STUCK.notice.message,
        "since": STUCK.notice.since,
    }
    named = {
        "id": record.task_id,
        "arn": record.task_arn,
        "family": "nightly-etl",
        "revision": record.revision,
    }
    assert made.fields["task"] == named
    assert made.fields["orchestrator"]["cluster"] == {"name": "jobs"}
    logs, shown = (
        log_stream_url("us-west-2", record.log_group, record.log_stream),
        made.fields["links"],
    )
    assert shown == {"logs": logs, "task": ecs_task_url("us-west-2", "jobs", record.task_id)}


def test_the_document_of_a_late_job() -> None:
    late = replace(MISSED.notice, kind="late", task_id="4109")
    line = replace(MISSED, cluster=None, queue="nights", family="etl", notice=late)
    made = made_of(line, kibana_url=KIBANA)
    assert made.fields["task"] == {"family": "etl"}
    assert made.fields["batch"] == {
        "job_id": "4109",
        "queue": "nights",
        "job_definition": "etl",
    }
    assert "links" not in made.fields


def test_the_document_of_a_missed_run() -> None:
    made, notice = made_of(MISSED, indices=IndexNames(period="day")), MISSED.notice
    assert made.index == "task-notices-2026.11.20"
    assert made.notice is None
    assert made.id == "schedule/default/nightly-etl/2026-11-20T03:00:00.000Z/missed"
    assert made.fields["@timestamp"] == MISSED.time
    assert made.fields["event"]["dataset"] == "schedule.notice"
    shown = {
        "kind": "missed",
        "message": notice.message,
        "due_at": notice.due_at,
        "reason": notice.reason,
    }
    assert made.fields["notice"] == shown
    schedule = {
        "kind": "schedule",
        "group": "default",
        "name": "nightly-etl",
        "expression": "cron(0 3 * * ? *)",
    }
    assert made.fields["schedule"] == {**schedule, "time_zone": "UTC"}
    assert made.fields["task"] == {"family": "nightly-etl"}
    assert made.fields["cloud"]["account"] == {"id": "111122223333"}


def test_the_index_has_all_fields() -> None:
    properties = template("task-notices")["template"]["mappings"]["properties"]
    slow = replace(MISSED, notice=replace(MISSED.notice, task_id="0123"))
    assert set(dict(mapped(properties))) == {
        *leaves(
            made_of(
                replace(STUCK, record=replace(STUCK.record, account_id="1")), kibana_url=KIBANA
            ).fields
        ),
        *leaves(made_of(slow).fields),
        *leaves(made_of(replace(slow, queue="nights")).fields),
    }


@settings(deadline=None)
@given(RUN_NOTICES)
def test_any_notice_becomes_a_document_or_has_a_reason(line: NoticeLine) -> None:
    line = replace(line, time="2026-11-20T03:00:00Z")
    try:
        made = notice_document(line, encode_notice_line(line).decode(), ForwarderSettings())
    except UnicodeEncodeError:  # no line can be written with a lone surrogate
        return
    assert made.reason if isinstance(made, InvalidReport) else len(made.id.encode()) <= 512


# The document of a run, in any order of its report, its event and a replay


INTERVAL = {"startedAt": "2026-03-01T10:11:28Z", "finishedAt": "2026-03-01T10:12:28Z"}
# A number that the report does not have, and a status and an exit code that must not become the
# run's.
CHECKPOINT = report(
    "task.checkpoint",
    status="running",
    exitCode=7,
    interval=INTERVAL,
    metrics={"maxMemoryUsedMB": 500, "maxPids": 3},
)
SUCCEEDED = task(containers=[{"name": "batch", "exitCode": 0}])
FAILED = task(containers=[{"name": "batch", "exitCode": 3}])
KILLED = task(
    containers=[{"name": "batch", "exitCode": 143}],
    stopCode="UserInitiated",
    stoppedReason="by user",
)
NO_CODE = task(containers=[{"name": "batch"}], stopCode="SpotInterruption", stoppedReason=None)
UNKNOWN = task(containers=[{"name": "batch"}], stopCode=None, stoppedReason=None)
EVENTS = {
    "success": SUCCEEDED,
    "failure": FAILED,
    "stopped": KILLED,
    "no exit code": NO_CODE,
    "unknown": UNKNOWN,
}


def of_report(text: str) -> list[Document]:
    document = report_document(report_line(text).report, text, ForwarderSettings())
    assert isinstance(document, Document)
    return [document]


def of_event(stopped: StoppedTask, text: str | None = None, **known: Any) -> list[Document]:
    line = None if text is None else report_line(text)
    end = end_of_event(stopped, stopped.container_or_name_only("batch"))
    ended = run_of(task=stopped, end=end, container="batch", report_line=line, **known)
    return [*event_documents(ended, ForwarderSettings(), ended.retry)]


def write(cluster: FakeSearchCluster, documents: Sequence[Document]) -> DeliveryResult:
    return deliver_documents(cluster, FakeInvocationTime(), documents)


def written(*writes: Sequence[Document]) -> dict[str, Any]:
    cluster = FakeSearchCluster()
    for documents in writes:
        assert write(cluster, documents) == DeliveryResult(indexed=len(documents))
    (document,) = cluster.documents.values()
    return document


def steps(text: str, ended: StoppedTask) -> dict[str, list[Document]]:
    return {
        "report": of_report(text),
        "event": of_event(ended),
        "event with a checkpoint": of_event(ended, CHECKPOINT),
        "event with the report": of_event(ended, text),
    }


@each_case(
    ("status", "ended", "expected"),
    [
        ("success", SUCCEEDED, ("success", 0, "success")),
        ("unknown", SUCCEEDED, ("success", 0, "success")),
        ("success", FAILED, ("failure", 3, "failure")),
        ("failure", KILLED, ("stopped", 143, "unknown")),
        ("stopped", FAILED, ("failure", 3, "failure")),
        ("failure", NO_CODE, ("stopped", 1, "unknown")),
        ("success", UNKNOWN, ("success", 0, "success")),
        ("stopped", UNKNOWN, ("stopped", None, "unknown")),
        ("unknown", UNKNOWN, ("unknown", None, "unknown")),
    ],
)
def test_the_end_comes_from_the_event_and_the_numbers_from_the_report(
    status: str, ended: StoppedTask, expected: tuple[str, int | None, str]
) -> None:
    text = report(status=status, exitCode={"success": 0, "failure": 1}.get(status))
    document = written(*steps(text, ended).values())
    end = (
        document["task"]["status"],
        document["task"].get("exit_code"),
        document["event"]["outcome"],
    )
    assert end == expected
    assert document["task"]["complete"] is True
    assert document["record"] == text
    assert document["usage"]["duration_ms"] == 60000
    assert "interval" not in document


ON_DEMAND = "us-west-2 FARGATE X86_64 2026-09 on-demand price"
SAVING: dict[str, Any] = {
    "recommendation": {"vcpu": 0.5, "memoryMB": 1024, "savingPercent": 50.0, "reasons": []}
}


@pytest.mark.parametrize(
    "order",
    [
        ("report", "event with the report"),
        ("event with the report",),
        ("event with the report", "report"),
        ("event", "report"),
        ("event with a checkpoint", "report"),
        ("report", "event", "report"),
    ],
)
def test_a_run_on_spot_costs_a_fraction_of_the_on_demand_price(
    order: tuple[str, ...],
) -> None:
    """Only the event knows that it was on Spot."""
    for provider, basis, usd in (
        ("FARGATE_SPOT", ON_DEMAND, 0.006),
        ("FARGATE_SPOT", "with TASK_PROFILER_PRICE_VCPU_HOUR", 0.02),
        ("FARGATE", ON_DEMAND, 0.02),
    ):
        ended = task(capacityProviderName=provider, containers=[{"name": "batch", "exitCode": 0}])
        writes = steps(report(cost={"usd": 0.02, "priceBasis": basis}, **SAVING), ended)
        document = written(*(writes[name] for name in order))
        assert document["task"]["capacity_provider"] == provider
        assert document["cost"] == {"usd": usd, "waste_usd": usd / 2}
        assert ("cost.usd" in document["usage"]["at_least"]) is (usd == 0.006)


IDENTITY = (
    *("cloud.account.id", "cloud.region", "cloud.availability_zone", "orchestrator.cluster.name"),
    *("service.name", "task.id", "task.arn", "task.family", "task.revision", "task.launch_type"),
)


def identity_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The values that name a run's task, by field."""
    values: dict[str, Any] = {}
    for path in IDENTITY:
        value: Any = document
        for part in path.split("."):
            value = value.get(part, {})
        values[path] = value
    return values


any_report = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(["success", "failure", "stopped", "unknown", "a later word"]),
        "exitCode": st.sampled_from([0, 1, 137, 143]),
        "startedAt": st.sampled_from(
            ["2026-03-01T10:11:28Z", "2026-01-05T00:00:00Z", "2025-12-31T12:00:00Z", "never"]
        ),
        "finishedAt": st.sampled_from(
            ["2026-03-01T10:12:30Z", "2026-02-01T00:00:00Z", "2026-04-01T00:00:00Z"]
        ),
        "region": st.just("eu-west-1"),
        "cluster": st.just("elsewhere"),
        "taskArn": st.just("arn:aws:ecs:eu-west-1:999988887777:task/elsewhere/4dd5"),
        "launchType": st.just("EC2"),
        "revision": st.just("99"),
        "family": st.sampled_from(["nightly", "payroll"]),
        "container": st.just({"name": "batch", "id": "0" * 64, "image": "forged"}),
        "metrics": st.sampled_from(
            [{}, {"durationMs": 5}, {"maxMemoryUsedMB": 9}, {"initDurationMs": 86_400_000}]
        ),
    },
)


@given(any_report, st.sampled_from(sorted(EVENTS)), st.data())
def test_every_order_and_repetition_gives_the_same_document(
    record: dict[str, Any], name: str, data: st.DataObject
) -> None:
    """A replay writes the report again.

    It replaces the fields of the event or a checkpoint as a whole. Whatever the report says, the
    identity is the event's, and there is one document.
    """
    text = report(**record)
    writes = steps(text, EVENTS[name])
    expected = written(writes["report"], writes["event"])
    drawn = data.draw(st.lists(st.sampled_from(sorted(writes)), max_size=6))
    needed = data.draw(st.sampled_from([["report", "event"], ["event with the report"]]))
    order = data.draw(st.permutations([*drawn, *needed]))
    document = written(*(writes[step] for step in order))
    assert document == expected
    assert identity_of(document) == identity_of(written(of_event(EVENTS[name])))
    assert document["task"]["confirmed"] is True


RETRIES = (
    MemoryRetry(sentence="x", retried_as="9" * 32),
    MemoryRetry(sentence="x", retry_of="8" * 32),
)


@each_case("retry", RETRIES)
@each_case("order", list(permutations(range(3))))
def test_the_other_task_of_a_retry_stays_in_any_order(
    retry: MemoryRetry, order: tuple[int, ...]
) -> None:
    """The last write is an event that is repeated after the retry could no longer be asked for."""
    writes = [of_event(FAILED, retry=retry), of_report(report()), of_event(FAILED, report())]
    task_fields = written(*(writes[number] for number in order), of_report(report()))["task"]
    assert task_fields.get("retried_as") == retry.retried_as
    assert task_fields.get("retry_of") == retry.retry_of


class Racing(FakeSearchCluster):
    """Another writer comes between the two requests of a report."""

    def write_documents(
        self, documents: Sequence[Document], timeout_seconds: float
    ) -> list[ItemResult]:
        if any(document.stored is not None for document in documents):
            (event,) = of_event(FAILED)
            (result,) = super().write_documents([event], timeout_seconds)
            super().write_documents([replace(event, stored=result.stored)], timeout_seconds)
        return super().write_documents(documents, timeout_seconds)


def test_an_event_between_the_two_requests_of_a_report_is_not_overwritten() -> None:
    text = report(status="success", exitCode=0)
    cluster = Racing()
    write(cluster, of_event(UNKNOWN))
    assert write(cluster, of_report(text)) == DeliveryResult(indexed=1)
    (document,) = cluster.documents.values()
    assert document == written(of_report(text), of_event(UNKNOWN), of_event(FAILED))
    assert document["task"]["status"] == "failure"


@pytest.mark.parametrize(
    ("pulled", "init_ms", "month"), [("2026-02-28T23:59:58Z", 6000, "02"), (None, None, "03")]
)
def test_all_writers_of_a_run_use_one_index(
    pulled: str | None, init_ms: int | None, month: str
) -> None:
    """ECS creates the task before it starts the batch, and sees the start a moment later than
    the batch's monitor.
    """
    times = {
        "createdAt": "2026-02-28T23:59:50Z",
        "pullStartedAt": pulled,
        "startedAt": "2026-03-01T00:00:05Z",
    }
    text = report(startedAt="2026-03-01T00:00:04Z", metrics={"initDurationMs": init_ms})
    writes = steps(text, task(**times))
    indices = {
        one.index for name in ("event", "report", "event with the report") for one in writes[name]
    }
    assert indices == {f"task-reports-2026.{month}"}


LOG = {"logGroup": "/ecs/jobs", "logStream": "ecs/batch/0123", "logRegion": "eu-west-1"}


@pytest.mark.parametrize(
    "line",
    [
        None,
        report_line(CHECKPOINT),
        report_line(report()),
        report_line(report(region="us-west-2", **LOG)),
    ],
)
def test_the_notification_links_a_run_to_the_same_times_as_its_document(
    line: ReportLine | None,
) -> None:
    stream = LogTarget(group="/ecs/jobs", stream="ecs/batch/0123", region="eu-west-1")
    end = end_of_event(FAILED, UNKNOWN_CONTAINER)
    ended = run_of(task=FAILED, end=end, container="batch", report_line=line, log=stream)
    links = ended.console_links("https://kibana")
    (document, *_) = event_documents(ended, ForwarderSettings(kibana_url="https://kibana"))
    assert document.initial_fields["links"]["run"] == links.kibana
    assert None not in asdict(links).values()
    assert "region=eu-west-1#" in present(links.log_stream)


@pytest.mark.parametrize(
    "record",
    [
        EVERY_FIELD,
        replace(EVERY_FIELD, gpus=(), gpu_scope=None, gpu_idle=None),
        replace(EVERY_FIELD, gpus=(), neuron=model.NO_NEURON, gpu_idle=None),
        replace(EVERY_FIELD, gpus=(), neuron=model.NO_NEURON, gpu_scope=None),
        model.Record(task_id=TASK_ID, container=model.Container(name="batch")),
    ],
    ids=["full", "without GPUs", "GPU scope alone", "GPU idle time alone", "empty"],
)
def test_a_document_has_what_each_field_reads(record: model.Record) -> None:
    """Parts of a record are read at once, and left out where the record lacks them."""
    fields = record_fields(record, "task.report", datetime(2026, 3, 1, tzinfo=UTC))
    run = RunView(record)
    for field in FIELDS:
        if field.get is None or field.index_type == "date":
            continue
        value: object = fields
        for name in field.name.split("."):
            value = mapping_or_empty(value).get(name)
        assert value == field.get(run), field.name


_LARGEST = {"long": 2.0**63 - 1024, "float": 3.4e38, "double": 1.7e308}


@pytest.mark.parametrize("number", ["1e300", "-1e300", str(10**30), str(-(10**30))])
def test_an_absurd_number_costs_no_report(number: str) -> None:
    """A cluster refuses a whole document for a number that its field cannot hold."""
    line = model.encode(
        model.Report(time="2026-03-01T00:00:00Z", type="task.report", record=EVERY_FIELD)
    )
    paths = {field.record_path for field in FIELDS if field.index_type in _LARGEST}
    paths |= {f"metrics.slowdownAtVcpu.1.{bound}" for bound in ("min", "max")}
    for path in filter(None, paths):
        document = json.loads(line)
        part = document["record"]
        *parents, name = path.split(".")
        for parent in parents:
            part = part.setdefault(parent, {})
        part[name] = "NUMBER"
        report = decode_report_line(json.dumps(document).replace('"NUMBER"', number))
        if isinstance(report, InvalidReport):  # a fraction where a whole number belongs
            continue
        made = report_document(present(report), "", ForwarderSettings())
        assert isinstance(made, Document)
        for field in FIELDS:
            value: object = made.fields
            for member in field.name.split("."):
                value = mapping_or_empty(value).get(member)
            if isinstance(value, int | float):
                assert abs(value) <= _LARGEST.get(field.index_type, 1), (path, field.name)

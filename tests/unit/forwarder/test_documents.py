"""The documents of reports and notices, compared with the index templates."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from profiler.forwarder.documents import Document, notice_document, report_document, schedule_notice_document
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.run_links import TASK_RUN_DASHBOARD_ID, ecs_task, log_stream
from profiler.forwarder.subscription import LogEvent, Payload, log_line_document
from profiler.forwarder.task_lines import InvalidReport
from profiler.record import record_model as model
from profiler.record.notice_model import NoticeLine, ScheduleNoticeLine, encode_notice
from tests.shown_runs import missed_notice, stuck_notice, waiting
from tests.unit.forwarder.notices.test_slack_messages import RUN_NOTICES
from tests.unit.record.test_report_metrics import FULL as EVERY_FIELD
from tests.values import present

TEMPLATES = Path(__file__).parents[3] / "kibana" / "index-templates"
PERCENT = model.Distribution(avg=50.0, p50=49.0, p95=90.0, p99=95.0, max=97.0)
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
    metrics=model.Metrics(
        duration_ms=600250,
        init_duration_ms=30000,
        max_memory_used_mb=1990.5,
        cpu_utilization_percent=PERCENT,
        memory_used_mb=model.Distribution(avg=1000.0, max=1980.0),
    ),
    gpus=(
        model.Gpu(uuid="G1", utilization_percent=model.Distribution(avg=10.0, max=90.0), energy_joules=5.0),
        model.Gpu(
            uuid="G2",
            utilization_percent=model.Distribution(avg=30.0, max=50.0),
            memory_used_mb=model.Distribution(avg=7.0, max=9.0),
            energy_joules=6.5,
        ),
    ),
    neuron=model.Neuron(
        cores=(model.NeuronCore(index=0, utilization_percent=PERCENT), model.NeuronCore(index=1)),
        device_memory_used_mb=model.Distribution(max=77.0),
    ),
    cost=model.Cost(usd=0.5),
    recommendation=model.Recommendation(vcpu=0.25, saving_percent=20.0),
    tags={"team": "data", "stage": ""},
)

BARE = model.Record(task_id="0123", container=model.Container(name="batch"))


def document(
    record: model.Record = FULL,
    kind: Any = "task.report",
    time: str = "2026-03-01T00:10:12.000Z",
    kibana_url: str | None = None,
) -> Document:
    report = model.Report(time=time, type=kind, record=record)
    try:
        line = model.encode(report).decode()
    except OverflowError:
        line = "a line with a number that only other encoders write"
    made = report_document(report, line, ForwarderSettings(kibana_url=kibana_url))
    assert isinstance(made, Document)
    return made


def test_the_document_has_exactly_the_expected_fields() -> None:
    """The catalogue's tests show that each field reads its value from the record."""
    made = document()
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
            "task": "https://eu-west-1.console.aws.amazon.com/ecs/v2/clusters/jobs/tasks/0123/configuration"
            "?region=eu-west-1",
        },
        "task": {
            "id": "0123",
            "arn": "arn:aws:ecs:eu-west-1:111122223333:task/jobs/0123",
            "family": "nightly",
            "status": "failure",
            "exit_code": 137,
            "complete": True,
        },
        "usage": {
            "duration_ms": 600250,
            "init_duration_ms": 30000,
            "cpu": {"percent": {"avg": 50.0, "p50": 49.0, "p95": 90.0, "p99": 95.0, "max": 97.0}},
            "memory": {"used_mb": {"avg": 1000.0, "max": 1990.5}},
            "gpu": {
                "count": 2,
                "percent": {"avg": 20.0, "max": 90.0},
                "memory_mb": {"avg": 7.0, "max": 9.0},
                "energy_joules": 11.5,
            },
            "neuron": {"cores": 2, "percent": {"avg": 50.0, "max": 97.0}, "memory_mb": {"max": 77.0}},
        },
        "cost": {"usd": 0.5, "waste_usd": 0.1},
        "recommendation": {"vcpu": 0.25, "saving_percent": 20.0},
        "tags": ["team=data", "stage="],
    }


def test_the_document_has_the_processor_the_wait_for_a_cpu_and_where_the_time_went() -> None:
    fields = document(waiting().record).fields
    parts = {"on_cpu": 31.2, "waiting_for_cpu": 4.1, "disk": 3.0, "network": 55.4, "sleep": 5.0, "lock": 0.2}
    parts |= {"pipe": 0.0, "child": 0.0, "other": 1.1}
    assert fields["usage"]["time"] == {name: {"percent": percent} for name, percent in parts.items()}
    assert sum(parts.values()) == pytest.approx(100)
    assert fields["usage"]["cpu"]["wait_seconds"] == 61.4
    assert fields["host"] == {"cpu": {"model": "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz"}}


def test_the_index_is_the_month_in_which_the_pull_began() -> None:
    """The run started at 00:00:10 on March 1, after 30 s of image pull."""
    made = document()
    assert (made.index, made.id) == ("task-reports-2026.02", "0123/batch")


def test_each_checkpoint_has_its_own_id_and_time() -> None:
    interval = model.Interval(
        started_at="2026-03-01T00:01:00.000Z",
        finished_at="2026-03-01T00:02:00.000Z",
        cpu_utilization_percent=PERCENT,
        memory_used_mb=model.Distribution(avg=5.0, max=8.0),
    )
    running = replace(FULL, status="running", exit_code=None, finished_at=None, interval=interval)
    made = document(running, "task.checkpoint", "2026-03-01T00:02:00.100Z")
    assert (made.index, made.id) == ("task-checkpoints-2026.02", "0123/batch/2026-03-01T00:02:00.100Z")
    assert made.fields["@timestamp"] == "2026-03-01T00:02:00.100Z"
    assert made.fields["event"]["outcome"] == "unknown"
    assert "complete" not in made.fields["task"]
    assert made.fields["interval"] == {
        "start": "2026-03-01T00:01:00.000Z",
        "end": "2026-03-01T00:02:00.000Z",
        "cpu_percent": 50.0,
        "memory_mb": 8.0,
    }


def test_waste_is_absent_where_nothing_can_be_saved() -> None:
    dearer = replace(FULL, recommendation=model.Recommendation(vcpu=1, saving_percent=-30.0))
    assert document(dearer).fields["cost"] == {"usd": 0.5}


@pytest.mark.parametrize(
    "time", ["yesterday", "", "2026-03-01T00:00:00", "0001-01-01T00:00:00+14:00", "1969-01-01T00:00:00Z"]
)
def test_a_report_without_a_time_is_invalid(time: str) -> None:
    assert isinstance(
        report_document(model.Report(time=time, type="task.report", record=FULL), "", ForwarderSettings()),
        InvalidReport,
    )


TASK_ID = "158d1c8083dd49d6b527399fd6414f5c"


def log_line(stream: str) -> Document:
    payload = Payload(log_group="/ecs/jobs", log_stream=stream)
    return log_line_document(payload, LogEvent("77", 1772359202507, "hello"), ForwarderSettings())


def test_the_document_of_a_log_line_has_its_task() -> None:
    made = log_line(f"team/a/batch/{TASK_ID}")
    assert (made.index, made.id) == ("task-logs-2026.03", "77")
    assert made.fields["@timestamp"] == "2026-03-01T10:00:02.507Z"
    assert (made.fields["task"], made.fields["container"]) == ({"id": TASK_ID}, {"name": "batch"})


@pytest.mark.parametrize(
    "stream",
    ["one", f"2026/11/20/[$LATEST]{TASK_ID}", f"2026/11/20/report[1]{TASK_ID}", "app/web/i-0abc", f"batch/{TASK_ID}"],
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
    loaded: dict[str, Any] = json.loads((TEMPLATES / f"{name}.json").read_text())
    return loaded


@pytest.mark.parametrize("name", ["report", "checkpoint"])
def test_every_field_that_is_written_is_mapped(name: str) -> None:
    started, finished = "2026-03-01T00:01:00Z", "2026-03-01T00:02:00Z"
    interval = (
        replace(present(EVERY_FIELD.interval), started_at=started, finished_at=finished)
        if name == "checkpoint"
        else None
    )
    record = replace(EVERY_FIELD, started_at=started, finished_at=finished, interval=interval)
    known = dict(mapped(template(f"task-{name}s")["template"]["mappings"]["properties"]))
    assert set(leaves(document(record, f"task.{name}", kibana_url="https://kibana").fields)) <= set(known)


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.json")), ids=lambda path: path.stem)
def test_user_data_cannot_cause_a_mapping_conflict(path: Path) -> None:
    loaded = template(path.stem)
    assert loaded["index_patterns"] == [f"{path.stem}-*"]
    mappings = loaded["template"]["mappings"]
    assert mappings["dynamic"] is False
    assert loaded["template"]["settings"]["index"]["mapping"] == {"ignore_malformed": True}
    for name, field in mapped(mappings["properties"]):
        assert field["type"] in {"keyword", "date", "float", "double", "long", "boolean", "text"}
        if field["type"] == "keyword" and name != "record":
            assert field["ignore_above"] >= 1024
    assert "lifecycle" not in json.dumps(loaded)


STUCK, MISSED = stuck_notice(), missed_notice()
KIBANA = "https://kibana.example.com"


def notice_document_of(line: NoticeLine | ScheduleNoticeLine, **settings: Any) -> Document | InvalidReport:
    text = encode_notice(line).decode()
    if isinstance(line, NoticeLine):
        return notice_document(line, text, ForwarderSettings(**settings))
    return schedule_notice_document(line, text, ForwarderSettings(**settings))


def fields_of(line: NoticeLine | ScheduleNoticeLine, **options: Any) -> dict[str, Any]:
    made = notice_document_of(line, **options)
    assert isinstance(made, Document)
    return dict(made.fields)


def test_the_document_of_a_stuck_run() -> None:
    made = notice_document_of(STUCK)
    assert isinstance(made, Document)
    assert (made.index, made.id) == ("task-notices-2026.11", f"{STUCK.record.task_id}/batch/stuck")
    assert made.notice is STUCK
    assert json.loads(made.fields["record"])["type"] == "task.notice"
    assert (made.fields["@timestamp"], made.fields["event"]["dataset"]) == (STUCK.time, "task.notice")
    assert made.fields["notice"] == {"kind": "stuck", "message": STUCK.notice.message, "since": STUCK.notice.since}
    named = (("id", STUCK.record.task_id), ("arn", STUCK.record.task_arn), ("family", "nightly-etl"))
    assert made.fields["task"] == dict(named) | {"revision": STUCK.record.revision}
    assert made.fields["orchestrator"]["cluster"] == {"name": "jobs"}
    assert made.fields["links"] == {
        "logs": log_stream("us-west-2", STUCK.record.log_group, STUCK.record.log_stream),
        "task": ecs_task("us-west-2", "jobs", STUCK.record.task_id),
    }


def test_the_document_of_a_missed_run() -> None:
    made = notice_document_of(MISSED, index_period="day")
    assert isinstance(made, Document)
    assert (made.index, made.id) == (
        "task-notices-2026.11.20", "schedule/default/nightly-etl/2026-11-20T03:00:00.000Z/missed"
    )  # fmt: skip
    assert made.notice is None
    assert (made.fields["@timestamp"], made.fields["event"]["dataset"]) == (MISSED.time, "schedule.notice")
    notice, schedule = made.fields["notice"], made.fields["schedule"]
    assert (notice["kind"], notice["message"]) == ("missed", MISSED.notice.message)
    assert (notice["due_at"], notice["reason"]) == (MISSED.notice.due_at, MISSED.notice.reason)
    assert (schedule["kind"], schedule["expression"], schedule["time_zone"]) == ("schedule", "cron(0 3 * * ? *)", "UTC")
    assert (made.fields["task"], made.fields["cloud"]["account"]) == ({"family": "nightly-etl"}, {"id": "111122223333"})


def test_the_index_has_all_fields() -> None:
    properties = template("task-notices")["template"]["mappings"]["properties"]
    slow = replace(MISSED, notice=replace(MISSED.notice, task_id="0123"))
    assert set(dict(mapped(properties))) == {
        *leaves(fields_of(replace(STUCK, record=replace(STUCK.record, account_id="1")), kibana_url=KIBANA)),
        *leaves(fields_of(slow)),
    }


@pytest.mark.parametrize("kind", ["", "x" * 41, "<!channel>"])
def test_a_kind_that_is_no_word_is_invalid(kind: str) -> None:
    made = notice_document_of(replace(STUCK, notice=replace(STUCK.notice, kind=kind)))
    assert isinstance(made, InvalidReport)
    assert "is not a word" in made.reason


@settings(deadline=None)
@given(RUN_NOTICES)
def test_any_notice_becomes_a_document_or_has_a_reason(line: NoticeLine) -> None:
    try:
        made = notice_document_of(replace(line, time="2026-11-20T03:00:00Z"))
    except UnicodeEncodeError:  # no line can be written with a lone surrogate
        return
    assert made.reason if isinstance(made, InvalidReport) else len(made.id.encode()) <= 512

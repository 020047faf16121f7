"""The search documents of notices: their ids, indices and fields."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from forwarder.documents import Document
from forwarder.notice_documents import notice_document, schedule_notice_document
from forwarder.run_links import ecs_task, kibana_task, log_stream
from forwarder.task_lines import InvalidReport
from profiler.core.timestamps import parse_datetime
from profiler.record.notice_model import NoticeLine, ScheduleNoticeLine, encode_notice
from tests.shown_runs import missed_notice, stuck_notice
from tests.unit.forwarder.notices.test_notice_message import RUN_NOTICES, SCHEDULE_NOTICES

TEMPLATE = Path(__file__).parents[3] / "kibana" / "index-templates" / "task-notices.json"
STUCK, MISSED = stuck_notice(), missed_notice()
KIBANA = "https://kibana.example.com"


def document(line: NoticeLine | ScheduleNoticeLine, **place: Any) -> Document | InvalidReport:
    text = encode_notice(line).decode()
    if isinstance(line, NoticeLine):
        return notice_document(line, text, prefix="task", **place)
    return schedule_notice_document(line, text, prefix="task", **place)


def fields_of(line: NoticeLine | ScheduleNoticeLine, **options: Any) -> dict[str, Any]:
    made = document(line, **options)
    assert isinstance(made, Document)
    return dict(made.fields)


def paths(fields: Mapping[str, Any], before: str = "") -> Iterator[str]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from paths(value, f"{before}{name}.")
        else:
            yield before + name


def test_the_document_of_a_stuck_run() -> None:
    made = document(STUCK)
    assert isinstance(made, Document)
    assert (made.index, made.id) == ("task-notices-2026.11", f"{STUCK.record.task_id}/batch/stuck")
    assert made.notice is STUCK
    fields = dict(made.fields)
    assert json.loads(fields.pop("record"))["type"] == "task.notice"
    assert fields == {
        "@timestamp": STUCK.time,
        "event": {"kind": "alert", "dataset": "task.notice"},
        "notice": {"kind": "stuck", "message": STUCK.notice.message, "since": STUCK.notice.since},
        "cloud": {"provider": "aws", "region": "us-west-2"},
        "orchestrator": {"type": "ecs", "cluster": {"name": "jobs"}},
        "service": {"name": "nightly-etl"},
        "container": {"name": "batch"},
        "aws": {"cloudwatch": {"log_group": STUCK.record.log_group, "log_stream": STUCK.record.log_stream}},
        "task": {
            "id": STUCK.record.task_id,
            "arn": STUCK.record.task_arn,
            "family": "nightly-etl",
            "revision": STUCK.record.revision,
        },
        "links": {
            "logs": log_stream("us-west-2", STUCK.record.log_group, STUCK.record.log_stream),
            "task": ecs_task("us-west-2", "jobs", STUCK.record.task_id),
        },
    }


def test_the_links_of_notices() -> None:
    stuck, slow = (
        fields_of(line, kibana_url=KIBANA)["links"]
        for line in (STUCK, replace(MISSED, notice=replace(MISSED.notice, task_id="0123")))
    )
    started = parse_datetime(STUCK.record.started_at)
    assert stuck["run"] == kibana_task(KIBANA, STUCK.record.task_id, started)
    assert slow == {
        "run": kibana_task(KIBANA, "0123", parse_datetime(MISSED.notice.due_at)),
        "task": ecs_task("us-west-2", "jobs", "0123"),
    }


def test_the_document_of_a_missed_run() -> None:
    made = document(MISSED, period="day")
    assert isinstance(made, Document)
    assert (made.index, made.id) == (
        "task-notices-2026.11.20", "schedule/default/nightly-etl/2026-11-20T03:00:00.000Z/missed"
    )  # fmt: skip
    assert made.notice is None
    fields = dict(made.fields)
    del fields["record"]
    assert fields == {
        "@timestamp": MISSED.time,
        "event": {"kind": "alert", "dataset": "schedule.notice"},
        "notice": {
            "kind": "missed",
            "message": MISSED.notice.message,
            "due_at": MISSED.notice.due_at,
            "reason": MISSED.notice.reason,
        },
        "cloud": {"provider": "aws", "account": {"id": "111122223333"}, "region": "us-west-2"},
        "orchestrator": {"type": "ecs", "cluster": {"name": "jobs"}},
        "service": {"name": "nightly-etl"},
        "task": {"family": "nightly-etl"},
        "schedule": {
            "kind": "schedule",
            "name": "nightly-etl",
            "group": "default",
            "expression": "cron(0 3 * * ? *)",
            "time_zone": "UTC",
        },
    }


def test_the_index_has_all_fields() -> None:
    def mapped(properties: dict[str, Any], before: str = "") -> Iterator[str]:
        for name, value in properties.items():
            if "properties" in value:
                yield from mapped(value["properties"], f"{before}{name}.")
            else:
                yield before + name

    properties = json.loads(TEMPLATE.read_text())["template"]["mappings"]["properties"]
    slow = replace(MISSED, notice=replace(MISSED.notice, task_id="0123"))
    assert set(mapped(properties)) == {
        *paths(fields_of(replace(STUCK, record=replace(STUCK.record, account_id="1")), kibana_url=KIBANA)),
        *paths(fields_of(slow)),
    }


def test_the_id_of_a_schedule_is_bounded() -> None:
    made = document(replace(MISSED, schedule=replace(MISSED.schedule, name="x" * 600)))
    assert isinstance(made, Document)
    assert len(made.id) == 64


@pytest.mark.parametrize("kind", ["", "a#b", "x" * 41, "<!channel>", "stuck\n"])
def test_a_kind_that_is_no_word_is_invalid(kind: str) -> None:
    made = document(replace(STUCK, notice=replace(STUCK.notice, kind=kind)))
    assert isinstance(made, InvalidReport)
    assert "is not a word" in made.reason


def test_a_time_that_is_none_and_an_id_that_is_too_long_are_invalid() -> None:
    assert isinstance(document(replace(STUCK, time="yesterday")), InvalidReport)
    assert isinstance(document(replace(STUCK, record=replace(STUCK.record, task_id="x" * 600))), InvalidReport)


@settings(deadline=None)
@given(RUN_NOTICES | SCHEDULE_NOTICES)
def test_any_notice_becomes_a_document_or_has_a_reason(line: NoticeLine | ScheduleNoticeLine) -> None:
    try:
        made = document(replace(line, time="2026-11-20T03:00:00Z"))
    except UnicodeEncodeError:  # no line can be written with a lone surrogate
        return
    assert made.reason if isinstance(made, InvalidReport) else len(made.id.encode()) <= 512

"""The search documents of notices: their ids, indices and fields."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from profiler.forwarder.documents import Document, notice_document, schedule_notice_document
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.run_links import ecs_task, log_stream
from profiler.forwarder.task_lines import InvalidReport
from profiler.record.notice_model import NoticeLine, ScheduleNoticeLine, encode_notice
from tests.shown_runs import missed_notice, stuck_notice
from tests.unit.forwarder.notices.test_slack_messages import RUN_NOTICES
from tests.unit.forwarder.test_documents import leaves, mapped, template

STUCK, MISSED = stuck_notice(), missed_notice()
KIBANA = "https://kibana.example.com"


def document(line: NoticeLine | ScheduleNoticeLine, **settings: Any) -> Document | InvalidReport:
    text = encode_notice(line).decode()
    if isinstance(line, NoticeLine):
        return notice_document(line, text, ForwarderSettings(**settings))
    return schedule_notice_document(line, text, ForwarderSettings(**settings))


def fields_of(line: NoticeLine | ScheduleNoticeLine, **options: Any) -> dict[str, Any]:
    made = document(line, **options)
    assert isinstance(made, Document)
    return dict(made.fields)


def test_the_document_of_a_stuck_run() -> None:
    made = document(STUCK)
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
    made = document(MISSED, index_period="day")
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
    made = document(replace(STUCK, notice=replace(STUCK.notice, kind=kind)))
    assert isinstance(made, InvalidReport)
    assert "is not a word" in made.reason


@settings(deadline=None)
@given(RUN_NOTICES)
def test_any_notice_becomes_a_document_or_has_a_reason(line: NoticeLine) -> None:
    try:
        made = document(replace(line, time="2026-11-20T03:00:00Z"))
    except UnicodeEncodeError:  # no line can be written with a lone surrogate
        return
    assert made.reason if isinstance(made, InvalidReport) else len(made.id.encode()) <= 512

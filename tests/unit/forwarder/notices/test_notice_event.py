"""The details of the events "Task Run Notice" and "Schedule Notice": bounded, and valid against their schemas."""

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from forwarder.notices.channel import Announcement, announcement_key
from forwarder.notices.ended_run import MAX_DETAIL_BYTES
from forwarder.notices.event_bus import EventBusChannel
from forwarder.notices.notice_event import run_notice_schema, schedule_notice_schema
from profiler.record.notice_model import NoticeEvidence, NoticeLine, ScheduleNoticeLine
from profiler.record.record_model import Metrics
from tests.documentation import ROOT
from tests.shown_runs import missed_notice, stuck_notice
from tests.unit.forwarder.notices.test_ended_run import KIBANA, Bus, embedded
from tests.unit.forwarder.notices.test_notice_message import RUN_NOTICES, SCHEDULE_NOTICES

SCHEMAS = {"task-run-notice": run_notice_schema, "schedule-notice": schedule_notice_schema}


def event(line: Announcement) -> tuple[dict[str, Any], dict[str, Any]]:
    """The entry on the bus, and its detail."""
    bus = Bus()
    EventBusChannel("default", lambda: bus, kibana_url=KIBANA).post(line, "failure")
    (entry,) = bus.entries
    assert len(entry["Detail"].encode()) < MAX_DETAIL_BYTES
    return entry, json.loads(entry["Detail"])


def test_the_event_of_a_stuck_run() -> None:
    line = stuck_notice()
    entry, detail = event(line)
    assert (entry["Source"], entry["DetailType"], entry["Resources"]) == (
        "task-profiler", "Task Run Notice", [line.record.task_arn]
    )  # fmt: skip
    assert detail["text"] == f"nightly-etl:26 has been stuck for 30 minutes. {line.notice.message}"
    assert detail["notice"] == msgspec.to_builtins(line.notice)
    named = {name: detail[name] for name in ("taskId", "cluster", "family", "revision", "container", "startedAt")}
    assert named == {
        "taskId": line.record.task_id,
        "cluster": "jobs",
        "family": "nightly-etl",
        "revision": "26",
        "container": "batch",
        "startedAt": line.record.started_at,
    }
    assert detail["metrics"]["vcpuSize"] == line.record.metrics.vcpu_size
    assert set(detail["links"]) == {"logStream", "ecsTask", "kibana"}


def test_the_event_of_a_missed_run() -> None:
    line = missed_notice()
    entry, detail = event(line)
    assert (entry["DetailType"], entry["Resources"]) == ("Schedule Notice", [])
    assert detail == {
        "text": line.notice.message,
        "schedule": {
            "kind": "schedule",
            "name": "nightly-etl",
            "group": "default",
            "expression": "cron(0 3 * * ? *)",
            "timeZone": "UTC",
        },
        "notice": {
            "kind": "missed",
            "message": line.notice.message,
            "dueAt": "2026-11-20T03:00:00.000Z",
            "reason": line.notice.reason,
        },
        "cluster": "jobs",
        "family": "nightly-etl",
    }


def test_numbers_of_thousands_of_digits_are_left_out() -> None:
    line = stuck_notice()
    names = ("memorySizeMB", "vcpuSize", "maxPids", "initDurationMs", "durationMs")
    huge = msgspec.convert(dict.fromkeys(names, 10**4000), type=Metrics)
    evidence = NoticeEvidence(used_mb=10**4000, size_mb=10**4000, elapsed_seconds=10**4000, minutes=10**4000)
    notice = replace(line.notice, evidence=evidence)
    _, detail = event(replace(line, notice=notice, record=replace(line.record, metrics=huge)))
    assert "metrics" not in detail
    assert "evidence" not in detail["notice"]


def test_a_notice_is_announced_once_for_each_kind_and_due_time() -> None:
    line, missed = stuck_notice(), missed_notice()
    assert announcement_key(line) == f"{line.record.task_arn}#batch#stuck"
    assert announcement_key(missed) == "schedule#schedule/default/nightly-etl/2026-11-20T03:00:00.000Z/missed"
    slow = replace(missed, notice=replace(missed.notice, kind="slow", due_at=None, task_id="0123"))
    assert announcement_key(slow) == "schedule#schedule/default/nightly-etl/0123/slow"


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schema_in_the_docs_is_that_of_the_type(name: str) -> None:
    written = json.loads((ROOT / "docs" / f"{name}.schema.json").read_text())
    assert written == json.loads(json.dumps(SCHEMAS[name]()))


def validator(schema: Callable[[], dict[str, Any]]) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema())


RUN_SCHEMA, SCHEDULE_SCHEMA = validator(run_notice_schema), validator(schedule_notice_schema)


@settings(deadline=None)
@given(RUN_NOTICES | SCHEDULE_NOTICES)
def test_any_notice_becomes_a_bounded_detail_that_can_be_embedded(line: NoticeLine | ScheduleNoticeLine) -> None:
    _, detail = event(line)
    (RUN_SCHEMA if isinstance(line, NoticeLine) else SCHEDULE_SCHEMA).validate(detail)
    for path, text in embedded(detail).items():
        if not path.startswith(".metrics"):
            assert json.loads(f'"{text}"') == text, path

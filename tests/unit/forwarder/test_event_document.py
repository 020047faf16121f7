"""One run's document, in any order of writes: merged as a cluster merges ``doc``, ``doc_as_upsert``, ``upsert``."""

from collections.abc import Mapping
from itertools import permutations
from typing import Any

import pytest

from forwarder.documents import Document, event_document, report_document
from forwarder.lines import read_line
from forwarder.task.containers import batch_container
from forwarder.task.event import StoppedTask
from forwarder.task.outcome import determine_outcome
from forwarder.task.run_log import FoundReport
from profiler.record.model import Report
from tests.unit.forwarder.task.test_event import task
from tests.unit.forwarder.test_task_stopped import report

INTERVAL = {"startedAt": "2026-03-01T10:11:28Z", "finishedAt": "2026-03-01T10:12:28Z"}
CHECKPOINT = report("task.checkpoint", status="running", exitCode=None, interval=INTERVAL)
SUCCEEDED = task(containers=[{"name": "batch", "exitCode": 0}])
KILLED = task(containers=[{"name": "batch", "exitCode": 143}], stopCode="UserInitiated", stoppedReason="by user")


class Cluster:
    """Apply a bulk request of updates to one document."""

    def __init__(self) -> None:
        self.documents: dict[tuple[str, str], dict[str, Any]] = {}

    def write(self, document: Document) -> None:
        place = (document.index, document.id)
        if place in self.documents:
            self.documents[place] = merged(self.documents[place], document.fields)
        else:
            self.documents[place] = merged({}, document.fields if document.upsert is None else document.upsert)

    def only(self) -> dict[str, Any]:
        (document,) = self.documents.values()
        return document


def merged(present: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(present)
    for name, value in given.items():
        old = result.get(name)
        result[name] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def found(text: str) -> FoundReport:
    line = read_line(text)
    assert isinstance(line, Report)
    return FoundReport(line, text)


def of_report(text: str) -> Document:
    document = report_document(found(text).report, text, prefix="task")
    assert isinstance(document, Document)
    return document


def of_event(ended: StoppedTask, text: str | None = None) -> Document:
    batch = batch_container(ended, "batch")
    document = event_document(
        ended, batch, determine_outcome(ended, batch), None if text is None else found(text), prefix="task"
    )
    assert document is not None
    return document


@pytest.mark.parametrize("order", list(permutations(range(4))))
@pytest.mark.parametrize(
    ("status", "ended", "expected"),
    [
        ("success", SUCCEEDED, ("success", 0, "success")),
        ("unknown", SUCCEEDED, ("success", 0, "success")),
        ("unknown", KILLED, ("stopped", 143, "unknown")),
        ("stopped", KILLED, ("stopped", 143, "unknown")),
    ],
)
def test_any_order_gives_the_events_end_and_the_reports_numbers(
    status: str, ended: StoppedTask, expected: tuple[str, int, str], order: tuple[int, ...]
) -> None:
    text = report(status=status, exitCode=0 if status == "success" else None)
    writes = [of_report(text), of_event(ended), of_event(ended, CHECKPOINT), of_event(ended, text)]
    cluster = Cluster()
    for number in [*order, order[0]]:
        cluster.write(writes[number])
    document = cluster.only()
    assert (document["task"]["status"], document["task"]["exit_code"], document["event"]["outcome"]) == expected
    assert document["task"]["complete"] is True
    assert document["record"] == text
    assert document["usage"]["duration_ms"] == 60000
    assert "interval" not in document


def test_a_report_that_saw_no_end_says_so_where_no_event_comes() -> None:
    document = of_report(report(status="unknown", exitCode=None))
    assert document.upsert is not None
    assert (document.upsert["task"]["status"], document.upsert["event"]["outcome"]) == ("unknown", "unknown")
    assert document.upsert["task"]["complete"] is document.fields["task"]["complete"] is True
    assert "status" not in document.fields["task"]
    assert "outcome" not in document.fields["event"]


@pytest.mark.parametrize("status", ["success", "failure", "stopped"])
def test_any_other_report_is_written_whole(status: str) -> None:
    assert of_report(report(status=status)).upsert is None


def test_a_checkpoint_in_its_own_index_keeps_its_interval() -> None:
    document = of_report(CHECKPOINT)
    assert document.upsert is None
    assert document.fields["interval"]["end"] == "2026-03-01T10:12:28.000Z"


def test_a_checkpoints_interval_is_none_of_the_runs() -> None:
    document = of_event(SUCCEEDED, CHECKPOINT)
    assert document.upsert is not None
    assert document.upsert["usage"]["memory"]["used_mb"]["max"] == 500
    assert "interval" not in document.upsert

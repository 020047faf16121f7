"""The document of a run is the same for any order and repetition of its report, its event and a replay."""

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from forwarder.delivery_errors import SearchClusterError
from forwarder.documents import Document, report_document
from forwarder.event_document import event_documents
from forwarder.run_links import ecs_task, kibana_task, log_stream
from forwarder.search_cluster.document_delivery import DeliveryResult, deliver
from forwarder.search_cluster.interface import ItemResult
from forwarder.task.batch_log_stream import LogStream, batch_container
from forwarder.task.find_report import ReportLine
from forwarder.task.stop_classification import determine_outcome
from forwarder.task.task_event import StoppedTask
from forwarder.task_lines import read_line
from profiler.record.record_model import Report
from tests.fake_search import FakeSearchCluster
from tests.fakes import FakeInvocationTime
from tests.unit.forwarder.task.test_task_event import task
from tests.unit.forwarder.test_task_stopped import report

INTERVAL = {"startedAt": "2026-03-01T10:11:28Z", "finishedAt": "2026-03-01T10:12:28Z"}
# A number that the report does not have, and a status and an exit code that must not become the run's.
CHECKPOINT = report(
    "task.checkpoint", status="running", exitCode=7, interval=INTERVAL, metrics={"maxMemoryUsedMB": 500, "maxPids": 3}
)
SUCCEEDED = task(containers=[{"name": "batch", "exitCode": 0}])
FAILED = task(containers=[{"name": "batch", "exitCode": 3}])
KILLED = task(containers=[{"name": "batch", "exitCode": 143}], stopCode="UserInitiated", stoppedReason="by user")
NO_CODE = task(containers=[{"name": "batch"}], stopCode="SpotInterruption", stoppedReason=None)
UNKNOWN = task(containers=[{"name": "batch"}], stopCode=None, stoppedReason=None)
EVENTS = {"success": SUCCEEDED, "failure": FAILED, "stopped": KILLED, "no exit code": NO_CODE, "unknown": UNKNOWN}


def report_line(text: str) -> ReportLine:
    line = read_line(text)
    assert isinstance(line, Report)
    return ReportLine(line, text)


def of_report(text: str) -> list[Document]:
    document = report_document(report_line(text).report, text, prefix="task")
    assert isinstance(document, Document)
    return [document]


def of_event(ended: StoppedTask, text: str | None = None) -> list[Document]:
    batch = batch_container(ended, "batch")
    outcome = determine_outcome(ended, batch)
    return [*event_documents(ended, batch, outcome, None if text is None else report_line(text), prefix="task")]


def write(cluster: FakeSearchCluster, documents: Sequence[Document]) -> DeliveryResult:
    return deliver(cluster, FakeInvocationTime(), lambda: 1.0, documents)


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


@pytest.mark.parametrize("order", list(permutations(range(4))))
@pytest.mark.parametrize(
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
def test_the_end_comes_from_the_event_and_the_numbers_from_the_report_in_any_order(
    status: str, ended: StoppedTask, expected: tuple[str, int | None, str], order: tuple[int, ...]
) -> None:
    text = report(status=status, exitCode={"success": 0, "failure": 1}.get(status))
    writes = list(steps(text, ended).values())
    document = written(*(writes[number] for number in [*order, order[0]]))
    end = (document["task"]["status"], document["task"].get("exit_code"), document["event"]["outcome"])
    assert end == expected
    assert document["task"]["complete"] is True
    assert document["record"] == text
    assert document["usage"]["duration_ms"] == 60000
    assert "interval" not in document


any_report = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(["success", "failure", "stopped", "unknown", "a later word"]),
        "exitCode": st.sampled_from([0, 1, 137, 143]),
        "finishedAt": st.just("2026-03-01T10:12:30Z"),
        "region": st.just("eu-west-1"),
        "family": st.sampled_from(["nightly", "other"]),
        "metrics": st.sampled_from([{}, {"durationMs": 5}, {"maxMemoryUsedMB": 9}]),
    },
)


@given(any_report, st.sampled_from(sorted(EVENTS)), st.data())
def test_every_order_and_repetition_gives_the_same_document(
    record: dict[str, Any], name: str, data: st.DataObject
) -> None:
    """A replay writes the report again. It replaces the fields of the event or a checkpoint as a whole."""
    text = report(**record)
    writes = steps(text, EVENTS[name])
    expected = written(writes["report"], writes["event"])
    drawn = data.draw(st.lists(st.sampled_from(sorted(writes)), max_size=6))
    needed = data.draw(st.sampled_from([["report", "event"], ["event with the report"]]))
    order = data.draw(st.permutations([*drawn, *needed]))
    assert written(*(writes[step] for step in order)) == expected


class Racing(FakeSearchCluster):
    """Another writer comes between the two requests of a report."""

    def __init__(self, *others: Sequence[Document]) -> None:
        super().__init__()
        self.others = list(others)

    def bulk(self, documents: Sequence[Document], timeout_seconds: float) -> list[ItemResult]:
        if self.others and any(document.stored is not None for document in documents):
            super().bulk(self.others.pop(0), timeout_seconds)
        return super().bulk(documents, timeout_seconds)


def test_an_event_between_the_two_requests_of_a_report_is_not_overwritten() -> None:
    text = report(status="success", exitCode=0)
    cluster = Racing(of_event(FAILED))
    write(cluster, of_event(UNKNOWN))
    assert write(cluster, of_report(text)) == DeliveryResult(indexed=1)
    (document,) = cluster.documents.values()
    assert document == written(of_report(text), of_event(UNKNOWN), of_event(FAILED))
    assert document["task"]["status"] == "failure"


def test_an_invocation_that_ends_between_the_two_requests_is_repaired_by_its_retry() -> None:
    class Dying(FakeSearchCluster):
        is_dead = True

        def bulk(self, documents: Sequence[Document], timeout_seconds: float) -> list[ItemResult]:
            if self.is_dead and any(document.stored is not None for document in documents):
                self.is_dead = False
                raise SearchClusterError("died", status=400)
            return super().bulk(documents, timeout_seconds)

    text = report(status="success", exitCode=0)
    cluster = Dying()
    write(cluster, of_event(UNKNOWN, CHECKPOINT))
    with pytest.raises(SearchClusterError):
        write(cluster, of_report(text))
    write(cluster, of_report(text))
    (document,) = cluster.documents.values()
    assert document == written(of_report(text), of_event(UNKNOWN))


def test_a_new_report_takes_one_request() -> None:
    cluster = FakeSearchCluster()
    write(cluster, [*of_report(report()), *of_report(report(taskId="0" * 32))])
    assert cluster.requests == 1


@pytest.mark.parametrize("ended", [SUCCEEDED, UNKNOWN])
def test_an_event_without_a_report_becomes_a_document(ended: StoppedTask) -> None:
    document = written(of_event(ended))
    expected = ("success", "success") if ended is SUCCEEDED else ("unknown", "unknown")
    assert (document["task"]["status"], document["event"]["outcome"]) == expected
    assert document["task"]["complete"] is False


def test_the_links_of_a_run_that_ended_without_a_report_are_those_of_the_event() -> None:
    stream = LogStream(group="/ecs/jobs", stream="ecs/batch/0123")
    batch = batch_container(FAILED, "batch")
    (document,) = event_documents(
        FAILED,
        batch,
        determine_outcome(FAILED, batch),
        report_line(CHECKPOINT),
        prefix="task",
        log=stream,
        kibana_url="https://kibana",
    )
    ended = FAILED.execution_stopped_at or FAILED.stopped_at
    assert document.initial_fields["links"] == {
        "run": kibana_task("https://kibana", FAILED.id, FAILED.started_at, ended),
        "logs": log_stream(FAILED.region, "/ecs/jobs", "ecs/batch/0123"),
        "task": ecs_task(FAILED.region, FAILED.cluster, FAILED.id),
    }
    assert "links" not in document.fields  # an existing document keeps those of its report


def test_the_document_leaves_out_status_and_interval_of_a_checkpoint() -> None:
    document = written(of_event(UNKNOWN, CHECKPOINT))
    assert document["usage"]["memory"]["used_mb"]["max"] == 500
    assert (document["task"]["status"], document["event"]["outcome"]) == ("unknown", "unknown")
    assert "exit_code" not in document["task"]
    assert "interval" not in document


def test_a_checkpoint_in_its_own_index_keeps_its_interval() -> None:
    (document,) = of_report(CHECKPOINT)
    assert (document.upsert, document.is_report) == (None, False)
    assert document.fields["interval"]["end"] == "2026-03-01T10:12:28.000Z"


def test_without_an_indexable_report_the_document_has_only_the_event() -> None:
    report_part, event_part = of_event(FAILED, report())
    rejected = replace(report_part, id="another")
    document = written([event_part])
    assert rejected.is_report
    assert (document["task"]["status"], document["task"]["complete"]) == ("failure", False)

"""The document of a run is the same for any order and repetition of its report, its event and a replay."""

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from profiler.forwarder.batch_report import LogStream, ReportLine, batch_container
from profiler.forwarder.documents import Document, report_document
from profiler.forwarder.event_document import event_documents
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.notices.announcements import EndedTask, MemoryRetry
from profiler.forwarder.search_cluster.document_delivery import DeliveryResult, deliver
from profiler.forwarder.search_cluster.interface import ItemResult
from profiler.record.task_end import StoppedTask, determine_outcome
from tests.fake_search import FakeSearchCluster
from tests.fakes import FakeInvocationTime
from tests.notices import report_line
from tests.unit.forwarder.test_task_event import task
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


def of_report(text: str) -> list[Document]:
    document = report_document(report_line(text).report, text, ForwarderSettings())
    assert isinstance(document, Document)
    return [document]


def of_event(ended: StoppedTask, text: str | None = None) -> list[Document]:
    batch = batch_container(ended, "batch")
    outcome = determine_outcome(ended, batch)
    return [*event_documents(ended, batch, outcome, None if text is None else report_line(text), ForwarderSettings())]


def write(cluster: FakeSearchCluster, documents: Sequence[Document]) -> DeliveryResult:
    return deliver(cluster, FakeInvocationTime(), documents)


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


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (1, 0, 3, 2), (2, 0, 1, 3), (3, 2, 1, 0)])
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


COST: dict[str, Any] = {"cost": {"usd": 0.02, "priceBasis": "us-west-2 FARGATE X86_64 2026-09 on-demand price"}}
SAVING: dict[str, Any] = {"recommendation": {"vcpu": 0.5, "memoryMB": 1024, "savingPercent": 50.0, "reasons": []}}
ON_SPOT = task(capacityProviderName="FARGATE_SPOT", containers=[{"name": "batch", "exitCode": 0}])


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
def test_a_run_on_spot_costs_a_fraction_of_the_on_demand_price(order: tuple[str, ...]) -> None:
    """Only the event knows that it was on Spot."""
    writes = steps(report(**COST, **SAVING), ON_SPOT)
    document = written(*(writes[name] for name in order))
    assert document["task"]["capacity_provider"] == "FARGATE_SPOT"
    assert document["cost"] == {"usd": 0.006, "waste_usd": 0.003}


@pytest.mark.parametrize(
    ("provider", "basis"), [("FARGATE", "us-west-2"), ("FARGATE_SPOT", "with TASK_PROFILER_PRICE_VCPU_HOUR")]
)
def test_another_capacity_provider_and_own_prices_leave_the_cost(provider: str, basis: str) -> None:
    ended = task(capacityProviderName=provider, containers=[{"name": "batch", "exitCode": 0}])
    text = report(cost={"usd": 0.02, "priceBasis": basis})
    for order in (("report", "event with the report"), ("event", "report")):
        assert written(*(steps(text, ended)[name] for name in order))["cost"] == {"usd": 0.02}


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


RETRIES = (MemoryRetry(sentence="x", retried_as="9" * 32), MemoryRetry(sentence="x", retry_of="8" * 32))


@pytest.mark.parametrize("retry", RETRIES)
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_other_task_of_a_retry_stays_in_any_order(retry: MemoryRetry, order: tuple[int, ...]) -> None:
    """The last write is an event that is repeated after the retry could no longer be asked for."""
    batch = batch_container(FAILED, "batch")
    outcome = determine_outcome(FAILED, batch)
    first = event_documents(FAILED, batch, outcome, None, ForwarderSettings(), retry=retry)
    writes = [list(first), of_report(report()), of_event(FAILED, report())]
    task_fields = written(*(writes[number] for number in order), of_report(report()))["task"]
    assert (task_fields.get("retried_as"), task_fields.get("retry_of")) == (retry.retried_as, retry.retry_of)


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


@pytest.mark.parametrize("line", [None, report_line(CHECKPOINT), report_line(report())])
def test_the_notification_links_a_run_to_the_same_times_as_its_document(line: ReportLine | None) -> None:
    outcome = determine_outcome(FAILED, None)
    batch = batch_container(FAILED, "batch")
    stream = LogStream(group="/ecs/jobs", stream="ecs/batch/0123")
    documents = event_documents(
        FAILED, batch, outcome, line, ForwarderSettings(kibana_url="https://kibana"), log=stream
    )
    announced = EndedTask(task=FAILED, outcome=outcome, report_line=line, log=stream).links("https://kibana")
    assert documents[0].initial_fields["links"]["run"] == announced.kibana
    assert None not in asdict(announced).values()

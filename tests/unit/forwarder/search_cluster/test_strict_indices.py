"""Indices with ``"dynamic": "strict"`` and an older mapping, which refuse fields that it lacks."""

from collections.abc import Collection, Mapping, Sequence
from itertools import permutations
from typing import Any

import pytest

from profiler.forwarder.documents import Document, report_document
from profiler.forwarder.event_document import event_documents
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.invocation import DeliveryError
from profiler.forwarder.search_cluster.document_delivery import deliver
from profiler.record.event_end import end_of_event
from tests.ended_runs import run_of
from tests.fake_search import FakeSearchCluster
from tests.fakes import FakeInvocationTime
from tests.notices import report_line
from tests.stopped_tasks import report
from tests.task_events import task

SETTINGS = ForwarderSettings()
MOMENT = "2026-03-01T10:20:00.000Z"
# Each is an object with fields, or a field.
Paths = Collection[str]


class StrictCluster(FakeSearchCluster):
    """Its indices lack some fields, and name one of a document, as both engines do."""

    def __init__(self, lacking: Paths) -> None:
        super().__init__()
        self.lacking = lacking

    def _apply(self, action: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
        ((operation, _),) = action.items()
        written = [body[name] for name in ("doc", "upsert") if name in body] or [body]
        unknown = [path for fields in written for path in self.unknown(fields)]
        if not unknown:
            return super()._apply(action, body)
        parent, _, name = unknown[0].rpartition(".")
        reason = (
            f"[1:1021] mapping set to strict, dynamic introduction of [{name}] within "
            f"[{parent or '_doc'}] is not allowed"
        )
        error = {"type": "strict_dynamic_mapping_exception", "reason": reason}
        return {operation: {"status": 400, "error": error}}

    def unknown(self, fields: Mapping[str, Any], place: str = "") -> list[str]:
        found = []
        for name, value in fields.items():
            path = f"{place}{name}"
            if path in self.lacking:
                found.append(path)
            elif isinstance(value, Mapping):
                found += self.unknown(value, f"{path}.")
        return found


def of_report() -> Document:
    text = report()
    made = report_document(report_line(text).report, text, SETTINGS)
    assert isinstance(made, Document)
    return made


def of_event() -> Document:
    stopped = task()
    end = end_of_event(stopped, stopped.container("batch"))
    (made,) = event_documents(run_of(task=stopped, end=end, container="batch"), SETTINGS)
    return made


def without(fields: Mapping[str, Any], lacking: Paths, place: str = "") -> dict[str, Any]:
    return {
        name: without(value, lacking, f"{place}{name}.") if isinstance(value, dict) else value
        for name, value in fields.items()
        if f"{place}{name}" not in lacking
    }


@pytest.mark.parametrize(
    "lacking",
    [
        {"task.known_at"},
        {"event.ingested", "task.known_at"},
        {"usage.network", "cost", "monitor.version"},
    ],
)
@pytest.mark.parametrize("order", [*permutations([of_report, of_event, of_report])])
def test_a_run_is_written_without_the_fields_that_the_index_lacks(
    order: Sequence[Any], lacking: Paths
) -> None:
    """It is the document of another index, but for them, in any order of its writers."""
    cluster, control = StrictCluster(lacking), StrictCluster(())
    left_out: set[str] = set()
    for make in order:
        delivered = deliver(cluster, FakeInvocationTime(), [make()], MOMENT)
        assert (delivered.indexed, delivered.rejected) == (1, ())
        left_out.update(*delivered.left_out.values())
        assert not deliver(control, FakeInvocationTime(), [make()], MOMENT).left_out
    ((place, document),) = cluster.documents.items()
    assert document == without(control.documents[place], lacking)
    assert left_out <= set(lacking)
    assert "task.known_at" not in lacking or "task.known_at" in left_out


@pytest.mark.parametrize("several", [1, 5])
def test_each_of_several_documents_is_written_once(several: int) -> None:
    cluster = StrictCluster({"task.known_at"})
    documents = [of_report(), of_event()] * several
    delivered = deliver(cluster, FakeInvocationTime(), documents, MOMENT)
    assert delivered.indexed == len(documents)
    assert len(cluster.documents) == 1
    assert [*delivered.left_out.values()] == [["task.known_at"]]


@pytest.mark.parametrize(
    "lacking",
    [
        # Whose word it is, how the run ended, and which run it is.
        {"task.confirmed"},
        {"task.outcome"},
        {"task.event_outcome"},
        {"task.family"},
        {"task"},
        {"record"},
        # Not our mapping.
        {"usage.cpu", "usage.memory", "usage.duration_ms", "usage.billed_duration_ms"}
        | {"usage.network", "usage.block", "usage.init_duration_ms", "cost"}
        | {"monitor", "service", "container", "cloud", "orchestrator"},
    ],
)
def test_an_index_that_lacks_more_raises_and_nothing_is_written(lacking: Paths) -> None:
    cluster = StrictCluster(lacking)
    with pytest.raises(DeliveryError, match=r"dynamic introduction of.*kibana import"):
        deliver(cluster, FakeInvocationTime(), [of_event(), of_report()], MOMENT)
    assert all(not cluster.unknown(document) for document in cluster.documents.values())

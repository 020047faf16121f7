"""Indices with ``"dynamic": "strict"`` and an older mapping, which refuse fields that it lacks."""

from collections.abc import Collection, Mapping, Sequence
from itertools import permutations
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.forwarder.document_updates import may_leave_out_field
from profiler.forwarder.invocation import DeliveryError
from profiler.forwarder.notice_documents import schedule_notice_document
from profiler.forwarder.search_cluster import document_delivery
from profiler.forwarder.search_cluster.bulk_client import ItemResult
from profiler.forwarder.search_cluster.document_delivery import deliver_documents
from profiler.record.notice_model import encode_notice_line
from tests.cases import each_case
from tests.delivered_documents import SETTINGS, of_event, of_report
from tests.fake_search import FakeSearchCluster
from tests.fakes import FakeInvocationTime
from tests.shown_runs import missed_notice

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


def without(fields: Mapping[str, Any], lacking: Paths, place: str = "") -> dict[str, Any]:
    return {
        name: without(value, lacking, f"{place}{name}.") if isinstance(value, dict) else value
        for name, value in fields.items()
        if f"{place}{name}" not in lacking
    }


@each_case(
    "lacking",
    [
        {"task.known_at"},
        {"event.ingested", "task.known_at"},
        {"usage.network", "cost", "monitor.version"},
    ],
)
@each_case("order", [*permutations([of_report, of_event, of_report])])
def test_a_run_is_written_without_the_fields_that_the_index_lacks(
    order: Sequence[Any], lacking: Paths
) -> None:
    """It is the document of another index, but for them, in any order of its writers."""
    cluster, control = StrictCluster(lacking), StrictCluster(())
    left_out: set[str] = set()
    for make in order:
        delivered = deliver_documents(cluster, FakeInvocationTime(), [make()], MOMENT)
        assert (delivered.indexed, delivered.rejected) == (1, ())
        left_out.update(*delivered.left_out.values())
        assert not deliver_documents(control, FakeInvocationTime(), [make()], MOMENT).left_out
    ((place, document),) = cluster.documents.items()
    assert document == without(control.documents[place], lacking)
    assert left_out <= set(lacking)
    assert "task.known_at" not in lacking or "task.known_at" in left_out


@pytest.mark.parametrize("several", [1, 5])
def test_each_of_several_documents_is_written_once(several: int) -> None:
    cluster = StrictCluster({"task.known_at"})
    documents = [of_report(), of_event()] * several
    delivered = deliver_documents(cluster, FakeInvocationTime(), documents, MOMENT)
    assert delivered.indexed == len(documents)
    assert len(cluster.documents) == 1
    assert [*delivered.left_out.values()] == [["task.known_at"]]


@each_case(
    "lacking",
    [
        # Whose word it is, how the run ended, and which run it is.
        {"task.confirmed"},
        {"task.outcome"},
        {"task.event_outcome"},
        {"task.family"},
        {"container.name"},
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
        deliver_documents(cluster, FakeInvocationTime(), [of_event(), of_report()], MOMENT)
    assert all(not cluster.unknown(document) for document in cluster.documents.values())


@each_case(
    "path",
    [
        # What a number means: that it is the least it can be, or an estimate.
        *("usage", "usage.at_least", "usage.estimated"),
        # Which container's run it is; what the document is; whether memory ended the run.
        *("container.name", "event.kind", "task.likely_out_of_memory", "usage.gpu.out_of_memory"),
        # Which notice it is.
        *("notice", "notice.kind", "notice.due_at", "schedule.name", "schedule.group"),
    ],
)
def test_what_says_how_a_document_is_read_is_not_left_out(path: str) -> None:
    assert not may_leave_out_field(path)
    # A number, and a field whose name only begins alike, can be.
    assert may_leave_out_field("usage.network")
    assert may_leave_out_field(f"{path}_of_a_later_version")


@pytest.mark.parametrize(("lacking", "is_written"), [("schedule.name", False), ("links", True)])
def test_a_notice_is_written_only_with_what_says_which_one_it_is(
    lacking: str, *, is_written: bool
) -> None:
    line = missed_notice()
    notice = schedule_notice_document(line, encode_notice_line(line).decode(), SETTINGS)
    notice = replace(notice, fields={**notice.fields, "links": {"logs": "https://example.com"}})
    cluster = StrictCluster({lacking})
    if is_written:
        assert deliver_documents(cluster, FakeInvocationTime(), [notice], MOMENT).indexed == 1
    else:
        with pytest.raises(DeliveryError, match=r"dynamic introduction"):
            deliver_documents(cluster, FakeInvocationTime(), [notice], MOMENT)
    assert len(cluster.documents) == is_written


def test_later_requests_leave_out_at_once_what_the_first_one_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(document_delivery, "MAX_DOCUMENTS_PER_REQUEST", 1)
    made = of_report()
    documents = [replace(made, id=f"{number}/batch") for number in range(20)]
    cluster = StrictCluster({"event.ingested", "usage.network", "monitor.version"})
    delivered = deliver_documents(cluster, FakeInvocationTime(), documents, MOMENT)
    assert delivered.indexed == len(cluster.documents) == len(documents)
    ((fields),) = delivered.left_out.values()
    assert cluster.requests == len(documents) + len(fields)


STRICT = "mapping set to strict, dynamic introduction of [network] within [usage] is not allowed"


@pytest.mark.parametrize(
    "reason",
    [
        f"strict_dynamic_mapping_exception: {STRICT}",
        f"strict_dynamic_mapping_exception: [1:1021] {STRICT}",
        # From another node, in the words of an older server.
        f"strict_dynamic_mapping_exception: strict_dynamic_mapping_exception: {STRICT}",
    ],
)
def test_a_refusal_names_its_field(reason: str) -> None:
    assert ItemResult(status=400, reason=reason).unknown_field == "usage.network"


def test_a_value_that_a_refusal_quotes_names_no_field() -> None:
    """A batch can print it, and the documents of others would lack the field."""
    for quoted in (STRICT, f"strict_dynamic_mapping_exception: {STRICT}"):
        reason = (
            "mapper_parsing_exception: failed to parse field [task.revision] of type [long] in "
            f"document with id '1/batch'. Preview of field's value: 'limit of total fields {quoted}'"
        )
        assert ItemResult(status=400, reason=reason).unknown_field is None

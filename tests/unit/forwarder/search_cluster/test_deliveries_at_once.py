"""The same lines from two invocations at once, such as a redriven event and a replay of its log
group: the second one writes between any two requests of the first one.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from profiler.forwarder.document_updates import Document
from profiler.forwarder.search_cluster.document_delivery import deliver_documents
from tests.delivered_documents import of_event, of_report
from tests.fake_search import FakeSearchCluster
from tests.fakes import FakeInvocationTime

MOMENT = "2026-03-01T10:20:00.000Z"
REQUESTS = 8  # more than a delivery here has


class Interrupted(FakeSearchCluster):
    """Before the request with this number, another invocation writes the same documents."""

    def __init__(self, number: int, documents: list[Document]) -> None:
        super().__init__()
        self.left = number
        self.documents_of_other = documents

    def request(self, path: str, body: bytes | Mapping[str, object], timeout_seconds: float) -> Any:
        self.left -= 1
        if self.left == 0:
            written = deliver_documents(self, FakeInvocationTime(), self.documents_of_other, MOMENT)
            assert written.rejected == ()
        return super().request(path, body, timeout_seconds)


@pytest.mark.diagonal
@pytest.mark.parametrize("before", [[], ["event"], ["report"], ["event", "report"]])
@pytest.mark.parametrize("other", [["report"], ["event"], ["report", "event"]])
@pytest.mark.parametrize("number", range(1, REQUESTS))
def test_the_run_has_one_document_that_is_that_of_one_delivery(
    number: int, other: list[str], before: list[str]
) -> None:
    make = {"event": of_event, "report": of_report}
    cluster = Interrupted(number, [make[name]() for name in other])
    cluster.left = 0
    for name in before:
        deliver_documents(cluster, FakeInvocationTime(), [make[name]()], MOMENT)
    cluster.left = number
    delivered = deliver_documents(cluster, FakeInvocationTime(), [of_report()], MOMENT)
    assert (delivered.indexed, delivered.rejected) == (1, ())
    control = FakeSearchCluster()
    # After the delivery of the first one.
    others = other if cluster.left <= 0 else []
    for name in ("report", *before, *others):
        deliver_documents(control, FakeInvocationTime(), [make[name]()], MOMENT)
    assert cluster.documents == control.documents
    assert len(cluster.documents) == 1

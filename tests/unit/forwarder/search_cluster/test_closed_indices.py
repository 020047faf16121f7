"""A search since a time misses the closed indices that can have its documents."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from profiler.core.completeness import WHOLE
from profiler.forwarder.invocation import PartialAnswerError, SearchClusterError
from tests.fake_search import FakeSearchCluster

SINCE = datetime(2026, 11, 22, 8, tzinfo=UTC)
HITS: dict[str, Any] = {"hits": {"hits": []}}


class WithClosed(FakeSearchCluster):
    """Refuses a search that finds a closed index, and names the first one, as the engines do."""

    def __init__(self, *closed: str) -> None:
        super().__init__()
        self._closed = sorted(closed)
        self.paths: list[str] = []

    def request(self, path: str, body: bytes | Mapping[str, object], timeout_seconds: float) -> Any:
        assert timeout_seconds == 5
        self.paths.append(path)
        excluded = path.partition("/_search")[0].split(",-")[1:]
        left = [name for name in self._closed if name not in excluded]
        if left and "expand_wildcards=open,closed" in path:
            raise SearchClusterError("refused", status=400, closed_index=left[0])
        return HITS


def months(year: int) -> tuple[str, ...]:
    return tuple(f"task-reports-{year}.{month:02}" for month in range(1, 13))


@pytest.mark.parametrize(
    "closed", ["task-reports-2026.11", "task-reports-2026.12", "task-reports-rolled-over"]
)
def test_a_closed_index_that_can_have_the_documents_makes_a_part(closed: str) -> None:
    cluster = WithClosed("task-reports-2025.01", closed)
    with pytest.raises(PartialAnswerError, match=f"{closed} is closed") as raised:
        cluster.search("task-reports-*", {}, 5, SINCE)
    assert raised.value.answer == HITS
    # Nobody waits for it: it is no fault that passes.
    assert not raised.value.is_retryable


@pytest.mark.parametrize(
    "closed",
    [(), ("task-reports-2026.10",), ("task-reports-2026.11.20",), (*months(2024), *months(2025))],
)
def test_older_ones_may_be_closed(closed: tuple[str, ...]) -> None:
    cluster = WithClosed(*closed)
    assert cluster.search("task-reports-*", {}, 5, SINCE) == HITS
    assert len(cluster.paths) <= 13


def test_a_search_of_all_times_does_not_ask() -> None:
    cluster = WithClosed("task-reports-2026.11")
    assert cluster.search("task-reports-*", {}, 5) == HITS
    assert cluster.paths == ["/task-reports-*/_search"]


def test_the_search_for_the_index_of_a_run_says_that_one_is_closed() -> None:
    """Its months are old or new: a run may be in each of them."""
    cluster = WithClosed("task-reports-2025.01")
    searched = "task-reports-2025.01*,task-reports-2025.02*"
    places, completeness = cluster.indices_of_runs(searched, ["1/batch"], 5)
    assert places == {}
    assert completeness.sentences == ("task-reports-2025.01 is closed",)
    assert WithClosed().indices_of_runs(searched, ["1/batch"], 5) == ({}, WHOLE)


def test_another_refusal_is_raised() -> None:
    class Refusing(FakeSearchCluster):
        def request(self, *_: object) -> Any:
            raise SearchClusterError("refused", status=403)

    with pytest.raises(SearchClusterError, match="refused"):
        Refusing().search("task-reports-*", {}, 5, SINCE)

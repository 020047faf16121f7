"""What a cluster answers, as far as no real server is needed for it: the documents may be anybody's."""

from collections.abc import Mapping
from typing import Any

import pytest

from profiler.record.family_identity import FamilyKey
from profiler.record.record_model import Cost, TaskSize, encode
from profiler.runs.past_runs.families import FoundFamilies, read_families
from profiler.runs.past_runs.run_source import RunFilter
from profiler.runs.past_runs.search_runs import IndexedRuns
from profiler.search_setup.template_install import Method, ServerResponse
from tests.runs import lines, report
from tests.values import present


class PlayedCluster:
    """A cluster with one family and one run, whose record is ``text``."""

    def __init__(self, text: str | None, **more: Any) -> None:
        event = {"start": "2026-11-20T03:00:00.000Z"}  # the search asks for it
        source = {"task": {"id": "a", "family": "nightly"}, "cloud": {"region": "us-east-1"}, "event": event, **more}
        self._source = source if text is None else {**source, "record": text}

    def request(self, method: Method, path: str, body: Any = None) -> ServerResponse:
        if "aggs" not in body:
            return ServerResponse(status=200, body={"hits": {"hits": [{"_source": self._source}]}})
        key: Mapping[str, str | None] = {"name": "nightly", "account": None, "region": "us-east-1"}
        buckets = [{"key": key, "starts": {"buckets": [{"key": 1_000}]}}]
        found = {"families": {"buckets": buckets}}
        return ServerResponse(status=200, body={"hits": {"hits": []}, "aggregations": found})


def families_in(cluster: PlayedCluster) -> FoundFamilies:
    return read_families(IndexedRuns(cluster, "task"), RunFilter(), 50)


def test_the_record_of_a_document_is_the_evidence() -> None:
    families = families_in(PlayedCluster(lines([report()]).decode()))
    found = present(families.families[FamilyKey("nightly", None, "us-east-1")])
    assert (found.runs, found.latest.container) == (1, "batch")
    assert families.notes == ()


def test_without_the_record_the_numbers_of_the_document_are_the_evidence() -> None:
    """A shipper may deliver a line as an object, without its text."""
    usage: dict[str, Any] = {"memory": {"used_mb": {"max": 400.5}, "size_mb": 2048}}
    usage["cpu"] = {"size": 1, "used": {"p95": 0.3}}
    task = {"id": "a", "family": "nightly", "launch_type": "FARGATE", "size": {"vcpu": 1, "memory_mb": 2048}}
    found = present(*families_in(PlayedCluster(None, usage=usage, task=task)).families.values())
    assert (found.required_memory_mb, found.required_vcpu) == (400.5, 0.3)
    assert found.latest.size == TaskSize(vcpu=1, memory_mb=2048)

    # The index accepts a document with values of another type, and ignores them.
    usage = {**usage, "cpu": {"size": "many", "used": {"p95": {}}}, "duration_ms": "long"}
    found = present(*families_in(PlayedCluster(None, usage=usage)).families.values())
    assert (found.required_memory_mb, found.required_vcpu) == (400.5, None)


@pytest.mark.parametrize(
    "text", ["no JSON", '{"more": ' + "[" * 200_000, "\ud800"], ids=["no JSON", "too deep", "half a character"]
)
def test_a_record_that_cannot_be_read_is_no_measurement_and_a_note(text: str) -> None:
    families = families_in(PlayedCluster(text))
    assert list(families.families.values()) == [None]
    assert families.notes == ("the indices task-reports-*: 1 record could not be read, so numbers are missing.",)


class CountedCluster:
    """A cluster with some families, none of whose runs is found."""

    def __init__(self, families: int) -> None:
        keys = [{"name": f"f{number}", "account": None, "region": None} for number in range(families)]
        self.buckets = [{"key": key, "starts": {"buckets": [{"key": 1_000}]}} for key in keys]
        self.found_by_search: list[int] = []
        self.family_pages = 0

    def request(self, method: Method, path: str, body: Any = None) -> ServerResponse:
        found: dict[str, Any] = {}
        if "aggs" in body:
            composite = body["aggs"]["families"]["composite"]
            first = int(composite.get("after", {}).get("name", 0))
            page = self.buckets[first : first + composite["size"]]
            found = {"families": {"buckets": page, "after_key": {"name": str(first + len(page))}}}
            self.family_pages += 1
        else:
            self.found_by_search.append(len(body["query"]["bool"]["filter"][0]["bool"]["should"]))
        return ServerResponse(status=200, body={"hits": {"hits": []}, "aggregations": found})


@pytest.mark.parametrize(
    ("families", "last", "searches", "family_pages"),
    [(80, 50, [36, 36, 8], 1), (250, 1, [100, 100, 50], 1), (3, 10_000, [1, 1, 1], 4), (392, 50, [*[36] * 10, 32], 2)],
)
def test_one_page_holds_the_last_runs_of_the_families_of_a_search(
    families: int, last: int, searches: list[int], family_pages: int
) -> None:
    cluster = CountedCluster(families)
    assert list(IndexedRuns(cluster, "task").last_runs(RunFilter(), last)) == []
    assert (cluster.found_by_search, cluster.family_pages) == (searches, family_pages)


def test_a_run_on_spot_has_its_price() -> None:
    text = encode(report(cost=Cost(usd=0.02, price_basis="us-east-1 FARGATE X86_64 2026-09 on-demand price"))).decode()
    task = {"id": "a", "family": "nightly", "capacity_provider": "FARGATE_SPOT"}
    (run,) = IndexedRuns(PlayedCluster(text, task=task), "task").last_runs(RunFilter(), 50)
    assert present(run.report.record.cost).usd == 0.006

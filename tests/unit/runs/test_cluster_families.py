"""What a cluster answers, as far as no real server is needed for it: the documents may be anybody's."""

from collections.abc import Mapping
from typing import Any

import pytest

from profiler.record.family import FamilyKey
from profiler.runs.cluster_families import ClusterFamilies
from profiler.runs.source import RunFilter
from profiler.search.setup import Method, ServerResponse
from tests.runs import lines, report


class PlayedCluster:
    """A cluster with one family and one run, whose record is ``text``."""

    def __init__(self, text: str) -> None:
        self._source = {"record": text, "task": {"id": "a", "family": "nightly"}, "cloud": {"region": "us-east-1"}}

    def request(self, method: Method, path: str, body: Any = None) -> ServerResponse:
        if "aggs" not in body:
            return ServerResponse(status=200, body={"hits": {"hits": [{"_source": self._source}]}})
        key: Mapping[str, str | None] = {"name": "nightly", "account": None, "region": "us-east-1"}
        buckets = [{"key": key, "starts": {"buckets": [{"key": 1_000}]}}]
        found = {"families": {"buckets": buckets}}
        return ServerResponse(status=200, body={"hits": {"hits": []}, "aggregations": found})


def test_the_record_of_a_document_is_the_evidence() -> None:
    families = ClusterFamilies(PlayedCluster(lines([report()]).decode()), "task")
    (found,) = families.families(RunFilter(), 50)
    assert found.family == FamilyKey("nightly", None, "us-east-1")
    assert found.evidence is not None
    assert (found.evidence.runs, found.evidence.latest.container) == (1, "batch")
    assert families.notes == ()


@pytest.mark.parametrize(
    "text", ["no JSON", '{"more": ' + "[" * 200_000, "\ud800"], ids=["no JSON", "too deep", "half a character"]
)
def test_a_record_that_cannot_be_read_is_no_measurement_and_a_note(text: str) -> None:
    families = ClusterFamilies(PlayedCluster(text), "task")
    (found,) = families.families(RunFilter(), 50)
    assert found.evidence is None
    assert families.notes == ("1 records in the indices task-reports-* could not be read: their numbers are left out.",)

"""What a cluster answers, as far as no real server is needed for it: the documents may be anybody's."""

from collections.abc import Mapping
from typing import Any

import pytest

from profiler.runs.cluster_families import ClusterFamilies
from profiler.runs.source import RunFilter
from profiler.search.setup import Method, ServerResponse
from tests.runs import lines, report

NOTHING: Mapping[str, Any] = {"doc_count": 0, "value": None, "hits": {"hits": []}}


class PlayedCluster:
    """A cluster with one family and one run, whose record is ``text``."""

    def __init__(self, text: str) -> None:
        self._hit = {"hits": {"hits": [{"_source": {"record": text, "task": {"launch_type": "FARGATE"}}}]}}

    def request(self, method: Method, path: str, body: Any = None) -> ServerResponse:
        answers: dict[str, Any] = {}
        for group, found in body["aggs"].items():
            if "composite" in found:
                starts = [{"key": 1_000, "peak": {"value": 400.0}}]
                answers[group] = {"buckets": [{"key": {"family": "nightly"}, "starts": {"buckets": starts}}]}
            else:
                bucket = {name: self._answer(asked) for name, asked in found["aggs"].items()}
                answers[group] = {"buckets": {"0": bucket}}
        return ServerResponse(status=200, body={"hits": {"hits": []}, "aggregations": answers})

    def _answer(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        if "top_hits" in asked:
            return self._hit
        of_it = {name: self._answer(one) for name, one in asked.get("aggs", {}).items()}
        return {**NOTHING, **of_it, "doc_count": 1 if of_it.keys() & {"newest", "fullest"} else 0}


@pytest.mark.parametrize(
    ("text", "container"),
    [
        (lines([report()]).decode(), "batch"),
        ("no JSON", None),
        ('{"more": ' + "[" * 200_000, None),
        ("\ud800", None),
    ],
    ids=["a record", "no JSON", "too deep", "half a character"],
)
def test_of_a_record_that_cannot_be_read_what_the_document_says_is_taken(text: str, container: str | None) -> None:
    (found,) = ClusterFamilies(PlayedCluster(text), "task").families(RunFilter(), 50)
    assert found.evidence is not None
    assert found.evidence.runs == 1
    assert (found.evidence.latest.launch_type, found.evidence.latest.container) == ("FARGATE", container)


def test_a_run_that_reached_its_limit_unseen_keeps_its_size() -> None:
    open_verdict = report(metrics={"memory_usage_peak_mb": 2048}, likely_out_of_memory=None)
    (found,) = ClusterFamilies(PlayedCluster(lines([open_verdict]).decode()), "task").families(RunFilter(), 50)
    assert found.evidence is not None
    assert found.evidence.reached_size_mb == 2048

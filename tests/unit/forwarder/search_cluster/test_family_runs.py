from collections.abc import Mapping
from typing import Any

from profiler.forwarder.search_cluster.family_runs import family_durations
from profiler.record.usual_duration import UsualDuration
from tests.fake_search import FakeSearchCluster

PLACE = "arn:aws:ecs:eu-west-1:123456789012:cluster/jobs"


class Answering(FakeSearchCluster):
    """Answers a search with the durations of families in clusters."""

    def __init__(self, durations: Mapping[tuple[str, str], list[Any]]) -> None:
        super().__init__()
        self.body: Mapping[str, Any] = {}
        self._durations = durations

    def search(self, index: str, body: Mapping[str, object], timeout_seconds: float) -> Mapping[str, object]:
        assert (index, timeout_seconds) == ("task-reports-*", 5)
        self.body = body
        families: dict[str, list[dict[str, Any]]] = {}
        for (family, cluster), values in self._durations.items():
            hits = [{"_source": {"usage": {"duration_ms": value}}} for value in values]
            families.setdefault(family, []).append({"key": cluster, "runs": {"hits": {"hits": hits}}})
        buckets = [{"key": family, "clusters": {"buckets": places}} for family, places in families.items()]
        return {"aggregations": {"families": {"buckets": buckets}}}


def read(durations: Mapping[tuple[str, str], list[Any]]) -> tuple[Mapping[tuple[str, str], UsualDuration], Answering]:
    cluster = Answering(durations)
    found = family_durations(cluster, {"b", "a"}, prefix="task", place=PLACE, timeout_seconds=5)
    return found, cluster


def test_each_family_has_the_95th_percentile_in_its_cluster_if_there_are_enough_runs() -> None:
    found, _ = read(
        {
            ("a", "jobs"): [*range(1000, 21000, 1000)],
            ("a", "other"): [5.0] * 8,
            ("b", "jobs"): [5.0] * 7,
            ("b", "other"): [None, "x", *[5.0] * 7],
        }
    )
    assert found == {
        ("a", "jobs"): UsualDuration(median_ms=10500, p95_ms=19050, runs=20),
        ("a", "other"): UsualDuration(median_ms=5, p95_ms=5, runs=8),
    }


def test_the_search_selects_successes_of_the_account_and_region() -> None:
    _, cluster = read({})
    wanted = cluster.body["query"]["bool"]["filter"]
    assert {"terms": {"task.family": ["a", "b"]}} in wanted
    assert {"term": {"task.status": "success"}} in wanted
    assert {"term": {"cloud.account.id": "123456789012"}} in wanted
    assert {"term": {"cloud.region": "eu-west-1"}} in wanted

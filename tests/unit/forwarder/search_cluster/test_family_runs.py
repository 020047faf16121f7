"""What the search cluster is asked about a family's runs; tests/search asks a real one."""

from collections.abc import Mapping
from typing import Any

from profiler.forwarder.search_cluster.family_runs import FamilyMemory
from profiler.record.usual_duration import UsualDuration
from tests.fake_search import FakeSearchCluster

PLACE = "arn:aws:ecs:eu-west-1:123456789012:cluster/jobs"
SUCCESSES = {"task.status": "success", "cloud.account.id": "123456789012", "cloud.region": "eu-west-1"}


class Answering(FakeSearchCluster):
    """Answers with the durations of the family etl by the name of the cluster."""

    def __init__(self, **durations: list[Any]) -> None:
        super().__init__()
        self._durations = durations

    def search(self, index: str, body: Mapping[str, object], timeout_seconds: float) -> Mapping[str, object]:
        assert (index, timeout_seconds) == ("task-reports-*", 5)
        bodies: Any = body
        asked = bodies["query"]["bool"]["filter"]
        assert {"terms": {"task.family": ["etl", "load"]}} in asked
        assert all({"term": {name: value}} in asked for name, value in SUCCESSES.items())
        runs = {
            name: [{"_source": {"usage": {"duration_ms": value}}} for value in values]
            for name, values in self._durations.items()
        }
        clusters = [{"key": name, "runs": {"hits": {"hits": hits}}} for name, hits in runs.items()]
        return {"aggregations": {"families": {"buckets": [{"key": "etl", "clusters": {"buckets": clusters}}]}}}


def test_a_family_has_the_usual_duration_of_its_successes_in_a_cluster_if_there_are_enough() -> None:
    cluster = Answering(jobs=[*range(1000, 21000, 1000)], few=[5.0] * 7, unknown=[None, "x", *[5.0] * 7])
    memory = FamilyMemory(cluster=cluster, prefix="task", timeout_seconds=5)
    assert memory.durations({"load", "etl"}, PLACE) == {
        ("etl", "jobs"): UsualDuration(median_ms=10500, p95_ms=19050, runs=20)
    }

"""What the search cluster knows of a family's runs: how long its successes take, their memory, and a killed run."""

from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct

from profiler.core.ecs_terms import arn_account, arn_region
from profiler.core.json_fields import Json, mapping, mappings, number, text
from profiler.forwarder.delivery_errors import SearchClusterError
from profiler.forwarder.notices.announcements import EndedTask
from profiler.forwarder.search_cluster.interface import SearchCluster, terms
from profiler.forwarder.task_lines import read_line
from profiler.record.family_identity import MAX_RUNS_OF_A_FAMILY, UsualDuration, usual_duration
from profiler.record.record_model import Record, Report

_MIN_RUNS = 8
# By family and name of the ECS cluster.
FamilyDurations = Mapping[tuple[str, str], UsualDuration]


class FamilyMemory(Struct, frozen=True, kw_only=True):
    """Reads the runs of families in one account and Region."""

    cluster: SearchCluster
    prefix: str
    timeout_seconds: float

    def durations(self, families: Collection[str], place: str) -> FamilyDurations:
        """The durations of the last 20 successful runs of each family in each ECS cluster, from the last 90 days.

        A family with fewer than 8 of them is left out. ``place`` is an ARN of the account and Region of the runs.
        """
        runs = {
            "top_hits": {
                "size": MAX_RUNS_OF_A_FAMILY,
                "_source": ["usage.duration_ms"],
                "sort": [{"@timestamp": {"order": "desc", "unmapped_type": "date"}}],
            }
        }
        clusters = {"terms": {"field": "orchestrator.cluster.name", "size": 50}, "aggs": {"runs": runs}}
        in_families = {"terms": {"field": "task.family", "size": len(families)}, "aggs": {"clusters": clusters}}
        response = self._search(
            place,
            {"size": 0, "aggs": {"families": in_families}},
            {"terms": {"task.family": sorted(families)}},
            {"term": {"task.status": "success"}},
            {"range": {"@timestamp": {"gte": "now-90d"}}},
            {"range": {"usage.duration_ms": {"gt": 0}}},
        )
        found = {}
        for family in _buckets(response.get("aggregations"), "families"):
            for in_cluster in _buckets(family, "clusters"):
                sources = _sources(mapping(in_cluster.get("runs")))
                lasted = [number(mapping(source.get("usage")).get("duration_ms")) for source in sources]
                known = [duration_ms for duration_ms in lasted if duration_ms]
                usual = usual_duration(known) if len(known) >= _MIN_RUNS else None
                if usual is not None:
                    found[str(family.get("key")), str(in_cluster.get("key"))] = usual
        return found

    def highest_peak_mb(self, ended: EndedTask) -> float | None:
        """The highest peak of the family's successes; None without one, or if the search is refused for good."""
        peak = {"size": 0, "aggs": {"peak": {"max": {"field": "usage.memory.used_mb.max"}}}}
        of_family = {"term": {"task.family": ended.family}}
        try:
            found = self._search(ended.task.arn, peak, of_family, {"term": {"task.status": "success"}})
        except SearchClusterError as error:
            if error.is_retryable:
                raise
            return None
        return number(mapping(mapping(found.get("aggregations")).get("peak")).get("value"))

    def killed_run(self, ended: EndedTask, short_id: str) -> tuple[str | None, Record | None]:
        """The whole id of the killed run, and its record; None for what is not found, or not certain."""
        wanted, of_family = {"size": 10, "_source": ["task.id", "record"]}, {"term": {"task.family": ended.family}}
        try:
            found = self._search(ended.task.arn, wanted, of_family, {"prefix": {"task.id": short_id}})
        except SearchClusterError:
            return None, None
        sources = _sources(found)
        ids = {text(mapping(source.get("task")).get("id")) for source in sources}
        if len(ids) != 1:
            return None, None
        lines = (read_line(str(source.get("record"))) for source in sources)
        return ids.pop(), next((line.record for line in lines if isinstance(line, Report)), None)

    def _search(self, arn: str, body: Mapping[str, Json], *conditions: Json) -> Mapping[str, Json]:
        place = terms({"cloud.account.id": arn_account(arn), "cloud.region": arn_region(arn)})
        query = {"bool": {"filter": [*place, *conditions]}}
        return self.cluster.search(f"{self.prefix}-reports-*", {**body, "query": query}, self.timeout_seconds)


def _buckets(parent: Json, name: str) -> Iterator[Mapping[str, Json]]:
    return mappings(mapping(mapping(parent).get(name)).get("buckets"))


def _sources(response: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    return [mapping(hit.get("_source")) for hit in mappings(mapping(response.get("hits")).get("hits"))]

"""What the search cluster knows of a family's runs: how long its successes take, their memory, and a killed run."""

from collections.abc import Collection, Mapping

from msgspec import Struct

from profiler.core.ecs_terms import arn_account, arn_region
from profiler.core.json_fields import Json, mapping, mappings, number, text
from profiler.forwarder.delivery_errors import SearchClusterError
from profiler.forwarder.notices.announcements import EndedTask
from profiler.forwarder.search_cluster.interface import SearchCluster, terms
from profiler.forwarder.task_lines import read_line
from profiler.record.record_model import Record, Report
from profiler.record.usual_duration import MAX_RUNS_OF_A_FAMILY, UsualDuration, usual_duration

_MIN_RUNS = 8
# By family and name of the ECS cluster.
FamilyDurations = Mapping[tuple[str, str], UsualDuration]


def family_durations(
    cluster: SearchCluster,
    families: Collection[str],
    *,
    prefix: str,
    place: str,
    timeout_seconds: float,
) -> FamilyDurations:
    """Read the durations of the last 20 successful runs of each family in each ECS cluster, from the last 90 days.

    A family with fewer than 8 of them is left out. ``place`` is an ARN of the account and Region of the runs. Raises
    SearchClusterError.
    """
    response = cluster.search(f"{prefix}-reports-*", _query(sorted(families), place), timeout_seconds)
    found = {}
    for family in _buckets(response, "families"):
        for in_cluster in _buckets(family, "clusters"):
            hits = mappings(mapping(mapping(in_cluster.get("runs")).get("hits")).get("hits"))
            durations = [
                duration_ms
                for hit in hits
                if (duration_ms := number(mapping(mapping(hit.get("_source")).get("usage")).get("duration_ms")))
            ]
            usual = usual_duration(durations) if len(durations) >= _MIN_RUNS else None
            if usual is not None:
                found[str(family.get("key")), str(in_cluster.get("key"))] = usual
    return found


def _query(families: list[str], place: str) -> dict[str, object]:
    values = {"task.status": "success", "cloud.account.id": arn_account(place), "cloud.region": arn_region(place)}
    runs = {
        "top_hits": {
            "size": MAX_RUNS_OF_A_FAMILY,
            "_source": ["usage.duration_ms"],
            "sort": [{"@timestamp": {"order": "desc", "unmapped_type": "date"}}],
        }
    }
    clusters = {"terms": {"field": "orchestrator.cluster.name", "size": 50}, "aggs": {"runs": runs}}
    in_families = {"terms": {"field": "task.family", "size": len(families)}, "aggs": {"clusters": clusters}}
    wanted = [
        {"terms": {"task.family": families}},
        {"range": {"@timestamp": {"gte": "now-90d"}}},
        {"range": {"usage.duration_ms": {"gt": 0}}},
        *terms(values),
    ]
    return {"size": 0, "query": {"bool": {"filter": wanted}}, "aggs": {"families": in_families}}


def _buckets(part: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    parent = mapping(part.get("aggregations")) or part
    return list(mappings(mapping(parent.get(name)).get("buckets")))


class FamilyMemory(Struct, frozen=True, kw_only=True):
    """Reads the runs of a family in the same account and Region."""

    cluster: SearchCluster
    prefix: str
    timeout_seconds: float

    def highest_peak_mb(self, ended: EndedTask) -> float | None:
        """The highest peak of the family's successes; None without one, or if the search is refused for good."""
        peak = {"size": 0, "aggs": {"peak": {"max": {"field": "usage.memory.used_mb.max"}}}}
        try:
            found = self._search(ended, {"term": {"task.status": "success"}}, peak)
        except SearchClusterError as error:
            if error.is_retryable:
                raise
            return None
        return number(mapping(mapping(found.get("aggregations")).get("peak")).get("value"))

    def killed_run(self, ended: EndedTask, short_id: str) -> tuple[str | None, Record | None]:
        """The whole id of the killed run, and its record; None for what is not found, or not certain."""
        wanted = {"size": 10, "_source": ["task.id", "record"]}
        try:
            found = self._search(ended, {"prefix": {"task.id": short_id}}, wanted)
        except SearchClusterError:
            return None, None
        sources = [mapping(hit.get("_source")) for hit in mappings(mapping(found.get("hits")).get("hits"))]
        ids = {text(mapping(source.get("task")).get("id")) for source in sources}
        if len(ids) != 1:
            return None, None
        lines = (read_line(str(source.get("record"))) for source in sources)
        return ids.pop(), next((line.record for line in lines if isinstance(line, Report)), None)

    def _search(self, ended: EndedTask, condition: Json, body: Mapping[str, Json]) -> Mapping[str, Json]:
        arn = ended.task.arn
        fields = {"task.family": ended.family, "cloud.account.id": arn_account(arn), "cloud.region": arn_region(arn)}
        query = {"bool": {"filter": [*terms(fields), condition]}}
        return self.cluster.search(f"{self.prefix}-reports-*", {**body, "query": query}, self.timeout_seconds)

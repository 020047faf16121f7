"""How long the successful runs of families take, for runs that are slower."""

from collections.abc import Collection, Mapping
from statistics import quantiles

from msgspec import Struct

from forwarder.search_cluster.interface import SearchCluster
from profiler.core.ecs_terms import arn_account, arn_region
from profiler.core.json_fields import mapping, mappings, number, text

_MAX_RUNS = 20  # as for the usual durations that the command line shows
_MIN_RUNS = 8
_MAX_AGE = "now-90d"
_MAX_CLUSTERS = 50
_TWENTIETHS = 20


class FamilyDuration(Struct, frozen=True, kw_only=True):
    """The duration that 95 % of the latest successful runs do not exceed, and the number of these runs."""

    p95_ms: float
    runs: int


# By family and name of the ECS cluster.
FamilyDurations = Mapping[tuple[str, str], FamilyDuration]


def family_durations(
    cluster: SearchCluster,
    families: Collection[str],
    *,
    prefix: str,
    place: str,
    timeout_seconds: float,
) -> FamilyDurations:
    """Read the durations of the last 20 successful runs of each family in each ECS cluster, from the last 90 days.

    A family with fewer than 8 of them is left out. ``place`` is an ARN of the account and Region of the runs.

    Raises:
        SearchClusterError: the request failed.
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
            names = text(family.get("key")), text(in_cluster.get("key"))
            if len(durations) >= _MIN_RUNS and names[0] is not None and names[1] is not None:
                p95_ms = quantiles(durations, n=_TWENTIETHS, method="inclusive")[-1]
                found[names[0], names[1]] = FamilyDuration(p95_ms=p95_ms, runs=len(durations))
    return found


def _query(families: list[str], place: str) -> dict[str, object]:
    values = {
        "task.status": "success",
        "cloud.account.id": arn_account(place),
        "cloud.region": arn_region(place),
    }
    runs = {
        "top_hits": {
            "size": _MAX_RUNS,
            "_source": ["usage.duration_ms"],
            "sort": [{"@timestamp": {"order": "desc", "unmapped_type": "date"}}],
        }
    }
    clusters = {"terms": {"field": "orchestrator.cluster.name", "size": _MAX_CLUSTERS}, "aggs": {"runs": runs}}
    return {
        "size": 0,
        "query": {
            "bool": {
                "filter": [
                    {"terms": {"task.family": families}},
                    {"range": {"@timestamp": {"gte": _MAX_AGE}}},
                    {"range": {"usage.duration_ms": {"gt": 0}}},
                    *({"term": {field: value}} for field, value in values.items() if value is not None),
                ]
            }
        },
        "aggs": {
            "families": {"terms": {"field": "task.family", "size": len(families)}, "aggs": {"clusters": clusters}}
        },
    }


def _buckets(part: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    parent = mapping(part.get("aggregations")) or part
    return list(mappings(mapping(parent.get(name)).get("buckets")))

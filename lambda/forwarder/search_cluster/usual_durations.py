"""How long the successful runs of families take, for runs that are slower."""

from collections.abc import Collection, Mapping
from math import ceil

from msgspec import Struct

from forwarder.search_cluster.interface import SearchCluster
from profiler.core.json_fields import mapping, mappings, number, text

_MAX_RUNS = 100  # the engines' default limit of hits in a bucket
_MIN_RUNS = 8
_MAX_AGE = "now-90d"
_MAX_CLUSTERS = 50
_QUANTILE = 0.95


class UsualDuration(Struct, frozen=True, kw_only=True):
    """The duration that 95 % of the latest successful runs do not exceed, and the number of these runs."""

    p95_ms: float
    runs: int


# By family and name of the ECS cluster.
UsualDurations = Mapping[tuple[str, str], UsualDuration]


def usual_durations(
    cluster: SearchCluster,
    families: Collection[str],
    *,
    prefix: str,
    account_id: str | None,
    region: str | None,
    timeout_seconds: float,
) -> UsualDurations:
    """Read the durations of at most 100 successful runs of each family in each ECS cluster, from the last 90 days.

    A family with fewer than 8 of them is left out.

    Raises:
        SearchClusterError: the request failed.
    """
    response = cluster.search(f"{prefix}-reports-*", _query(sorted(families), account_id, region), timeout_seconds)
    found = {}
    for family in _buckets(response, "families"):
        for place in _buckets(family, "clusters"):
            hits = mappings(mapping(mapping(place.get("runs")).get("hits")).get("hits"))
            durations = [
                duration_ms
                for hit in hits
                if (duration_ms := number(mapping(mapping(hit.get("_source")).get("usage")).get("duration_ms")))
            ]
            names = text(family.get("key")), text(place.get("key"))
            if len(durations) >= _MIN_RUNS and names[0] is not None and names[1] is not None:
                p95_ms = sorted(durations)[ceil(_QUANTILE * len(durations)) - 1]
                found[names[0], names[1]] = UsualDuration(p95_ms=p95_ms, runs=len(durations))
    return found


def _query(families: list[str], account_id: str | None, region: str | None) -> dict[str, object]:
    values = {"task.status": "success", "cloud.account.id": account_id, "cloud.region": region}
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

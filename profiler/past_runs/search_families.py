"""Finds the last runs of each family in Elasticsearch or OpenSearch.

A search finds the families and the start of the oldest of their last runs. Its result is the conditions of a second
search, which reads these runs, page by page.
"""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from profiler.past_runs.run_source import RunFilter
from profiler.past_runs.search_queries import (
    ACCOUNT,
    FAMILY,
    REGION,
    START,
    JsonObject,
    any_of,
    exists,
    filter_conditions,
    indices_path,
    none_of,
    search,
    term,
)
from profiler.record.family_identity import FamilyKey
from profiler.search_setup.template_install import SearchServer

# Both engines refuse a response of more than 65,535 buckets.
_MAX_BUCKETS = 20_000
# Of one search, each with up to five conditions: the engines refuse a query of more than 1,024.
_MAX_FAMILIES = 100
# A page has room for this share of runs that started at the same time as the oldest of the last ones.
_PAGE_SHARE = 0.9
_EMPTY: Mapping[str, Any] = {}


def last_run_conditions(
    server: SearchServer, prefix: str, selection: RunFilter, last: int, page_size: int
) -> Iterator[Sequence[JsonObject]]:
    """Yield, for some families after the others, the conditions of a search for their last runs.

    Each search finds so few runs that one page has them: a further page would find all of them again.

    Raises TaskProfilerError if the search cluster fails or rejects a query.
    """
    path = indices_path(prefix, "reports")
    step = max(1, min(_MAX_FAMILIES, round(_PAGE_SHARE * page_size) // last))
    size = max(1, _MAX_BUCKETS // (last + 1))
    after: Mapping[str, Any] | None = None
    while True:
        query = _windows_query(selection, last, size, after)
        page = (search(server, path, query).get("aggregations") or _EMPTY).get("families", _EMPTY)
        buckets = page.get("buckets", ())
        conditions = [_in_window(bucket) for bucket in buckets if _is_selected(bucket, selection)]
        for first in range(0, len(conditions), step):
            yield [any_of(conditions[first : first + step]), *filter_conditions(selection, START)]
        after = page.get("after_key")
        if after is None or len(buckets) < size:
            return


def _windows_query(selection: RunFilter, last: int, size: int, after: Mapping[str, Any] | None) -> JsonObject:
    """Build the query for a page of families, with the start times of their last runs.

    Args:
        selection: The filter. The query matches too much for patterns with sets of characters: filter the result.
        last: Number of runs per family.
        size: Number of families.
        after: ``after_key`` of the previous page.
    """
    conditions = [exists(FAMILY), exists(START), *filter_conditions(selection, START)]
    fields = (("name", FAMILY), ("account", ACCOUNT), ("region", REGION))
    composite: JsonObject = {
        "size": size,
        "sources": [{name: {"terms": {"field": field, "missing_bucket": True}}} for name, field in fields],
    }
    if after is not None:
        composite["after"] = dict(after)
    starts = {"terms": {"field": START, "size": last, "order": {"_key": "desc"}}}
    return {
        "size": 0,
        "track_total_hits": False,
        "query": {"bool": {"filter": conditions}},
        "aggs": {"families": {"composite": composite, "aggs": {"starts": starts}}},
    }


def _is_selected(bucket: Mapping[str, Any], selection: RunFilter) -> bool:
    """Whether the filter selects the family, and any run of it has a start."""
    family = _family(bucket)
    is_named = not selection.families or any(fnmatchcase(family.name, pattern) for pattern in selection.families)
    return bool(bucket["starts"]["buckets"]) and is_named and selection.family in (None, family)


def _in_window(bucket: Mapping[str, Any]) -> JsonObject:
    """The condition that a run is of the family, and not older than the oldest of its last runs."""
    key = _family(bucket)
    values = ((FAMILY, key.name), (ACCOUNT, key.account_id), (REGION, key.region))
    start = {"gte": int(bucket["starts"]["buckets"][-1]["key"]), "format": "epoch_millis"}
    same = [none_of([exists(field)]) if value is None else term(field, value) for field, value in values]
    return {"bool": {"filter": [*same, {"range": {START: start}}]}}


def _family(bucket: Mapping[str, Any]) -> FamilyKey:
    key = bucket["key"]
    return FamilyKey(str(key["name"]), key["account"], key["region"])

"""Finds the last runs of each family in Elasticsearch or OpenSearch.

A search finds the families and the start of the oldest of their last runs. Its result is the conditions of a second
search, which reads these runs, page by page.
"""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct

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
from profiler.record.family import FamilyKey
from profiler.search_setup.template_install import SearchServer

# Both engines refuse a response of more than 65,535 buckets.
_MAX_BUCKETS = 10_000
_MAX_FAMILIES = 100
_EMPTY: Mapping[str, Any] = {}


class _Window(Struct, frozen=True, kw_only=True):
    """A family, and the start of the oldest of its last runs."""

    family: FamilyKey
    first_start_ms: int


def last_run_conditions(
    server: SearchServer, prefix: str, selection: RunFilter, last: int
) -> Iterator[Sequence[JsonObject]]:
    """Yield, for one page of families after the other, the conditions of a search for their last runs.

    Raises TaskProfilerError if the search cluster fails or rejects a query.
    """
    path = indices_path(prefix, "reports")
    after: Mapping[str, Any] | None = None
    while True:
        aggregations = search(server, path, _windows_query(selection, last, after)).get("aggregations") or _EMPTY
        page = aggregations.get("families", _EMPTY)
        windows = [window for bucket in page.get("buckets", ()) if (window := _window(bucket)) is not None]
        conditions = [_in_window(window) for window in windows if _is_selected(window.family, selection)]
        if conditions:
            yield [any_of(conditions), *filter_conditions(selection, START)]
        after = page.get("after_key")
        if after is None:
            return


def _windows_query(selection: RunFilter, last: int, after: Mapping[str, Any] | None) -> JsonObject:
    """Build the query for a page of families, with the start times of their last runs.

    Args:
        selection: The filter. The query matches too much for patterns with sets of characters: filter the result.
        last: Number of runs per family.
        after: ``after_key`` of the previous page.
    """
    conditions = [exists(FAMILY), exists(START), *filter_conditions(selection, START)]
    fields = (("name", FAMILY), ("account", ACCOUNT), ("region", REGION))
    composite: JsonObject = {
        "size": max(1, min(_MAX_FAMILIES, _MAX_BUCKETS // (last + 1))),
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


def _window(bucket: Mapping[str, Any]) -> _Window | None:
    starts, key = bucket["starts"]["buckets"], bucket["key"]
    if not starts:
        return None
    family = FamilyKey(str(key["name"]), key["account"], key["region"])
    return _Window(family=family, first_start_ms=int(starts[-1]["key"]))


def _is_selected(family: FamilyKey, selection: RunFilter) -> bool:
    is_named = not selection.families or any(fnmatchcase(family.name, pattern) for pattern in selection.families)
    return is_named and selection.family in (None, family)


def _in_window(window: _Window) -> JsonObject:
    key = window.family
    values = ((FAMILY, key.name), (ACCOUNT, key.account_id), (REGION, key.region))
    start = {"gte": window.first_start_ms, "format": "epoch_millis"}
    same = [none_of([exists(field)]) if value is None else term(field, value) for field, value in values]
    return {"bool": {"filter": [*same, {"range": {START: start}}]}}

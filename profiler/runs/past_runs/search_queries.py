"""Queries for Elasticsearch and OpenSearch: conditions, a filter of runs, the search, and the last runs of families.

A search finds the families and the start of the oldest of their last runs. Its result is the conditions of a second
search, which reads these runs, page by page.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args
from urllib.parse import quote

from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_MS
from profiler.record.family_identity import FamilyKey
from profiler.record.run_outcome import Status
from profiler.runs.past_runs.run_source import RunFilter
from profiler.search_setup.template_install import SearchServer

JsonObject = dict[str, Any]
FAMILY = "task.family"
CLUSTER = "orchestrator.cluster.name"
ACCOUNT = "cloud.account.id"
REGION = "cloud.region"
START = "event.start"
STATUS = "task.status"
_EMPTY: Mapping[str, Any] = {}


def term(field: str, value: object) -> JsonObject:
    """The field has this value."""
    return {"term": {field: value}}


def exists(field: str) -> JsonObject:
    """The field has a value."""
    return {"exists": {"field": field}}


def any_of(conditions: Sequence[JsonObject]) -> JsonObject:
    """One of the conditions holds."""
    return {"bool": {"should": list(conditions), "minimum_should_match": 1}}


def none_of(conditions: Sequence[JsonObject]) -> JsonObject:
    """None of the conditions holds."""
    return {"bool": {"must_not": list(conditions)}}


def matches_pattern(field: str, pattern: str) -> JsonObject:
    """The field matches a shell pattern. A set of characters becomes ``?``: filter the result again."""
    if not any(character in pattern for character in "*?["):
        return term(field, pattern)
    text = re.sub(r"\[[!^]?\]?[^\]]*\]", "?", pattern.replace("\\", "\\\\"))
    return {"wildcard": {field: {"value": text}}}


def filter_conditions(selection: RunFilter, time_field: str) -> list[JsonObject]:
    """The conditions of a filter, without its ``run``. The result must be filtered by family again."""
    conditions: list[JsonObject] = []
    time: JsonObject = {"format": "epoch_millis"}
    if selection.since_ns is not None:
        time["gte"] = -(-selection.since_ns // NS_PER_MS)
    if selection.until_ns is not None:
        time["lt"] = -(-selection.until_ns // NS_PER_MS)
    if len(time) > 1:
        conditions.append({"range": {time_field: time}})
    if selection.families:
        conditions.append(any_of([matches_pattern(FAMILY, family) for family in selection.families]))
    named = ((CLUSTER, selection.clusters), (ACCOUNT, selection.accounts), (REGION, selection.regions))
    conditions += [{"terms": {field: list(filter(None, values))}} for field, values in named if any(values)]
    conditions += [term("tags", f"{name}={value}") for name, value in selection.tags]
    if selection.statuses:
        conditions.append(_has_status(selection.statuses))
    return conditions


def _has_status(statuses: Sequence[str]) -> JsonObject:
    """The run has one of the statuses.

    A stopped run's document has no status until ECS's event arrives. A word that only a newer version knows is
    ``unknown``.
    """
    conditions: list[JsonObject] = [{"terms": {STATUS: list(statuses)}}]
    if "stopped" in statuses:
        conditions.append(none_of([exists(STATUS)]))
    if "unknown" in statuses:
        conditions.append({"bool": {"filter": [exists(STATUS)], "must_not": [{"terms": {STATUS: get_args(Status)}}]}})
    return any_of(conditions)


def indices_path(prefix: str, kind: str) -> str:
    """The path of a search in all indices of a kind. There may be no such index."""
    return f"/{quote(prefix)}-{kind}-*/_search?ignore_unavailable=true&allow_no_indices=true"


def search(server: SearchServer, path: str, query: object) -> Mapping[str, Any]:
    """Search, and return the response's body. Raises TaskProfilerError unless a search cluster accepts the search."""
    response = server.request("POST", path, query)
    body = response.body if isinstance(response.body, dict) else {}
    hits = body.get("hits")
    rows = hits.get("hits") if isinstance(hits, dict) else None
    if response.ok and isinstance(rows, list) and all(isinstance(row, dict) for row in rows):
        return body
    if not response.ok and ("error" in body or response.status in (401, 403)):
        raise TaskProfilerError(
            f"{response.address} rejected the search (HTTP {response.status}: {_reason(body)}): check URL, sign-in "
            "and --prefix, and that the index templates are installed ('task-profiler kibana import')."
        )
    raise TaskProfilerError(
        f"{response.address} did not answer as Elasticsearch or OpenSearch does (HTTP {response.status}): check the "
        "address, and that no proxy or sign-in page answers instead."
    )


def _reason(body: Mapping[str, Any]) -> str:
    error = body.get("error")
    causes = error.get("root_cause") if isinstance(error, dict) else None
    if isinstance(causes, list) and causes and isinstance(causes[0], dict):
        return str(causes[0].get("reason"))
    return str(error or "no reason given")


def last_run_conditions(
    server: SearchServer, prefix: str, selection: RunFilter, last: int, page_size: int
) -> Iterator[Sequence[JsonObject]]:
    """Yield, for some families after the others, the conditions of a search for their last runs.

    Each search finds few enough runs for one page: a further page would find all of them again.
    """
    path = indices_path(prefix, "reports")
    # Each family has up to five conditions, and the engines refuse a query of more than 1,024. A tenth of the page is
    # room for runs that started at the same time as the oldest of the last ones.
    step = max(1, min(100, round(0.9 * page_size) // last))
    size = max(1, 20_000 // (last + 1))  # both engines refuse a response of more than 65,535 buckets
    after: Mapping[str, Any] | None = None
    while True:
        query = _windows_query(selection, last, size, after)
        page = (search(server, path, query).get("aggregations") or _EMPTY).get("families", _EMPTY)
        buckets = page.get("buckets", ())
        conditions = []
        for bucket in buckets:
            family = FamilyKey(str(bucket["key"]["name"]), bucket["key"]["account"], bucket["key"]["region"])
            if bucket["starts"]["buckets"] and selection.matches_family(family):
                conditions.append(_in_window(bucket, family))
        for first in range(0, len(conditions), step):
            yield [any_of(conditions[first : first + step]), *filter_conditions(selection, START)]
        after = page.get("after_key")
        if after is None or len(buckets) < size:
            return


def _windows_query(selection: RunFilter, last: int, size: int, after: Mapping[str, Any] | None) -> JsonObject:
    """Build the query for a page of families, with the start times of their last runs.

    The query matches too much for patterns with sets of characters: filter the result. ``after`` is ``after_key`` of
    the previous page.
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


def _in_window(bucket: Mapping[str, Any], family: FamilyKey) -> JsonObject:
    """The condition that a run is of the family, and not older than the oldest of its last runs."""
    values = ((FAMILY, family.name), (ACCOUNT, family.account_id), (REGION, family.region))
    start = {"gte": int(bucket["starts"]["buckets"][-1]["key"]), "format": "epoch_millis"}
    same = [none_of([exists(field)]) if value is None else term(field, value) for field, value in values]
    return {"bool": {"filter": [*same, {"range": {START: start}}]}}

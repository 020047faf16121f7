"""Queries for Elasticsearch and OpenSearch: conditions, those of a filter of runs, and the search."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args
from urllib.parse import quote

from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_MS
from profiler.past_runs.run_source import RunFilter
from profiler.record.run_outcome import Status
from profiler.search_setup.template_install import SearchServer

JsonObject = dict[str, Any]
FAMILY = "task.family"
CLUSTER = "orchestrator.cluster.name"
ACCOUNT = "cloud.account.id"
REGION = "cloud.region"
START = "event.start"
STATUS = "task.status"
_STOPPED = "stopped"
_UNKNOWN = "unknown"
_SIGN_IN_STATUSES = frozenset({401, 403})


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
    text, rest = "", pattern
    while rest:
        character, rest = rest[0], rest[1:]
        end = rest.find("]", 2 if rest.startswith(("!]", "^]")) else 1) if character == "[" else -1
        if end >= 0:
            text, rest = text + "?", rest[end + 1 :]
        else:
            text += character if character in "*?" else f"\\{character}" if character == "\\" else character
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
    if selection.family_patterns:
        conditions.append(any_of([matches_pattern(FAMILY, family) for family in selection.family_patterns]))
    named = ((CLUSTER, selection.clusters), (ACCOUNT, selection.known_accounts), (REGION, selection.known_regions))
    conditions += [{"terms": {field: list(values)}} for field, values in named if values]
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
    if _STOPPED in statuses:
        conditions.append(none_of([exists(STATUS)]))
    if _UNKNOWN in statuses:
        conditions.append({"bool": {"filter": [exists(STATUS)], "must_not": [{"terms": {STATUS: get_args(Status)}}]}})
    return any_of(conditions)


def indices_path(prefix: str, kind: str) -> str:
    """The path of a search in all indices of a kind, which may be none."""
    return f"/{quote(prefix)}-{kind}-*/_search?ignore_unavailable=true&allow_no_indices=true"


def reports_place(prefix: str) -> str:
    """The name of the reports' indices in a sentence."""
    return f"the indices {prefix}-reports-*"


REMEDY = "check URL and --prefix, and that the forwarder works"


def search(server: SearchServer, path: str, query: object) -> Mapping[str, Any]:
    """Search, and return the body of the response.

    Raises TaskProfilerError if the search cluster rejects the search, or if something else answers.
    """
    response = server.request("POST", path, query)
    body = response.body if isinstance(response.body, dict) else {}
    hits = body.get("hits")
    rows = hits.get("hits") if isinstance(hits, dict) else None
    if response.ok and isinstance(rows, list) and all(isinstance(row, dict) for row in rows):
        return body
    if not response.ok and ("error" in body or response.status in _SIGN_IN_STATUSES):
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

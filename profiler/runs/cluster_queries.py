"""Conditions of the query language of Elasticsearch and OpenSearch."""

from collections.abc import Mapping, Sequence
from typing import Any

from profiler.core.errors import TaskProfilerError
from profiler.search.setup import SearchServer, ServerResponse

JsonObject = dict[str, Any]


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


def search(server: SearchServer, path: str, body: object) -> Mapping[str, Any]:
    """Search, and return the body of the response. Raises TaskProfilerError if the cluster rejects the search."""
    response = server.request("POST", path, body)
    if not response.ok or not isinstance(response.body, dict):
        raise TaskProfilerError(
            f"The cluster rejected the search (HTTP {response.status}: {_reason(response)}): check URL, sign-in "
            "and --prefix, and that the index templates are installed ('task-profiler kibana import')."
        )
    return response.body


def _reason(response: ServerResponse) -> str:
    error = response.body.get("error") if isinstance(response.body, dict) else None
    causes = error.get("root_cause") if isinstance(error, dict) else None
    if isinstance(causes, list) and causes and isinstance(causes[0], dict):
        return str(causes[0].get("reason"))
    return str(error or "no reason given")

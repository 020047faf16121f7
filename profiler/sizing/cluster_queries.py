"""What is asked of a cluster about the runs of its families. Pure.

Two searches a page of families. The first goes through the families by a composite aggregation and
finds the starts and peaks of each one's last runs; the second has the cluster aggregate these runs.
What comes back is as long for a million runs as for fifty.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from profiler.sizing.needs import CPU_BOUND_SHARE

JsonObject = dict[str, Any]

_FAMILY = "task.family"
_START = "event.start"
_PEAK = "usage.memory.used_mb.max"
_P95 = "usage.cpu.used.p95"
_MEMORY_SIZE = "usage.memory.size_mb"
_TASK_MEMORY = "usage.task.memory_mb"
_TASK_VCPU = "usage.task.vcpu_p95"
_SOURCE = ["record", "usage.cpu.size", _MEMORY_SIZE, "usage.memory.used_mb", "task.launch_type", "cloud.region"]
# Both engines refuse an answer of more than 65,535 buckets.
_MAX_BUCKETS = 10_000
_MAX_FAMILIES = 100


class Window(Struct, frozen=True, kw_only=True):
    """A family's last runs: the start of the first of them, and the peaks in the order of time."""

    family: str
    first_start_ms: int
    last_start_ms: int
    peaks_mb: tuple[float, ...]


def windows_query(families: Sequence[str], last: int, after: Mapping[str, Any] | None) -> JsonObject:
    """The next page of families, each with the starts and peaks of its last runs.

    ``families`` are shell patterns; what matches only by a set of characters is to be left out afterwards.
    """
    conditions: list[JsonObject] = [{"exists": {"field": _FAMILY}}, {"exists": {"field": _START}}]
    if families:
        conditions.append(_any_of([_family_condition(family) for family in families]))
    composite: JsonObject = {
        "size": max(1, min(_MAX_FAMILIES, _MAX_BUCKETS // (last + 1))),
        "sources": [{"family": {"terms": {"field": _FAMILY}}}],
    }
    if after is not None:
        composite["after"] = dict(after)
    starts = {"terms": {"field": _START, "size": last, "order": {"_key": "desc"}}, "aggs": {"peak": _max(_PEAK)}}
    return {
        "size": 0,
        "track_total_hits": False,
        "query": {"bool": {"filter": conditions}},
        "aggs": {"families": {"composite": composite, "aggs": {"starts": starts}}},
    }


def evidence_query(windows: Sequence[Window]) -> JsonObject:
    """The aggregates of these families' last runs, each under its place in the list."""
    filters = {str(place): _of_window(window) for place, window in enumerate(windows)}
    return {
        "size": 0,
        "track_total_hits": False,
        "query": {"terms": {_FAMILY: [window.family for window in windows]}},
        "aggs": {
            "families": {
                "filters": {"filters": filters},
                "aggs": {
                    "measured": {"filter": _measured(), "aggs": _aggregates()},
                    "killed": {"filter": _killed(), "aggs": _out_of_memory_aggregates()},
                    "ignored": _count(_none_of([_measured(), _killed()])),
                },
            }
        },
    }


def _aggregates() -> JsonObject:
    """A report of a stopped run leaves the status to ECS's event: it has none until that comes."""
    return {
        "failed": _count(_term("task.status", "failure")),
        "stopped": _count(_any_of([_term("task.status", "stopped"), _without("task.status")])),
        "bound": {
            "filter": {"range": {"usage.cpu.percent.p95": {"gte": 100 * CPU_BOUND_SHARE}}},
            "aggs": {"vcpu": _max("usage.cpu.size")},
        },
        "task_memory": _max(_TASK_MEMORY),
        "task_vcpu": _max(_TASK_VCPU),
        "alone": {"filter": _without(_TASK_MEMORY), "aggs": {"memory": _max(_PEAK)}},
        "alone_vcpu": {"filter": _without(_TASK_VCPU), "aggs": {"vcpu": _max(_P95)}},
        "sampled": _count(_term("usage.memory.peak_source", "sampled")),
        "kernel": _count(_term("usage.memory.peak_source", "kernel")),
        "first": {"min": {"field": _START}},
        "last": {"max": {"field": _START}},
        "billed_ms": {"avg": {"field": "usage.billed_duration_ms"}},
        "gpu": _max("usage.gpu.percent.max"),
        "newest": _top(_START),
        "highest": _top(_PEAK),
        "neediest": _top(_TASK_MEMORY),
        "busiest": _top(_P95),
    }


def _out_of_memory_aggregates() -> JsonObject:
    return {
        "largest": _top(_MEMORY_SIZE),
        "size": _max(_MEMORY_SIZE),
        "unmeasured": _count(_none_of([_measured()])),
    }


def _of_window(window: Window) -> JsonObject:
    start = {"gte": window.first_start_ms, "format": "epoch_millis"}
    return {"bool": {"filter": [_term(_FAMILY, window.family), {"range": {_START: start}}]}}


def _measured() -> JsonObject:
    """A report with numbers; of a lost run at least that it ran out of memory, and at which size."""
    numbers = _any_of([_exists(_PEAK), _exists(_P95)])
    report = {"bool": {"filter": [_term("task.complete", value=True), numbers]}}
    lost = {"bool": {"filter": [_term("task.out_of_memory", value=True), _exists(_MEMORY_SIZE), numbers]}}
    return _any_of([report, lost])


def _killed() -> JsonObject:
    return _any_of([_term("task.likely_out_of_memory", value=True), _term("task.out_of_memory", value=True)])


def _family_condition(pattern: str) -> JsonObject:
    """A shell pattern as Lucene's; a set of characters becomes any character, to be looked at afterwards."""
    if not any(character in pattern for character in "*?["):
        return _term(_FAMILY, pattern)
    text, rest = "", pattern
    while rest:
        character, rest = rest[0], rest[1:]
        end = rest.find("]", 2 if rest.startswith(("!]", "^]")) else 1) if character == "[" else -1
        if end >= 0:
            text, rest = text + "?", rest[end + 1 :]
        else:
            text += character if character in "*?" else f"\\{character}" if character == "\\" else character
    return {"wildcard": {_FAMILY: {"value": text}}}


def _term(field: str, value: object) -> JsonObject:
    return {"term": {field: value}}


def _exists(field: str) -> JsonObject:
    return {"exists": {"field": field}}


def _without(field: str) -> JsonObject:
    return _none_of([_exists(field)])


def _any_of(conditions: Sequence[JsonObject]) -> JsonObject:
    return {"bool": {"should": list(conditions), "minimum_should_match": 1}}


def _none_of(conditions: Sequence[JsonObject]) -> JsonObject:
    return {"bool": {"must_not": list(conditions)}}


def _max(field: str) -> JsonObject:
    return {"max": {"field": field}}


def _count(condition: JsonObject) -> JsonObject:
    return {"filter": condition}


def _top(field: str) -> JsonObject:
    """The one document with the largest value."""
    sort = {field: {"order": "desc", "missing": "_last", "unmapped_type": "double"}}
    return {"top_hits": {"size": 1, "sort": [sort], "_source": _SOURCE}}

"""The evidence of families in Elasticsearch or OpenSearch, aggregated by the cluster.

The first query finds families and the window of their last runs, the second aggregates each window. The third compares
the slowdown of each run with its slowdown at the current size, which the second query finds.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from profiler.core.optional_math import max_known
from profiler.core.timestamps import NS_PER_MS, format_ms, parse_ns
from profiler.record.metrics import SLOWDOWN_SIZES, slowdown_field
from profiler.record.model import TaskSize, decode
from profiler.runs.cluster_queries import (
    FAMILY,
    REMEDY,
    START,
    JsonObject,
    any_of,
    exists,
    filter_conditions,
    indices_path,
    none_of,
    reports_place,
    search,
    term,
)
from profiler.runs.families import FamilyEvidence
from profiler.runs.source import RunFilter
from profiler.search.setup import SearchServer
from profiler.sizing.duration import (
    UNKNOWN_DURATION_MS,
    DurationFactor,
    max_factor,
    monotone,
    quotient,
    smaller_vcpus,
)
from profiler.sizing.evidence import Evidence, rounded_ms, spike_of, with_assumption
from profiler.sizing.requirements import RunFacts, Task, facts_of

_PEAK = "usage.memory.used_mb.max"
_P95 = "usage.cpu.used.p95"
_MEMORY_SIZE = "usage.memory.size_mb"
_USAGE_PEAK = "usage.memory.usage_peak_mb"
_VERDICT = "task.likely_out_of_memory"
_TASK_MEMORY = "usage.task.memory_mb"
_TASK_VCPU = "usage.task.vcpu_p95"
_VCPU_SIZE = "task.size.vcpu"
# Every document with slowdowns has this field.
_ANY_SLOWDOWN = slowdown_field("max", SLOWDOWN_SIZES[0])
_SIZE_NAMES: Mapping[float, str] = {float(size): size for size in SLOWDOWN_SIZES}
_SOURCE = [
    "record",
    "usage.cpu.size",
    _MEMORY_SIZE,
    "usage.memory.used_mb",
    "task.launch_type",
    "task.size",
    "cloud.region",
]
# Both engines refuse a response of more than 65,535 buckets.
_MAX_BUCKETS = 10_000
_MAX_FAMILIES = 100
# The cluster stores 32-bit floats, which are exact to seven significant digits.
_DIGITS = 5
# The record's slowdowns and shares of time have three decimals.
_RECORD_DIGITS = 3
_EMPTY: Mapping[str, Any] = {}


class Window(Struct, frozen=True, kw_only=True):
    """A family's last runs: the first and the last start time, and the memory peaks in the order of time."""

    family: str
    first_start_ms: int
    last_start_ms: int
    peaks_mb: tuple[float, ...]


def windows_query(wanted: RunFilter, last: int, after: Mapping[str, Any] | None) -> JsonObject:
    """Build the query for a page of families, with the start times and peaks of their last runs.

    Args:
        wanted: The filter. The query matches too much for patterns with sets of characters: filter the result.
        last: Number of runs per family.
        after: ``after_key`` of the previous page.
    """
    conditions = [exists(FAMILY), exists(START), *filter_conditions(wanted, START)]
    composite: JsonObject = {
        "size": max(1, min(_MAX_FAMILIES, _MAX_BUCKETS // (last + 1))),
        "sources": [{"family": {"terms": {"field": FAMILY}}}],
    }
    if after is not None:
        composite["after"] = dict(after)
    starts = {"terms": {"field": START, "size": last, "order": {"_key": "desc"}}, "aggs": {"peak": _max(_PEAK)}}
    return {
        "size": 0,
        "track_total_hits": False,
        "query": {"bool": {"filter": conditions}},
        "aggs": {"families": {"composite": composite, "aggs": {"starts": starts}}},
    }


def evidence_query(windows: Sequence[Window], wanted: RunFilter) -> JsonObject:
    """Build the query for the aggregates of each window, under its index in the list."""
    filters = {str(index): _in_window(window) for index, window in enumerate(windows)}
    return {
        "size": 0,
        "track_total_hits": False,
        "query": _in_families(windows, wanted),
        "aggs": {
            "families": {
                "filters": {"filters": filters},
                "aggs": {
                    "measured": {"filter": _measured(), "aggs": _aggregates()},
                    "killed": {"filter": _killed(), "aggs": _out_of_memory_aggregates()},
                    "ignored": _count(none_of([_measured(), _killed()])),
                },
            }
        },
    }


def _aggregates() -> JsonObject:
    """Build the aggregations of measured runs.

    A stopped run's document has no status until ECS's event arrives.
    """
    return {
        "failed": _count(term("task.status", "failure")),
        "stopped": _count(any_of([term("task.status", "stopped"), _without("task.status")])),
        "without_slowdown": {"filter": _without(_ANY_SLOWDOWN), "aggs": _vcpu_aggregates()},
        "task_memory": _max(_TASK_MEMORY),
        **_vcpu_aggregates(),
        "alone": {"filter": _without(_TASK_MEMORY), "aggs": {"memory": _max(_PEAK)}},
        "sampled": _count(term("usage.memory.peak_source", "sampled")),
        "kernel": _count(term("usage.memory.peak_source", "kernel")),
        "first": {"min": {"field": START}},
        "last": {"max": {"field": START}},
        "stats_period_ms": _max("monitor.stats_period_ms"),
        "billed_ms": {"avg": {"field": "usage.billed_duration_ms"}},
        "gpu": _max("usage.gpu.percent.max"),
        "newest": _top(START),
        "highest": _top(_PEAK),
        "neediest": _top(_TASK_MEMORY),
        "busiest": _top(_P95),
        # Where the usage reached the limit unseen, the record has no verdict on memory.
        "open": {"filter": _without(_VERDICT), "aggs": {"fullest": _top(_USAGE_PEAK)}},
    }


def _vcpu_aggregates() -> JsonObject:
    """Build the aggregations of the required vCPUs: of all containers, and of batches without other containers."""
    return {
        "task_vcpu": _max(_TASK_VCPU),
        "alone_vcpu": {"filter": _without(_TASK_VCPU), "aggs": {"vcpu": _max(_P95)}},
    }


def slowdowns_query(
    windows: Sequence[Window], wanted: RunFilter, current_vcpus: Sequence[float | None], last: int
) -> JsonObject:
    """Build the query for the durations at other sizes, under each window's index in the list.

    The windows are grouped by the vCPU size of the newest run, because the aggregations depend on it.
    """
    groups: dict[float | None, dict[str, JsonObject]] = {}
    for index, (window, vcpu) in enumerate(zip(windows, current_vcpus, strict=True)):
        condition = {"bool": {"filter": [_in_window(window), _measured()]}}
        groups.setdefault(vcpu, {})[str(index)] = condition
    return {
        "size": 0,
        "track_total_hits": False,
        "query": _in_families(windows, wanted),
        "aggs": {
            f"of_{group}": {"filters": {"filters": filters}, "aggs": _slowdown_aggregates(vcpu, last)}
            for group, (vcpu, filters) in enumerate(groups.items())
        },
    }


def _slowdown_aggregates(current_vcpu: float | None, last: int) -> JsonObject:
    at_current = _without(_VCPU_SIZE) if current_vcpu is None else term(_VCPU_SIZE, current_vcpu)
    mean = {
        "value": {"field": "usage.cpu.saturated_percent"},
        "weight": {"field": "usage.duration_ms", "missing": UNKNOWN_DURATION_MS},
    }
    return {
        "saturated": {"filter": at_current, "aggs": {"percent": {"weighted_avg": mean}}},
        "least": _quotients("min", "max", current_vcpu, last),
        "most": _quotients("max", "min", current_vcpu, last),
    }


def _quotients(bound: str, divisor_bound: str, current_vcpu: float | None, last: int) -> JsonObject:
    """Build the largest values of a bound of the slowdown, for each value of its divisor at the current size.

    A run has the largest quotient of the family if it has the largest value of the runs with the same divisor. In this
    way, the cluster needs no script. Almost every run has a divisor of 1.
    """
    names = [_SIZE_NAMES[vcpu] for vcpu in smaller_vcpus(current_vcpu)]
    largest = {name: _max(slowdown_field(bound, name)) for name in names}
    current = None if current_vcpu is None else _SIZE_NAMES.get(current_vcpu)
    if current is None:
        return {"filter": exists(_ANY_SLOWDOWN), "aggs": largest}
    return {"terms": {"field": slowdown_field(divisor_bound, current), "size": last}, "aggs": largest}


def _out_of_memory_aggregates() -> JsonObject:
    return {
        "largest": _top(_MEMORY_SIZE),
        "size": _max(_MEMORY_SIZE),
        "unmeasured": _count(none_of([_measured()])),
    }


def _in_families(windows: Sequence[Window], wanted: RunFilter) -> JsonObject:
    """Match the runs of the windows' families that the filter selects."""
    families = {"terms": {FAMILY: [window.family for window in windows]}}
    return {"bool": {"filter": [families, *filter_conditions(wanted, START)]}}


def _in_window(window: Window) -> JsonObject:
    start = {"gte": window.first_start_ms, "format": "epoch_millis"}
    return {"bool": {"filter": [term(FAMILY, window.family), {"range": {START: start}}]}}


def _measured() -> JsonObject:
    """Match reports with measurements, and runs without a report that ran out of memory at a known size."""
    has_values = any_of([exists(_PEAK), exists(_P95)])
    report = {"bool": {"filter": [term("task.complete", value=True), has_values]}}
    lost = {"bool": {"filter": [term("task.out_of_memory", value=True), exists(_MEMORY_SIZE), has_values]}}
    return any_of([report, lost])


def _killed() -> JsonObject:
    return any_of([term(_VERDICT, value=True), term("task.out_of_memory", value=True)])


def _without(field: str) -> JsonObject:
    return none_of([exists(field)])


def _max(field: str) -> JsonObject:
    return {"max": {"field": field}}


def _count(condition: JsonObject) -> JsonObject:
    return {"filter": condition}


def _top(field: str) -> JsonObject:
    """Select the document with the largest value."""
    sort = {field: {"order": "desc", "missing": "_last", "unmapped_type": "double"}}
    return {"top_hits": {"size": 1, "sort": [sort], "_source": _SOURCE}}


class ClusterFamilies:
    """The families of the reports in the indices of a prefix."""

    remedy = REMEDY
    notes: Sequence[str] = ()

    def __init__(self, server: SearchServer, prefix: str) -> None:
        self._server = server
        self._path = indices_path(prefix, "reports")
        self.place = reports_place(prefix)

    def families(self, wanted: RunFilter, last: int) -> Sequence[FamilyEvidence]:
        """See profiler.runs.families. Raises TaskProfilerError if the cluster does not respond or rejects a query."""
        found: list[FamilyEvidence] = []
        after: Mapping[str, Any] | None = None
        while True:
            page = self._aggregate(windows_query(wanted, last, after)).get("families", _EMPTY)
            buckets = page.get("buckets", ())
            windows = [window for bucket in buckets if (window := _window(bucket, wanted.families)) is not None]
            if windows:
                found += self._evidence(windows, wanted, last)
            after = page.get("after_key")
            if after is None:
                return found

    def _evidence(self, windows: Sequence[Window], wanted: RunFilter, last: int) -> Iterator[FamilyEvidence]:
        buckets = self._aggregate(evidence_query(windows, wanted))["families"]["buckets"]
        found = [_evidence(window, buckets[str(index)]) for index, window in enumerate(windows)]
        vcpus = [None if evidence is None else evidence.current_vcpu for evidence in found]
        groups = self._aggregate(slowdowns_query(windows, wanted, vcpus, last))
        durations = {index: bucket for group in groups.values() for index, bucket in group["buckets"].items()}
        for index, (window, evidence) in enumerate(zip(windows, found, strict=True)):
            known = None if evidence is None else _with_durations(evidence, durations[str(index)])
            yield FamilyEvidence(name=window.family, evidence=known)

    def _aggregate(self, body: object) -> Mapping[str, Any]:
        aggregations: Mapping[str, Any] = search(self._server, self._path, body).get("aggregations") or _EMPTY
        return aggregations


def _window(bucket: Mapping[str, Any], patterns: Sequence[str]) -> Window | None:
    family = str(bucket["key"]["family"])
    starts = bucket["starts"]["buckets"]
    if not starts or (patterns and not any(fnmatchcase(family, pattern) for pattern in patterns)):
        return None
    oldest_first = list(reversed(starts))
    peaks = (_number(start["peak"]) for start in oldest_first)
    return Window(
        family=family,
        first_start_ms=int(oldest_first[0]["key"]),
        last_start_ms=int(oldest_first[-1]["key"]),
        peaks_mb=tuple(peak for peak in peaks if peak is not None),
    )


def _evidence(window: Window, bucket: Mapping[str, Any]) -> Evidence | None:
    measured, out_of_memory = bucket["measured"], bucket["killed"]
    if not measured["doc_count"]:
        return None
    newest, highest, neediest, busiest = (_run(measured[name]) for name in ("newest", "highest", "neediest", "busiest"))
    killed = _run(out_of_memory["largest"]) if out_of_memory["doc_count"] else None
    fullest = _run(measured["open"]["fullest"]) if measured["open"]["doc_count"] else None
    records = [run for run in (newest, highest, neediest, busiest, killed) if run is not None and run.is_measured]
    others = _OtherContainers(newest)
    memory_mb = max_known(_number(measured["task_memory"]), others.with_memory(_number(measured["alone"]["memory"])))
    vcpu = others.largest_vcpu(measured)
    period_ms = _number(measured["stats_period_ms"])
    evidence = Evidence(
        family=window.family,
        runs=measured["doc_count"],
        latest=newest.task if newest is not None else _task(measured["newest"]),
        failed=measured["failed"]["doc_count"],
        stopped=measured["stopped"]["doc_count"],
        out_of_memory=out_of_memory["doc_count"],
        out_of_memory_unmeasured=out_of_memory["unmeasured"]["doc_count"],
        ignored=bucket["ignored"]["doc_count"],
        required_memory_mb=memory_mb,
        required_vcpu=vcpu,
        batch_peak_mb=next((run.peak_mb for run in records if _is_close(run.requirements.memory_mb, memory_mb)), None),
        vcpu_without_slowdown=others.largest_vcpu(measured["without_slowdown"]),
        oom_size_mb=max_known(_number(out_of_memory["size"]), killed.oom_size_mb if killed is not None else None),
        reached_size_mb=None if fullest is None else fullest.reached_size_mb,
        peak_source="sampled"
        if measured["sampled"]["doc_count"]
        else "kernel"
        if measured["kernel"]["doc_count"]
        else None,
        stats_period_ms=None if period_ms is None else int(period_ms),
        first_started_at=_time(measured["first"]),
        last_started_at=_time(measured["last"]),
        window_ns=(window.last_start_ms - window.first_start_ms) * NS_PER_MS,
        mean_billed_ms=rounded_ms(_number(measured["billed_ms"])),
        spike=None if highest is None else spike_of([highest]),
        peaks_mb=window.peaks_mb,
        gpus_idle=_number(measured["gpu"]) == 0 and newest is not None and newest.gpus_idle is True,
    )
    return with_assumption(evidence, others.sentence) if others.were_assumed else evidence


def _with_durations(evidence: Evidence, bucket: Mapping[str, Any]) -> Evidence:
    saturated = bucket["saturated"]["percent"].get("value")
    return replace(
        evidence,
        slowdowns=_duration_factors(evidence.current_vcpu, bucket),
        saturated_percent=(
            round(float(saturated), _RECORD_DIGITS)
            if isinstance(saturated, int | float) and math.isfinite(saturated)
            else None
        ),
    )


def _duration_factors(current_vcpu: float | None, bucket: Mapping[str, Any]) -> Mapping[float, DurationFactor] | None:
    least, most = _by_divisor(bucket["least"]), _by_divisor(bucket["most"])
    if not least or not most:
        return None
    factors = {}
    for vcpu in smaller_vcpus(current_vcpu):
        name, limit = _SIZE_NAMES[vcpu], max_factor(vcpu, current_vcpu)
        factors[vcpu] = DurationFactor(
            min=max(quotient(_slowdown(part[name]), divisor, limit) for divisor, part in least),
            max=max(quotient(_slowdown(part[name]), divisor, limit) for divisor, part in most),
        )
    return monotone(factors)


def _by_divisor(aggregation: Mapping[str, Any]) -> list[tuple[float, Mapping[str, Any]]]:
    """Read each divisor with the largest values of its runs; without a current size, the only divisor is 1."""
    buckets = aggregation.get("buckets")
    if buckets is None:
        return [(1.0, aggregation)] if aggregation["doc_count"] else []
    return [(max(round(float(bucket["key"]), _RECORD_DIGITS), 1.0), bucket) for bucket in buckets]


def _slowdown(metric: Mapping[str, Any]) -> float:
    """Read a slowdown with the digits of the record; the index has 32-bit floats."""
    value = metric.get("value")
    return round(float(value), _RECORD_DIGITS) if isinstance(value, int | float) else 1.0


class _OtherContainers:
    """Adds the requirements of other containers where a run's document lacks them: those of the newest run."""

    def __init__(self, newest: RunFacts | None) -> None:
        self._newest = newest
        self.were_assumed = False
        self.sentence = (
            "The index lacks the needs of the other containers for some runs, so those of the newest run are assumed."
        )

    def with_memory(self, batch_mb: float | None) -> float | None:
        newest = self._newest
        if batch_mb is None or newest is None or newest.peak_mb is None or newest.requirements.memory_mb is None:
            return batch_mb
        return self._with_others(batch_mb, newest.requirements.memory_mb - newest.peak_mb)

    def largest_vcpu(self, bucket: Mapping[str, Any]) -> float | None:
        return max_known(_number(bucket["task_vcpu"]), self.with_vcpu(_number(bucket["alone_vcpu"]["vcpu"])))

    def with_vcpu(self, batch_vcpu: float | None) -> float | None:
        newest = self._newest
        if batch_vcpu is None or newest is None or newest.batch_vcpu is None or newest.requirements.vcpu is None:
            return batch_vcpu
        return self._with_others(batch_vcpu, newest.requirements.vcpu - newest.batch_vcpu)

    def _with_others(self, batch: float, others: float) -> float:
        self.were_assumed = self.were_assumed or bool(self._newest and self._newest.task.has_other_containers)
        return round(batch + others, _DIGITS)


def _run(top: Mapping[str, Any]) -> RunFacts | None:
    """Read the record of the selected document; None if it has no valid record."""
    source = _source(top)
    text = source.get("record")
    if not isinstance(text, str):
        return None
    with contextlib.suppress(msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return facts_of(decode(text))
    return None


def _task(top: Mapping[str, Any]) -> Task:
    """Describe the task without its record."""
    source = _source(top)
    usage, task = source.get("usage", _EMPTY), source.get("task", _EMPTY)
    size = task.get("size", _EMPTY)
    return Task(
        size=TaskSize(vcpu=size.get("vcpu"), memory_mb=size.get("memory_mb")) if size else None,
        launch_type=task.get("launch_type"),
        region=source.get("cloud", _EMPTY).get("region"),
        vcpu_size=usage.get("cpu", _EMPTY).get("size"),
        memory_size_mb=usage.get("memory", _EMPTY).get("size_mb"),
    )


def _source(top: Mapping[str, Any]) -> Mapping[str, Any]:
    hits = top["hits"]["hits"]
    source: Mapping[str, Any] = hits[0].get("_source", _EMPTY) if hits else _EMPTY
    return source


def _number(metric: Mapping[str, Any]) -> float | None:
    """Read the value of a metric; None without documents, for which old versions return an infinity as text."""
    value = metric.get("value")
    return round(float(value), _DIGITS) if isinstance(value, int | float) else None


def _time(metric: Mapping[str, Any]) -> str | None:
    value = metric.get("value")
    if not isinstance(value, int | float):
        return None
    text = metric.get("value_as_string")
    return text if isinstance(text, str) and parse_ns(text) is not None else format_ms(int(value) * NS_PER_MS)


def _is_close(left: float | None, right: float | None) -> bool:
    return left is not None and right is not None and math.isclose(left, right, rel_tol=1e-6)

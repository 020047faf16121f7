"""The runs in the documents of Elasticsearch or OpenSearch.

A document has the run's record as text: the forwarder's whole line, or only the line's ``record``.
ECS's event may have corrected identity, times and status since the report was written, and it also
makes documents of runs that left no record. A run that no event confirms is not confirmed.
"""

import contextlib
import heapq
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, get_args
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_MS, format_ms, parse_ns
from profiler.record.family_identity import FamilyKey
from profiler.record.impossible_values import decode_leniently, without_impossible
from profiler.record.notice_model import ScheduleNoticeLine
from profiler.record.record_model import CHECKPOINT, SCHEMA_VERSION, Record, Report, decode
from profiler.record.run_outcome import Status
from profiler.record.search_document_fields import FIELDS, IDENTITY_FIELDS, DocumentField
from profiler.record.spot_price import cost_on
from profiler.record.units import as_number, format_count
from profiler.runs.past_runs.run_source import (
    OpenProgress,
    PastRun,
    RunFilter,
    RunSource,
    TaskEvent,
    no_progress,
)
from profiler.runs.past_runs.schedule_notices import MAX_NOTICES, read_notices, select_notices
from profiler.search_setup.template_install import SearchServer

JsonObject = dict[str, Any]
_Hits = Sequence[Mapping[str, Any]]
_FAMILY = "task.family"
_CLUSTER = "orchestrator.cluster.name"
_ACCOUNT = "cloud.account.id"
_REGION = "cloud.region"
_START = "event.start"
_STATUS = "task.status"
_TIME = "@timestamp"
_DUE = "notice.due_at"
_TASK_ID = "task.id"
# By the record's field, or the container's: its field in a document.
_IDENTITY: Mapping[str, str] = {
    "family": _FAMILY,
    "revision": "task.revision",
    "task_arn": "task.arn",
    "launch_type": "task.launch_type",
    "cluster": _CLUSTER,
    "account_id": _ACCOUNT,
    "region": _REGION,
    "availability_zone": "cloud.availability_zone",
    "container_id": "container.id",
    "image": "container.image.name",
}
_PAGE_SIZE = 200
# For reads that never stop early. A record line has at most 64 KiB.
_LARGE_PAGE_SIZE = 2_000
_MAX_CHECKPOINTS = 1_000
_EMPTY: Mapping[str, Any] = {}
_TYPES: Mapping[str, type] = {"keyword": str, "date": str, "boolean": bool, "long": int}
# The index accepts a value of another type and ignores it.
_TASK_TYPES = {
    field.name.removeprefix("task."): _TYPES[field.index_type]
    for field in IDENTITY_FIELDS
    if "task." in field.name
}


def term(field: str, value: object) -> JsonObject:
    """The field has the value."""
    return {"term": {field: value}}


def exists(field: str) -> JsonObject:
    """The field has any value."""
    return {"exists": {"field": field}}


def any_of(conditions: Sequence[JsonObject]) -> JsonObject:
    """At least one of the conditions."""
    return {"bool": {"should": list(conditions), "minimum_should_match": 1}}


def none_of(conditions: Sequence[JsonObject]) -> JsonObject:
    """None of the conditions."""
    return {"bool": {"must_not": list(conditions)}}


def _matches_pattern(field: str, pattern: str) -> JsonObject:
    """The field matches a shell pattern.

    A set of characters becomes ``?``: filter the result again.
    """
    if not any(character in pattern for character in "*?["):
        return term(field, pattern)
    text = re.sub(r"\[[!^]?\]?[^\]]*\]", "?", pattern.replace("\\", "\\\\"))
    return {"wildcard": {field: {"value": text}}}


def filter_conditions(selection: RunFilter, time_field: str) -> list[JsonObject]:
    """The conditions of a filter, without its ``run``: filter the result by family again."""
    conditions: list[JsonObject] = []
    time: JsonObject = {"format": "epoch_millis"}
    if selection.since_ns is not None:
        time["gte"] = -(-selection.since_ns // NS_PER_MS)
    if selection.until_ns is not None:
        time["lt"] = -(-selection.until_ns // NS_PER_MS)
    if len(time) > 1:
        conditions.append({"range": {time_field: time}})
    if selection.families:
        families = [_matches_pattern(_FAMILY, family) for family in selection.families]
        conditions.append(any_of(families))
    for field, values in (
        (_CLUSTER, selection.clusters),
        (_ACCOUNT, selection.accounts),
        (_REGION, selection.regions),
    ):
        known_values = [value for value in values if value]
        if known_values:
            conditions.append({"terms": {field: known_values}})
    conditions += [term("tags", f"{name}={value}") for name, value in selection.tags]
    if selection.statuses:
        conditions.append(_has_status(selection.statuses))
    return conditions


def _has_status(statuses: Sequence[str]) -> JsonObject:
    """The run has one of the statuses.

    A stopped run has none until ECS's event; a newer word is ``unknown``.
    """
    conditions: list[JsonObject] = [{"terms": {_STATUS: list(statuses)}}]
    if "stopped" in statuses:
        conditions.append(none_of([exists(_STATUS)]))
    if "unknown" in statuses:
        is_known = {"terms": {_STATUS: get_args(Status)}}
        conditions.append({"bool": {"filter": [exists(_STATUS)], "must_not": [is_known]}})
    return any_of(conditions)


def _reason(body: Mapping[str, Any]) -> str:
    match body.get("error"):
        case {"root_cause": [{"reason": reason}, *_]}:
            return str(reason)
        case error:
            return str(error or "no reason given")


def _windows_query(
    selection: RunFilter, last: int, size: int, after: Mapping[str, Any] | None
) -> JsonObject:
    """The query for a page of families after the ``after_key`` of another, with the starts of
    their last runs.
    """
    conditions = [exists(_FAMILY), exists(_START), *filter_conditions(selection, _START)]
    fields = {"name": _FAMILY, "account": _ACCOUNT, "region": _REGION}
    composite = composite_of(fields, size)
    if after is not None:
        composite["after"] = dict(after)
    starts = {"terms": {"field": _START, "size": last, "order": {"_key": "desc"}}}
    return {
        "size": 0,
        "track_total_hits": False,
        "query": {"bool": {"filter": conditions}},
        "aggs": {"families": {"composite": composite, "aggs": {"starts": starts}}},
    }


def composite_of(fields: Mapping[str, str], size: int) -> JsonObject:
    """The aggregation of documents that have the same values in all fields, by the fields' names
    in its buckets; ``size`` buckets a page.
    """
    sources: list[JsonObject] = []
    for name, field in fields.items():
        sources.append({name: {"terms": {"field": field, "missing_bucket": True}}})
    return {"size": size, "sources": sources}


def has_value(field: str, value: object) -> JsonObject:
    """The field has the value; it has none if the value is None."""
    return none_of([exists(field)]) if value is None else term(field, value)


def family_conditions(family: FamilyKey) -> list[JsonObject]:
    """The run is of the family."""
    return [
        has_value(_FAMILY, family.name),
        has_value(_ACCOUNT, family.account_id),
        has_value(_REGION, family.region),
    ]


def family_of(bucket: Mapping[str, Any]) -> FamilyKey:
    """The family in the key of a bucket, whose fields are name, account and region."""
    key = bucket["key"]
    return FamilyKey(str(key["name"]), key["account"], key["region"])


def _in_window(bucket: Mapping[str, Any], family: FamilyKey) -> JsonObject:
    """The condition that a run is of the family, and not older than the oldest of its last runs."""
    oldest_ms = int(bucket["starts"]["buckets"][-1]["key"])
    is_last = {"range": {_START: {"gte": oldest_ms, "format": "epoch_millis"}}}
    return {"bool": {"filter": [*family_conditions(family), is_last]}}


class IndexedRuns(RunSource):
    """The runs in the indices of a prefix."""

    remedy = "check --from https://HOST/PREFIX, and that the forwarder works"

    def __init__(
        self, server: SearchServer, prefix: str, open_progress: OpenProgress = no_progress
    ) -> None:
        self.server = server
        self.prefix = prefix
        self._open_progress = open_progress
        self._unreadable: set[str] = set()  # a document may be read several times
        self._is_cut = False
        self.read_one_by_one = 0  # documents over which the cluster could not compute
        self.place = f"the indices {prefix}-reports-*"

    @property
    def notes(self) -> Sequence[str]:
        notes: list[str] = []
        if self._unreadable:
            notes.append(
                f"{self.place}: {format_count(len(self._unreadable), 'record')} could not be read, "
                "so numbers are missing."
            )
        if self._is_cut:
            notes.append(
                f"Only the newest {_MAX_CHECKPOINTS} checkpoints of a run were read: its time "
                "series begins later."
            )
        if self.read_one_by_one:
            notes.append(
                f"{self.place}: {format_count(self.read_one_by_one, 'document')} had to be read "
                "one by one: an older forwarder wrote them, or the task's size or end is unknown."
            )
        return tuple(notes)

    def runs(self, selection: RunFilter) -> Iterator[PastRun]:
        is_found = False
        with self._open_progress() as show:
            # Runs that never started have no start: a second search sorts them by their time.
            started = self.all_runs(_conditions(selection, _START), _START, _PAGE_SIZE)
            never_started = self.all_runs(_conditions(selection, _TIME), _TIME, _PAGE_SIZE)
            merged = heapq.merge(started, never_started, key=lambda run: -run.started_ns)
            for count, run in enumerate(merged, start=1):
                is_found = True
                show(count, 0)
                if selection.matches(run.report):
                    yield run
        if selection.reads_checkpoints and selection.run is not None and not is_found:
            # The run may have only checkpoints so far.
            for hit in self._search("checkpoints", _conditions(selection, _START), _TIME, 1):
                run = self.run_of(hit)
                if selection.matches(run.report):
                    yield run

    def last_runs(self, selection: RunFilter, last: int) -> Iterator[PastRun]:
        """The ``last`` newest matching runs of each family that started: one search finds the
        starts, one the runs.
        """
        searches = self._last_run_conditions(selection, last)
        runs = (self.all_runs(conditions, _START, _LARGE_PAGE_SIZE) for conditions in searches)
        with self._open_progress() as show:
            for count, run in enumerate(chain.from_iterable(runs), start=1):
                show(count, 0)
                if selection.matches(run.report):
                    yield run

    def _last_run_conditions(
        self, selection: RunFilter, last: int
    ) -> Iterator[Sequence[JsonObject]]:
        """Yield the conditions of searches for the last runs of families.

        One page holds the runs of a search.
        """
        # Each family has up to five conditions, and the engines refuse a query of more than 1,024.
        # A tenth of the page is room for runs that started at the same time as the oldest of the
        # last ones.
        families_a_search = max(1, min(100, round(0.9 * _LARGE_PAGE_SIZE) // last))
        # Both engines refuse a response of more than 65,535 buckets.
        size = max(1, 20_000 // (last + 1))
        after: Mapping[str, Any] | None = None
        while True:
            answer = self.post("reports", _windows_query(selection, last, size, after))
            page = (answer.get("aggregations") or _EMPTY).get("families", _EMPTY)
            buckets = page.get("buckets", ())
            windows: list[JsonObject] = []
            for bucket in buckets:
                family = family_of(bucket)
                if bucket["starts"]["buckets"] and selection.matches_family(family):
                    windows.append(_in_window(bucket, family))
            for first in range(0, len(windows), families_a_search):
                searched = windows[first : first + families_a_search]
                yield [any_of(searched), *filter_conditions(selection, _START)]
            after = page.get("after_key")
            if after is None or len(buckets) < size:
                return

    def schedule_notices(self, selection: RunFilter) -> Sequence[ScheduleNoticeLine]:
        conditions = [
            term("event.dataset", "schedule.notice"),
            *filter_conditions(selection, _DUE),
        ]
        hits = self._search("notices", conditions, _DUE, MAX_NOTICES)
        lines = [str(hit.get("_source", _EMPTY).get("record")) for hit in hits]
        return select_notices(read_notices(lines), selection)

    def checkpoints(self, run: PastRun) -> tuple[Report, ...]:
        record = run.report.record
        conditions = [
            term(_TASK_ID, record.task_id),
            term("container.name", record.container.name),
        ]
        if record.account_id is not None:
            conditions.append(term(_ACCOUNT, record.account_id))
        if run.is_confirmed:
            conditions.append(_of_own_streams(run.container_ids))
        hits = self._search("checkpoints", conditions, _TIME, _MAX_CHECKPOINTS)
        if len(hits) == _MAX_CHECKPOINTS:
            self._is_cut = True
        reports: list[Report] = []
        for hit in hits:
            read = self._read(hit.get("_source", _EMPTY))
            if read is None:
                continue
            report, _ = read
            if report.type == CHECKPOINT:
                reports.append(report)
        return tuple(reports)

    def all_runs(
        self, conditions: Sequence[JsonObject], order: str, size: int
    ) -> Iterator[PastRun]:
        after: Sequence[Any] | None = None
        while True:
            hits = self._search("reports", conditions, order, size, after)
            yield from map(self.run_of, hits)
            if len(hits) < size:
                return
            after = hits[-1]["sort"]

    def _search(
        self,
        kind: str,
        conditions: Sequence[JsonObject],
        order: str,
        size: int,
        after: Sequence[Any] | None = None,
    ) -> _Hits:
        body: JsonObject = {
            "size": size,
            "track_total_hits": False,
            "query": {"bool": {"filter": list(conditions)}},
            "sort": [
                {order: {"order": "desc", "unmapped_type": "date"}},
                {_TASK_ID: {"order": "asc", "unmapped_type": "keyword"}},
                {"container.name": {"order": "asc", "unmapped_type": "keyword"}},
            ],
        }
        if after is not None:
            body["search_after"] = list(after)
        hits: _Hits = self.post(kind, body)["hits"]["hits"]
        return hits

    def post(self, kind: str, query: object) -> Mapping[str, Any]:
        """Search all indices of a kind, if any.

        Raises TaskProfilerError unless a search cluster accepts the search.
        """
        path = (
            f"/{quote(self.prefix)}-{kind}-*/_search?ignore_unavailable=true&allow_no_indices=true"
        )
        response = self.server.request("POST", path, query)
        body = response.body if isinstance(response.body, dict) else {}
        match body:
            case {"hits": {"hits": [*_]}} if response.ok:
                return body
        raise TaskProfilerError(
            f"{response.address} rejected the search (HTTP {response.status}: {_reason(body)}): "
            "check the address, its prefix, the sign-in and proxies, and that the index "
            "templates are installed (task-profiler kibana import)."
        )

    def run_of(self, hit: Mapping[str, Any]) -> PastRun:
        """The run of a document."""
        source = hit.get("_source", _EMPTY)
        task = _task_fields(source)
        event = _task_event(task)
        is_confirmed = task.get("confirmed") is True
        read = self._read(source)
        if read is None:
            report = _without_record(source, event)
            return PastRun(report=report, event=event, is_confirmed=is_confirmed)
        report, line = read
        record = report.record
        corrected = replace(
            _with_identity(record, source),
            status=task.get("status") or record.status,
            exit_code=task.get("exit_code", record.exit_code),
            cost=cost_on(task.get("capacity_provider"), record.cost),
        )
        if event is not None and event.out_of_memory:
            corrected = replace(corrected, likely_out_of_memory=True)
        if report.type != CHECKPOINT:
            corrected = _with_times(corrected, source)
        elif corrected.status != record.status:
            corrected = _ended(corrected, source)
        return PastRun(
            report=replace(report, record=corrected),
            line=line,
            event=event,
            is_confirmed=is_confirmed,
            container_ids=_texts(source.get("task", _EMPTY).get("runtime_ids")),
        )

    def _read(self, source: Mapping[str, Any]) -> tuple[Report, bytes] | None:
        """The report of a document and its line: the whole line, or restored from its record."""
        text = source.get("record")
        if not isinstance(text, str):
            return None
        with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            return decode(text), text.encode()
        with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            record = decode_leniently(Record, text)
            dataset = source.get("event", _EMPTY).get("dataset")
            report = Report(
                time=_time(source),
                type=CHECKPOINT if dataset == CHECKPOINT else "task.report",
                schema_version=SCHEMA_VERSION,
                record=without_impossible(record) or record,
            )
            return report, msgspec.json.encode(report)
        self._unreadable.add(text)
        return None


def _task_fields(source: Mapping[str, Any]) -> dict[str, Any]:
    """The document's fields of the task by their names; without values of another type, which the
    index ignores.
    """
    fields: Mapping[str, Any] = source.get("task", _EMPTY)
    return {
        name: value
        for name, value in fields.items()
        if isinstance(value, _TASK_TYPES.get(name, ()))
    }


def _task_event(task: Mapping[str, Any]) -> TaskEvent | None:
    reported = {name: task[name] for name in TaskEvent.__struct_fields__ if name in task}
    return TaskEvent(**reported) if reported else None


def _of_own_streams(container_ids: Sequence[str]) -> JsonObject:
    """A line is from a stream that names the task, or one of its containers."""
    named_by_task = none_of([exists("task.voucher")])
    named_by_container = {"terms": {"task.voucher_stream": list(container_ids)}}
    return any_of([named_by_task, named_by_container])


def _texts(values: object) -> tuple[str, ...]:
    if not isinstance(values, list):
        return ()
    return tuple(value for value in values if isinstance(value, str))


def _conditions(selection: RunFilter, order: str) -> list[JsonObject]:
    """The conditions that the search cluster can check.

    Runs without a start are those sorted by ``@timestamp``.
    """
    has_start = exists(_START)
    conditions = [has_start if order == _START else none_of([has_start])]
    conditions += filter_conditions(selection, order)
    if selection.run is not None:
        task_id = {"prefix": {_TASK_ID: selection.run.partition("/")[0]}}
        conditions.append(any_of([task_id, _matches_pattern(_FAMILY, selection.run)]))
    return conditions


def _time(source: Mapping[str, Any]) -> str:
    text = source.get(_TIME)
    moment_ns = parse_ns(text)
    return str(text) if moment_ns is None else format_ms(moment_ns)


def _with_identity(record: Record, source: Mapping[str, Any]) -> Record:
    """The record with the identity in its document: ECS's, once the task's event has come."""
    values: dict[str, Any] = {}
    for name, path in _IDENTITY.items():
        value = _at(source, path)
        if isinstance(value, str):
            values[name] = value
    container_id = values.pop("container_id", record.container.id)
    image = values.pop("image", record.container.image)
    container = replace(record.container, id=container_id, image=image)
    return replace(record, container=container, **values)


def _with_times(record: Record, source: Mapping[str, Any]) -> Record:
    """A report's record with the start and end in its document, where they differ: within the
    task's life.
    """
    times = source.get("event", _EMPTY)
    return replace(
        record,
        started_at=_corrected_time(record.started_at, times.get("start")),
        finished_at=_corrected_time(record.finished_at, times.get("end")),
    )


def _corrected_time(recorded: str | None, indexed: object) -> str | None:
    recorded_ns = parse_ns(recorded)
    indexed_ns = parse_ns(indexed)
    if recorded_ns is None or indexed_ns is None:
        return recorded
    if recorded_ns // NS_PER_MS == indexed_ns // NS_PER_MS:
        return recorded
    return format_ms(indexed_ns)


def _ended(record: Record, source: Mapping[str, Any]) -> Record:
    """A checkpoint's record with the end and the duration that ECS reported."""
    metrics = record.metrics
    duration_ms = as_number(source.get("usage", _EMPTY).get("duration_ms"))
    if duration_ms is not None:
        metrics = replace(metrics, duration_ms=duration_ms)
    return replace(
        record,
        finished_at=source.get("event", _EMPTY).get("end") or record.finished_at,
        metrics=metrics,
    )


def _without_record(source: Mapping[str, Any], event: TaskEvent | None) -> Report:
    """A report made of the document's fields.

    Where the record could not be read, no other number counts than the duration.
    """
    known_fields: Iterable[DocumentField] = FIELDS
    if isinstance(source.get("record"), str):
        known_fields = [
            field
            for field in FIELDS
            if field in IDENTITY_FIELDS or field.name == "usage.duration_ms"
        ]
    document: dict[str, Any] = {"taskId": "", "container": {"name": ""}}
    for field in known_fields:
        value = _value_at(source, field)
        if value is not None and field.record_path is not None:
            *parents, name = field.record_path.split(".")
            part = document
            for parent in parents:
                part = part.setdefault(parent, {})
            part[name] = value
    record = msgspec.convert(document, Record, strict=False)
    if event is not None and event.out_of_memory is not None:
        record = replace(record, likely_out_of_memory=event.out_of_memory)
    return Report(
        time=_time(source),
        type="task.report",
        schema_version=SCHEMA_VERSION,
        record=without_impossible(record) or record,
    )


def _value_at(source: Mapping[str, Any], field: DocumentField) -> object:
    """The value of a field; None if it has another type, which the index ignores."""
    value = _at(source, field.name)
    if field.is_list or value is None:
        return None
    known_type = _TYPES.get(field.index_type, int | float)
    try:
        known = msgspec.convert(value, known_type, strict=False)
    except msgspec.ValidationError:
        return None
    if isinstance(known, float) and known.is_integer():
        return int(known)
    return known


def _at(source: Mapping[str, Any], path: str) -> object:
    """The value at a path such as ``task.size.vcpu``; None if the document has none."""
    value: object = source
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value

"""The runs in the documents of Elasticsearch or OpenSearch.

A document has the run's record as text: the forwarder's whole line, or only the line's ``record``.
ECS's event may have corrected identity, times and status since the report was written, and it also
makes documents of runs that left no record. A run that no event confirms is not confirmed.
"""

import contextlib
import heapq
import re
from collections.abc import Iterator, Mapping, Sequence
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
    one.name.removeprefix("task."): _TYPES[one.index_type]
    for one in IDENTITY_FIELDS
    if "task." in one.name
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
        conditions.append(
            any_of([_matches_pattern(_FAMILY, family) for family in selection.families])
        )
    named = (
        (_CLUSTER, selection.clusters),
        (_ACCOUNT, selection.accounts),
        (_REGION, selection.regions),
    )
    conditions += [
        {"terms": {field: list(filter(None, values))}} for field, values in named if any(values)
    ]
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
        conditions.append(
            {
                "bool": {
                    "filter": [exists(_STATUS)],
                    "must_not": [{"terms": {_STATUS: get_args(Status)}}],
                }
            }
        )
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
    fields = (("name", _FAMILY), ("account", _ACCOUNT), ("region", _REGION))
    composite: JsonObject = {
        "size": size,
        "sources": [
            {name: {"terms": {"field": field, "missing_bucket": True}}} for name, field in fields
        ],
    }
    if after is not None:
        composite["after"] = dict(after)
    starts = {"terms": {"field": _START, "size": last, "order": {"_key": "desc"}}}
    return {
        "size": 0,
        "track_total_hits": False,
        "query": {"bool": {"filter": conditions}},
        "aggs": {"families": {"composite": composite, "aggs": {"starts": starts}}},
    }


def _in_window(bucket: Mapping[str, Any], family: FamilyKey) -> JsonObject:
    """The condition that a run is of the family, and not older than the oldest of its last runs."""
    values = ((_FAMILY, family.name), (_ACCOUNT, family.account_id), (_REGION, family.region))
    start = {"gte": int(bucket["starts"]["buckets"][-1]["key"]), "format": "epoch_millis"}
    same = [
        none_of([exists(field)]) if value is None else term(field, value) for field, value in values
    ]
    return {"bool": {"filter": [*same, {"range": {_START: start}}]}}


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
        unreadable = (
            f"{self.place}: {format_count(len(self._unreadable), 'record')} could not be read, so "
            "numbers are missing."
        )
        cut = (
            f"Only the newest {_MAX_CHECKPOINTS} checkpoints of a run were read: its time series "
            "begins later."
        )
        slow = (
            f"{self.place}: {format_count(self.read_one_by_one, 'document')} had to be read one by "
            "one: an older forwarder wrote them, or the task's size or end is unknown."
        )
        sentences = (
            (unreadable, bool(self._unreadable)),
            (cut, self._is_cut),
            (slow, self.read_one_by_one > 0),
        )
        return tuple(sentence for sentence, is_true in sentences if is_true)

    def runs(self, selection: RunFilter) -> Iterator[PastRun]:
        is_found = False
        with self._open_progress() as show:
            # Runs that never started have no start: a second search sorts them by their time.
            both = (
                self.all_runs(_conditions(selection, order), order, _PAGE_SIZE)
                for order in (_START, _TIME)
            )
            merged = heapq.merge(*both, key=lambda run: -run.started_ns)
            for count, run in enumerate(merged, start=1):
                is_found = True
                show(count, 0)
                if selection.matches(run.report):
                    yield run
        if selection.reads_checkpoints and selection.run is not None and not is_found:
            # The run may have only checkpoints so far.
            hits = self._search("checkpoints", _conditions(selection, _START), _TIME, 1)
            yield from (run for run in map(self.run_of, hits) if selection.matches(run.report))

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
        step = max(1, min(100, round(0.9 * _LARGE_PAGE_SIZE) // last))
        size = max(
            1, 20_000 // (last + 1)
        )  # both engines refuse a response of more than 65,535 buckets
        after: Mapping[str, Any] | None = None
        while True:
            found = (
                self.post("reports", _windows_query(selection, last, size, after)).get(
                    "aggregations"
                )
                or _EMPTY
            )
            page = found.get("families", _EMPTY)
            buckets = page.get("buckets", ())
            conditions = []
            for bucket in buckets:
                family = FamilyKey(
                    str(bucket["key"]["name"]), bucket["key"]["account"], bucket["key"]["region"]
                )
                if bucket["starts"]["buckets"] and selection.matches_family(family):
                    conditions.append(_in_window(bucket, family))
            for first in range(0, len(conditions), step):
                yield [
                    any_of(conditions[first : first + step]),
                    *filter_conditions(selection, _START),
                ]
            after = page.get("after_key")
            if after is None or len(buckets) < size:
                return

    def schedule_notices(self, selection: RunFilter) -> Sequence[ScheduleNoticeLine]:
        conditions = [
            term("event.dataset", "schedule.notice"),
            *filter_conditions(selection, _DUE),
        ]
        hits = self._search("notices", conditions, _DUE, MAX_NOTICES)
        return select_notices(
            read_notices(str(hit.get("_source", _EMPTY).get("record")) for hit in hits), selection
        )

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
        self._is_cut = self._is_cut or len(hits) == _MAX_CHECKPOINTS
        lines = (self._read(hit.get("_source", _EMPTY)) for hit in hits)
        return tuple(line[0] for line in lines if line is not None and line[0].type == CHECKPOINT)

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
        source = hit.get("_source", _EMPTY)
        values = source.get("task", _EMPTY).items()
        task: dict[str, Any] = {
            name: value for name, value in values if isinstance(value, _TASK_TYPES.get(name, ()))
        }
        reported = {name: task[name] for name in TaskEvent.__struct_fields__ if name in task}
        event = TaskEvent(**reported) if reported else None
        is_confirmed = task.get("confirmed") is True
        container_ids = _texts(source.get("task", _EMPTY).get("runtime_ids"))
        read = self._read(source)
        if read is None:
            report = _without_record(source, event)
            return PastRun(report=report, event=event, is_confirmed=is_confirmed)
        report, line = read
        record = report.record
        likely_out_of_memory = record.likely_out_of_memory
        if event is not None and event.out_of_memory:
            likely_out_of_memory = True
        corrected = replace(
            _with_identity(record, source),
            status=task.get("status") or record.status,
            exit_code=task.get("exit_code", record.exit_code),
            cost=cost_on(task.get("capacity_provider"), record.cost),
            likely_out_of_memory=likely_out_of_memory,
        )
        if report.type != CHECKPOINT:
            corrected = _with_times(corrected, source)
        elif corrected.status != record.status:
            corrected = _ended(corrected, source)
        return PastRun(
            report=replace(report, record=corrected),
            line=line,
            event=event,
            is_confirmed=is_confirmed,
            container_ids=container_ids,
        )

    def _read(self, source: Mapping[str, Any]) -> tuple[Report, bytes] | None:
        """The report of a document and its line: the whole line, or restored from its record."""
        text = source.get("record")
        if not isinstance(text, str):
            return None
        with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            return decode(text), text.encode()
        with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            decoded = decode_leniently(Record, text)
            kind = source.get("event", _EMPTY).get("dataset")
            report = Report(
                time=_time(source),
                type=CHECKPOINT if kind == CHECKPOINT else "task.report",
                schema_version=SCHEMA_VERSION,
                record=without_impossible(decoded) or decoded,
            )
            return report, msgspec.json.encode(report)
        self._unreadable.add(text)
        return None


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
    conditions = filter_conditions(selection, order)
    if selection.run is not None:
        conditions.append(
            any_of(
                [
                    {"prefix": {_TASK_ID: selection.run.partition("/")[0]}},
                    _matches_pattern(_FAMILY, selection.run),
                ]
            )
        )
    return [exists(_START) if order == _START else none_of([exists(_START)]), *conditions]


def _time(source: Mapping[str, Any]) -> str:
    text = source.get(_TIME)
    moment_ns = parse_ns(text)
    return str(text) if moment_ns is None else format_ms(moment_ns)


def _with_identity(record: Record, source: Mapping[str, Any]) -> Record:
    """The record with the identity in its document: ECS's, once the task's event has come."""
    values = {}
    for name, path in _IDENTITY.items():
        value: Any = source
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
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
    duration_ms = as_number(source.get("usage", _EMPTY).get("duration_ms"))
    if duration_ms is None:
        metrics = record.metrics
    else:
        metrics = replace(record.metrics, duration_ms=duration_ms)
    return replace(
        record,
        finished_at=source.get("event", _EMPTY).get("end") or record.finished_at,
        metrics=metrics,
    )


def _without_record(source: Mapping[str, Any], event: TaskEvent | None) -> Report:
    document: dict[str, Any] = {"taskId": "", "container": {"name": ""}}
    is_unreadable = isinstance(
        source.get("record"), str
    )  # then no other number counts than the duration
    for field in FIELDS:
        is_known = (
            not is_unreadable or field in IDENTITY_FIELDS or field.name == "usage.duration_ms"
        )
        value = _value_at(source, field) if is_known else None
        if value is not None and field.record_path is not None:
            *parents, name = field.record_path.split(".")
            part = document
            for parent in parents:
                part = part.setdefault(parent, {})
            part[name] = value
    record = msgspec.convert(document, Record, strict=False)
    if event is not None and event.out_of_memory is not None:
        record = replace(record, likely_out_of_memory=event.out_of_memory)
    known = without_impossible(record) or record
    return Report(
        time=_time(source), type="task.report", schema_version=SCHEMA_VERSION, record=known
    )


def _value_at(source: Mapping[str, Any], field: DocumentField) -> object:
    """The value of a field; None if it has another type, which the index ignores."""
    value: Any = source
    for name in field.name.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    if field.is_list or value is None:
        return None
    with contextlib.suppress(msgspec.ValidationError):
        known = msgspec.convert(value, _TYPES.get(field.index_type, int | float), strict=False)
        return int(known) if isinstance(known, float) and known.is_integer() else known
    return None

"""The runs in the documents of Elasticsearch or OpenSearch, as the forwarder or other shippers wrote them.

A document has the run's record as text: the whole line, or only its ``record``. ECS's event may have corrected the
status since the report was written, and it also makes documents of runs that left no record.
"""

import contextlib
import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from profiler.core.timestamps import format_ms, parse_ns
from profiler.record.impossible_values import without_impossible
from profiler.record.notice_model import ScheduleNoticeLine
from profiler.record.record_model import SCHEMA_VERSION, Record, Report, decode
from profiler.record.search_document_fields import FIELDS, IDENTITY_FIELDS, DocumentField
from profiler.record.spot_price import cost_on
from profiler.record.units import as_number, format_count
from profiler.runs.past_runs.run_source import (
    CHECKPOINT,
    OpenProgress,
    PastRun,
    RunFilter,
    RunSource,
    TaskEvent,
    no_progress,
)
from profiler.runs.past_runs.schedule_notices import MAX_NOTICES, read_notices, select_notices
from profiler.runs.past_runs.search_queries import (
    FAMILY,
    START,
    JsonObject,
    any_of,
    exists,
    filter_conditions,
    indices_path,
    last_run_conditions,
    matches_pattern,
    none_of,
    search,
    term,
)
from profiler.search_setup.template_install import SearchServer

_Hits = Sequence[Mapping[str, Any]]
_TIME = "@timestamp"
_DUE = "notice.due_at"
_TASK_ID = "task.id"
_PAGE_SIZE = 200
# For reads that never stop early. A record line has at most 64 KiB.
_LARGE_PAGE_SIZE = 2_000
_MAX_CHECKPOINTS = 1_000
_EMPTY: Mapping[str, Any] = {}
_record_decoder = msgspec.json.Decoder(Record)


class IndexedRuns(RunSource):
    """The runs in the indices of a prefix."""

    remedy = "check URL and --prefix, and that the forwarder works"
    stacks_remedy = "they are not indexed, so read the batch's log stream with --log-group"

    def __init__(self, server: SearchServer, prefix: str, open_progress: OpenProgress = no_progress) -> None:
        self._server = server
        self._prefix = prefix
        self._open_progress = open_progress
        self._unreadable: set[str] = set()  # a document may be read several times
        self._is_cut = False
        self.place = f"the indices {prefix}-reports-*"

    @property
    def notes(self) -> Sequence[str]:
        """Sentences about unreadable records and omitted checkpoints."""
        unreadable = (
            f"{self.place}: {format_count(len(self._unreadable), 'record')} could not be read, so numbers are missing."
        )
        cut = f"Only the newest {_MAX_CHECKPOINTS} checkpoints of a run were read: its time series begins later."
        return (*([unreadable] if self._unreadable else ()), *([cut] if self._is_cut else ()))

    def runs(self, selection: RunFilter) -> Iterator[PastRun]:
        """Yield the matching runs page by page.

        Runs without a start, which never started, are sorted by their time: they are read by a second search.
        """
        is_found = False
        with self._open_progress() as show:
            started = self._all_runs(_conditions(selection, START), START)
            unstarted = self._all_runs(_conditions(selection, _TIME), _TIME)
            merged = heapq.merge(started, unstarted, key=lambda run: -run.started_ns)
            for count, run in enumerate(merged, start=1):
                is_found = True
                show(count, 0)
                if selection.matches(run.report):
                    yield run
        if selection.reads_checkpoints and selection.run is not None and not is_found:
            # The run may have only checkpoints so far.
            hits = self._search("checkpoints", _conditions(selection, START), _TIME, 1)
            yield from (run for run in map(self._run, hits) if selection.matches(run.report))

    def last_runs(self, selection: RunFilter, last: int) -> Iterator[PastRun]:
        """Yield the ``last`` newest matching runs of each family, without those that never started."""
        count = 0
        searches = last_run_conditions(self._server, self._prefix, selection, last, _LARGE_PAGE_SIZE)
        pages = chain.from_iterable(self._pages(conditions, START, _LARGE_PAGE_SIZE) for conditions in searches)
        with self._open_progress() as show:
            for hit in chain.from_iterable(pages):
                count += 1
                show(count, 0)
                run = self._run(hit)
                if selection.matches(run.report):
                    yield run

    def schedule_notices(self, selection: RunFilter) -> Sequence[ScheduleNoticeLine]:
        """The newest notices about due times."""
        if selection.tags or selection.statuses or selection.run is not None:
            return ()
        conditions = [term("event.dataset", "schedule.notice"), *filter_conditions(selection, _DUE)]
        hits = self._search("notices", conditions, _DUE, MAX_NOTICES)
        return select_notices(read_notices(str(hit.get("_source", _EMPTY).get("record")) for hit in hits), selection)

    def checkpoints(self, run: PastRun) -> tuple[Report, ...]:
        """The checkpoints of a run, at most the newest 1,000."""
        record = run.report.record
        conditions = [term(_TASK_ID, record.task_id), term("container.name", record.container.name)]
        hits = self._search("checkpoints", conditions, _TIME, _MAX_CHECKPOINTS)
        self._is_cut = self._is_cut or len(hits) == _MAX_CHECKPOINTS
        lines = (self._read(hit.get("_source", _EMPTY)) for hit in hits)
        return tuple(line[0] for line in lines if line is not None and line[0].type == CHECKPOINT)

    def _all_runs(self, conditions: Sequence[JsonObject], order: str) -> Iterator[PastRun]:
        return map(self._run, chain.from_iterable(self._pages(conditions, order, _PAGE_SIZE)))

    def _pages(self, conditions: Sequence[JsonObject], order: str, size: int) -> Iterator[_Hits]:
        after: Sequence[Any] | None = None
        while True:
            hits = self._search("reports", conditions, order, size, after)
            yield hits
            if len(hits) < size:
                return
            after = hits[-1]["sort"]

    def _search(
        self, kind: str, conditions: Sequence[JsonObject], order: str, size: int, after: Sequence[Any] | None = None
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
        hits: _Hits = search(self._server, indices_path(self._prefix, kind), body)["hits"]["hits"]
        return hits

    def _run(self, hit: Mapping[str, Any]) -> PastRun:
        """The run of a document, with the status of ECS's event."""
        source = hit.get("_source", _EMPTY)
        task = source.get("task", _EMPTY)
        reported = {name: task[name] for name in TaskEvent.__struct_fields__ if task.get(name) is not None}
        event = msgspec.convert(reported, TaskEvent, strict=False) if reported else None
        read = self._read(source)
        if read is None:
            return PastRun(report=_without_record(source), event=event)
        report, line = read
        record = report.record
        corrected = replace(
            record,
            status=task.get("status") or record.status,
            exit_code=record.exit_code if task.get("exit_code") is None else task["exit_code"],
            cost=cost_on(task.get("capacity_provider"), record.cost),
            likely_out_of_memory=True if event is not None and event.out_of_memory else record.likely_out_of_memory,
        )
        if report.type == CHECKPOINT and corrected.status != record.status:
            corrected = _ended(corrected, source)
        return PastRun(report=replace(report, record=corrected), line=line, event=event)

    def _read(self, source: Mapping[str, Any]) -> tuple[Report, bytes] | None:
        """The report of a document and its line: the whole line, or restored from its record."""
        text = source.get("record")
        if not isinstance(text, str):
            return None
        with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            return decode(text), text.encode()
        with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            decoded = _record_decoder.decode(text)
            kind = source.get("event", _EMPTY).get("dataset")
            report = Report(
                time=_time(source),
                type="task.checkpoint" if kind == CHECKPOINT else "task.report",
                schema_version=SCHEMA_VERSION,
                record=without_impossible(decoded) or decoded,
            )
            return report, msgspec.json.encode(report)
        self._unreadable.add(text)
        return None


def _conditions(selection: RunFilter, order: str) -> list[JsonObject]:
    """The conditions that the search cluster can check. Runs without a start are those sorted by ``@timestamp``."""
    conditions = filter_conditions(selection, order)
    if selection.run is not None:
        conditions.append(
            any_of([{"prefix": {_TASK_ID: selection.run.partition("/")[0]}}, matches_pattern(FAMILY, selection.run)])
        )
    return [exists(START) if order == START else none_of([exists(START)]), *conditions]


def _time(source: Mapping[str, Any]) -> str:
    """The document's time, as the record writes times."""
    text = source.get(_TIME)
    moment_ns = parse_ns(text)
    return str(text) if moment_ns is None else format_ms(moment_ns)


def _ended(record: Record, source: Mapping[str, Any]) -> Record:
    """A checkpoint's record with the end and the duration that ECS reported."""
    duration_ms = as_number(source.get("usage", _EMPTY).get("duration_ms"))
    metrics = record.metrics if duration_ms is None else replace(record.metrics, duration_ms=duration_ms)
    return replace(record, finished_at=source.get("event", _EMPTY).get("end") or record.finished_at, metrics=metrics)


def _without_record(source: Mapping[str, Any]) -> Report:
    """The known values of a run whose record is missing or unreadable.

    Shippers other than the forwarder may write documents without the record's text: their fields are read back. Values
    that the index ignores, because they are of another type, are left out.
    """
    document: dict[str, Any] = {"taskId": "", "container": {"name": ""}}
    is_unreadable = isinstance(source.get("record"), str)  # then no other number counts than the duration
    for field in FIELDS:
        is_known = not is_unreadable or field in IDENTITY_FIELDS or field.name == "usage.duration_ms"
        value = _value_at(source, field) if is_known else None
        if value is not None and field.record_path is not None:
            *parents, name = field.record_path.split(".")
            part = document
            for parent in parents:
                part = part.setdefault(parent, {})
            part[name] = value
    record = msgspec.convert(document, Record, strict=False)
    ran_out_of_memory = source.get("task", _EMPTY).get("out_of_memory")
    if ran_out_of_memory is not None:
        record = replace(record, likely_out_of_memory=ran_out_of_memory)
    known = without_impossible(record) or record
    return Report(time=_time(source), type="task.report", schema_version=SCHEMA_VERSION, record=known)


def _value_at(source: Mapping[str, Any], field: DocumentField) -> object:
    value: Any = source
    for name in field.name.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    if field.is_list or value is None:
        return None
    kind = field.index_type
    if kind in ("keyword", "date"):
        return str(value)
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    try:
        number = float(value)
        return int(number) if kind == "long" or number.is_integer() else number
    except (TypeError, ValueError, OverflowError):
        return None

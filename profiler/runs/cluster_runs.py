"""The runs in the documents of Elasticsearch or OpenSearch, as the forwarder or other shippers wrote them.

A document has the run's record as text: the whole line, or only its ``record``. ECS's event may have corrected the
status since the report was written, and it also makes documents of runs that left no record.
"""

import contextlib
import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from profiler.core.timestamps import format_ms, parse_ns
from profiler.record.model import SCHEMA_VERSION, Container, Metrics, Record, Report, decode
from profiler.record.possible import without_impossible
from profiler.record.units import as_number
from profiler.runs.cluster_queries import (
    FAMILY,
    REMEDY,
    START,
    JsonObject,
    any_of,
    exists,
    filter_conditions,
    indices_path,
    matches_pattern,
    none_of,
    reports_place,
    search,
    term,
)
from profiler.runs.source import CHECKPOINT, OnProgress, PastRun, RunFilter, TaskEvent, no_progress
from profiler.search.setup import SearchServer

_TIME = "@timestamp"
_TASK_ID = "task.id"
_PAGE_SIZE = 200
_MAX_CHECKPOINTS = 1_000
_SOURCE = (
    "@timestamp",
    "record",
    "task",
    "event.dataset",
    "event.start",
    "event.end",
    "cloud",
    "orchestrator.cluster.name",
    "container",
    "aws.cloudwatch",
    "usage.duration_ms",
)
_EMPTY: Mapping[str, Any] = {}
_record_decoder = msgspec.json.Decoder(Record)


class ClusterRuns:
    """The runs in the indices of a prefix."""

    remedy = REMEDY

    def __init__(self, server: SearchServer, prefix: str, on_progress: OnProgress = no_progress) -> None:
        self._server = server
        self._prefix = prefix
        self._on_progress = on_progress
        self._unreadable = 0
        self._is_cut = False
        self.place = reports_place(prefix)

    @property
    def notes(self) -> Sequence[str]:
        """How many records could not be read, and whether checkpoints were left out."""
        unreadable = f"{self._unreadable} records in {self.place} could not be read: their numbers are left out."
        cut = f"Of one run only the newest {_MAX_CHECKPOINTS} checkpoints were read: its time series begins later."
        return (*([unreadable] if self._unreadable else ()), *([cut] if self._is_cut else ()))

    def runs(self, wanted: RunFilter) -> Iterator[PastRun]:
        """Yield the matching runs page by page.

        Runs without a start, which never started, are sorted by their time: they are read by a second search.
        """
        found = _Found(self._on_progress)
        started = self._pages(wanted, START, found)
        unstarted = self._pages(wanted, _TIME, found)
        for run in heapq.merge(started, unstarted, key=lambda run: -run.started_ns):
            if wanted.matches(run.report):
                yield run
        if wanted.reads_checkpoints and wanted.run is not None and not found.count:
            yield from self._running(wanted)

    def checkpoints(self, run: PastRun) -> tuple[Report, ...]:
        """The checkpoints of a run, at most the newest 1,000."""
        record = run.report.record
        conditions = [term(_TASK_ID, record.task_id), term("container.name", record.container.name)]
        hits = self._search("checkpoints", conditions, _TIME, _MAX_CHECKPOINTS)
        self._is_cut = self._is_cut or len(hits) == _MAX_CHECKPOINTS
        reports = (self._report(hit.get("_source", _EMPTY)) for hit in hits)
        return tuple(report for report in reports if report is not None and report.type == CHECKPOINT)

    def _running(self, wanted: RunFilter) -> Iterator[PastRun]:
        """Yield the run that has only checkpoints so far."""
        hits = self._search("checkpoints", _conditions(wanted, START), _TIME, 1)
        for hit in hits:
            run = self._run(hit.get("_source", _EMPTY))
            if wanted.matches(run.report):
                yield run

    def _pages(self, wanted: RunFilter, order: str, found: "_Found") -> Iterator[PastRun]:
        after: Sequence[Any] | None = None
        conditions = _conditions(wanted, order)
        while True:
            hits = self._search("reports", conditions, order, _PAGE_SIZE, after)
            found.add(len(hits))
            for hit in hits:
                yield self._run(hit.get("_source", _EMPTY))
            if len(hits) < _PAGE_SIZE:
                return
            after = hits[-1]["sort"]

    def _search(
        self, kind: str, conditions: Sequence[JsonObject], order: str, size: int, after: Sequence[Any] | None = None
    ) -> Sequence[Mapping[str, Any]]:
        body: JsonObject = {
            "size": size,
            "track_total_hits": False,
            "query": {"bool": {"filter": list(conditions)}},
            "sort": [
                {order: {"order": "desc", "unmapped_type": "date"}},
                {_TASK_ID: {"order": "asc", "unmapped_type": "keyword"}},
                {"container.name": {"order": "asc", "unmapped_type": "keyword"}},
            ],
            "_source": list(_SOURCE),
        }
        if after is not None:
            body["search_after"] = list(after)
        found = search(self._server, indices_path(self._prefix, kind), body)
        hits: Sequence[Mapping[str, Any]] = found["hits"]["hits"]
        return hits

    def _run(self, source: Mapping[str, Any]) -> PastRun:
        """The run of a document, with the status of ECS's event."""
        task = source.get("task", _EMPTY)
        reported = {name: task[name] for name in TaskEvent.__struct_fields__ if task.get(name) is not None}
        event = msgspec.convert(reported, TaskEvent, strict=False) if reported else None
        report = self._report(source)
        if report is None:
            return PastRun(report=_without_record(source), event=event)
        record = report.record
        corrected = replace(
            record,
            status=task.get("status") or record.status,
            exit_code=record.exit_code if task.get("exit_code") is None else task["exit_code"],
            likely_out_of_memory=True if event is not None and event.out_of_memory else record.likely_out_of_memory,
        )
        if report.type == CHECKPOINT and corrected.status != record.status:
            corrected = _ended(corrected, source)
        line = self._line(source, report)
        return PastRun(report=replace(report, record=corrected), line=line, event=event)

    def _line(self, source: Mapping[str, Any], report: Report) -> bytes:
        text = str(source["record"]).encode()
        try:
            decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return msgspec.json.encode(report)
        return text

    def _report(self, source: Mapping[str, Any]) -> Report | None:
        """The report of a document: its whole line, or restored from its record."""
        text = source.get("record")
        if not isinstance(text, str):
            return None
        with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            return decode(text)
        with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            decoded = _record_decoder.decode(text)
            kind = source.get("event", _EMPTY).get("dataset")
            return Report(
                time=_time(source),
                type="task.checkpoint" if kind == CHECKPOINT else "task.report",
                schema_version=SCHEMA_VERSION,
                record=without_impossible(decoded) or decoded,
            )
        self._unreadable += 1
        return None


class _Found:
    """Counts the documents that were read, for the progress."""

    def __init__(self, on_progress: OnProgress) -> None:
        self.count = 0
        self._on_progress = on_progress

    def add(self, count: int) -> None:
        self.count += count
        self._on_progress(self.count, 0.0)


def _conditions(wanted: RunFilter, order: str) -> list[JsonObject]:
    """The conditions that the cluster can check. Runs without a start are those sorted by ``@timestamp``."""
    conditions = filter_conditions(wanted, order)
    if wanted.run is not None:
        conditions.append(any_of([{"prefix": {_TASK_ID: wanted.run}}, matches_pattern(FAMILY, wanted.run)]))
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
    """What is known of a run that left no record."""
    task, event = source.get("task", _EMPTY), source.get("event", _EMPTY)
    container, cloud = source.get("container", _EMPTY), source.get("cloud", _EMPTY)
    logs = source.get("aws", _EMPTY).get("cloudwatch", _EMPTY)
    record = Record(
        task_id=str(task.get("id", "")),
        task_arn=task.get("arn"),
        cluster=source.get("orchestrator", _EMPTY).get("cluster", _EMPTY).get("name"),
        family=task.get("family"),
        revision=task.get("revision"),
        region=cloud.get("region"),
        account_id=cloud.get("account", _EMPTY).get("id"),
        availability_zone=cloud.get("availability_zone"),
        launch_type=task.get("launch_type"),
        container=Container(
            name=str(container.get("name", "")),
            id=container.get("id"),
            image=container.get("image", _EMPTY).get("name"),
        ),
        log_group=logs.get("log_group"),
        log_stream=logs.get("log_stream"),
        status=task.get("status") or "unknown",
        exit_code=task.get("exit_code"),
        likely_out_of_memory=task.get("out_of_memory"),
        started_at=event.get("start"),
        finished_at=event.get("end"),
        metrics=Metrics(duration_ms=as_number(source.get("usage", _EMPTY).get("duration_ms"))),
    )
    return Report(time=_time(source), type="task.report", schema_version=SCHEMA_VERSION, record=record)

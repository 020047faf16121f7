"""The search document of a report or checkpoint.

A document has the fields of ``profiler/record/search_document_fields.py``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from msgspec import Struct

from forwarder.index_names import IndexKind, IndexPeriod, index_name
from forwarder.run_links import ecs_task, kibana_task, log_stream
from forwarder.task_lines import InvalidReport, replace_lone_surrogates
from profiler.core.ecs_terms import cluster_name
from profiler.core.json_fields import integer, mapping
from profiler.core.timestamps import NS_PER_MS, format_datetime, parse_datetime, subtract_ms
from profiler.record.metric_catalogue import RunView, view_of
from profiler.record.notice_model import NoticeLine
from profiler.record.record_model import Record, Report
from profiler.record.search_document_fields import FIELDS, DocumentField

Fields: TypeAlias = dict[str, Any]
_Getter: TypeAlias = Callable[[RunView], Any]
# Name, path, and either a getter or the members of an object.
_FieldTree: TypeAlias = "tuple[tuple[str, str, _Getter | None, _FieldTree], ...]"

UNKNOWN = "unknown"
# The statuses of an event that replace a report's status.
KNOWN_END_STATUSES = frozenset({"success", "failure", "stopped"})
# The fields of a run's end: the event's value, else the report's.
END_FIELDS = ("status", "exit_code")
# The fields that only the task's event provides.
_EVENT_FIELDS = ("stop_code", "stop_category", "stopped_reason", "started_by", "out_of_memory")
_CHECKPOINT = "task.checkpoint"
# Elasticsearch and OpenSearch reject a whole bulk request if one id in it is longer.
MAX_ID_BYTES = 512
_MAX_LOGGED_ID_LENGTH = 100
_DURATION = "event.duration"


class Stored(Struct, frozen=True, kw_only=True):
    """A run's document in the search cluster: its fields of ``STORED_FIELDS``, and the version to write under."""

    fields: Mapping[str, Any]
    seq_no: int
    primary_term: int

    @property
    def has_report(self) -> bool:
        """Whether its numbers are those of a report."""
        return mapping(self.fields.get("task")).get("complete") is True


class Document(Struct, frozen=True, kw_only=True):
    """One document to write. The ``id`` makes repeated writes idempotent.

    Attributes:
        index: The index.
        id: The document's id.
        fields: The fields to set in an existing document.
        upsert: The fields of a new document; None: ``fields``.
        is_report: Whether an existing document must be read first, because the task's event may have written it.
        stored: The existing document, after it is read.
        warnings: A sentence for each invalid value that the fields leave out.
        notice: The notice to announce, of which it is the document.
    """

    index: str
    id: str
    fields: Mapping[str, Any]
    upsert: Mapping[str, Any] | None = None
    is_report: bool = False
    stored: Stored | None = None
    warnings: tuple[str, ...] = ()
    notice: NoticeLine | None = None

    @property
    def initial_fields(self) -> Mapping[str, Any]:
        """The fields of a new document."""
        return self.fields if self.upsert is None else self.upsert


def report_document(
    report: Report, text: str, *, prefix: str, period: IndexPeriod = "month", kibana_url: str | None = None
) -> Document | InvalidReport:
    """The document of a report or checkpoint.

    The index is that of the month or day in which the image pull started: all writers of a run use it.

    Args:
        report: The report or checkpoint.
        text: Its line, which the document contains. Only lone surrogates are replaced, by U+FFFD.
        prefix: The prefix of the index name.
        period: Whether the index is one of a month or of a day.
        kibana_url: The address for the link to the run's dashboard; None: no such link.

    Returns:
        The document, or the reason why there is none: a time that is not valid, or an id that is too long.
    """
    record = report.record
    written = parse_datetime(report.time)
    if written is None:
        return InvalidReport(f"The report's time {report.time[:40]!r} is not an RFC 3339 time between 1970 and 2200.")
    is_checkpoint = report.type == _CHECKPOINT
    started = parse_datetime(record.started_at)
    began = written if started is None else subtract_ms(started, record.metrics.init_duration_ms)
    kind: IndexKind = "checkpoints" if is_checkpoint else "reports"
    document_id = f"{record.task_id}/{record.container.name}" + (f"/{report.time}" if is_checkpoint else "")
    if len(document_id.encode()) > MAX_ID_BYTES:
        return InvalidReport(f"Task id and container name together exceed {MAX_ID_BYTES} bytes.")
    too_large: list[str] = []
    fields = _fields(report, written, text, too_large, is_checkpoint=is_checkpoint)
    ended = None if is_checkpoint else parse_datetime(record.finished_at) or written
    if links := run_links(record, started or ended or written, ended, kibana_url):
        fields["links"] = links
    return Document(
        index=index_name(kind, began, prefix=prefix, period=period),
        id=document_id,
        fields=fields,
        is_report=not is_checkpoint,
        warnings=_warnings(record, too_large),
    )


def run_links(record: Record, started: datetime | None, ended: datetime | None, kibana_url: str | None) -> Fields:
    """The addresses of the run that are known."""
    return drop_empty(
        {
            "run": kibana_task(kibana_url, record.task_id, started, ended),
            "logs": log_stream(record.region, record.log_group, record.log_stream),
            "task": ecs_task(record.region, cluster_name(record.cluster), record.task_id),
        }
    )


def _warnings(record: Record, too_large: Sequence[str]) -> tuple[str, ...]:
    """Sentences about the values that the document leaves out. ``too_large`` are fields with more than 64 bits."""
    task_id, sentences = record.task_id[:_MAX_LOGGED_ID_LENGTH], []
    if record.exit_code is not None and integer(record.exit_code) is None:
        sentences.append(f"The exit code of task {task_id} exceeds 32 bits and is omitted.")
    if too_large:
        sentences.append(f"Numbers of task {task_id} exceed 64 bits and are omitted: {', '.join(too_large)}.")
    return tuple(sentences)


def completed_fields(fields: Mapping[str, Any], stored: Stored) -> Fields:
    """The fields of a report, merged with those that the task's event has already written into the document.

    The event's status replaces the report's, unless it is unknown.
    """
    task, event = mapping(stored.fields.get("task")), mapping(stored.fields.get("event"))
    kept = {name: task[name] for name in (*_EVENT_FIELDS, "exit_code") if task.get(name) is not None}
    if task.get("status") not in KNOWN_END_STATUSES:
        return merge_fields(fields, {"task": kept})
    return merge_fields(
        fields, {"task": {**kept, "status": task["status"]}, "event": {"outcome": event.get("outcome")}}
    )


def _fields(report: Report, written: datetime, text: str, too_large: list[str], *, is_checkpoint: bool) -> Fields:
    """The document's fields. The paths of numbers that the index cannot store are added to ``too_large``."""
    record = report.record
    finished = parse_datetime(record.finished_at)
    duration_ms = record.metrics.duration_ms
    record_fields = _read_fields(_FIELD_TREE, view_of(record), too_large)
    duration_ns = None if duration_ms is None else round(duration_ms * NS_PER_MS)
    if duration_ns is not None and not _fits_long(duration_ns):
        too_large.append(_DURATION)
        duration_ns = None
    event = {
        "kind": "metric",
        "dataset": report.type,
        "outcome": event_outcome(record.status),
        "duration": duration_ns,
        **record_fields.pop("event", {}),
    }
    fields = {
        "@timestamp": format_datetime(written if is_checkpoint or finished is None else finished),
        "event": drop_empty(event),
        **record_fields,
        "record": replace_lone_surrogates(text),
    }
    if not is_checkpoint:
        fields["task"]["complete"] = True
    return fields


def event_outcome(status: str) -> str:
    """``event.outcome`` as the Elastic Common Schema allows it: success, failure or unknown."""
    return status if status in {"success", "failure"} else UNKNOWN


def _field_tree(fields: Iterable[DocumentField]) -> _FieldTree:
    """Arrange the getters in nested objects, like the values in the document."""
    nested: Fields = {}
    for field in fields:
        if field.get is not None:
            *objects, name = field.name.split(".")
            node = nested
            for part in objects:
                node = node.setdefault(part, {})
            node[name] = _time_getter(field.get) if field.index_type == "date" else field.get
    return _nodes(nested)


def _nodes(nested: Fields, prefix: str = "") -> _FieldTree:
    """Getters and objects apart from each other: `_read_fields` then needs no checks of types."""
    return tuple(
        (name, prefix + name, None, _nodes(node, f"{prefix}{name}."))
        if isinstance(node, dict)
        else (name, prefix + name, node, ())
        for name, node in nested.items()
    )


def _time_getter(get: _Getter) -> _Getter:
    return lambda run: format_known_moment(parse_datetime(get(run)))


def _read_fields(tree: _FieldTree, run: RunView, too_large: list[str]) -> Fields:
    """The values that the record has, in nested objects; objects without a value are left out.

    The paths of integers that the index cannot store are added to ``too_large``.
    """
    fields: Fields = {}
    for name, path, get, members in tree:
        if get is None:
            if inner := _read_fields(members, run, too_large):
                fields[name] = inner
        elif (value := get(run)) is not None:
            if type(value) is int and not _fits_long(value):
                too_large.append(path)
            else:
                fields[name] = value
    return fields


def _fits_long(value: int) -> bool:
    """Whether the index can store the integer, in 64 bits. Decoders accept any number of digits."""
    return -(2**63) <= value < 2**63


def format_known_moment(moment: datetime | None) -> str | None:
    """RFC 3339 in UTC with milliseconds; None for None."""
    return None if moment is None else format_datetime(moment)


def drop_empty(fields: Fields) -> Fields:
    """Leave out absent values, and objects that are empty as a result."""
    kept: Fields = {}
    for name, value in fields.items():
        rest = drop_empty(value) if isinstance(value, dict) else value
        if rest is not None and rest != {}:
            kept[name] = rest
    return kept


def merge_fields(*parts: Mapping[str, Any]) -> Fields:
    """Objects merged at every level; later parts win."""
    merged: Fields = {}
    for part in parts:
        for name, value in part.items():
            present = merged.get(name)
            if isinstance(present, dict) and isinstance(value, dict):
                merged[name] = merge_fields(present, value)
            else:
                merged[name] = value
    return merged


# The fields that a report needs of an existing document.
STORED_FIELDS = ("task.complete", *(f"task.{name}" for name in (*END_FIELDS, *_EVENT_FIELDS)), "event.outcome")
_FIELD_TREE = _field_tree(FIELDS)

"""A document of Elasticsearch or OpenSearch as a past run.

A document has the run's record as text: the forwarder's whole line, or only the line's ``record``.
ECS's event may have corrected identity, times and status since the report was written, and it also
makes documents of runs that left no record. A run that no event confirms is not confirmed.
"""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from profiler.core.json_fields import mapping_or_empty, positive_number, text_or_none
from profiler.core.optional_math import all_known
from profiler.core.timestamps import NS_PER_MS, format_ms, parse_ns
from profiler.record.batch_job import batch_job_of_document
from profiler.record.ecs_event_outcome import written_event_end
from profiler.record.impossible_values import decode_leniently, is_too_long
from profiler.record.last_checkpoint import with_whole_duration
from profiler.record.line_trust import does_run_count
from profiler.record.query_clauses import ACCOUNT, CLUSTER, FAMILY, REGION, TIME
from profiler.record.record_model import (
    CHECKPOINT,
    SCHEMA_VERSION,
    Record,
    Report,
    decode,
    possible_report,
)
from profiler.record.search_document_fields import FIELDS, IDENTITY_FIELDS, DocumentField
from profiler.record.spot_price import cost_on_provider
from profiler.record.stop_causes import NO_EVENT, outcome_of
from profiler.record.units import rounded_number
from profiler.runs.past_runs.past_run import NO_TASK_EVENT, PastRun, TaskEvent

# By the record's field, or the container's: its field in a document.
_IDENTITY: Mapping[str, str] = {
    "family": FAMILY,
    "revision": "task.revision",
    "task_arn": "task.arn",
    "launch_type": "task.launch_type",
    "cluster": CLUSTER,
    "account_id": ACCOUNT,
    "region": REGION,
    "availability_zone": "cloud.availability_zone",
    "container_id": "container.id",
    "image": "container.image.name",
}
_TYPES: Mapping[str, type] = {"keyword": str, "date": str, "boolean": bool, "long": int}
# The index accepts a value of another type and ignores it.
_TASK_TYPES = {
    field.name.removeprefix("task."): _TYPES[field.index_type]
    for field in IDENTITY_FIELDS
    if "task." in field.name
}


def run_of_document(source: Mapping[str, Any]) -> PastRun:
    """The run of a document."""
    task = _task_fields(source)
    event = _task_event(task)
    confirmed = task.get("confirmed")
    is_confirmed = confirmed is True
    does_count = does_run_count(text_or_none(task.get("voucher")), is_confirmed=confirmed)
    read = report_of_document(source)
    if read is None:
        report = _report_of_fields(source)
        return PastRun(report=report, event=event, is_confirmed=is_confirmed, counts=does_count)
    report, line = read
    record = report.record
    outcome = outcome_of(record, event.end, is_confirmed=is_confirmed)
    corrected = replace(
        _with_document_identity(record, source),
        status=record.status if event is NO_TASK_EVENT else outcome.status,
        exit_code=outcome.exit_code,
        cost=cost_on_provider(task.get("capacity_provider"), record.cost),
    )
    if outcome.ran_out_of_memory:
        corrected = replace(corrected, likely_out_of_memory=True)
    if report.type != CHECKPOINT:
        corrected = _with_document_times(corrected, source)
    elif corrected.status != record.status:
        corrected = _with_end_by_ecs(corrected, source)
    return PastRun(
        report=replace(report, record=corrected),
        line=line,
        event=event,
        is_confirmed=is_confirmed,
        counts=does_count,
        container_ids=_texts_of(_value_at_path(source, "task.runtime_ids")),
    )


def report_of_document(source: Mapping[str, Any]) -> tuple[Report, bytes] | None:
    """The report of a document and its line: the whole line, or restored from its record.

    None: there is no record, or it cannot be read, or is too long.
    """
    written = source.get("record")
    if not isinstance(written, str) or is_too_long(written):
        return None
    with contextlib.suppress(msgspec.DecodeError, UnicodeError):
        return decode(written), written.encode()
    with contextlib.suppress(msgspec.DecodeError, UnicodeError):
        record = decode_leniently(Record, written)
        dataset = _value_at_path(source, "event.dataset")
        report = possible_report(
            Report(
                time=_document_time(source),
                type=CHECKPOINT if dataset == CHECKPOINT else "task.report",
                schema_version=SCHEMA_VERSION,
                record=record,
            )
        )
        return report, msgspec.json.encode(report)
    return None


def _task_fields(source: Mapping[str, Any]) -> dict[str, Any]:
    """The document's fields of the task by their names; without values of another type, which the
    index ignores.
    """
    fields = mapping_or_empty(source.get("task"))
    return {
        name: value
        for name, value in fields.items()
        if isinstance(value, _TASK_TYPES.get(name, ()))
    }


def _task_event(task: Mapping[str, Any]) -> TaskEvent:
    reported = {name: task[name] for name in TaskEvent.__struct_fields__ if name in task}
    end = written_event_end(task)
    if not reported and end is None:
        return NO_TASK_EVENT
    return TaskEvent(end=end or NO_EVENT, **reported)


def _texts_of(values: object) -> tuple[str, ...]:
    if not isinstance(values, list):
        return ()
    return tuple(value for value in values if isinstance(value, str))


def _document_time(source: Mapping[str, Any]) -> str:
    written = source.get(TIME)
    moment_ns = parse_ns(written)
    return str(written) if moment_ns is None else format_ms(moment_ns)


def _with_document_identity(record: Record, source: Mapping[str, Any]) -> Record:
    """The record with the identity in its document: ECS's, once the task's event has come."""
    values: dict[str, Any] = {}
    for name, path in _IDENTITY.items():
        value = _value_at_path(source, path)
        if isinstance(value, str):
            values[name] = value
    container_id = values.pop("container_id", record.container.id)
    image = values.pop("image", record.container.image)
    container = replace(record.container, id=container_id, image=image)
    return replace(
        record, container=container, batch=batch_job_of_document(source.get("batch")), **values
    )


def _with_document_times(record: Record, source: Mapping[str, Any]) -> Record:
    """A report's record with the start and end in its document, where they differ: within the
    task's life.
    """
    times = mapping_or_empty(source.get("event"))
    return replace(
        record,
        started_at=_corrected_time(record.started_at, times.get("start")),
        finished_at=_corrected_time(record.finished_at, times.get("end")),
    )


def _corrected_time(recorded: str | None, indexed: object) -> str | None:
    times_ns = all_known(parse_ns(recorded), parse_ns(indexed))
    if times_ns is None:
        return recorded
    recorded_ns, indexed_ns = times_ns
    if recorded_ns // NS_PER_MS == indexed_ns // NS_PER_MS:
        return recorded
    return format_ms(indexed_ns)


def _with_end_by_ecs(record: Record, source: Mapping[str, Any]) -> Record:
    """A checkpoint's record with the end and the duration that ECS reported."""
    duration_ms = rounded_number(positive_number(_value_at_path(source, "usage.duration_ms")))
    return replace(
        with_whole_duration(record, duration_ms),
        finished_at=text_or_none(_value_at_path(source, "event.end")) or record.finished_at,
    )


def _report_of_fields(source: Mapping[str, Any]) -> Report:
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
        value = _value_of_field(source, field)
        if value is not None and field.record_path:
            *parents, name = field.record_path.split(".")
            part = document
            for parent in parents:
                part = part.setdefault(parent, {})
            part[name] = value
    record = msgspec.convert(document, Record, strict=False)
    report = Report(
        time=_document_time(source),
        type="task.report",
        schema_version=SCHEMA_VERSION,
        record=record,
    )
    return possible_report(report)


def _value_of_field(source: Mapping[str, Any], field: DocumentField) -> object:
    """The value of a field; None if it has another type, which the index ignores."""
    value = _value_at_path(source, field.name)
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


def _value_at_path(source: Mapping[str, Any], path: str) -> object:
    """The value at a path such as ``task.size.vcpu``; None if the document has none."""
    value: object = source
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value

"""The fields of search documents: of a record, of a task's event, and of the run that both make."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from operator import attrgetter
from typing import Any, TypeAlias

from profiler.core.ecs_terms import task_id
from profiler.core.json_fields import mapping_or_empty
from profiler.core.optional_math import any_known, first_known, known, known_members
from profiler.core.timestamps import format_datetime, formatted_datetime
from profiler.forwarder.line_kinds import replace_lone_surrogates
from profiler.forwarder.merged_run import MergedRun
from profiler.forwarder.report_verification import LogStreamClaim
from profiler.forwarder.run_event import EVENT_FIELDS, RunEvent
from profiler.forwarder.run_links import ecs_task_url, links_of_run
from profiler.record.batch_job import NO_JOB, known_job_fields
from profiler.record.metric_catalogue import SLOWDOWN_FIELDS, slowdown_values
from profiler.record.record_model import NO_NEURON, Record
from profiler.record.record_paths import OPTIONAL_PARTS, RunView, json_path
from profiler.record.run_outcome import Outcome
from profiler.record.search_document_fields import FIELDS, DocumentField

Fields: TypeAlias = dict[str, Any]
# The number of an object of the document, and a field's name in it.
_Place: TypeAlias = tuple[int, str]
# The number of an object of the document, a field's name in it, and the function that reads it.
_Calculated: TypeAlias = tuple[int, str, Callable[[RunView], Any]]
_REPORT = "task.report"
# The calculated fields that a record without devices does not have.
_OF_DEVICES = ("usage.gpu.", "usage.neuron.", "usage.estimated", "task.gpu_error")


def run_fields(
    run: MergedRun, line: str | None, kibana_url: str | None, *, moment: datetime | None = None
) -> Fields:
    """The document of a run.

    ``moment``: its time if neither its end nor the time of a report is known.
    """
    ended = run.finished_at or run.written_at or moment
    if ended is None:
        raise ValueError("A run's document has a time.")
    fields = record_fields(run.record, _REPORT, ended, is_end=run.finished_at is not None)
    links = links_of_run(run, kibana_url).document_fields()
    if links:
        fields["links"] = links
    if run.event is not None:
        fields = merged_fields(fields, event_fields(run.event))
    for name, values in run_outcome_fields(run).items():
        fields[name] |= values
    if not run.claim.is_own:
        fields["task"] |= unconfirmed_claim_fields(run.claim)
    set_monthly_saving(fields, None)
    of_report: dict[str, object] = {
        "confirmed": run.is_confirmed,
        "complete": run.is_complete,
        "report_account": run.report_account,
    }
    fields["task"] |= known_members(of_report)
    return {**fields, **known_members({"record": known(replace_lone_surrogates, line)})}


def own_event_fields(
    run: MergedRun, event: RunEvent, reported_cost: Mapping[str, object]
) -> Fields:
    """What the event says, in a document that a report may have written.

    ``reported_cost``: the cost in the report's document; empty without one.
    """
    fields = event_fields(event)
    link = ecs_task_url(event.region, event.cluster, task_id(event.task_arn))
    if link:
        set_field(fields, "links.task", link)
    if run.outcome.status != "unknown":
        fields = merged_fields(fields, run_outcome_fields(run))
    fields["task"]["confirmed"] = event.is_identified
    return {**fields, **_corrected_cost(run.record, reported_cost)}


def _corrected_cost(record: Record, of_report: Mapping[str, object]) -> Fields:
    """The fields of a record's cost, and of what may have been larger, where the report's document
    has another cost; none of a run whose report has none.
    """
    if not of_report:
        return {}
    fields = _copied_record_fields(record)
    cost = fields.get("cost", {})
    if cost == of_report:
        return {}
    at_least = mapping_or_empty(fields.get("usage")).get("at_least")
    cost = {**dict.fromkeys(of_report), **cost}
    corrected = {"cost": cost, "usage": {"at_least": at_least}}
    if cost.get("usd") is None:
        corrected["recommendation"] = {"saving_usd_per_month": None}
    return corrected


def set_monthly_saving(fields: Fields, runs_per_month: float | None) -> None:
    """Set what the recommended size would save in a month, if the saving of the run is known.

    None: the family's runs a month are unknown, so that the run itself is all that is certain.
    """
    saving_usd = fields.get("cost", {}).get("waste_usd")
    if saving_usd:
        monthly_usd = saving_usd * first_known(runs_per_month, 1)
        set_field(fields, "recommendation.saving_usd_per_month", monthly_usd)


def unconfirmed_claim_fields(claim: LogStreamClaim) -> Fields:
    """The fields of the task for a line whose log stream does not name the task."""
    return {"confirmed": False, "voucher": claim.voucher, "voucher_stream": claim.stream}


def run_outcome_fields(run: MergedRun) -> Fields:
    """How the run ended. Only with an event, ``task.stop_category`` has the earlier word for it."""
    return fields_of_outcome(run.outcome, is_of_event=run.event is not None)


def fields_of_outcome(outcome: Outcome, *, is_of_event: bool) -> Fields:
    """The fields that say how the run ended, with ``task.stop_category`` if an event says it."""
    task: Fields = {"status": outcome.status, "outcome": outcome.cause}
    if is_of_event:
        task["stop_category"] = outcome.stop_category
    if outcome.exit_code is not None:
        task["exit_code"] = outcome.exit_code
    return {"event": {"outcome": event_outcome(outcome.status)}, "task": task}


def event_fields(event: RunEvent) -> Fields:
    """The fields that an event alone sets."""
    fields: Fields = {}
    for path, name in EVENT_FIELDS.items():
        value = getattr(event, name)
        if isinstance(value, tuple):
            value = list(value) or None
        elif isinstance(value, datetime):
            value = format_datetime(value)
        if value is not None:
            set_field(fields, path, value)
    if event.batch is not NO_JOB:
        fields["batch"] = known_job_fields(event.batch)
    set_field(fields, "cloud.provider", "aws")
    set_field(fields, "orchestrator.type", "ecs")
    return fields


def set_field(fields: Fields, path: str, value: object) -> None:
    """Set the field with this path."""
    *objects, name = path.split(".")
    for part in objects:
        fields = fields.setdefault(part, {})
    fields[name] = value


def record_fields(
    record: Record, dataset: str, moment: datetime, *, is_end: bool = False
) -> Fields:
    """The fields of a record, without its line. ``is_end``: the moment is the record's end."""
    fields = _copied_record_fields(record)
    timed = fields.pop("event", {})
    event = {
        "kind": "metric",
        "dataset": dataset,
        "outcome": event_outcome(record.status),
        **timed,
    }
    written = timed["end"] if is_end else format_datetime(moment)
    return {"@timestamp": written, "event": event, **fields}


def event_outcome(status: str) -> str:
    """``event.outcome`` as the Elastic Common Schema allows it: success, failure or unknown."""
    return status if status in {"success", "failure"} else "unknown"


def _copied_record_fields(record: Record) -> Fields:
    """The fields of ``FIELDS`` that a record has.

    Those that it has as they are, are read at once: a call for each would take twice as long.
    """
    objects: list[Fields] = [{} for _ in _OBJECTS]
    for (number, name), value in zip(_PLACES_READ, _read_at_once(record), strict=True):
        if value is not None:
            objects[number][name] = value
    calculated = _CALCULATED_WITH_DEVICES if _has_devices(record) else _CALCULATED
    run = RunView(record)
    for number, name, calculate in calculated:
        value = calculate(run)
        if value is not None:
            objects[number][name] = value
    slowdown = record.metrics.slowdown_at_vcpu
    if slowdown is not None:
        for number, names, bound in _SLOWDOWNS:
            objects[number] |= zip(names, slowdown_values(bound, slowdown), strict=True)
    return _nested_in_one(objects)


def _has_devices(record: Record) -> bool:
    """Whether the record says something of GPUs or NeuronCores."""
    is_summary_alone = any_known(record.gpu_scope, record.gpu_idle)
    return bool(record.gpus) or record.neuron is not NO_NEURON or is_summary_alone


def _nested_in_one(objects: Sequence[Fields]) -> Fields:
    """The document with those of its objects that are not empty."""
    for number, parent, name in _NESTED:
        if objects[number]:
            objects[parent][name] = objects[number]
    return objects[_ROOT]


def without_empty_values(fields: Fields) -> Fields:
    """Leave out absent values, and objects that are empty as a result."""
    kept: Fields = {}
    for name, value in fields.items():
        rest = without_empty_values(value) if isinstance(value, dict) else value
        if rest is not None and rest != {}:
            kept[name] = rest
    return kept


def merged_fields(*parts: Mapping[str, Any]) -> Fields:
    """Objects merged at every level; later parts win."""
    first, *later = parts
    merged = dict(first)
    for part in later:
        for name, value in part.items():
            present = merged.get(name)
            is_nested = isinstance(present, dict) and isinstance(value, dict)
            merged[name] = merged_fields(present or {}, value) if is_nested else value
    return merged


def _formatted_time_reader(get: Callable[[RunView], str | None]) -> Callable[[RunView], str | None]:
    """A function that reads a time as documents have it: in UTC, with milliseconds."""

    def read(run: RunView) -> str | None:
        return formatted_datetime(get(run))

    return read


def _object_paths() -> list[str]:
    """The paths of the objects in a document, each after the one that contains it."""
    paths = {"": None}
    for field in FIELDS:
        *names, _name = field.name.split(".")
        paths |= dict.fromkeys(".".join(names[: depth + 1]) for depth in range(len(names)))
    return list(paths)


def _object_and_name(path: str) -> _Place:
    parent, _, name = path.rpartition(".")
    return _NUMBERS[parent], name


def _slowdown_objects() -> Iterator[tuple[int, tuple[str, ...], Any]]:
    """The bounds of the slowdown, each an object of the document."""
    for bound, fields in SLOWDOWN_FIELDS.items():
        number, _name = _object_and_name(fields[0])
        yield number, tuple(_object_and_name(field)[1] for field in fields), bound


def _is_read_at_once(field: DocumentField) -> bool:
    """Whether a document has the value as the record has it, in a part that is never absent."""
    part = field.path.rpartition(".")[0]
    is_in_record = bool(json_path(field.path)) and part not in OPTIONAL_PARTS
    return is_in_record and field.index_type != "date"


def _calculated_fields() -> Iterator[tuple[DocumentField, _Calculated]]:
    """The fields that are not read at once, each with its place and the function that reads it."""
    slowdowns = {*chain.from_iterable(SLOWDOWN_FIELDS.values())}
    for field in FIELDS:
        is_read = _is_read_at_once(field) or field.name in slowdowns
        if field.get is not None and not is_read:
            is_moment = field.index_type == "date"
            read = _formatted_time_reader(field.get) if is_moment else field.get
            yield field, (*_object_and_name(field.name), read)


def _nested_objects() -> list[tuple[int, int, str]]:
    """Each object with the one that contains it, and its name there; the innermost first."""
    innermost_first = sorted(_OBJECTS[1:], key=lambda path: -path.count("."))
    places = ((_NUMBERS[path], *path.rpartition(".")) for path in innermost_first)
    return [(number, _NUMBERS[parent], name) for number, parent, _, name in places]


_ROOT = 0
_OBJECTS = _object_paths()
_NUMBERS = {path: number for number, path in enumerate(_OBJECTS)}
_READ_AT_ONCE = tuple(filter(_is_read_at_once, FIELDS))
_PLACES_READ = tuple(_object_and_name(field.name) for field in _READ_AT_ONCE)
_read_at_once = attrgetter(*(field.path.removeprefix("record.") for field in _READ_AT_ONCE))
_SLOWDOWNS = tuple(_slowdown_objects())
_CALCULATED_WITH_DEVICES = tuple(place for _field, place in _calculated_fields())
_CALCULATED = tuple(
    place for field, place in _calculated_fields() if not field.name.startswith(_OF_DEVICES)
)
_NESTED = _nested_objects()

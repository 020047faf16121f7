"""What defines the documents' fields: index templates with closed mappings, data views, and the ingest pipeline."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, get_args

from kibana import colours
from kibana.dashboard_model import TIME_FIELD, Index, Json
from kibana.panel_builders import OUTCOMES
from kibana.saved_objects import object_id, saved_object, to_json
from profiler.record.run_outcome import Status
from profiler.record.search_document_fields import FIELDS, INTERVAL_PREFIX, DocumentField, keywords

_LOG_MESSAGE = "message"
_DATA_VIEW_TYPES: Final = {"keyword": "string", "date": "date", "boolean": "boolean"}

_DURATION = {"inputFormat": "milliseconds", "showSuffix": True}
# Kibana 7.14 added the precise format. OpenSearch Dashboards and older versions of Kibana fail to draw it.
_PRECISE_DURATION = {**_DURATION, "outputFormat": "humanizePrecise", "outputPrecision": 1, "useShortSuffix": True}
_PLAIN_DURATION = {**_DURATION, "outputFormat": "asMinutes", "outputPrecision": 2}
_DURATIONS = ("usage.duration_ms", "usage.billed_duration_ms", "usage.init_duration_ms")
# Without milliseconds and the name of the month, so that the column of a table is not cut.
_TIME_FORMAT = {"id": "date", "params": {"pattern": "YYYY-MM-DD HH:mm:ss"}}
_ONE_DIGIT_FORMAT = {"id": "number", "params": {"pattern": "0,0.[0]"}}
_UNIT_SUFFIXES: Final = {
    "_bytes": {"id": "bytes", "params": {"pattern": "0,0.0 b"}},
    "usd": {"id": "number", "params": {"pattern": "$0,0.00"}},
    **dict.fromkeys(("_percent", ".percent", "_mb"), _ONE_DIGIT_FORMAT),
}
_PART_FORMATS: Final[Mapping[str, Json]] = {
    **dict.fromkeys((".percent.", "_mb."), _ONE_DIGIT_FORMAT),
    ".slowdown.": {"id": "number", "params": {"pattern": "0,0.[00]"}},
}
# The values are addresses of several hundred characters.
_LINK_LABELS: Final[Mapping[str, str]] = {"links.run": "Charts", "links.logs": "Log", "links.task": "ECS task"}
_COLUMN_LABELS: Final[Mapping[str, str]] = {
    "task.family": "Family",
    "task.id": "Task",
    "task.status": "Outcome",
    "task.stop_category": "Category",
    "task.exit_code": "Exit code",
    "task.stopped_reason": "Reason",
    "usage.duration_ms": "Duration",
    "usage.cpu.percent.max": "CPU peak %",
    "usage.memory.percent.max": "Memory peak %",
    **_LINK_LABELS,
    "links.task": "ECS",
}
_OUTCOME_FORMATS: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "task.status": tuple((case.label.lower(), case.colour) for case in OUTCOMES if case.label != "Out of memory"),
    "task.stop_category": (("oom", colours.OUT_OF_MEMORY),),
}

_DESCRIPTION = "Task Profiler: lines of the monitor into the documents of its dashboards. See docs/dashboards.md"
_RECORD = "line.record."
_IS_REPORT = "ctx.line.type == 'task.report'"
_IS_CHECKPOINT = "ctx.line.type == 'task.checkpoint'"
_ID = "{{{line.record.taskId}}}/{{{line.record.container.name}}}"
_STATISTICS = frozenset({"avg", "p50", "p95", "p99", "max"})
# The objects of the document in the order in which they are filled.
_OBJECTS: Final = (
    *("task", "cloud", "orchestrator", "host", "container", "aws", "event"),
    *("usage", "interval", "cost", "recommendation", "monitor"),
)
# The memory peak waits here: its place is inside an object that is moved as a whole.
_PEAK = "line.peak"
_PEAK_FIELD = "usage.memory.used_mb.max"
_TIME: Final = DocumentField(name="@timestamp", index_type="date")
# The keywords of a log line's document; the message itself is full text.
_LOG_FIELDS: Final = (
    _TIME,
    *keywords(f"aws.cloudwatch.log_group aws.cloudwatch.log_stream {_LOG_MESSAGE} event.kind event.dataset"),
    *keywords("cloud.provider task.id container.name"),
)
# The fields of both kinds of notices (profiler/forwarder/documents.py).
_NOTICE_FIELDS: Final = (
    _TIME,
    *keywords("event.kind event.dataset notice.kind notice.message"),
    *(DocumentField(name=name, index_type="date") for name in ("notice.since", "notice.due_at")),
    *keywords("notice.reason schedule.kind schedule.name schedule.group schedule.expression schedule.time_zone"),
    *keywords("cloud.provider cloud.region cloud.account.id orchestrator.type orchestrator.cluster.name service.name"),
    *keywords("container.name aws.cloudwatch.log_group aws.cloudwatch.log_stream"),
    *keywords("task.id task.arn task.family task.revision links.run links.logs links.task"),
    DocumentField(name="record", is_searchable=False),
)


def build_index_templates() -> dict[str, str]:
    """Generate the text of each index template, by the template's name."""
    templates = (
        ("task-reports", _report_fields(), "Final reports of Task Profiler, one document a run."),
        ("task-checkpoints", _checkpoint_fields(), "Checkpoints of Task Profiler: the time series of a run."),
        ("task-logs", _LOG_FIELDS, "Log lines of batches, in addition to their reports."),
        ("task-notices", _NOTICE_FIELDS, "Notifications of running tasks and of schedules."),
    )
    return {
        name: json.dumps(_template(name, fields, description), indent=2) + "\n"
        for name, fields, description in templates
    }


def data_view_fields(index: Index) -> list[Json]:
    """The fields of these documents, as a data view lists them."""
    fields = {"reports": _report_fields(), "checkpoints": _checkpoint_fields(), "notices": _NOTICE_FIELDS}[index]
    listed = [
        *(_listed(name, "string", name, is_searchable=True) for name in ("_id", "_index")),
        _listed("_score", "number"),
        _listed("_source", "_source"),
        *(
            _listed(
                field.name,
                _DATA_VIEW_TYPES.get(field.index_type, "number"),
                field.index_type,
                is_searchable=field.is_searchable,
                is_stored=field.is_searchable,
            )
            for field in fields
        ),
    ]
    return sorted(listed, key=lambda entry: str(entry["name"]))


def _listed(
    name: str, shown_type: str, *index_types: str, is_searchable: bool = False, is_stored: bool = False
) -> Json:
    return {
        "name": name,
        "type": shown_type,
        "esTypes": [*index_types],
        "count": 0,
        "scripted": False,
        "searchable": is_searchable,
        "aggregatable": is_searchable,
        "readFromDocValues": is_stored,
    }


def _report_fields() -> list[DocumentField]:
    return [field for field in FIELDS if not field.name.startswith(INTERVAL_PREFIX)]


def _checkpoint_fields() -> list[DocumentField]:
    return [*_report_fields(), *(field for field in FIELDS if field.name.startswith(INTERVAL_PREFIX))]


def _template(name: str, fields: Iterable[DocumentField], description: str) -> Json:
    index_settings = {
        "number_of_shards": 1,
        "auto_expand_replicas": "0-1",
        "refresh_interval": "5s",
        "mapping": {"ignore_malformed": True},
    }
    off = dict.fromkeys(("dynamic", "date_detection", "numeric_detection"), False)
    return {
        "index_patterns": [f"{name}-*"],
        "priority": 200,
        "template": {
            "settings": {"index": index_settings},
            "mappings": {**off, "properties": _properties(fields)},
        },
        "_meta": {"description": description, "managed_by": "task-profiler"},
    }


def _properties(fields: Iterable[DocumentField]) -> Json:
    properties: Json = {}
    for field in fields:
        *objects, name = field.name.split(".")
        inside = properties
        for part in objects:
            inside = inside.setdefault(part, {"dynamic": False, "properties": {}})["properties"]
        inside[name] = _mapping(field)
    return properties


def _mapping(field: DocumentField) -> Json:
    if field.name == _LOG_MESSAGE:
        return {"type": "text"}
    if not field.is_searchable:
        return {"type": field.index_type, "index": False, "doc_values": False}
    if field.index_type == "keyword":
        return {"type": "keyword", "ignore_above": 1024}
    return {"type": field.index_type}


def data_view(index: Index, *, is_lens: bool) -> Json:
    """The data view of these documents, with the fields of the index template.

    OpenSearch Dashboards takes the fields from here until an index exists. With an empty list, no panel would be drawn
    until then.
    """
    fields = data_view_fields(index)
    duration = {"id": "duration", "params": _PRECISE_DURATION if is_lens else _PLAIN_DURATION}
    formats = {
        str(entry["name"]): _TIME_FORMAT if entry["type"] == "date" else _field_format(str(entry["name"]), duration)
        for entry in fields
    }
    # Short headings for the columns of the saved searches, which Kibana would name after the fields.
    labels = {name: {"customLabel": label} for name, label in _COLUMN_LABELS.items() if name in formats}
    attributes = {
        "title": f"task-{index}-*",
        "timeFieldName": TIME_FIELD,
        "fields": to_json(fields),
        **({"fieldAttrs": to_json(labels)} if is_lens else {}),
        "fieldFormatMap": to_json({name: shown for name, shown in formats.items() if shown is not None}),
    }
    return saved_object("index-pattern", object_id("data-view", index), attributes, ())


def _field_format(name: str, duration: Json) -> Json | None:
    """The format of a field; None: the product's default."""
    if name in _DURATIONS:
        return duration
    if name == "task.id":
        return {"id": "url", "params": _task_link()}
    if name in _OUTCOME_FORMATS:
        return _coloured(_OUTCOME_FORMATS[name])
    if name in _LINK_LABELS:
        return {"id": "url", "params": {"type": "a", "labelTemplate": _LINK_LABELS[name]}}
    by_suffix = (shown for suffix, shown in _UNIT_SUFFIXES.items() if name.endswith(suffix))
    by_part = (shown for part, shown in _PART_FORMATS.items() if part in name)
    return next(by_suffix, None) or next(by_part, None)


def _coloured(values: Sequence[tuple[str, str]]) -> Json:
    """The colour of a text by its value, in the colours of the charts."""
    coloured = [
        {
            "range": "-Infinity:Infinity",
            "regex": f"^{value}$",
            "text": "#ffffff" if colour == colours.OUT_OF_MEMORY else "#000000",  # black is hard to read on dark red
            "background": colour,
        }
        for value, colour in values
    ]
    return {"id": "color", "params": {"fieldType": "string", "colors": coloured}}


def _task_link() -> Json:
    """A link to the dashboard of one run: relative to `/app/`, in the same space, and without the run's times."""
    query = "(language:kuery,query:'task.id:%22{{value}}%22')"
    period = "(time:(from:now-30d,to:now))"
    address = f"../app/dashboards#/view/{object_id('dashboard', 'task-run')}?_g={period}&_a=(query:{query})"
    return {"type": "a", "urlTemplate": address, "labelTemplate": "{{value}}", "openLinkInCurrentTab": True}


def build_ingest_pipeline() -> str:
    """Generate the text of the pipeline's file, with one processor on each line.

    The pipeline converts a line of the monitor into a search document inside the cluster. It serves shippers other than
    the forwarder (docs/dashboards.md). Fields that the record contains are moved; fields that only the forwarder can
    calculate are missing.
    """
    processors = ",\n".join(f"  {json.dumps(processor)}" for processor in _processors())
    return f'{{\n "description": {json.dumps(_DESCRIPTION)},\n "processors": [\n{processors}\n ]\n}}\n'


def _processors() -> Iterator[Json]:
    yield from _parse()
    yield _remove(sorted({field.name.split(".")[0] for field in FIELDS} - {"@timestamp", "record"}))
    yield from _choose_index_and_id()
    yield from _calculate()
    # The document has the peak instead.
    yield _remove(f"{_RECORD}metrics.memoryUsedMB.max")
    moved = (field for field in FIELDS if field.record_path is not None)
    yield from _move(sorted(moved, key=lambda field: _OBJECTS.index(field.name.split(".")[0])))
    yield _rename(_PEAK, _PEAK_FIELD)
    yield _rename("message", "record")
    yield _remove(["line", "schemaVersion"])


def _parse() -> Iterator[Json]:
    """Accept a document whose ``message`` is a line, and one that is the line itself; drop all others."""
    yield {"json": {"field": "message", "target_field": "line", "if": "ctx.message != null", "ignore_failure": True}}
    yield _set("line", {}, "!(ctx.line instanceof Map)")
    yield {"rename": {"field": "record", "target_field": "line.record", "if": "ctx.record instanceof Map"}}
    for name in ("type", "time"):
        condition = f"ctx.line.{name} == null"
        yield {"rename": {"field": name, "target_field": f"line.{name}", "if": condition, "ignore_missing": True}}
    is_other = "ctx.line.type != 'task.report' && ctx.line.type != 'task.checkpoint'"
    yield {"drop": {"if": f"!(ctx.line.record instanceof Map) || ({is_other})"}}


def _choose_index_and_id() -> Iterator[Json]:
    """The forwarder's index and id, and the document's time."""
    for kind, condition in (("reports", _IS_REPORT), ("checkpoints", _IS_CHECKPOINT)):
        for field, operator in (("line.record.startedAt", "!="), ("line.time", "==")):
            yield {
                "date_index_name": {
                    "field": field,
                    "index_name_prefix": f"task-{kind}-",
                    "date_formats": ["ISO8601"],
                    "date_rounding": "M",
                    "index_name_format": "yyyy.MM",
                    "if": f"{condition} && ctx.line.record.startedAt {operator} null",
                }
            }
    yield _set("_id", _ID, _IS_REPORT)
    yield _set("_id", _ID + "/{{{line.time}}}", _IS_CHECKPOINT)
    yield _set("@timestamp", "{{{line.time}}}")
    yield _set("@timestamp", "{{{line.record.finishedAt}}}", f"{_IS_REPORT} && ctx.line.record.finishedAt != null")


def _calculate() -> Iterator[Json]:
    """The fields that the record does not contain as such."""
    status, task_arn = "ctx.line.record.status", "ctx.line.record.taskArn"
    yield _set("event.kind", "metric")
    yield _set("event.dataset", "{{{line.type}}}")
    yield _set("event.outcome", "{{{line.record.status}}}", f"{status} == 'success' || {status} == 'failure'")
    yield _set("event.outcome", "unknown", f"{status} != 'success' && {status} != 'failure'")
    yield _set(f"{_RECORD}status", "unknown", f"!{list(get_args(Status))}.contains({status})")
    yield _set("cloud.provider", "aws", f"{task_arn} != null")
    yield _set("orchestrator.type", "ecs", f"{task_arn} != null")
    yield _set("service.name", "{{{line.record.family}}}", "ctx.line.record.family != null")
    yield _set("task.complete", value=True, condition=_IS_REPORT)


def _move(fields: Iterable[DocumentField]) -> Iterator[Json]:
    """One processor for each field; the statistics of a distribution are moved together with their object."""
    moved: set[str] = set()
    for field in fields:
        source, target = f"{_RECORD}{field.record_path}", field.name
        source_object, source_name = source.rsplit(".", 1)
        if field.is_list:
            condition = f"ctx.{source_object}?.{source_name} != null"
            yield {"append": {"field": target, "value": [f"{{{{{{{source}}}}}}}"], "if": condition}}
            continue
        target_object, target_name = target.rsplit(".", 1)
        if target == _PEAK_FIELD:
            target = _PEAK
        elif source_name == target_name and source_name in _STATISTICS:
            source, target = source_object, target_object
        if target not in moved:
            moved.add(target)
            yield _rename(source, target)


def _rename(source: str, target: str) -> Json:
    return {"rename": {"field": source, "target_field": target, "ignore_missing": True}}


def _remove(fields: str | list[str]) -> Json:
    return {"remove": {"field": fields, "ignore_missing": True}}


def _set(field: str, value: object, condition: str | None = None) -> Json:
    return {"set": {"field": field, "value": value, **({} if condition is None else {"if": condition})}}

"""What defines the documents' fields: index templates with closed mappings, and data views."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kibana import colours
from kibana.dashboard_model import TIME_FIELD, Index, Json
from kibana.panel_builders import OUTCOMES
from kibana.saved_objects import object_id, saved_object, to_json
from profiler.core.optional_math import known_members
from profiler.record.run_outcome import Cause
from profiler.record.search_document_fields import (
    FIELDS,
    INTERVAL_PREFIX,
    DocumentField,
    keyword_fields,
)
from profiler.record.stop_causes import CAUSE_TITLES

_LOG_MESSAGE = "message"
_DATA_VIEW_TYPES: Final = {"keyword": "string", "date": "date", "boolean": "boolean"}

_DURATION = {"inputFormat": "milliseconds", "showSuffix": True}
# Kibana 7.14 added the precise format. OpenSearch Dashboards and older versions of Kibana fail to
# draw it.
_PRECISE_DURATION = {
    **_DURATION,
    "outputFormat": "humanizePrecise",
    "outputPrecision": 1,
    "useShortSuffix": True,
}
# OpenSearch Dashboards has "humanize" ("a few seconds") or one unit with as many decimals on each
# number: without them, a run of 20 seconds would be "0 Minutes", so an axis says "13.33 Minutes".
_PLAIN_DURATION = {**_DURATION, "outputFormat": "asMinutes", "outputPrecision": 2}
_DURATIONS = ("usage.duration_ms", "usage.billed_duration_ms", "usage.init_duration_ms")
# Without milliseconds and the name of the month, so that the column of a table is not cut.
_TIME_FORMAT = {"id": "date", "params": {"pattern": "YYYY-MM-DD HH:mm:ss"}}
_ONE_DIGIT_FORMAT = {"id": "number", "params": {"pattern": "0,0.[0]"}}
# A pattern has no significant digits: these are all that the record has, so that a use of 0.002 %
# is no 0. A saving of $0.0012 is no $0.00.
_PERCENT_FORMAT = {"id": "number", "params": {"pattern": "0,0.[000]"}}
_USD_FORMAT = {"id": "number", "params": {"pattern": "$0,0.00[00]"}}
_UNIT_SUFFIXES: Final = {
    "_bytes": {"id": "bytes", "params": {"pattern": "0,0.0 b"}},
    **dict.fromkeys(("usd", "usd_per_month"), _USD_FORMAT),
    **dict.fromkeys(("_percent", ".percent"), _PERCENT_FORMAT),
    "_mb": _ONE_DIGIT_FORMAT,
}
_PART_FORMATS: Final[Mapping[str, Json]] = {
    ".percent.": _PERCENT_FORMAT,
    "_mb.": _ONE_DIGIT_FORMAT,
    ".slowdown.": {"id": "number", "params": {"pattern": "0,0.[00]"}},
}
# The values are addresses of several hundred characters.
_LINK_LABELS: Final[Mapping[str, str]] = {
    "links.run": "Charts",
    "links.logs": "Log",
    "links.task": "ECS task",
}
_COLUMN_LABELS: Final[Mapping[str, str]] = {
    "task.family": "Family",
    "task.id": "Task",
    "task.status": "Outcome",
    "task.outcome": "Cause",
    "task.exit_code": "Exit code",
    "task.stopped_reason": "Reason",
    "usage.duration_ms": "Duration",
    "usage.cpu.percent.max": "CPU peak %",
    "usage.memory.percent.max": "Memory peak %",
    **_LINK_LABELS,
    "links.task": "ECS",
}
_OUTCOME_FORMATS: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "task.status": tuple(
        (case.label.lower(), case.colour) for case in OUTCOMES if case.label != "Out of memory"
    ),
}

_NOT_SHOWN: Final = ("series", "series.*", "record")
"""Large fields that a list of documents would fetch for each of its rows."""

_TIME: Final = DocumentField(name="@timestamp", index_type="date")
_REPORT_FIELDS: Final = tuple(
    field for field in FIELDS if not field.name.startswith(INTERVAL_PREFIX)
)
_CHECKPOINT_FIELDS: Final = (
    *(field for field in _REPORT_FIELDS if field.index_type != "object"),
    *(field for field in FIELDS if field.name.startswith(INTERVAL_PREFIX)),
)
# The keywords of a log line's document; the message itself is full text.
_LOG_FIELDS: Final = (
    _TIME,
    *keyword_fields(
        f"aws.cloudwatch.log_group aws.cloudwatch.log_stream {_LOG_MESSAGE} event.kind "
        "event.dataset"
    ),
    *keyword_fields("cloud.provider task.id container.name"),
)
# The fields of both kinds of notices (profiler/forwarder/document_updates.py).
_NOTICE_FIELDS: Final = (
    _TIME,
    *keyword_fields("event.kind event.dataset notice.kind notice.message"),
    *(DocumentField(name=name, index_type="date") for name in ("notice.since", "notice.due_at")),
    *keyword_fields(
        "notice.reason schedule.kind schedule.name schedule.group schedule.expression "
        "schedule.time_zone"
    ),
    *keyword_fields(
        "cloud.provider cloud.region cloud.account.id orchestrator.type "
        "orchestrator.cluster.name service.name"
    ),
    *keyword_fields("container.name aws.cloudwatch.log_group aws.cloudwatch.log_stream"),
    *keyword_fields("task.id task.arn task.family task.revision links.run links.logs links.task"),
    *keyword_fields("batch.job_id batch.queue batch.job_definition"),
    DocumentField(name="record", is_searchable=False),
)


def build_index_templates() -> dict[str, str]:
    """Generate the text of each index template, by the template's name."""
    templates = (
        ("task-reports", _REPORT_FIELDS, "Final reports of Task Profiler, one document a run."),
        (
            "task-checkpoints",
            _CHECKPOINT_FIELDS,
            "Checkpoints of Task Profiler: the time series of a run.",
        ),
        ("task-logs", _LOG_FIELDS, "Log lines of batches, in addition to their reports."),
        ("task-notices", _NOTICE_FIELDS, "Notifications of running tasks and of schedules."),
    )
    return {
        name: json.dumps(_template(name, fields, description), indent=2) + "\n"
        for name, fields, description in templates
    }


def data_view_fields(index: Index) -> list[Json]:
    """The fields of these documents, as a data view lists them."""
    fields = {
        "reports": _REPORT_FIELDS,
        "checkpoints": _CHECKPOINT_FIELDS,
        "notices": _NOTICE_FIELDS,
    }[index]
    listed = [
        *(_listed_field(name, "string", name, is_searchable=True) for name in ("_id", "_index")),
        _listed_field("_score", "number"),
        _listed_field("_source", "_source"),
        *(
            _listed_field(
                field.name,
                _DATA_VIEW_TYPES.get(field.index_type, "number"),
                field.index_type,
                is_searchable=field.is_searchable,
                is_stored=field.is_searchable,
            )
            for field in fields
            if field.index_type != "object"
        ),
    ]
    return sorted(listed, key=lambda entry: str(entry["name"]))


def _listed_field(
    name: str,
    shown_type: str,
    *index_types: str,
    is_searchable: bool = False,
    is_stored: bool = False,
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
    if field.index_type == "object":
        return {"type": "object", "enabled": False}
    if not field.is_searchable:
        return {"type": field.index_type, "index": False, "doc_values": False}
    if field.index_type == "keyword":
        return {"type": "keyword", "ignore_above": 1024}
    return {"type": field.index_type}


def data_view(index: Index, *, is_lens: bool) -> Json:
    """The data view of these documents.

    OpenSearch Dashboards takes its fields from here until an index exists.
    """
    fields = data_view_fields(index)
    duration = {"id": "duration", "params": _PRECISE_DURATION if is_lens else _PLAIN_DURATION}
    formats = {
        str(entry["name"]): _TIME_FORMAT
        if entry["type"] == "date"
        else _field_format(str(entry["name"]), duration)
        for entry in fields
    }
    # Short headings for the columns of the saved searches, which Kibana would name after the
    # fields.
    labels = {
        name: {"customLabel": label} for name, label in _COLUMN_LABELS.items() if name in formats
    }
    attributes = {
        "title": f"task-{index}-*",
        "timeFieldName": TIME_FIELD,
        "fields": to_json(fields),
        "sourceFilters": to_json([{"value": name} for name in _NOT_SHOWN]),
        **({"fieldAttrs": to_json(labels)} if is_lens else {}),
        "fieldFormatMap": to_json(known_members(formats)),
    }
    return saved_object("index-pattern", object_id("data-view", index), attributes, ())


def _field_format(name: str, duration: Json) -> Json | None:
    """The format of a field; None: the product's default."""
    if name in _DURATIONS:
        return duration
    if name == "task.id":
        return {"id": "url", "params": _task_link_format()}
    if name == "task.outcome":
        return _word_format(CAUSE_TITLES)
    if name in _OUTCOME_FORMATS:
        return _colour_format(_OUTCOME_FORMATS[name])
    if name in _LINK_LABELS:
        return {"id": "url", "params": {"type": "a", "labelTemplate": _LINK_LABELS[name]}}
    by_suffix = (shown for suffix, shown in _UNIT_SUFFIXES.items() if name.endswith(suffix))
    by_part = (shown for part, shown in _PART_FORMATS.items() if part in name)
    return next(by_suffix, None) or next(by_part, None)


def _colour_format(values: Sequence[tuple[str, str]]) -> Json:
    """The colour of a text by its value, in the colours of the charts."""
    coloured = [
        {
            "range": "-Infinity:Infinity",
            "regex": f"^{value}$",
            "text": "#ffffff"
            if colour == colours.OUT_OF_MEMORY
            else "#000000",  # black is hard to read on dark red
            "background": colour,
        }
        for value, colour in values
    ]
    return {"id": "color", "params": {"fieldType": "string", "colors": coloured}}


def _word_format(words: Mapping[Cause, str]) -> Json:
    """Words for a value; a value without words stays."""
    entries = [{"key": value, "value": text} for value, text in words.items()]
    return {"id": "static_lookup", "params": {"lookupEntries": entries}}


def _task_link_format() -> Json:
    """A link to the dashboard of one run: relative to `/app/`, in the same space, and without
    the run's times.
    """
    query = "(language:kuery,query:'task.id:%22{{value}}%22')"
    period = "(time:(from:now-30d,to:now))"
    dashboard = object_id("dashboard", "task-run")
    address = f"../app/dashboards#/view/{dashboard}?_g={period}&_a=(query:{query})"
    return {
        "type": "a",
        "urlTemplate": address,
        "labelTemplate": "{{value}}",
        "openLinkInCurrentTab": True,
    }

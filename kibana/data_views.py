"""The data views: the fields of the documents, their formats and their short headings."""

from collections.abc import Mapping, Sequence
from typing import Final

from kibana.dashboard_model import OUT_OF_MEMORY_COLOUR, TIME_FIELD, Index, Json
from kibana.index_definitions.index_templates import data_view_fields
from kibana.panel_builders import OUTCOMES
from kibana.saved_objects import object_id, saved_object, to_json

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
_STATISTICS: Final[Mapping[str, Json]] = {
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
    "links.run": "Charts",
    "links.logs": "Log",
    "links.task": "ECS",
}
_OUTCOME_FORMATS: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "task.status": tuple((case.label.lower(), case.colour) for case in OUTCOMES if case.label != "Out of memory"),
    "task.stop_category": (("oom", OUT_OF_MEMORY_COLOUR),),
}


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
    by_part = (shown for part, shown in _STATISTICS.items() if part in name)
    return next(by_suffix, None) or next(by_part, None)


def _coloured(values: Sequence[tuple[str, str]]) -> Json:
    """The colour of a text by its value, in the colours of the charts."""
    colours = [
        {
            "range": "-Infinity:Infinity",
            "regex": f"^{value}$",
            "text": "#ffffff" if colour == OUT_OF_MEMORY_COLOUR else "#000000",  # black is hard to read on dark red
            "background": colour,
        }
        for value, colour in values
    ]
    return {"id": "color", "params": {"fieldType": "string", "colors": colours}}


def _task_link() -> Json:
    """A link to the dashboard of one run: relative to `/app/`, in the same space, and without the run's times."""
    query = "(language:kuery,query:'task.id:%22{{value}}%22')"
    period = "(time:(from:now-30d,to:now))"
    address = f"../app/dashboards#/view/{object_id('dashboard', 'task-run')}?_g={period}&_a=(query:{query})"
    return {"type": "a", "urlTemplate": address, "labelTemplate": "{{value}}", "openLinkInCurrentTab": True}

"""Parts of the drawings: searches, texts, marks with a tooltip, and the frame of a specification.

Vega 5.17 (Kibana 7.10) to 6.2 (OpenSearch Dashboards 3) draw them. Text and axes have no colour
here: each product fills in the one of its theme.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from kibana.dashboard_model import TIME_FIELD, Json
from profiler.record.units import APPROXIMATELY

SCHEMA: Final = "https://vega.github.io/schema/vega/v5.json"
START: Final = "event.start"
LABEL: Final = "guide-label"
STRONG_LABEL: Final = "guide-title"
ROW_HEIGHT: Final = 34
"""The height of a row of a family in pixels, where there is room for it."""
PADDING_PX: Final = 5
"""Around a drawing: what is farther outside is cut."""
_NAME_PX: Final = 200
_PHONE_PX: Final = 800
_NAME_PX_ON_A_PHONE: Final = 170
_CHARACTER_PX: Final = 7.2
"""The width of a capital letter in the name of a row."""
NARROW: Final[Json] = {"name": "narrow", "update": "width < 900"}
"""The signal of a drawing that a phone shows, whose parts beside each other would overlap."""
GRID_OPACITY: Final = 0.25
_INVISIBLE: Final = 0
_CONFIG: Final[Json] = {
    "kibana": {"renderer": "canvas", "hideWarnings": True, "tooltips": {"padding": 8}},
    "axis": {"gridOpacity": GRID_OPACITY},
}

Encoding: TypeAlias = Mapping[str, Json | list[Json]]
"""The values of a mark's properties; of several, the first one whose test is fulfilled."""

# Texts of values, as expressions of Vega, with the digits that units.py of the record has.
_DURATION: Final = (
    "({0} < 999.5 ? round({0}) + ' ms'"
    " : {0} < 59950 ? format({0} / 1000, '.1f') + ' s'"
    " : {0} < 3599500 ? floor(round({0} / 1000) / 60) + 'm '"
    " + format(round({0} / 1000) % 60, '02d') + 's'"
    " : {0} < 86370000 ? floor(round({0} / 60000) / 60) + 'h '"
    " + format(round({0} / 60000) % 60, '02d') + 'm'"
    " : floor(round({0} / 3600000) / 24) + 'd '"
    " + format(round({0} / 3600000) % 24, '02d') + 'h')"
)
_USD: Final = "(!{0} || abs({0}) >= 0.1 ? format({0}, '$,.2f') : format({0}, '$.2r'))"
_MEMORY: Final = (
    "({0} >= 1023.5 ? format({0} / 1024, ',.1~f') + ' GB'"
    " : format({0}, {0} < 10 ? '.1~f' : ',.0f') + ' MB')"
)
_PERCENT: Final = (
    "({0} >= 99.5 && round({0} * 1e6) < 1e8 ? format(min(round({0} * 10), 999) / 10, '.1f')"
    " : {0} >= 1 || {0} == 0 ? format({0}, ',.0f') : format({0}, '.1~r'))"
)


def duration_text(milliseconds: str) -> str:
    """The text of a duration, as an expression."""
    return _DURATION.format(milliseconds)


def usd_text(amount: str) -> str:
    """The text of an amount of money, as an expression."""
    return _USD.format(amount)


def usd_a_month_text(amount: str) -> str:
    """The text of an amount a month, as an expression: below a cent, which no bill has, that."""
    is_below_cent = f"{amount} && abs({amount}) < 0.01"
    return f"({is_below_cent} ? ({amount} < 0 ? '-' : '') + '<$0.01' : {usd_text(amount)})"


def memory_text(megabytes: str) -> str:
    """The text of a memory size, as an expression."""
    return _MEMORY.format(megabytes)


def size_text(vcpu: str, memory_mb: str) -> str:
    """The text of a task's size, as an expression; an unknown part is left out."""
    comma = f"(isValid({vcpu}) && isValid({memory_mb}) ? ', ' : '')"
    vcpu_text = known_text(vcpu, f"{vcpu} + ' vCPU'", "''")
    mb_text = known_text(memory_mb, memory_text(memory_mb), "''")
    return f"{vcpu_text} + {comma} + {mb_text}"


def bytes_text(size: str) -> str:
    """The text of a number of bytes, as an expression."""
    return memory_text(f"({size} / 1048576)")


def percent_number(percent: str) -> str:
    """A share in percent without its unit, as an expression."""
    return _PERCENT.format(percent)


def percent_text(percent: str) -> str:
    """The text of a share in percent, as an expression."""
    return f"{percent_number(percent)} + ' %'"


def mark_of_use(field: str) -> str:
    """The mark of a number of GPUs, as an expression: of an estimate, or as `least_mark`."""
    is_estimate = f"indexof(datum.usage.estimated || [], '{field}') >= 0"
    return f"({is_estimate} ? '{APPROXIMATELY}' : {least_mark(field)})"


def least_mark(field: str, sign: str = "≥") -> str:
    """The mark of a number that may have been larger, as an expression."""
    return f"(indexof(datum.usage.at_least || [], '{field}') < 0 ? '' : '{sign}')"


def known_text(value: str, text: str, unknown: str = "'not known'") -> str:
    """The text of a value that may be missing, as an expression."""
    return f"(isValid({value}) ? {text} : {unknown})"


def search(index: str, aggregations: Json) -> Json:
    """A search within the time range and the filters of the dashboard."""
    return {
        "%context%": True,
        "%timefield%": TIME_FIELD,
        "index": index,
        "body": {"size": 0, "aggs": aggregations},
    }


def search_reports(size: int, order: Json, aggregations: Json) -> Json:
    """A search of reports by family: the first of so many in this order."""
    terms = {"field": "task.family", "size": size, "order": order}
    return search("task-reports-*", {"family": {"terms": terms, "aggs": aggregations}})


def search_newest_task(aggregations: Json) -> Json:
    """A search of reports and checkpoints of the task with the newest start: all drawings of one
    run show the same one, also where two began at the same time.
    """
    terms = {
        "field": "task.id",
        "size": 1,
        "order": {"start": "desc"},
        "collect_mode": "breadth_first",
    }
    task = {"terms": terms, "aggs": {"start": {"max": {"field": START}}, **aggregations}}
    return search("task-reports-*,task-checkpoints-*", {"task": task})


def search_data(name: str, url: Json, buckets: str, transform: Sequence[Json]) -> Json:
    """The data of a search: a row for each of these buckets of the response."""
    return {
        "name": name,
        "url": url,
        "format": {"property": f"aggregations.{buckets}.buckets"},
        "transform": list(transform),
    }


def family_hours_data(
    name: str,
    families: int,
    order: Json,
    *,
    found: Json,
    of_hour: Json,
    transform: Sequence[Json],
) -> Json:
    """The data of a search of reports: a row for each family and hour, the first so many families
    in this order. ``found`` are the aggregations of a family, ``of_hour`` those of an hour, which
    is ``datum.bucket``.
    """
    hour = {
        "date_histogram": {"field": TIME_FIELD, "fixed_interval": "1h", "min_doc_count": 1},
        "aggs": of_hour,
    }
    return search_data(
        name,
        search_reports(families, order, {**found, "hour": hour}),
        "family",
        [
            formula_transform("bucket", "datum.hour.buckets"),
            flatten_transform("bucket"),
            *transform,
        ],
    )


def derived_data(name: str, source: str | Sequence[str], *transform: Json) -> Json:
    """Data made of other data."""
    return {"name": name, "source": source, "transform": list(transform)}


def formula_transform(name: str, expression: str) -> Json:
    """A transform that adds a field."""
    return {"type": "formula", "as": name, "expr": expression}


def formula_transforms(expressions: Mapping[str, str]) -> list[Json]:
    """Transforms that add these fields."""
    return [formula_transform(name, expression) for name, expression in expressions.items()]


def filter_transform(condition: str) -> Json:
    """A transform that keeps the rows that fulfil the condition."""
    return {"type": "filter", "expr": condition}


def flatten_transform(*fields: str) -> Json:
    """A transform that makes a row of each element of these lists."""
    return {"type": "flatten", "fields": list(fields)}


def aggregate_transform(*fields: str, **operations: str) -> Json:
    """A transform that combines the rows with the same values of these fields.

    ``operations``: by the name of each combined field, such as ``max``.
    """
    return {
        "type": "aggregate",
        "groupby": list(fields),
        "fields": list(operations),
        "ops": list(operations.values()),
        "as": list(operations),
    }


def sort_transform(field: str, order: str = "ascending") -> Json:
    """A transform that sorts the rows."""
    return {"type": "collect", "sort": {"field": field, "order": order}}


def signal(expression: str) -> Json:
    """A value that is calculated."""
    return {"signal": expression}


def scaled_value(scale: str, field: str, **more: object) -> Json:
    """The place of a field's value on a scale."""
    return {"scale": scale, "field": field, **more}


def row_scale(rows: str, **order: object) -> Json:
    """A row for each family, which is not higher than it needs to be."""
    return {
        "name": "row",
        "type": "band",
        "domain": {"data": rows, "field": "key", **order},
        "range": [0, signal(f"min(height, {ROW_HEIGHT} * length(data('{rows}')))")],
        "paddingInner": 0.08,
    }


def name_width(pixels: int = _NAME_PX) -> Json:
    """The signal with the most room of a family's name, which has less on a phone."""
    is_phone = f"windowSize()[0] < {_PHONE_PX}"
    return {"name": "names", "init": f"{is_phone} ? {_NAME_PX_ON_A_PHONE} : {pixels}"}


def row_axis(**more: object) -> Json:
    """The names of the families, left of their rows; of a long one, its beginning and its end:
    names of workflows often differ at the end alone.
    """
    name = f"truncate(datum.value, floor(names / {_CHARACTER_PX}), 'center')"
    labels = {"text": signal(name), "limit": signal("names")}
    return {
        "orient": "left",
        "scale": "row",
        "ticks": False,
        "domain": False,
        "labelPadding": 6,  # with Vega's own 2, a name touches its bar
        "encode": {"labels": {"update": labels}},
        **more,
    }


def band_legend(scale: str, title: str) -> Json:
    """The legend of a scale of colours by bands, below the drawing."""
    return {
        "fill": scale,
        "orient": "bottom",
        "direction": "horizontal",
        "gradientLength": signal("min(240, width)"),  # as wide as the cells on a phone
        "gradientThickness": 8,
        "titleOrient": "top",  # beside it, the end of the scale would be cut on a phone
        "title": title,
    }


def mark(
    kind: str, data: str | None, encoding: Mapping[str, Json | list[Json]], **more: object
) -> Json:
    """A mark for each row of the data; None: a single one."""
    source = {} if data is None else {"from": {"data": data}}
    return {"type": kind, **source, **more, "encode": {"update": dict(encoding)}}


def label(
    data: str | None,
    text: str,
    encoding: Mapping[str, Json | list[Json]],
    *,
    style: str = LABEL,
    size: int = 11,
) -> Json:
    """A text in the colour of the theme, which does not catch the pointer."""
    encoded = {
        "text": signal(text),
        "baseline": {"value": "middle"},
        "fontSize": {"value": size},
        **encoding,
    }
    return mark("text", data, encoded, style=style, interactive=False)


def tooltip_area(data: str, tooltip: Mapping[str, str], encoding: Mapping[str, Json]) -> Json:
    """An invisible rectangle with a tooltip. Thin lines would get none."""
    encoded: Json = {
        "fill": {"value": "#888888"},
        "fillOpacity": {"value": _INVISIBLE},
        "tooltip": signal(tooltip_text(tooltip)),
        **encoding,
    }
    area = mark("rect", data, encoded)
    area["encode"]["hover"] = {"fillOpacity": {"value": 0.2}}
    return area


def tooltip_text(lines: Mapping[str, str]) -> str:
    """The lines of a tooltip, as an expression."""
    return "{" + ", ".join(f"'{name}': {value}" for name, value in lines.items()) + "}"


def empty_message(data: str, text: str) -> Json:
    """What a drawing says without data."""
    place = {
        "x": signal("width / 2"),
        "y": signal("height / 2"),
        "align": {"value": "center"},
    }
    return label(None, f"length(data('{data}')) ? '' : '{text}'", place, size=14)


def frame(
    data: Sequence[Json],
    marks: Sequence[Json],
    *,
    scales: Sequence[Json] = (),
    axes: Sequence[Json] = (),
    signals: Sequence[Json] = (),
    legends: Sequence[Json] = (),
) -> Json:
    """A specification that fills its panel."""
    return {
        "$schema": SCHEMA,
        "config": _CONFIG,
        "autosize": {"type": "fit", "contains": "padding"},
        "padding": PADDING_PX,
        "signals": list(signals),
        "data": list(data),
        "scales": list(scales),
        "axes": list(axes),
        "legends": list(legends),
        "marks": list(marks),
    }

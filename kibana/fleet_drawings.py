"""The drawings of all runs: families by night, durations, what sizes cost, save and have saved."""

from typing import Final

from kibana import colours
from kibana import vega_parts as vega
from kibana.dashboard_model import TIME_FIELD, Drawing, Json
from kibana.vega_parts import signal

_REPORTS: Final = "task-reports-*"
_FAMILIES: Final = 40
_MEMORY_PEAK: Final = "usage.memory.percent.max"
_SAVING: Final = "recommendation.saving_usd_per_month"
_UNMEASURED: Final = colours.STOPPED
_DARK_MARK: Final = "#343741"
_CROSS: Final = "M-1,-1L1,1M-1,1L1,-1"
_OUT_OF_MEMORY: Final[Json] = {
    "bool": {
        "should": [
            {"term": {"task.stop_category": "oom"}},
            {"term": {"task.out_of_memory": True}},
            {"term": {"task.likely_out_of_memory": True}},
        ]
    }
}


def _families(size: int, order: Json, aggregations: Json) -> Json:
    terms = {"field": "task.family", "size": size, "order": order}
    return {"family": {"terms": terms, "aggs": aggregations}}


def _row_scale(rows: str, **order: object) -> Json:
    """A row for each family, which is not higher than it needs to be."""
    return {
        "name": "row",
        "type": "band",
        "domain": {"data": rows, "field": "key", **order},
        "range": [0, signal(f"min(height, {vega.ROW_HEIGHT} * length(data('{rows}')))")],
        "paddingInner": 0.08,
    }


def _nights() -> Json:
    hour = {
        "date_histogram": {"field": TIME_FIELD, "fixed_interval": "1h", "min_doc_count": 1},
        "aggs": {
            "peak": {"max": {"field": _MEMORY_PEAK}},
            "killed": {"filter": _OUT_OF_MEMORY},
            "failed": {"filter": {"term": {"event.outcome": "failure"}}},
        },
    }
    found = {"peak": {"max": {"field": _MEMORY_PEAK}}, "hour": hour}
    cells = vega.searched(
        "cells",
        vega.search(_REPORTS, _families(_FAMILIES, {"peak": "desc"}, found)),
        "family",
        [
            vega.formula("bucket", "datum.hour.buckets"),
            vega.flattened("bucket"),
            *vega.formulas(
                {
                    "at": "toDate(datum.bucket.key)",
                    "night": "+datetime(year(datum.at), month(datum.at), date(datum.at))",
                    "peak": "datum.bucket.peak.value",
                    "killed": "datum.bucket.killed.doc_count",
                    "failed": "max(0, datum.bucket.failed.doc_count - datum.killed)",
                    "runs": "datum.bucket.doc_count",
                }
            ),
            vega.one_row_for("key", "night", peak="max", killed="sum", failed="sum", runs="sum"),
            {"type": "extent", "field": "night", "signal": "period"},
        ],
    )
    # Half a day later is the same day where a clock was changed.
    nights = {
        "name": "nights",
        "transform": [
            {
                "type": "sequence",
                "start": signal("period[0] || 0"),
                "stop": signal("period[0] ? period[1] + 43200000 : 0"),
                "step": 86_400_000,
                "as": "start",
            },
            vega.formula("noon", "toDate(datum.start + 43200000)"),
            vega.formula(
                "night", "+datetime(year(datum.noon), month(datum.noon), date(datum.noon))"
            ),
        ],
    }
    families = vega.derived("families", "cells", vega.one_row_for("key", peak="max"))
    place = {
        "x": vega.scaled("night", "night"),
        "width": {"scale": "night", "band": 1},
        "y": vega.scaled("row", "key"),
        "height": {"scale": "row", "band": 1},
    }
    middle = {
        "x": vega.scaled("night", "night", band=0.5),
        "y": vega.scaled("row", "key", band=0.5),
    }
    tooltip = {
        "Family": "datum.key",
        "Night": "timeFormat(datum.night, '%Y-%m-%d')",
        "Highest memory peak": vega.known_text("datum.peak", "format(datum.peak, '.0f') + ' %'"),
        "Reports": "datum.runs",
        "Killed": "datum.killed",
        "Failed": "datum.failed",
    }
    cell = {
        **place,
        "fill": signal(f"isValid(datum.peak) ? scale('peak', datum.peak) : '{_UNMEASURED}'"),
        "tooltip": signal(vega.tooltip_text(tooltip)),
    }
    mark_colour = signal(f"datum.peak >= 75 ? '#ffffff' : '{_DARK_MARK}'")
    size = signal("pow(min(9, bandwidth('row') * 0.6, bandwidth('night') * 0.6), 2)")
    cross = {
        **middle,
        "shape": {"value": _CROSS},
        "size": size,
        "stroke": mark_colour,
        "strokeWidth": {"value": 2},
        "opacity": signal("datum.killed ? 1 : 0"),
    }
    triangle = {
        **middle,
        "shape": {"value": "triangle-up"},
        "size": size,
        "fill": mark_colour,
        "opacity": signal("datum.failed && !datum.killed ? 1 : 0"),
    }
    count = {
        "x": vega.scaled("night", "night", band=0.5, offset=9),
        "y": middle["y"],
        "fill": mark_colour,
    }
    number = "datum.killed || datum.failed"
    return vega.frame(
        [cells, nights, families],
        [
            vega.empty_message("cells", "No run ended in this time range"),
            vega.mark("rect", "cells", cell),
            vega.mark("symbol", "cells", cross, interactive=False),
            vega.mark("symbol", "cells", triangle, interactive=False),
            vega.label(
                "cells",
                f"bandwidth('night') > 40 && ({number}) > 1 ? {number} : ''",
                count,
                size=10,
            ),
        ],
        scales=[
            {
                "name": "night",
                "type": "band",
                "domain": {"data": "nights", "field": "night"},
                "range": [0, signal("min(width, 160 * length(data('nights')))")],
                "paddingInner": 0.04,
            },
            _row_scale("families", sort={"op": "max", "field": "peak", "order": "descending"}),
            {
                "name": "peak",
                "type": "threshold",
                "domain": [low for low, _, _ in colours.PERCENT_BANDS[1:]],
                "range": [colour for _, _, colour in colours.PERCENT_BANDS],
            },
        ],
        legends=[
            {
                "fill": "peak",
                "orient": "bottom",
                "direction": "horizontal",
                "gradientLength": 240,
                "gradientThickness": 8,
                "titleOrient": "left",
                "title": "Memory peak %",
            }
        ],
        axes=[
            {
                "orient": "top",
                "scale": "night",
                "ticks": False,
                "domain": False,
                "labelOverlap": True,
                "encode": {
                    "labels": {"update": {"text": signal("timeFormat(datum.value, '%a %m-%d')")}}
                },
            },
            {
                "orient": "left",
                "scale": "row",
                "ticks": False,
                "domain": False,
                "labelLimit": 170,
                "labelOverlap": True,
            },
        ],
    )


NIGHTS: Final = Drawing(
    key="families-by-night",
    title="Memory peak by family and night (✕ killed, ▲ failed)",
    description=(
        "Each cell is the highest memory peak of a day in percent of the size, in your time zone. "
        "Grey: not measured. The 40 families with the highest peaks, for up to two months."
    ),
    spec=_nights(),
    width=38,
    height=22,
)


def _durations() -> Json:
    day = {
        "date_histogram": {"field": TIME_FIELD, "fixed_interval": "1d", "min_doc_count": 1},
        "aggs": {"duration": {"percentiles": {"field": "usage.duration_ms", "percents": [50, 95]}}},
    }
    points = vega.searched(
        "points",
        vega.search(_REPORTS, _families(10, {"_count": "desc"}, {"day": day})),
        "family",
        [
            vega.formula("bucket", "datum.day.buckets"),
            vega.flattened("bucket"),
            *vega.formulas(
                {
                    "day": "datum.bucket.key",
                    "runs": "datum.bucket.doc_count",
                    "median": "datum.bucket.duration.values['50.0']",
                    "p95": "datum.bucket.duration.values['95.0']",
                }
            ),
            vega.kept("isNumber(datum.median)"),
            vega.ordered("day"),
        ],
    )
    newest = {
        "type": "aggregate",
        "groupby": ["key"],
        "fields": ["day"],
        "ops": ["argmax"],
        "as": ["newest"],
    }
    families = vega.derived("families", "points", newest)
    x = vega.scaled("day", "day")
    median = {"x": x, "y": vega.scaled("length", "median")}
    band = {
        **median,
        "y2": vega.scaled("length", "p95"),
        "fill": {"value": colours.USED},
        "fillOpacity": {"value": 0.3},
    }
    line = {**median, "stroke": {"value": colours.HIGH}, "strokeWidth": {"value": 2}}
    dot = {**median, "size": {"value": 14}, "fill": {"value": colours.HIGH}}
    tooltip = {
        "Family": "datum.key",
        "Day": "utcFormat(datum.day, '%Y-%m-%d')",
        "Median": vega.duration_text("datum.median"),
        "95th percentile": vega.duration_text("datum.p95"),
        "Runs": "datum.runs",
    }
    area = {
        "x": {**x, "offset": -6},
        "width": {"value": 12},
        "y": {"value": 0},
        "height": {"scale": "row", "band": 1},
    }
    group = vega.mark(
        "group",
        None,
        {
            "y": vega.scaled("row", "key"),
            "height": {"scale": "row", "band": 1},
            "width": signal("plot"),
        },
    )
    group |= {
        "from": {"facet": {"name": "of_family", "data": "points", "groupby": "key"}},
        "scales": [
            {
                "name": "length",
                "type": "linear",
                "zero": True,
                "domain": {"data": "of_family", "field": "p95"},
                "range": [signal("bandwidth('row') - 2"), 2],
            }
        ],
        "marks": [
            vega.mark("area", "of_family", band, interactive=False),
            vega.mark("line", "of_family", line, interactive=False),
            vega.mark("symbol", "of_family", dot, interactive=False),
            vega.tooltip_area("of_family", tooltip, area),
        ],
    }
    end = {"x": signal("plot + 12"), "y": vega.scaled("row", "key", band=0.5)}
    text = " + ' · ' + ".join(
        vega.duration_text(f"datum.newest.{name}") for name in ("median", "p95")
    )
    return vega.frame(
        [points, families],
        [
            vega.empty_message("points", "No run ended in this time range"),
            group,
            vega.label("families", text, end),
        ],
        signals=[{"name": "plot", "update": "max(60, width - 130)"}],
        scales=[
            {
                "name": "day",
                "type": "utc",
                "domain": {"data": "points", "field": "day"},
                "range": [8, signal("plot - 8")],
            },
            _row_scale("families"),
        ],
        axes=[
            {
                "orient": "bottom",
                "scale": "day",
                "format": "%m-%d",
                "tickCount": {"interval": "day", "step": 1},
                "labelOverlap": True,
                "grid": True,
                "domain": False,
            },
            {"orient": "left", "scale": "row", "ticks": False, "domain": False, "labelLimit": 170},
        ],
    )


DURATIONS: Final = Drawing(
    key="durations-by-family",
    title="Duration by family and day: median, up to the 95th percentile",
    description=(
        "A line and its band for each of the ten families with the most runs, with its own scale "
        "from 0. The numbers are the newest day's. Days begin at midnight UTC."
    ),
    spec=_durations(),
    width=24,
    height=15,
)


def _newest(fields: list[str], condition: Json) -> Json:
    """The newest report that fulfils the condition."""
    newest = {"size": 1, "sort": [{TIME_FIELD: {"order": "desc"}}], "_source": fields}
    return {"filter": condition, "aggs": {"newest": {"top_hits": newest}}}


_SIZE_FIELDS: Final = [
    _SAVING,
    "recommendation.vcpu",
    "recommendation.memory_mb",
    "task.size.vcpu",
    "task.size.memory_mb",
    "task.resized_from",
]


def _size_text(vcpu: str, memory_mb: str) -> str:
    return f"{vcpu} + ' vCPU, ' + {vega.memory_text(memory_mb)}"


def _savings() -> Json:
    found = {
        "saving": {"max": {"field": _SAVING}},
        "advice": _newest(_SIZE_FIELDS, {"range": {_SAVING: {"gt": 0}}}),
        "peak": {"max": {"field": _MEMORY_PEAK}},
        "cpu": {"avg": {"field": "usage.cpu.percent.avg"}},
        "cost": {"sum": {"field": "cost.usd"}},
    }
    rows = vega.searched(
        "families",
        vega.search(_REPORTS, _families(25, {"saving": "desc"}, found)),
        "family",
        [
            vega.kept("length(datum.advice.newest.hits.hits)"),
            *vega.formulas(
                {
                    "run": "datum.advice.newest.hits.hits[0]._source",
                    "usd": "datum.run.recommendation.saving_usd_per_month",
                    "memory": "datum.peak.value",
                    "vcpu": "datum.cpu.value",
                    "paid": "datum.cost.value",
                    "size": _size_text(
                        "datum.run.recommendation.vcpu", "datum.run.recommendation.memory_mb"
                    ),
                }
            ),
            vega.ordered("usd", "descending"),
        ],
    )
    row = {"y": vega.scaled("row", "key", band=0.2), "height": {"scale": "row", "band": 0.6}}
    middle = {"y": vega.scaled("row", "key", band=0.5)}
    tooltip = {
        "Family": "datum.key",
        "Saving a month": vega.usd_text("datum.usd"),
        "Recommended": "datum.size",
        "Memory peak": vega.known_text("datum.memory", "format(datum.memory, '.0f') + ' %'"),
        "CPU mean": vega.known_text("datum.vcpu", "format(datum.vcpu, '.0f') + ' %'"),
        "Cost in the time range": vega.usd_text("datum.paid"),
    }
    marks = [
        vega.empty_message("families", "No run in this time range could have been cheaper"),
        vega.mark(
            "rect",
            "families",
            {
                **row,
                "x": {"value": 0},
                "x2": vega.scaled("usd", "usd"),
                "fill": {"value": colours.SUCCESS},
            },
        ),
        vega.label(
            "families",
            f"{vega.usd_text('datum.usd')} + '  →  ' + datum.size",
            {**middle, "x": vega.scaled("usd", "usd", offset=6)},
        ),
    ]
    for name, start in (("memory", "second"), ("vcpu", "third")):
        marks += _percent_column(name, start, row, middle)
    marks.append(
        vega.label(
            "families",
            vega.usd_text("datum.paid"),
            {**middle, "x": signal("width - 4"), "align": {"value": "right"}},
        )
    )
    for text, place, align in (
        ("Saving a month → recommended size", "0", "left"),
        ("Memory peak %", "second", "left"),
        ("CPU mean %", "third", "left"),
        ("Cost", "width - 4", "right"),
    ):
        heading = {"x": signal(place), "y": {"value": -10}, "align": {"value": align}}
        marks.append(_heading(text, heading))
    whole_row = {
        "x": {"value": 0},
        "width": signal("width"),
        "y": vega.scaled("row", "key"),
        "height": {"scale": "row", "band": 1},
    }
    marks.append(vega.tooltip_area("families", tooltip, whole_row))
    return vega.frame(
        [rows],
        marks,
        signals=[
            {"name": "second", "update": "width * 0.56"},
            {"name": "third", "update": "width * 0.73"},
            {"name": "column", "update": "width * 0.13"},
        ],
        scales=[
            {
                "name": "usd",
                "type": "linear",
                "zero": True,
                "domain": {"data": "families", "field": "usd"},
                "range": [0, signal("max(20, second - 200)")],
            },
            {
                "name": "percent",
                "type": "linear",
                "clamp": True,
                "domain": [0, 100],
                "range": [0, signal("column")],
            },
            _row_scale("families"),
        ],
        axes=[
            {"orient": "left", "scale": "row", "ticks": False, "domain": False, "labelLimit": 170}
        ],
    )


def _heading(text: str, place: Json) -> Json:
    """The title of a column, if there are rows."""
    shown = f"length(data('families')) ? '{text}' : ''"
    return vega.label(None, shown, place, style=vega.STRONG_LABEL)


def _percent_column(name: str, start: str, row: Json, middle: Json) -> list[Json]:
    """A bar in percent of the size, in a frame that ends at 100 %."""
    value = f"datum.{name}"
    whole = {
        **row,
        "x": signal(start),
        "width": signal("column"),
        "fill": {"value": colours.SIZE},
        "fillOpacity": {"value": 0.2},
    }
    used = {
        **row,
        "x": signal(start),
        "width": signal(f"isValid({value}) ? scale('percent', {value}) : 0"),
        "fill": signal(f"{value} >= 90 ? '{colours.FAILURE}' : '{colours.USED}'"),
    }
    place = {**middle, "x": signal(f"{start} + column + 4")}
    return [
        vega.mark("rect", "families", whole),
        vega.mark("rect", "families", used),
        vega.label("families", vega.known_text(value, f"format({value}, '.0f')", "'-'"), place),
    ]


SAVINGS: Final = Drawing(
    key="savings-by-family",
    title="Saving a month by family, and what it uses of its size",
    description=(
        "The saving of the newest run that could have been cheaper, times the family's runs a "
        "month (of the run alone, if fewer than 5 are known). The highest memory peak, the "
        "mean CPU usage and the list price are of all runs in the time range. The 25 "
        "families with the largest savings."
    ),
    spec=_savings(),
    width=38,
    height=22,
)


def _resizes() -> Json:
    is_resized = {"exists": {"field": "task.resized_from"}}
    cost = {"avg": {"field": "cost.usd"}}
    found = {
        "before": {"filter": {"bool": {"must_not": [is_resized]}}, "aggs": {"cost": cost}},
        "after": {"filter": is_resized, "aggs": {"cost": cost}},
        "size": _newest(_SIZE_FIELDS, is_resized),
        "resized": {"filter": is_resized, "aggs": {"cost": {"sum": {"field": "cost.usd"}}}},
    }
    order = {"resized>cost": "desc"}
    rows = vega.searched(
        "families",
        vega.search(_REPORTS, _families(12, order, found)),
        "family",
        [
            vega.kept("isNumber(datum.after.cost.value)"),
            *vega.formulas(
                {
                    "run": "datum.size.newest.hits.hits[0]._source.task",
                    "from": "split(datum.run.resized_from, '/')",
                    "before": "datum.before.cost.value",
                    "runs": "datum.after.doc_count",
                    "after": "datum.after.cost.value",
                    "saved": (
                        "isValid(datum.before) ? (datum.before - datum.after) * datum.runs : null"
                    ),
                    "change": (
                        _size_text("datum.from[1] / 1024", "toNumber(datum.from[2])")
                        + " + ' → ' + "
                        + _size_text("datum.run.size.vcpu", "datum.run.size.memory_mb")
                    ),
                }
            ),
            vega.ordered("saved", "descending"),
        ],
    )
    middle = {"y": vega.scaled("row", "key", band=0.5)}
    texts = {
        "change": "datum.change",
        "run": (
            vega.known_text("datum.before", vega.usd_text("datum.before"), "'?'")
            + " + ' → ' + "
            + vega.usd_text("datum.after")
        ),
        "runs": "format(datum.runs, ',')",
        "saved": vega.known_text("datum.saved", vega.usd_text("datum.saved")),
    }
    columns = {
        "change": ("Size", "8", "left"),
        "run": ("Cost of a run", "width * 0.5", "left"),
        "runs": ("Runs since", "width * 0.83", "right"),
        "saved": ("Saved", "width - 4", "right"),
    }
    marks = [vega.empty_message("families", "No run of a resized definition in this time range")]
    for name, (title, place, align) in columns.items():
        encoding = {"x": signal(place), "align": {"value": align}}
        heading = {**encoding, "y": {"value": -10}}
        marks.append(_heading(title, heading))
        marks.append(vega.label("families", texts[name], {**encoding, **middle}))
    return vega.frame(
        [rows],
        marks,
        scales=[_row_scale("families")],
        axes=[
            {"orient": "left", "scale": "row", "ticks": False, "domain": False, "labelLimit": 170}
        ],
    )


RESIZES: Final = Drawing(
    key="saved-by-resizes",
    title="What resizes have saved",
    description=(
        "Families with runs of a definition that `task-profiler taskdef resize` registered. Saved: "
        "the mean cost of a run before the resize, less the mean since then, times the runs since "
        "then, of the time range."
    ),
    spec=_resizes(),
    width=24,
    height=9,
)


def _cost() -> Json:
    day = {
        "day": {
            "date_histogram": {"field": TIME_FIELD, "fixed_interval": "1d", "min_doc_count": 1},
            "aggs": {
                "cost": {"sum": {"field": "cost.usd"}},
                "waste": {"sum": {"field": "cost.waste_usd"}},
                "known": {"value_count": {"field": "cost.usd"}},
            },
        }
    }
    days = vega.searched(
        "days",
        vega.search(_REPORTS, day),
        "day",
        [
            vega.kept("datum.known.value"),
            *vega.formulas(
                {
                    "usd": "datum.cost.value",
                    "useful": "datum.cost.value - datum.waste.value",
                    "date": "utcFormat(datum.key, '%Y-%m-%d')",
                }
            ),
        ],
    )
    place = {"x": vega.scaled("day", "date"), "width": {"scale": "day", "band": 1}}
    used = {
        **place,
        "y": vega.scaled("usd", "useful"),
        "y2": {"scale": "usd", "value": 0},
        "fill": {"value": colours.USED},
    }
    waste = {
        **place,
        "y": vega.scaled("usd", "usd"),
        "y2": vega.scaled("usd", "useful"),
        "fill": {"value": colours.SUCCESS},
    }
    top = {
        "x": vega.scaled("day", "date", band=0.5),
        "y": vega.scaled("usd", "usd", offset=-8),
        "align": {"value": "center"},
    }
    tooltip = {
        "Day": "datum.date",
        "Cost": vega.usd_text("datum.usd"),
        "Recommended sizes would have saved": vega.usd_text("datum.waste.value"),
        "Runs": "datum.known.value",
    }
    area = {**place, "y": {"value": 0}, "height": signal("height")}
    fits = f"bandwidth('day') > 40 ? {vega.usd_text('datum.usd')} : ''"
    return vega.frame(
        [days],
        [
            vega.empty_message("days", "No run with a known cost in this time range"),
            vega.mark("rect", "days", used),
            vega.mark("rect", "days", waste),
            vega.label("days", fits, top),
            vega.tooltip_area("days", tooltip, area),
        ],
        scales=[
            {
                "name": "day",
                "type": "band",
                "domain": {"data": "days", "field": "date"},
                "range": [0, signal("min(width, 120 * length(data('days')))")],
                "paddingInner": 0.15,
            },
            {
                "name": "usd",
                "type": "linear",
                "zero": True,
                "domain": {"data": "days", "field": "usd"},
                "range": [signal("height"), 16],
            },
        ],
        axes=[
            {
                "orient": "bottom",
                "scale": "day",
                "ticks": False,
                "labelOverlap": True,
            }
        ],
    )


COST_BY_DAY: Final = Drawing(
    key="cost-by-day",
    title="Cost by day (USD); green: what the recommended sizes would have saved",
    description="Fargate list price of the runs that have one, by end time. Days are in UTC.",
    spec=_cost(),
    width=24,
    height=9,
)

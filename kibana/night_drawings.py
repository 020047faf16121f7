"""The drawings of all families over the nights: memory peaks with kills, and durations."""

from typing import Final

from kibana import colours
from kibana import vega_parts as vega
from kibana.dashboard_model import MIXED_MEMORY, TIME_FIELD, Drawing, Json
from kibana.vega_parts import signal
from profiler.record.query_clauses import RAN_OUT_OF_MEMORY

_FAMILIES: Final = 40
_NAME_PX: Final = 300
_MEMORY_PEAK: Final = "usage.memory.percent.max"
_UNMEASURED: Final = colours.STOPPED
_DARK_MARK: Final = "#343741"
_CROSS: Final = "M-1,-1L1,1M-1,1L1,-1"
_FAILED: Final[Json] = {
    "bool": {
        "filter": [{"term": {"event.outcome": "failure"}}],
        "must_not": [RAN_OUT_OF_MEMORY],
    }
}


def _night_cells_data() -> Json:
    """The highest memory peak and the kills of each family and night."""
    return vega.family_hours_data(
        "cells",
        _FAMILIES,
        {"peak": "desc"},
        found={"peak": {"max": {"field": _MEMORY_PEAK}}},
        of_hour={
            "peak": {"max": {"field": _MEMORY_PEAK}},
            "killed": {"filter": RAN_OUT_OF_MEMORY},
            "failed": {"filter": _FAILED},
        },
        transform=[
            *vega.formula_transforms(
                {
                    "at": "toDate(datum.bucket.key)",
                    "night": "+datetime(year(datum.at), month(datum.at), date(datum.at))",
                    "peak": "datum.bucket.peak.value",
                    "killed": "datum.bucket.killed.doc_count",
                    "failed": "datum.bucket.failed.doc_count",
                    "runs": "datum.bucket.doc_count",
                }
            ),
            vega.aggregate_transform(
                "key", "night", peak="max", killed="sum", failed="sum", runs="sum"
            ),
            {"type": "extent", "field": "night", "signal": "period"},
        ],
    )


def _night_columns() -> Json:
    """All nights between the first and the last one, also those without a run."""
    # Half a day later is the same day where a clock was changed.
    return {
        "name": "nights",
        "transform": [
            {
                "type": "sequence",
                "start": signal("period[0] || 0"),
                "stop": signal("period[0] ? period[1] + 43200000 : 0"),
                "step": 86_400_000,
                "as": "start",
            },
            vega.formula_transform("noon", "toDate(datum.start + 43200000)"),
            vega.formula_transform(
                "night", "+datetime(year(datum.noon), month(datum.noon), date(datum.noon))"
            ),
        ],
    }


def _night_cell() -> Json:
    """The rectangle of a night, with its tooltip."""
    place = {
        "x": vega.scaled_value("night", "night"),
        "width": {"scale": "night", "band": 1},
        "y": vega.scaled_value("row", "key"),
        "height": {"scale": "row", "band": 1},
    }
    tooltip = {
        "Family": "datum.key",
        "Night": "timeFormat(datum.night, '%Y-%m-%d')",
        "Highest memory peak": vega.known_text("datum.peak", vega.percent_text("datum.peak")),
        "Reports": "datum.runs",
        "Killed": "datum.killed",
        "Failed": "datum.failed",
    }
    return vega.mark(
        "rect",
        "cells",
        {
            **place,
            "fill": signal(f"isValid(datum.peak) ? scale('peak', datum.peak) : '{_UNMEASURED}'"),
            "tooltip": signal(vega.tooltip_text(tooltip)),
        },
    )


def _night_marks() -> list[Json]:
    """A cross for kills, a triangle for failures, and how many there were."""
    middle = {
        "x": vega.scaled_value("night", "night", band=0.5),
        "y": vega.scaled_value("row", "key", band=0.5),
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
        "x": vega.scaled_value("night", "night", band=0.5, offset=9),
        "y": middle["y"],
        "fill": mark_colour,
    }
    number = "datum.killed || datum.failed"
    text = f"bandwidth('night') > 40 && ({number}) > 1 ? {number} : ''"
    return [
        vega.mark("symbol", "cells", cross, interactive=False),
        vega.mark("symbol", "cells", triangle, interactive=False),
        vega.label("cells", text, count, size=10),
    ]


_NIGHT_SCALES: Final[list[Json]] = [
    {
        "name": "night",
        "type": "band",
        "domain": {"data": "nights", "field": "night"},
        "range": [0, signal("min(width, 160 * length(data('nights')))")],
        "paddingInner": 0.04,
    },
    vega.row_scale("families", sort={"op": "max", "field": "peak", "order": "descending"}),
    {
        "name": "peak",
        "type": "threshold",
        "domain": [low for low, _, _ in colours.PERCENT_BANDS[1:]],
        "range": [colour for _, _, colour in colours.PERCENT_BANDS],
    },
]
_NIGHT_AXES: Final[list[Json]] = [
    {
        "orient": "top",
        "scale": "night",
        "ticks": False,
        "domain": False,
        "labelOverlap": True,
        "encode": {"labels": {"update": {"text": signal("timeFormat(datum.value, '%a %m-%d')")}}},
    },
    vega.row_axis(labelOverlap=True),
]


def _nights_drawing() -> Json:
    families = vega.derived_data("families", "cells", vega.aggregate_transform("key", peak="max"))
    return vega.frame(
        [_night_cells_data(), _night_columns(), families],
        [
            vega.empty_message("cells", "No run ended in this time range"),
            _night_cell(),
            *_night_marks(),
        ],
        signals=[vega.name_width(_NAME_PX)],
        scales=_NIGHT_SCALES,
        legends=[vega.band_legend("peak", "Memory peak %")],
        axes=_NIGHT_AXES,
    )


NIGHTS: Final = Drawing(
    key="families-by-night",
    title="Memory peak by family and night (✕ killed, ▲ failed)",
    description=(
        "Each cell is the highest memory peak of a day in percent of the size, in your time zone. "
        "Grey: not measured. The 40 families with the highest peaks, for up to two months. "
        f"{MIXED_MEMORY}"
    ),
    spec=_nights_drawing(),
    width=38,
    height=22,
)


def _daily_durations_data() -> Json:
    """Median and 95th percentile of each family and day."""
    day = {
        "date_histogram": {"field": TIME_FIELD, "fixed_interval": "1d", "min_doc_count": 1},
        "aggs": {"duration": {"percentiles": {"field": "usage.duration_ms", "percents": [50, 95]}}},
    }
    return vega.search_data(
        "points",
        vega.search_reports(10, {"_count": "desc"}, {"day": day}),
        "family",
        [
            vega.formula_transform("bucket", "datum.day.buckets"),
            vega.flatten_transform("bucket"),
            *vega.formula_transforms(
                {
                    "day": "datum.bucket.key",
                    "runs": "datum.bucket.doc_count",
                    "median": "datum.bucket.duration.values['50.0']",
                    "p95": "datum.bucket.duration.values['95.0']",
                }
            ),
            vega.filter_transform("isNumber(datum.median)"),
            vega.sort_transform("day"),
        ],
    )


def _lane_marks() -> Json:
    """The line and the band of a family, with a scale of its own."""
    x = vega.scaled_value("day", "day")
    median = {"x": x, "y": vega.scaled_value("length", "median")}
    band = {
        **median,
        "y2": vega.scaled_value("length", "p95"),
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
            "y": vega.scaled_value("row", "key"),
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
    return group


def _durations_drawing() -> Json:
    newest = {
        "type": "aggregate",
        "groupby": ["key"],
        "fields": ["day"],
        "ops": ["argmax"],
        "as": ["newest"],
    }
    families = vega.derived_data("families", "points", newest)
    end = {"x": signal("plot + 12"), "y": vega.scaled_value("row", "key", band=0.5)}
    text = " + ' · ' + ".join(
        vega.duration_text(f"datum.newest.{name}") for name in ("median", "p95")
    )
    return vega.frame(
        [_daily_durations_data(), families],
        [
            vega.empty_message("points", "No run ended in this time range"),
            _lane_marks(),
            vega.label("families", text, end),
        ],
        signals=[vega.name_width(), {"name": "plot", "update": "max(60, width - 130)"}],
        scales=[
            {
                "name": "day",
                "type": "utc",
                "domain": {"data": "points", "field": "day"},
                "range": [8, signal("plot - 8")],
            },
            vega.row_scale("families"),
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
            vega.row_axis(),
        ],
    )


DURATIONS: Final = Drawing(
    key="durations-by-family",
    title="Duration by family and day: median, up to the 95th percentile",
    description=(
        "A line and its band for each of the ten families with the most runs, with its own scale "
        "from 0. The numbers are the newest day's. Days begin at midnight UTC."
    ),
    spec=_durations_drawing(),
    width=24,
    height=15,
)

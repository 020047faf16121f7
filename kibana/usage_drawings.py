"""The drawings of what families used of their sizes over time: a row for each family.

The products' own heatmaps give a long name all the room that it wants: on a phone, no cell is left.
"""

from collections.abc import Sequence
from typing import Final, Literal

from kibana import vega_parts as vega
from kibana.colours import CPU_USE_BANDS, PERCENT_BANDS, Band
from kibana.dashboard_model import MIXED_MEMORY, Drawing, Json
from kibana.vega_parts import signal

_FAMILIES: Final = 25
_CELL_PX: Final = 8
_HOUR_MS: Final = 3_600_000
# How many hours a cell may have: each divides a day, or is days.
_CELL_HOURS: Final = (1, 2, 3, 6, 12, 24, 48, 168)
_MEAN_OF_MEANS: Final = (
    "Each cell is the unweighted mean of the averages of the tasks that ended in it. A wide cell "
    "hides short tasks."
)


def _cells_data(field: str) -> Json:
    """The values of each family and hour, added up in cells of several hours."""
    return vega.family_hours_data(
        "hours",
        _FAMILIES,
        {"measured": "desc"},
        found={"measured": {"value_count": {"field": field}}},
        of_hour={"use": {"stats": {"field": field}}},
        transform=[
            vega.filter_transform("datum.bucket.use.count"),
            *vega.formula_transforms(
                {
                    "at": "datum.bucket.key",
                    "runs": "datum.bucket.use.count",
                    "total": "datum.bucket.use.sum",
                    "most": "datum.bucket.use.max",
                }
            ),
            {"type": "extent", "field": "at", "signal": "period"},
        ],
    )


def _cell_ms() -> str:
    """The length of a cell, as an expression: the shortest one that gives each cell its room."""
    *shorter, longest = _CELL_HOURS
    text = str(longest * _HOUR_MS)
    for hours in reversed(shorter):
        cells = f"(period[1] - period[0]) / {hours * _HOUR_MS}"
        text = f"{cells} <= width / {_CELL_PX} ? {hours * _HOUR_MS} : {text}"
    return f"period[0] ? ({text}) : {_HOUR_MS}"


def _cells(operation: Literal["mean", "max"]) -> Json:
    """The cells, which begin at midnight of the reader's time zone."""
    zone = "timezoneoffset(datum.at) * 60000"
    value = "datum.most" if operation == "max" else "datum.total / datum.runs"
    return vega.derived_data(
        "cells",
        "hours",
        vega.formula_transform("start", f"floor((datum.at - {zone}) / cell) * cell + {zone}"),
        vega.aggregate_transform("key", "start", runs="sum", total="sum", most="max"),
        vega.formula_transform("use", value),
    )


def _marks(value_name: str) -> list[Json]:
    tooltip = {
        "Family": "datum.key",
        "From": "timeFormat(datum.start, '%Y-%m-%d %H:%M')",
        "To": "timeFormat(datum.start + cell, '%Y-%m-%d %H:%M')",
        value_name: vega.percent_text("datum.use"),
        "Reports": "datum.runs",
    }
    cell = {
        "x": vega.scaled_value("time", "start"),
        "x2": {"scale": "time", "signal": "datum.start + cell"},
        "y": vega.scaled_value("row", "key"),
        "height": {"scale": "row", "band": 1},
        "fill": vega.scaled_value("use", "use"),
        "tooltip": signal(vega.tooltip_text(tooltip)),
    }
    return [
        vega.empty_message("cells", "No run with a measured use ended in this time range"),
        vega.mark("rect", "cells", cell),
    ]


def _spec(
    field: str, value_name: str, operation: Literal["mean", "max"], bands: Sequence[Band]
) -> Json:
    families = vega.derived_data("families", "cells", vega.aggregate_transform("key", runs="sum"))
    shown_with_cells = {"opacity": signal("length(data('cells')) ? 1 : 0")}
    return vega.frame(
        [_cells_data(field), _cells(operation), families],
        _marks(value_name),
        signals=[vega.name_width(), {"name": "cell", "update": _cell_ms()}],
        scales=[
            {
                "name": "time",
                "type": "time",
                "domain": {
                    "fields": [
                        {"data": "cells", "field": "start"},
                        signal("period[0] ? [period[1] + cell] : []"),
                    ]
                },
                "range": "width",
            },
            vega.row_scale("families", sort={"op": "max", "field": "runs", "order": "descending"}),
            {
                "name": "use",
                "type": "threshold",
                "domain": [low for low, _, _ in bands[1:]],
                "range": [colour for _, _, colour in bands],
            },
        ],
        legends=[vega.band_legend("use", value_name)],
        axes=[
            {
                "orient": "top",
                "scale": "time",
                "ticks": False,
                "domain": False,
                "tickCount": signal("max(2, floor(width / 90))"),
                "labelOverlap": True,
                "labelBound": vega.PADDING_PX,  # "December" at the edge would be cut
                "encode": {"labels": {"update": shown_with_cells}},
            },
            vega.row_axis(labelOverlap=True),
        ],
    )


def _drawing(
    key: str,
    title: str,
    description: str,
    *,
    value_name: str,
    field: str,
    operation: Literal["mean", "max"],
) -> Drawing:
    bands = CPU_USE_BANDS if field.startswith("usage.cpu.") else PERCENT_BANDS
    return Drawing(
        key=key,
        title=title,
        description=f"{description} The 25 families with the most runs, for up to two months.",
        spec=_spec(field, value_name, operation, bands),
        width=24,
        height=20,
    )


USAGES: Final = (
    _drawing(
        "task-usage-cpu",
        "Task Resource Usage Average: CPU %",
        f"Mean CPU usage in percent of the task's vCPUs. {_MEAN_OF_MEANS}",
        value_name="CPU %",
        field="usage.cpu.percent.avg",
        operation="mean",
    ),
    _drawing(
        "task-peak-cpu",
        "Task Resource Usage Peak: CPU %",
        "The highest 95th percentile of the tasks that ended in a cell, in percent of the task's "
        "vCPUs: most tasks use all of them for a second.",
        value_name="CPU peak %",
        field="usage.cpu.percent.p95",
        operation="max",
    ),
    _drawing(
        "task-usage-memory",
        "Task Resource Usage Average: memory %",
        (
            "Mean memory usage in percent of the container's own limit, else of the task's "
            f"memory. {_MEAN_OF_MEANS} {MIXED_MEMORY}"
        ),
        value_name="Memory %",
        field="usage.memory.percent.avg",
        operation="mean",
    ),
    _drawing(
        "task-peak-memory",
        "Task Resource Usage Peak: memory %",
        "The highest memory peak of the tasks that ended in a cell, in percent of the "
        f"container's own limit, else of the task's memory. {MIXED_MEMORY}",
        value_name="Memory peak %",
        field="usage.memory.percent.max",
        operation="max",
    ),
)

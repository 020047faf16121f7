"""The drawings of what sizes cost, could save, and have saved."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from kibana import colours
from kibana import vega_parts as vega
from kibana.dashboard_model import MIXED_MEMORY, TIME_FIELD, Drawing, Json
from kibana.vega_parts import signal
from profiler.record.units import APPROXIMATELY

_MEMORY_PEAK: Final = "usage.memory.percent.max"
_SAVING: Final = "recommendation.saving_usd_per_month"


_WHOLE_ROW: Final[Json] = {
    "x": {"value": 0},
    "width": signal("width"),
    "y": vega.scaled_value("row", "key"),
    "height": {"scale": "row", "band": 1},
}
# Where the columns would be on each other, as on a phone, the tooltip has them.
_NARROW_SAVINGS: Final[Json] = {"name": "narrow", "update": "width < 640"}
_NARROW_COLUMNS: Final[Json] = {"name": "narrow", "update": "width < 380"}


def _newest_report_search(condition: Json, *, most_of: str | None = None) -> Json:
    """The newest report that fulfils the condition; with ``most_of``, of those that have the most
    of this field.
    """
    order = [TIME_FIELD] if most_of is None else [most_of, TIME_FIELD]
    newest = {
        "size": 1,
        "sort": [{field: {"order": "desc"}} for field in order],
        "_source": _SIZE_FIELDS,
    }
    return {"filter": condition, "aggs": {"newest": {"top_hits": newest}}}


_SIZE_FIELDS: Final = [
    "task.id",
    _SAVING,
    "cost.waste_usd",
    "recommendation.vcpu",
    "recommendation.memory_mb",
    "task.size.vcpu",
    "task.size.memory_mb",
    "task.resized_from",
]


# Whether a family's size is too small, which each drawing of recommended sizes asks alike.
_SEARCHES_OF_FIT: Final[Json] = {
    # A retry with more memory is not the size that the family has.
    "sized": _newest_report_search(
        {
            "bool": {
                "filter": [{"exists": {"field": "task.size.vcpu"}}],
                "must_not": [{"exists": {"field": "task.retry_of"}}],
            }
        }
    ),
    "small": _newest_report_search(
        {"range": {"recommendation.saving_percent": {"lt": 0}}}, most_of="recommendation.memory_mb"
    ),
}
_FORMULAS_OF_FIT: Final = {
    "latest": "(datum.sized.newest.hits.hits[0] || {_source: {task: {}}})._source.task.size || {}",
    "largest": "(datum.small.newest.hits.hits[0] || {_source: {}})._source",
    # A run costs more at its recommended size only because it needs more memory. A run before the
    # size was enlarged may need no more than there is now.
    "is_too_small": "(datum.largest.recommendation || {}).memory_mb > datum.latest.memory_mb",
}
_IS_SAME_SIZE: Final = (
    "datum.advised.vcpu == datum.latest.vcpu && datum.advised.memory_mb == datum.latest.memory_mb"
)
# An advice without a size of memory keeps what there is.
_HOLDS_ALL_RUNS: Final = "!(datum.run.recommendation.memory_mb < datum.need.value)"


def _saving_rows() -> Json:
    """The families with a saving, each with its newest advice, unless that is about another size
    than the family's newest run had, or another run needed more memory than that, or than there is.
    The saving is the mean of its successes: the newest run may be its longest.
    """
    found = {
        "saving": {"max": {"field": _SAVING}},
        "advice": _newest_report_search({"range": {_SAVING: {"gt": 0}}}),
        **_SEARCHES_OF_FIT,
        "peak": {"max": {"field": _MEMORY_PEAK}},
        "need": {"max": {"field": "usage.memory.used_mb.max"}},
        "cpu": {"avg": {"field": "usage.cpu.percent.avg"}},
        "cost": {"sum": {"field": "cost.usd"}},
        "successes": {
            "filter": {"term": {"task.status": "success"}},
            "aggs": {
                "saved": {"sum": {"field": "cost.waste_usd"}},
                "known": {"value_count": {"field": "cost.usd"}},
            },
        },
    }
    return vega.search_data(
        "families",
        vega.search_reports(25, {"saving": "desc"}, found),
        "family",
        [
            vega.filter_transform("length(datum.advice.newest.hits.hits)"),
            *vega.formula_transforms(
                {
                    "run": "datum.advice.newest.hits.hits[0]._source",
                    "advised": "datum.run.task.size",
                    **_FORMULAS_OF_FIT,
                    "runs": (
                        "datum.run.recommendation.saving_usd_per_month / datum.run.cost.waste_usd"
                    ),
                    "usd": (
                        "datum.runs * datum.successes.saved.value"
                        " / max(1, datum.successes.known.value)"
                    ),
                    "memory": "datum.peak.value",
                    "vcpu": "datum.cpu.value",
                    "paid": "datum.cost.value",
                    "size": vega.size_text(
                        "datum.run.recommendation.vcpu", "datum.run.recommendation.memory_mb"
                    ),
                    "now": vega.size_text("datum.latest.vcpu", "datum.latest.memory_mb"),
                }
            ),
            vega.filter_transform(f"datum.usd > 0 && !datum.is_too_small && {_IS_SAME_SIZE}"),
            vega.filter_transform(_HOLDS_ALL_RUNS),
            vega.sort_transform("usd", "descending"),
        ],
    )


_ESTIMATE: Final = (
    f"(datum.usd < 0.01 ? '' : '{APPROXIMATELY}') + {vega.usd_a_month_text('datum.usd')}"
)


def _saving_marks() -> list[Json]:
    row = {"y": vega.scaled_value("row", "key", band=0.2), "height": {"scale": "row", "band": 0.6}}
    middle = {"y": vega.scaled_value("row", "key", band=0.5)}
    tooltip = {
        "Family": "datum.key",
        "Saving a month": _ESTIMATE,
        "Size": "datum.now + ' → ' + datum.size",
        "Memory peak": vega.known_text("datum.memory", vega.percent_text("datum.memory")),
        "CPU mean": vega.known_text("datum.vcpu", vega.percent_text("datum.vcpu")),
        "Cost in the time range": vega.usd_text("datum.paid"),
    }
    beside_bar = [{"test": "narrow", "value": 4}, vega.scaled_value("usd", "usd", offset=6)]
    marks = [
        vega.empty_message("families", "No run in this time range could have been cheaper"),
        vega.mark(
            "rect",
            "families",
            {
                **row,
                "x": {"value": 0},
                "x2": vega.scaled_value("usd", "usd"),
                "fill": {"value": colours.SUCCESS},
                "fillOpacity": signal("narrow ? 0.4 : 1"),
            },
        ),
        vega.label(
            "families",
            f"{_ESTIMATE} + '  →  ' + datum.size",
            {**middle, "x": beside_bar},
        ),
    ]
    for name, start in (("memory", "second"), ("vcpu", "third")):
        marks += _percent_column(name, start, row, middle)
    marks.append(
        vega.label(
            "families",
            f"narrow ? '' : {vega.usd_text('datum.paid')}",
            {**middle, "x": signal("width - 4"), "align": {"value": "right"}},
        )
    )
    for text, place, align, is_wide in (
        ("Saving a month → size", "0", "left", False),
        ("Memory peak %", "second", "left", True),
        ("CPU mean %", "third", "left", True),
        ("Cost", "width - 4", "right", True),
    ):
        heading = {"x": signal(place), "y": {"value": -10}, "align": {"value": align}}
        marks.append(_heading(text, heading, is_wide=is_wide))
    marks.append(vega.tooltip_area("families", tooltip, _WHOLE_ROW))
    return marks


def _savings_drawing() -> Json:
    return vega.frame(
        [_saving_rows()],
        _saving_marks(),
        signals=[
            vega.name_width(),
            _NARROW_SAVINGS,
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
                "range": [0, signal("narrow ? width : second - 200")],
            },
            {
                "name": "percent",
                "type": "linear",
                "clamp": True,
                "domain": [0, 100],
                "range": [0, signal("column")],
            },
            vega.row_scale("families"),
        ],
        axes=[vega.row_axis()],
    )


def _heading(text: str, place: Json, *, is_wide: bool) -> Json:
    """The title of a column, if there are rows; ``is_wide``: and room for such a column."""
    condition = "!narrow && " if is_wide else ""
    shown = f"{condition}length(data('families')) ? '{text}' : ''"
    return vega.label(None, shown, place, style=vega.STRONG_LABEL)


def _percent_column(name: str, start: str, row: Json, middle: Json) -> list[Json]:
    """A bar in percent of the size, in a frame that ends at 100 %."""
    value = f"datum.{name}"
    whole = {
        **row,
        "x": signal(start),
        "width": signal("narrow ? 0 : column"),
        "fill": {"value": colours.SIZE},
        "fillOpacity": {"value": 0.2},
    }
    used = {
        **row,
        "x": signal(start),
        "width": signal(f"!narrow && isValid({value}) ? scale('percent', {value}) : 0"),
        "fill": signal(f"{value} >= 90 ? '{colours.FAILURE}' : '{colours.USED}'"),
    }
    place = {**middle, "x": signal(f"{start} + column + 4")}
    number = vega.known_text(value, vega.percent_number(value), "'-'")
    return [
        vega.mark("rect", "families", whole),
        vega.mark("rect", "families", used),
        vega.label("families", f"narrow ? '' : {number}", place),
    ]


SAVINGS: Final = Drawing(
    key="savings-by-family",
    title="Saving a month by family, and use of its size",
    description=(
        "An estimate: the mean saving of the family's successes, each by its own recommended size, "
        "times its runs a month (of one run, if fewer than 5 are known). The size is that of the "
        "newest run that could have been cheaper, if the family's newest run has its size, and no "
        "run needed more memory: families that are too small are below. `task-profiler recommend` "
        "reads all runs of a family together. The highest memory peak, the mean CPU usage and the "
        "list price are of all runs in the time range. The 25 families with the largest savings. "
        f"{MIXED_MEMORY}"
    ),
    spec=_savings_drawing(),
    width=38,
    height=22,
)


def _resized_families() -> Json:
    """The families with runs of a resized definition, with their cost before and since."""
    is_resized = {"exists": {"field": "task.resized_from"}}
    cost = {"avg": {"field": "cost.usd"}}
    found = {
        "before": {"filter": {"bool": {"must_not": [is_resized]}}, "aggs": {"cost": cost}},
        "after": {"filter": is_resized, "aggs": {"cost": cost}},
        "size": _newest_report_search(is_resized),
        "resized": {"filter": is_resized, "aggs": {"cost": {"sum": {"field": "cost.usd"}}}},
    }
    order = {"resized>cost": "desc"}
    return vega.search_data(
        "families",
        vega.search_reports(12, order, found),
        "family",
        [
            vega.filter_transform("isNumber(datum.after.cost.value)"),
            *vega.formula_transforms(
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
                        vega.size_text("datum.from[1] / 1024", "toNumber(datum.from[2])")
                        + " + ' → ' + "
                        + vega.size_text("datum.run.size.vcpu", "datum.run.size.memory_mb")
                    ),
                }
            ),
            vega.sort_transform("saved", "descending"),
        ],
    )


class _TextColumn(Struct, frozen=True, kw_only=True):
    """A column of texts: ``x`` is its place, ``text`` the text of a row, both as expressions.

    ``is_wide``: a phone has no room for it.
    """

    title: str
    text: str
    x: str
    align: str = "left"
    is_wide: bool = True


def _columns_drawing(rows: Json, columns: Sequence[_TextColumn], empty: str) -> Json:
    """A row of texts for each family; ``empty`` is said without any."""
    middle = {"y": vega.scaled_value("row", "key", band=0.5)}
    marks = [vega.empty_message("families", empty)]
    for column in columns:
        encoding = {"x": signal(column.x), "align": {"value": column.align}}
        heading = {**encoding, "y": {"value": -10}}
        marks.append(_heading(column.title, heading, is_wide=column.is_wide))
        text = f"narrow ? '' : {column.text}" if column.is_wide else column.text
        marks.append(vega.label("families", text, {**encoding, **middle}))
    tooltip = {column.title: column.text for column in columns}
    marks.append(vega.tooltip_area("families", {"Family": "datum.key", **tooltip}, _WHOLE_ROW))
    return vega.frame(
        [rows],
        marks,
        signals=[vega.name_width(), _NARROW_COLUMNS],
        scales=[vega.row_scale("families")],
        axes=[vega.row_axis()],
    )


_RESIZE_COLUMNS: Final = (
    _TextColumn(title="Size", text="datum.change", x="8"),
    _TextColumn(
        title="Cost of a run",
        text=vega.known_text("datum.before", vega.usd_text("datum.before"), "'?'")
        + " + ' → ' + "
        + vega.usd_text("datum.after"),
        x="width * 0.5",
    ),
    _TextColumn(
        title="Runs since", text="format(datum.runs, ',')", x="width * 0.83", align="right"
    ),
    _TextColumn(
        title="Saved",
        text=vega.known_text("datum.saved", vega.usd_text("datum.saved")),
        x="width - 4",
        align="right",
        is_wide=False,
    ),
)
RESIZES: Final = Drawing(
    key="saved-by-resizes",
    title="What resizes have saved",
    description=(
        "Families with runs of a definition that `task-profiler taskdef resize` registered. Saved: "
        "the mean cost of a run before the resize, less the mean since then, times the runs since "
        "then, of the time range."
    ),
    spec=_columns_drawing(
        _resized_families(),
        _RESIZE_COLUMNS,
        "No run of a resized definition in this time range",
    ),
    width=24,
    height=9,
)


def _too_small_families() -> Json:
    """The families of which a run needed more memory than the newest one had, with the advice of
    the run that needed the most.
    """
    small = _SEARCHES_OF_FIT["small"]
    tasks = {"cardinality": {"field": "task.id"}}
    found = {
        **_SEARCHES_OF_FIT,
        "small": {**small, "aggs": {**small["aggs"], "tasks": tasks}},
        "peak": {"max": {"field": _MEMORY_PEAK}},
    }
    return vega.search_data(
        "families",
        vega.search_reports(12, {"small>tasks": "desc"}, found),
        "family",
        [
            *vega.formula_transforms(_FORMULAS_OF_FIT),
            vega.filter_transform("datum.is_too_small"),
            *vega.formula_transforms(
                {
                    "tasks": "datum.small.tasks.value",
                    "percent": "datum.peak.value",
                    "task": "datum.largest.task.id",
                    "change": (
                        vega.size_text("datum.latest.vcpu", "datum.latest.memory_mb")
                        + " + ' → ' + "
                        + vega.size_text(
                            "datum.largest.recommendation.vcpu",
                            "datum.largest.recommendation.memory_mb",
                        )
                    ),
                }
            ),
        ],
    )


_TOO_SMALL_COLUMNS: Final = (
    _TextColumn(title="Size", text="datum.change", x="8", is_wide=False),
    _TextColumn(
        title="Memory peak",
        text=vega.known_text("datum.percent", vega.percent_text("datum.percent"), "'-'"),
        x="width * 0.52",
        align="right",
    ),
    _TextColumn(title="Tasks", text="format(datum.tasks, ',')", x="width * 0.62", align="right"),
    _TextColumn(title="Largest need", text="datum.task", x="width * 0.66"),
)
TOO_SMALL: Final = Drawing(
    key="too-small-families",
    title="Too small",
    description=(
        "Families of which a run needed more memory than the newest run has. The recommended size "
        "is that of the run with the largest need, which the last column names. Tasks: those for "
        "which a larger size is recommended. The memory peak is of all runs in the time range. The "
        f"12 families with the most of these tasks. {MIXED_MEMORY}"
    ),
    spec=_columns_drawing(
        _too_small_families(),
        _TOO_SMALL_COLUMNS,
        "No run needed more memory than its family has now",
    ),
    height=9,
)


def _daily_cost_data() -> Json:
    """Cost, and what the recommended sizes would have saved, of each day."""
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
    return vega.search_data(
        "days",
        vega.search("task-reports-*", day),
        "day",
        [
            vega.filter_transform("datum.known.value"),
            *vega.formula_transforms(
                {
                    "usd": "datum.cost.value",
                    "useful": "datum.cost.value - datum.waste.value",
                    "date": "utcFormat(datum.key, '%Y-%m-%d')",
                }
            ),
        ],
    )


def _cost_drawing() -> Json:
    place = {"x": vega.scaled_value("day", "date"), "width": {"scale": "day", "band": 1}}
    used = {
        **place,
        "y": vega.scaled_value("usd", "useful"),
        "y2": {"scale": "usd", "value": 0},
        "fill": {"value": colours.USED},
    }
    waste = {
        **place,
        "y": vega.scaled_value("usd", "usd"),
        "y2": vega.scaled_value("usd", "useful"),
        "fill": {"value": colours.SUCCESS},
    }
    top = {
        "x": vega.scaled_value("day", "date", band=0.5),
        "y": vega.scaled_value("usd", "usd", offset=-8),
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
        [_daily_cost_data()],
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
    spec=_cost_drawing(),
    width=24,
    height=9,
)

"""The drawing of what one run did: where its time went, other sizes, and its containers."""

from typing import Final

from kibana import colours
from kibana import panel_builders as parts
from kibana import vega_parts as vega
from kibana.dashboard_model import TIME_FIELD, Drawing, Json
from kibana.vega_parts import signal

_MAX_CONTAINERS: Final = 6
_SIZES: Final = (0.25, 0.5, 1, 2, 4, 8, 16, 32)
_FIRST_ROW_PX: Final = 28
_ROW_PX: Final = 18
_IMAGE_PX: Final = 15
_CONTAINER_PX: Final = 38
# The columns of the three parts, as shares of the width. A phone has room for two of them.
_TIME_BARS: Final = "max(62, width * 0.06)"
_SIZES_START: Final = "(narrow ? width * 0.52 : width * 0.34)"
_SIZE_BARS: Final = f"({_SIZES_START} + max(62, width * 0.05))"
_CONTAINERS_START: Final = "width * 0.57"
_SHOWN_FIELDS: Final = [
    "container.image.name",
    "usage.cpu.size",
    "usage.cpu.percent.avg",
    "usage.cpu.slowdown.max",
    "usage.memory.used_mb.max",
    "usage.memory.cache_mb.max",
    "usage.time",
    "usage.network",
    "usage.block",
    "usage.at_least",
]


def _newest_task_search() -> Json:
    """The containers of the task with the newest start, each with its report, else its newest
    checkpoint.
    """
    newest = {
        "size": 1,
        # The name of a report's dataset is after that of a checkpoint's.
        "sort": [{"event.dataset": {"order": "desc"}}, {TIME_FIELD: {"order": "desc"}}],
        "_source": _SHOWN_FIELDS,
    }
    containers = {
        "terms": {"field": "container.name", "missing": "", "size": _MAX_CONTAINERS},
        "aggs": {"newest": {"top_hits": newest}},
    }
    return vega.search_newest_task({"container": containers})


def _rows_of_batch(name: str, is_measured: str, rows: list[str], is_shown: str) -> Json:
    """The numbered rows of the first container that has these values."""
    return vega.derived_data(
        name,
        "containers",
        vega.filter_transform(is_measured),
        {"type": "window", "ops": ["row_number"], "as": ["position"]},
        vega.filter_transform("datum.position == 1"),
        vega.formula_transform("row", f"[{', '.join(rows)}]"),
        vega.flatten_transform("row"),
        vega.filter_transform(f"isValid(datum.row.value) && {is_shown}"),
        {"type": "window", "ops": ["row_number"], "as": ["place"]},
    )


def _data_sources() -> list[Json]:
    containers = vega.search_data(
        "containers",
        _newest_task_search(),
        "task",
        [
            vega.formula_transform("bucket", "datum.container.buckets"),
            vega.flatten_transform("bucket"),
            *vega.formula_transforms(
                {
                    "name": "datum.bucket.key || 'not known'",
                    "doc": "datum.bucket.newest.hits.hits[0]._source",
                    "usage": "datum.doc.usage || {}",
                    "cpu": "datum.usage.cpu || {}",
                    "memory": "datum.usage.memory || {}",
                    "network": "datum.usage.network || {}",
                    "block": "datum.usage.block || {}",
                    "image": "((datum.doc.container || {}).image || {}).name || ''",
                }
            ),
            {"type": "window", "ops": ["row_number"], "as": ["number"]},
        ],
    )
    times = []
    for metric in parts.TIME_PARTS:
        part = metric.field.split(".")[2]
        times.append(
            f"{{name: '{metric.label}', colour: '{metric.colour}',"
            f" value: (datum.usage.time.{part} || {{}}).percent}}"
        )
    time_parts = _rows_of_batch(
        "time_parts", "isValid(datum.usage.time)", times, "datum.row.value >= 0.05"
    )
    sizes = []
    for size in _SIZES:
        name = f"v{size:g}".replace(".", "_")
        sizes.append(f"{{vcpu: {size}, value: datum.cpu.slowdown.max.{name}}}")
    slowdowns = _rows_of_batch(
        "slowdowns",
        "isValid(datum.cpu.slowdown) && isValid(datum.cpu.slowdown.max)",
        sizes,
        f"datum.row.vcpu <= (datum.cpu.size || {max(_SIZES)})",
    )
    return [containers, time_parts, slowdowns]


def _heading(text: str, x: str, *, align: str = "left", narrow: str | None = None) -> Json:
    """The title of a part. ``narrow``: on a phone; None: the same."""
    place = {"x": signal(x), "y": {"value": 6}, "align": {"value": align}}
    title = f"'{text}'" if narrow is None else f"(narrow ? '{narrow}' : '{text}')"
    shown = f"length(data('containers')) ? {title} : ''"
    return vega.label(None, shown, place, style=vega.STRONG_LABEL)


def _bars(data: str, name: str, value: str, *, start: str, bars: str, unit: str) -> list[Json]:
    """A named bar with its value for each row, up to the next part of the drawing."""
    y = signal(f"{_FIRST_ROW_PX} + (datum.place - 1) * {_ROW_PX}")
    fill = signal(f"datum.row.colour || '{colours.USED}'")
    end = f"{bars} + scale('{data}', datum.row.value)"
    bar = {
        "x": signal(bars),
        "x2": signal(end),
        "y": {**y, "offset": -6},
        "height": {"value": 12},
        "fill": fill,
    }
    return [
        vega.label(data, name, {"x": signal(start), "y": y}),
        vega.mark("rect", data, bar, interactive=False),
        vega.label(data, value + unit, {"x": signal(f"{end} + 6"), "y": y}),
    ]


def _wide(text: str) -> str:
    """A text for which a phone has no room."""
    return f"(narrow ? '' : {text})"


def _container_marks() -> list[Json]:
    y = signal(f"{_FIRST_ROW_PX} + (datum.number - 1) * {_CONTAINER_PX}")
    columns = (
        ("CPU mean", 0.69, "datum.cpu.percent", vega.percent_text("datum.cpu.percent.avg")),
        (
            "Memory peak",
            0.76,
            "datum.memory.used_mb",
            f"{vega.least_mark('usage.memory.used_mb.max')} + "
            + vega.memory_text("datum.memory.used_mb.max"),
        ),
        ("Droppable", 0.81, "datum.memory.cache_mb", vega.memory_text("datum.memory.cache_mb.max")),
        *(
            (
                title,
                share,
                f"datum.{value}",
                f"{vega.least_mark(f'usage.{value}')} + {vega.bytes_text(f'datum.{value}')}",
            )
            for title, share, value in (
                ("Received", 0.865, "network.rx_bytes"),
                ("Sent", 0.91, "network.tx_bytes"),
                ("Read", 0.955, "block.read_bytes"),
                ("Written", 1, "block.write_bytes"),
            )
        ),
    )
    marks = [
        _heading("Container", _CONTAINERS_START, narrow=""),
        vega.label(
            None,
            "narrow && length(data('containers')) ? 'A wider screen shows the containers' : ''",
            {"x": {"value": 0}, "y": signal("height - 6")},
        ),
        vega.label(
            "containers",
            _wide("datum.name"),
            {"x": signal(_CONTAINERS_START), "y": y, "limit": signal("width * 0.08")},
            style=vega.STRONG_LABEL,
        ),
        vega.label(
            "containers",
            _wide("datum.image"),
            {
                "x": signal(_CONTAINERS_START),
                "y": {**y, "offset": _IMAGE_PX},
                "limit": signal("width * 0.42"),
            },
            size=10,
        ),
    ]
    for title, share, value, text in columns:
        x = f"width * {share}"
        place = {"x": signal(x), "y": y, "align": {"value": "right"}}
        marks.append(_heading(title, x, align="right", narrow=""))
        shown = _wide(vega.known_text(value, text, "'-'"))
        marks.append(vega.label("containers", shown, place))
    return marks


def _drawing_spec() -> Json:
    unmeasured = (
        "length(data('containers')) && !length(data('{0}'))"
        " ? 'Not measured' + (narrow ? '' : ' in this run') : ''"
    )
    marks = [
        vega.empty_message("containers", "No run in this time range"),
        _heading("Where the time went", "0"),
        *_bars(
            "time_parts",
            "datum.row.name",
            vega.percent_number("datum.row.value"),
            start="0",
            bars=_TIME_BARS,
            unit=" + ' %'",
        ),
        _heading(
            "Duration at another size, at most", _SIZES_START, narrow="At another size, at most"
        ),
        *_bars(
            "slowdowns",
            "datum.row.vcpu + ' vCPU'",
            "(datum.row.value > 1 ? format(datum.row.value, '.3~r') + ' ×' : 'not longer')",
            start=_SIZES_START,
            bars=_SIZE_BARS,
            unit="",
        ),
        *_container_marks(),
    ]
    for data, start in (("time_parts", "0"), ("slowdowns", _SIZES_START)):
        place = {"x": signal(start), "y": {"value": _FIRST_ROW_PX}}
        marks.append(vega.label(None, unmeasured.format(data), place))
    return vega.frame(
        _data_sources(),
        marks,
        signals=[vega.NARROW],
        scales=[
            {
                "name": "time_parts",
                "type": "linear",
                "domain": [0, 100],
                "range": [0, signal("width * 0.2")],
            },
            {
                "name": "slowdowns",
                "type": "linear",
                "zero": True,
                "domain": {"data": "slowdowns", "field": "row.value"},
                "range": [0, signal("width * 0.09")],
            },
        ],
    )


RUN_DETAILS: Final = Drawing(
    key="run-details",
    title="What the run did",
    description=(
        "Parts of the duration in percent; how many times as long the run would have taken at "
        "most with fewer vCPUs; totals of each container, of a running task until its newest "
        "checkpoint. Droppable is what the kernel can take back: pages of files, mapped or not, "
        "and its own caches."
    ),
    spec=_drawing_spec(),
    width=48,
    height=9,
)

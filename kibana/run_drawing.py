"""The drawing of one run: its verdict and numbers, then CPU and memory over its time."""

from typing import Final

from kibana import colours
from kibana import vega_parts as vega
from kibana.dashboard_model import TIME_FIELD, Drawing, Json
from kibana.run_tiles import TILES_PX, tile_marks, tiles_text, verdict_colour
from kibana.vega_parts import signal

_CONTAINER: Final = "container.name"
# With one checkpoint a minute, the last two days of a run.
_MAX_CHECKPOINTS: Final = 3000
_HAS_RUN: Final = "length(data('run'))"
_HAS_CURVE: Final = "length(data('curve'))"
_CHECKPOINT: Final[Json] = {"term": {"event.dataset": "task.checkpoint"}}
_FIRST_RUN: Final = "data('run')[0]"
_GAP_PX: Final = 26
_CPU_COLOUR: Final = colours.USED
_MEMORY_COLOUR: Final = "#54b399"
_SHOWN_FIELDS: Final = [
    vega.START,
    "event.dataset",
    "event.end",
    "task.id",
    "task.family",
    "task.status",
    "task.outcome",
    "task.event_outcome",
    "task.confirmed",
    "task.voucher",
    "task.exit_code",
    "task.stopped_reason",
    "task.out_of_memory",
    "task.likely_out_of_memory",
    "container.name",
    "usage.duration_ms",
    "usage.cpu.size",
    "usage.cpu.percent",
    "usage.memory.size_mb",
    "usage.memory.percent",
    "usage.memory.used_mb.max",
    "usage.memory.kills",
    "usage.gpu",
    "usage.at_least",
    "usage.estimated",
    "task.gpu_error",
    "cost.usd",
    "recommendation",
]


def _newest_run_search() -> Json:
    """The container with the newest start of the newest task: the document of its run with its
    series, and its checkpoints.

    Only a report has series. Without one, ECS's event or that of the Batch job wrote the document.
    """
    newest = {"size": 1, "sort": [{TIME_FIELD: {"order": "desc"}}]}
    report = {**newest, "_source": [*_SHOWN_FIELDS, "series"]}
    checkpoint = {**newest, "_source": _SHOWN_FIELDS}
    times = {
        "terms": {"field": TIME_FIELD, "size": _MAX_CHECKPOINTS, "order": {"_key": "desc"}},
        "aggs": {
            "cpu": {"avg": {"field": "interval.cpu_percent"}},
            "memory": {"max": {"field": "interval.memory_mb"}},
        },
    }
    runs = {
        "terms": {"field": _CONTAINER, "missing": "", "size": 1, "order": {"newest": "desc"}},
        "aggs": {
            "newest": {"max": {"field": vega.START}},
            "report": {
                "filter": {"bool": {"must_not": [_CHECKPOINT]}},
                "aggs": {"newest": {"top_hits": report}},
            },
            "checkpoint": {
                "filter": _CHECKPOINT,
                "aggs": {"newest": {"top_hits": checkpoint}, "at": times},
            },
        },
    }
    return vega.search_newest_task({"run": runs})


_IS_KILLED: Final = (
    "datum.doc.task.outcome == 'oom' || !datum.doc.task.event_outcome"
    " && (datum.doc.task.out_of_memory || datum.doc.task.likely_out_of_memory)"
)


_ELAPSED: Final = vega.formula_transform("elapsed", "datum.ms / datum.time_unit")


def _run_of_documents() -> Json:
    """The run, from its report, else from its newest checkpoint."""
    return vega.search_data(
        "run",
        _newest_run_search(),
        "task",
        [
            *vega.formula_transforms(
                {
                    "final": "datum.run.buckets[0].report.newest.hits.hits",
                    "checkpoint": "datum.run.buckets[0].checkpoint",
                    "last": "datum.checkpoint.newest.hits.hits",
                    "newest": "length(datum.last) ? datum.last[0]._source : {}",
                    "doc": "length(datum.final) ? datum.final[0]._source : datum.newest",
                    "isRunning": "!length(datum.final)",
                }
            ),
            vega.filter_transform("isValid(datum.doc.event)"),
            *vega.formula_transforms(
                {
                    # Of a task that did not start, and of an attempt that Batch alone knows, none.
                    "start": vega.known_text(
                        "datum.doc.event.start", "+toDate(datum.doc.event.start)", "null"
                    ),
                    "usage": "datum.doc.usage || {}",
                    "cpu": "datum.usage.cpu || {}",
                    "memory": "datum.usage.memory || {}",
                    "gpu": "datum.usage.gpu || {}",
                    # The document of an event has no sizes, but those of its task.
                    "until": "datum.newest.usage || {}",
                    "vcpu": _first_known("datum.cpu.size", "(datum.until.cpu || {}).size"),
                    "size_mb": _first_known(
                        "datum.memory.size_mb", "(datum.until.memory || {}).size_mb"
                    ),
                    "killed": _IS_KILLED,
                    "verdict": (
                        "datum.killed ? 'killed: out of memory'"
                        " : datum.isRunning ? 'running'"
                        " : datum.doc.task.status || 'unknown'"
                    ),
                    "colour": verdict_colour(),
                    "series": "datum.doc.series",
                    # The axes have round numbers in these units.
                    "time_unit": (
                        "datum.usage.duration_ms >= 7200000 ? 3600000"
                        " : datum.usage.duration_ms >= 120000 ? 60000 : 1000"
                    ),
                    "memory_unit": "datum.size_mb >= 4096 ? 1024 : 1",
                    "size": "isValid(datum.size_mb) ? datum.size_mb / datum.memory_unit : null",
                }
            ),
        ],
    )


def _first_known(value: str, other: str) -> str:
    """The first of two values that is known, as an expression."""
    return vega.known_text(value, value, other)


def _steps_of_series() -> Json:
    """The steps of the run's own series."""
    return vega.derived_data(
        "steps",
        "run",
        vega.filter_transform("isValid(datum.series)"),
        *vega.formula_transforms(
            {
                "used_vcpu": "datum.series.vcpu_used || []",
                "used_mb": "datum.series.memory_used_mb || []",
                "step": "sequence(max(length(datum.used_vcpu), length(datum.used_mb)))",
            }
        ),
        vega.flatten_transform("step", "used_vcpu", "used_mb"),
        *vega.formula_transforms(
            {
                "span": "datum.series.step_ms",
                "at": "+toDate(datum.series.start) + (datum.step + 0.5) * datum.span",
                "kind": "'step'",
            }
        ),
    )


def _points_of_checkpoints() -> Json:
    """A point for each checkpoint of a run without series."""
    return vega.derived_data(
        "intervals",
        "run",
        vega.filter_transform("!isValid(datum.series)"),
        vega.formula_transform("bucket", "datum.checkpoint.at.buckets"),
        vega.flatten_transform("bucket"),
        vega.filter_transform("isValid(datum.bucket)"),
        *vega.formula_transforms(
            {
                "at": "datum.bucket.key",
                "percent": "datum.bucket.cpu.value",
                "used_vcpu": "isValid(datum.percent) ? datum.percent * datum.vcpu / 100 : null",
                "used_mb": "datum.bucket.memory.value",
                "span": "0",
                "kind": "'checkpoint'",
            }
        ),
    )


def _data_sources() -> list[Json]:
    tiles = vega.derived_data(
        "tiles",
        "run",
        vega.formula_transform("tile", tiles_text()),
        vega.flatten_transform("tile"),
        {"type": "window", "ops": ["row_number"], "as": ["number"]},
    )
    ended = (
        "datum.doc.event.end ? +toDate(datum.doc.event.end) - datum.start : datum.usage.duration_ms"
    )
    kill = vega.derived_data(
        "kill",
        "run",
        vega.filter_transform("datum.killed && isValid(datum.start)"),
        vega.formula_transform("ms", ended),
        _ELAPSED,
    )
    curve = vega.derived_data(
        "curve",
        ["steps", "intervals"],
        vega.filter_transform("isValid(datum.start)"),
        vega.formula_transform("ms", "datum.at - datum.start"),
        _ELAPSED,
        vega.formula_transform(
            "used", "isValid(datum.used_mb) ? datum.used_mb / datum.memory_unit : null"
        ),
        vega.sort_transform("ms"),
    )
    gaps = vega.derived_data(
        "gaps",
        "curve",
        vega.filter_transform(
            "datum.kind == 'step' && !isValid(datum.used_vcpu) && !isValid(datum.used_mb)"
        ),
    )
    return [
        _run_of_documents(),
        tiles,
        kill,
        _steps_of_series(),
        _points_of_checkpoints(),
        curve,
        gaps,
    ]


def _kill_marks(text: str) -> list[Json]:
    """A line where the run was killed, with this text."""
    killed = {
        "x": vega.scaled_value("time", "elapsed"),
        "y": {"value": 0},
        "y2": signal("chart"),
        "stroke": {"value": colours.KILL},
        "strokeWidth": signal(f"{_HAS_CURVE} ? 2 : 0"),
    }
    killed_name = {
        "x": vega.scaled_value("time", "elapsed", offset=-6),
        "y": {"value": 10},
        "align": {"value": "right"},
        "fill": {"value": colours.KILL},
        "fontWeight": {"value": "bold"},
    }
    return [
        vega.mark("rule", "kill", killed, interactive=False),
        vega.label("kill", f"{_HAS_CURVE} ? '{text}' : ''", killed_name),
    ]


def _chart_marks(name: str, field: str, limit: str, colour: str) -> list[Json]:
    """The curve, the limit, the kill, the gaps and the checkpoints."""
    place = {"x": vega.scaled_value("time", "elapsed"), "y": vega.scaled_value(name, field)}
    is_known = signal(f"isValid(datum.{field})")
    has_limit = f"{_HAS_CURVE} && isValid(datum.{limit})"
    area = {
        **place,
        "y2": {"scale": name, "value": 0},
        "defined": is_known,
        "fill": {"value": colour},
        "fillOpacity": {"value": 0.2},
    }
    line = {
        **place,
        "defined": is_known,
        "stroke": {"value": colour},
        "strokeWidth": {"value": 1.8},
    }
    dot = {
        **place,
        "size": signal("datum.kind == 'checkpoint' ? 36 : 0"),
        "fill": {"value": colour},
        "opacity": signal(f"isValid(datum.{field}) ? 1 : 0"),
    }
    at_limit = {
        "x": {"value": 0},
        "x2": signal("width"),
        "y": vega.scaled_value(name, limit),
        "stroke": {"value": colours.SIZE},
        "strokeWidth": signal(f"{has_limit} ? 1.5 : 0"),
        "strokeDash": {"value": [5, 4]},
    }
    limit_name = {
        "x": signal("width - 4"),
        "y": vega.scaled_value(name, limit, offset=-8),
        "align": {"value": "right"},
    }
    gap = {
        "x": signal("scale('time', (datum.ms - datum.span / 2) / datum.time_unit)"),
        "x2": signal("scale('time', (datum.ms + datum.span / 2) / datum.time_unit)"),
        "y": {"value": 0},
        "height": signal("chart"),
        "fill": {"value": colours.SIZE},
        "fillOpacity": {"value": 0.2},
    }
    return [
        vega.mark("rect", "gaps", gap, interactive=False),
        vega.mark("area", "curve", area, interactive=False),
        vega.mark("line", "curve", line, interactive=False),
        vega.mark("symbol", "curve", dot, interactive=False),
        vega.mark("rule", "run", at_limit, interactive=False),
        vega.label("run", f"{has_limit} ? 'limit' : ''", limit_name, size=10),
        *_kill_marks("✕ killed" if name == "cpu" else ""),
        _pointer_areas(),
    ]


def _curve_chart(name: str, field: str, limit: str, colour: str, *, top: str, unit: str) -> Json:
    """One curve with its limit and its marks, over the elapsed time."""
    group = vega.mark(
        "group",
        None,
        {"y": signal(top), "width": signal("width"), "height": signal("chart")},
    )
    group |= {
        "scales": [
            {
                "name": name,
                "type": "linear",
                "zero": True,
                "nice": True,
                "range": [signal("chart"), 0],
                "domain": {
                    "fields": [{"data": "curve", "field": field}, {"data": "run", "field": limit}]
                },
            }
        ],
        "axes": [
            {
                "orient": "left",
                "scale": name,
                "title": signal(f"{_HAS_CURVE} ? {unit} : ''"),
                "format": ",.2~f",
                "tickCount": 4,
                "grid": True,
                "minExtent": 52,
                "maxExtent": 52,
                "encode": _SHOWN_WITH_A_CURVE,
            },
            _time_axis(has_labels=name == "memory"),
        ],
        "marks": _chart_marks(name, field, limit, colour),
    }
    return group


def _shown_with_a_curve(opacity: float) -> Json:
    return {"update": {"opacity": signal(f"{_HAS_CURVE} ? {opacity:g} : 0")}}


_SHOWN_WITH_A_CURVE: Final[Json] = {
    # Vega gives labels that do not overlap their opacity back.
    "labels": {"update": {"text": signal(f"{_HAS_CURVE} ? datum.label : ''")}},
    "domain": _shown_with_a_curve(1),
    "ticks": _shown_with_a_curve(1),
    "grid": _shown_with_a_curve(vega.GRID_OPACITY),
}


def _time_axis(*, has_labels: bool) -> Json:
    axis: Json = {
        "orient": "bottom",
        "scale": "time",
        "tickCount": 8,
        "grid": True,
        "ticks": has_labels,
        "labels": has_labels,
        "labelOverlap": True,
        "encode": _SHOWN_WITH_A_CURVE,
    }
    if has_labels:
        unit = f"{_FIRST_RUN}.time_unit"
        words = f"({unit} == 3600000 ? 'Hours' : {unit} == 60000 ? 'Minutes' : 'Seconds')"
        axis["title"] = signal(f"{_HAS_CURVE} ? {words} + ' since the start' : ''")
    return axis


def _pointer_areas() -> Json:
    tooltip = {
        "Time": "utcFormat(datum.at, '%Y-%m-%d %H:%M:%S') + ' UTC'",
        "Since the start": vega.duration_text("datum.ms"),
        "CPU": vega.known_text(
            "datum.used_vcpu", "format(datum.used_vcpu, '.2f') + ' of ' + datum.vcpu + ' vCPU'"
        ),
        "Memory": vega.known_text(
            "datum.used_mb",
            f"{vega.memory_text('datum.used_mb')} + ' of ' + {vega.memory_text('datum.size_mb')}",
        ),
    }
    half = "width / max(1, length(data('curve'))) / 2"
    area = {
        "x": signal(f"scale('time', datum.elapsed) - {half}"),
        "width": signal(f"2 * {half}"),
        "y": {"value": 0},
        "height": signal("chart"),
    }
    return vega.tooltip_area("curve", tooltip, area)


def _drawing_spec() -> Json:
    first = f"{TILES_PX} + 8"
    second = f"{first} + chart + {_GAP_PX}"
    empty = {"x": signal("width / 2"), "y": signal("height / 2"), "align": {"value": "center"}}
    memory_unit = f"({_FIRST_RUN}.memory_unit == 1024 ? 'GB' : 'MB')"
    is_measured = " || ".join(
        f"isValid({_FIRST_RUN}.{value})"
        for value in ("cpu.percent", "memory.percent", "memory.used_mb")
    )
    no_curve = (
        f"!{_HAS_RUN} ? 'No run in this time range'"
        f" : {_HAS_CURVE} ? ''"
        f" : {is_measured} ? 'No curve: the report has totals, but no values over time'"
        " : 'No curve: the run has no measurement'"
    )
    return vega.frame(
        _data_sources(),
        [
            *tile_marks(),
            _curve_chart("cpu", "used_vcpu", "vcpu", _CPU_COLOUR, top=first, unit="'vCPU'"),
            _curve_chart("memory", "used", "size", _MEMORY_COLOUR, top=second, unit=memory_unit),
            vega.label(None, no_curve, empty, size=14),
        ],
        signals=[
            vega.NARROW,
            {"name": "chart", "update": f"max(40, (height - {TILES_PX} - {8 + _GAP_PX}) / 2)"},
        ],
        scales=[
            {
                "name": "time",
                "type": "linear",
                "zero": True,
                "nice": False,
                "domain": {
                    "fields": [
                        {"data": "curve", "field": "elapsed"},
                        {"data": "kill", "field": "elapsed"},
                    ]
                },
                "range": [0, signal("width")],
            }
        ],
    )


RUN_CURVES: Final = Drawing(
    key="run-curves",
    title="The run with the newest start: result, CPU and memory",
    description=(
        "The run's own series, else a point for each checkpoint (of a run that goes on, until "
        "now). Dashed: its size. Grey: no measurement. Select a run by task ID."
    ),
    spec=_drawing_spec(),
    width=48,
    height=22,
)

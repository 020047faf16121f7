"""The first lines of a run's drawing: its verdict and numbers as tiles, and what explains them."""

import json
from typing import Final

from kibana import colours
from kibana import vega_parts as vega
from kibana.dashboard_model import Json
from kibana.vega_parts import signal
from profiler.record.stop_causes import CAUSE_TITLES

_NARROW_TILE_PX: Final = 50
TILES_PX: Final = f"(narrow ? {4 * _NARROW_TILE_PX + 18} : 74)"
"""The height of the tiles and the facts, as an expression: on a phone, two tiles are in a row."""
_FACTS_PX: Final = f"(narrow ? {4 * _NARROW_TILE_PX + 4} : 60)"
_SEPARATOR: Final = "  ·  "
_GPU: Final = "'GPU' + (datum.gpu.scope == 'instance' ? ' of the instance' : '')"
# Causes that the result and the exit code say.
_SAID_BY_RESULT: Final = ["success", "failure", "running", "unknown"]
_MEMORY_PEAK: Final = "usage.memory.used_mb.max"
_PEAK_MB: Final = "datum.memory.used_mb && datum.memory.used_mb.max"


def _peak_text() -> str:
    """The text of the memory peak, as an expression."""
    return f"{vega.least_mark(_MEMORY_PEAK)} + {vega.memory_text('datum.memory.used_mb.max')}"


def tiles_text() -> str:
    """The tiles, each with its title, its value, and what is below, as an expression."""
    advice = "datum.doc.recommendation"
    saved = f"{advice}.saving_percent"
    saving = (
        f"!{saved} ? 'fits' : {saved} < 0 ? 'costs ' + {vega.percent_text(f'-{saved}')} + ' more'"
        f" : 'saves ' + {vega.percent_text(saved)}"
    )
    tiles = (
        ("Result", "datum.verdict", "(datum.doc.container || {}).name"),
        ("Family", "datum.doc.task.family || '-'", "datum.doc.task.id"),
        (
            "Start",
            vega.known_text("datum.start", "utcFormat(datum.start, '%m-%d %H:%M')", "'-'"),
            vega.known_text("datum.start", "utcFormat(datum.start, '%Y') + ' UTC'", "''"),
        ),
        (
            "Duration",
            vega.known_text(
                "datum.usage.duration_ms", vega.duration_text("datum.usage.duration_ms"), "'-'"
            ),
            "datum.isRunning ? 'so far' : ''",
        ),
        (
            "CPU mean",
            vega.known_text(
                "datum.cpu.percent && datum.cpu.percent.avg",
                vega.percent_text("datum.cpu.percent.avg"),
                "'-'",
            ),
            vega.known_text("datum.vcpu", "'of ' + datum.vcpu + ' vCPU'", "''"),
        ),
        (
            "Memory peak",
            vega.known_text(
                "datum.memory.percent && datum.memory.percent.max",
                f"{vega.least_mark(_MEMORY_PEAK)} + "
                + vega.percent_text("datum.memory.percent.max"),
                vega.known_text(_PEAK_MB, _peak_text(), "'-'"),
            ),
            vega.known_text("datum.size_mb", "'of ' + " + vega.memory_text("datum.size_mb"), "''"),
        ),
        (
            "Cost",
            vega.known_text(
                "datum.doc.cost && datum.doc.cost.usd",
                f"{vega.least_mark('cost.usd', '≥ ')} + {vega.usd_text('datum.doc.cost.usd')}",
                "'-'",
            ),
            "''",
        ),
        (
            "Recommended",
            vega.known_text(
                advice, f"{vega.size_text(f'{advice}.vcpu', f'{advice}.memory_mb')} || '-'", "'-'"
            ),
            vega.known_text(f"{advice} && {advice}.saving_percent", saving, "''"),
        ),
    )
    lists = (
        f"{{title: '{title}', value: {value}, below: {below}}}" for title, value, below in tiles
    )
    return f"[{', '.join(lists)}]"


_TILE_STARTS: Final = (0, 0.155, 0.355, 0.475, 0.57, 0.66, 0.765, 0.84)


def verdict_colour() -> str:
    """The colour of a run's verdict, as an expression: that of its status on every dashboard."""
    return (
        f"datum.killed ? '{colours.KILL}'"
        f" : datum.verdict == 'success' ? '{colours.SUCCESS}'"
        f" : datum.verdict == 'failure' ? '{colours.FAILURE}'"
        f" : datum.verdict == 'unknown' ? '{colours.UNKNOWN}' : '{colours.STOPPED}'"
    )


def tile_marks() -> list[Json]:
    """The marks of the tiles, and of the facts below them."""
    place = "(datum.number - 1)"
    start = f"(narrow ? {place} % 2 * width / 2 : width * {list(_TILE_STARTS)}[{place}])"
    top = f"(narrow ? floor({place} / 2) * {_NARROW_TILE_PX} : 0)"
    room = "(datum.tile.title == 'Family' ? width * 0.19 : width * 0.15)"
    half = "width / 2 - 12"

    def line(pixels: int) -> Json:
        return {"x": signal(f"{start} + 8"), "y": signal(f"{top} + {pixels}")}

    value = {**line(22), "limit": signal(f"narrow ? {half} : {room}")}
    below = {**line(40), "limit": signal(f"narrow ? {half} : width * 0.2")}
    facts = {"x": {"value": 8}, "y": signal(_FACTS_PX), "limit": signal("width - 8")}
    dot = {
        "x": {"value": 0},
        "y": {"value": -4},
        "width": {"value": 4},
        "height": signal(f"narrow ? {_NARROW_TILE_PX} : {TILES_PX} - 2"),
        "fill": signal("datum.colour"),
        "opacity": signal("datum.tile.title == 'Result' ? 1 : 0"),
    }
    return [
        vega.label("tiles", "datum.tile.title", line(4)),
        vega.label("tiles", "datum.tile.value", value, style=vega.STRONG_LABEL, size=16),
        vega.label("tiles", "datum.tile.below", below, size=10),
        vega.mark("rect", "tiles", dot, interactive=False),
        vega.label("run", _facts_text(), facts),
    ]


def _facts_text() -> str:
    """What explains the result, in one line, as an expression: what is unknown is left out.

    A reason may be long: it is the last one.
    """
    task = "datum.doc.task"
    kills = "datum.memory.kills"
    cause = f"(indexof({_SAID_BY_RESULT}, {task}.outcome) < 0 ? {task}.outcome : null)"
    words = {word: text for word, text in CAUSE_TITLES.items() if word not in _SAID_BY_RESULT}
    unconfirmed = (
        f"({task}.confirmed === false && {task}.voucher != 'trusted-group' ? 'yes' : null)"
    )
    facts = {
        f"{task}.exit_code": f"'Exit code ' + {task}.exit_code",
        "datum.cpu.percent && datum.cpu.percent.max": "'CPU peak ' + "
        + vega.percent_text("datum.cpu.percent.max"),
        _PEAK_MB: f"'Memory peak ' + {_peak_text()}",
        "datum.gpu.percent && datum.gpu.percent.avg": (
            f"{_GPU} + ' mean ' + {vega.mark_of_use('usage.gpu.percent.avg')} + "
            + vega.percent_text("datum.gpu.percent.avg")
        ),
        "datum.gpu.memory_mb && datum.gpu.memory_mb.max": (
            f"{_GPU} + ' memory peak ≥' + " + vega.memory_text("datum.gpu.memory_mb.max")
        ),
        "datum.gpu.idle && datum.gpu.idle.percent": (
            f"{_GPU} + ' idle ' + {vega.mark_of_use('usage.gpu.idle.percent')} + "
            + vega.percent_text("datum.gpu.idle.percent")
        ),
        f"{task}.gpu_error": f"'GPU error (Xid) ' + {task}.gpu_error",
        kills: f"{kills} + ({kills} == 1 ? ' process' : ' processes') + ' killed by the kernel'",
        cause: f"'Cause: ' + ({json.dumps(words)}[{task}.outcome] || {task}.outcome)",
        unconfirmed: "'Unconfirmed'",
        f"{task}.stopped_reason": f"{task}.stopped_reason",
    }
    texts = []
    for value, text in facts.items():
        texts.append(f"(isValid({value}) ? '{_SEPARATOR}' + {text} : '')")
    return f"slice({' + '.join(texts)}, {len(_SEPARATOR)})"

"""The page: data, programs and styles in one HTML text that fetches nothing."""

import json
import math
from html import escape

from msgspec import Struct

from profiler.record.model import Number

_DIGITS = 3
# What HTML, or JavaScript in an old browser, would take for the end of the text; the rest is ASCII by json's own rule.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def to_script_json(content: object) -> str:
    """The content as JSON that cannot end the script element that it stands in."""
    return escape_for_script(_encoder.encode(content))


def escape_for_script(json_text: str) -> str:
    """JSON that means the same without the characters that HTML reads."""
    for character, replacement in _ESCAPES.items():
        json_text = json_text.replace(character, replacement)
    return json_text


def round_to(value: Number | None, digits: int = _DIGITS) -> Number | None:
    """So many digits after the point; those that nobody sees would make the page long. None for no number at all."""
    return None if value is None or not math.isfinite(value) else _whole(round(value, digits))


def round_significant(value: float) -> Number:
    """Three digits, wherever the point is."""
    return _whole(float(f"{value:.{_DIGITS}g}"))


def _whole(value: float) -> Number:
    return int(value) if value == int(value) else value


# Plotly draws heatmaps as data: images and offers pictures as blob: addresses.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"
)


class Assets(Struct, frozen=True, kw_only=True):
    """The parts of the page that are the same for all data."""

    body: str
    style: str
    plotly: str
    programs: tuple[str, ...]


def render_page(data: str, assets: Assets, *, title: str) -> str:
    """The whole document around a block that ``profiler.html_report.data`` made."""
    program = "(() => {\n'use strict';\n" + "\n".join(assets.programs) + "\n})();"
    return "\n".join(
        (
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{escape(title)}</title>",
            '<link rel="icon" href="data:,">',
            f"<style>\n{assets.style}</style>",
            "</head>",
            "<body>",
            assets.body,
            f'<script type="application/json" id="task-data">{data}</script>',
            f"<script>{_inside_script(assets.plotly)}</script>",
            f"<script>{_inside_script(program)}</script>",
            "</body>",
            "</html>",
            "",
        )
    )


def _inside_script(program: str) -> str:
    r"""In a program the end tag of a script stands in strings only, where ``<\/`` means the same."""
    return program.replace("</script", "<\\/script")

"""The page as one HTML document, with data, scripts and styles. It fetches nothing."""

import json
import math
from html import escape

from msgspec import Struct

from profiler.record.model import Number

_DIGITS = 3
# Characters that could end the script element. json itself escapes all that is not ASCII.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def to_script_json(content: object) -> str:
    """Encode the content as JSON that cannot end the surrounding script element."""
    return escape_for_script(_encoder.encode(content))


def escape_for_script(json_text: str) -> str:
    """Escape the characters of JSON that have a meaning in HTML. The JSON's value does not change."""
    for character, replacement in _ESCAPES.items():
        json_text = json_text.replace(character, replacement)
    return json_text


def round_to(value: Number | None, digits: int = _DIGITS) -> Number | None:
    """Round to ``digits`` decimals, to keep the page short. None for None, NaN and infinity."""
    return None if value is None or not math.isfinite(value) else _int_if_whole(round(value, digits))


def round_significant(value: float, digits: int = _DIGITS) -> Number:
    """Round to three significant digits, or as many as are given."""
    return _int_if_whole(float(f"{value:.{digits}g}"))


def _int_if_whole(value: float) -> Number:
    return int(value) if value == int(value) else value


# Plotly draws heatmaps as data: images and exports pictures as blob: addresses.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"
)


class Assets(Struct, frozen=True, kw_only=True):
    """The parts of the page that do not depend on the data."""

    body: str
    style: str
    plotly: str
    scripts: tuple[str, ...]


def render_page(data: str, assets: Assets, *, title: str) -> str:
    """Render the document around the data of ``build_page_data``."""
    script = "(() => {\n'use strict';\n" + "\n".join(assets.scripts) + "\n})();"
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
            f"<script>{_escape_end_tag(assets.plotly)}</script>",
            f"<script>{_escape_end_tag(script)}</script>",
            "</body>",
            "</html>",
            "",
        )
    )


def _escape_end_tag(script: str) -> str:
    r"""Write ``<\/script`` for the end tag, which scripts contain only in strings, where both mean the same."""
    return script.replace("</script", "<\\/script")

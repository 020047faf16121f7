"""JSON as it stands inside a script element of the page. Pure."""

import json
import math

from profiler.record import Number

_DIGITS = 3
# What HTML, or JavaScript in an old browser, would take for the end of the text; the rest is ASCII by json's own rule.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def to_script_json(content: object) -> str:
    """The content as JSON that cannot end the script element that it stands in."""
    return escape_for_script(_encoder.encode(content))


def escape_for_script(json_text: str) -> str:
    """JSON that means the same without the characters that HTML reads."""
    for character, escape in _ESCAPES.items():
        json_text = json_text.replace(character, escape)
    return json_text


def round_to(value: Number | None, digits: int = _DIGITS) -> Number | None:
    """So many digits after the point; those that nobody sees would make the page long. None for no number at all."""
    return None if value is None or not math.isfinite(value) else _whole(round(value, digits))


def round_significant(value: float) -> Number:
    """Three digits, wherever the point is."""
    return _whole(float(f"{value:.{_DIGITS}g}"))


def _whole(value: float) -> Number:
    return int(value) if value == int(value) else value

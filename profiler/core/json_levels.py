"""The limit of nested levels in a text of another program.

Python's own limit differs between its versions and counts the calls in progress, too, and a value
within it can be too deep for a function that calls itself for each level.
"""

import re
from itertools import accumulate
from typing import TypeVar

import msgspec

MAX_LEVELS = 100
_STEPS = {ord("["): 1, ord("]"): -1}
_AS_SQUARE = bytes.maketrans(b"{}", b"[]")
_OTHER_BYTES = bytes({*range(256)} - {*b'[]{}"'})
_ESCAPE = rb"(?s)\\."

_Text = TypeVar("_Text", bound=str | bytes)


class TooManyLevelsError(msgspec.DecodeError, ValueError):
    """A text has more than ``MAX_LEVELS`` levels; for every decoder, it cannot be decoded."""


def within_levels(json_text: _Text) -> _Text:
    """The text itself. Raises TooManyLevelsError.

    Its syntax is not checked.
    """
    # Nearly all texts have fewer brackets than that, and counting is fast.
    if isinstance(json_text, str):
        openings = json_text.count("[") + json_text.count("{")
    else:
        openings = json_text.count(b"[") + json_text.count(b"{")
    if openings > MAX_LEVELS and _levels(json_text) > MAX_LEVELS:
        raise TooManyLevelsError(f"it has more than {MAX_LEVELS} nested levels")
    return json_text


def _levels(json_text: str | bytes) -> int:
    data = json_text
    if isinstance(data, str):
        data = data.encode(errors="replace")
    if b"\\" in data:
        data = re.sub(_ESCAPE, b"", data)
    outside_of_texts = data.translate(_AS_SQUARE, _OTHER_BYTES).split(b'"')[::2]
    return max(accumulate(map(_STEPS.__getitem__, b"".join(outside_of_texts))), default=0)

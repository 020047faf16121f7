"""The limit of nested levels in a text of another program.

Python's own limit differs between its versions and counts the calls in progress, too, and a value
within it can be too deep for a function that calls itself for each level.
"""

import re
from functools import lru_cache
from itertools import accumulate
from typing import TypeVar

import msgspec

MAX_LEVELS = 100
_STEPS = {ord("["): 1, ord("]"): -1}
_AS_SQUARE = bytes.maketrans(b"{}", b"[]")
_OTHER_BYTES = bytes({*range(256)} - {*b'[]{}"'})
_NOT_OPENING = bytes({*range(256)} - {*b"[{"})
_ESCAPE = rb"(?s)\\."

_Text = TypeVar("_Text", bound=str | bytes)


class TooManyLevelsError(msgspec.DecodeError, ValueError):
    """A text has more than ``MAX_LEVELS`` levels; for every decoder, it cannot be decoded."""


def within_levels(json_text: _Text) -> _Text:
    """The text itself. Raises TooManyLevelsError.

    Its syntax is not checked.
    """
    # The monitor asks this of each answer, so the frequent texts are decided first: those with few
    # brackets, and those of the same form as one before.
    data = json_text if isinstance(json_text, bytes) else json_text.encode(errors="replace")
    if _opening_brackets(data) > MAX_LEVELS and _has_too_many(data):
        raise TooManyLevelsError(f"it has more than {MAX_LEVELS} nested levels")
    return json_text


def _opening_brackets(data: bytes) -> int:
    """The number of them, in one look at the text."""
    return len(data.translate(None, _NOT_OPENING))


def _has_too_many(data: bytes) -> bool:
    brackets = data.translate(_AS_SQUARE, _OTHER_BYTES)
    if b"\\" in data:
        brackets = re.sub(_ESCAPE, b"", data).translate(_AS_SQUARE, _OTHER_BYTES)
    return _are_too_many(brackets)


@lru_cache(maxsize=2)
def _are_too_many(brackets: bytes) -> bool:
    """Whether these brackets and quotation marks of a text have too many levels."""
    brackets = brackets.replace(b'""', b"")  # texts without a bracket
    if b'"' in brackets:
        brackets = b"".join(brackets.split(b'"')[::2])
    if brackets.replace(b"[]", b"").count(b"[") < MAX_LEVELS:
        return False
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > MAX_LEVELS

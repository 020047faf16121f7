"""Changes members of a JSON object in its text: everything else keeps its place and its form."""

import json
import re
from collections.abc import Mapping

_SPACE = re.compile(r"[ \t\r\n]*")
_ERRORS = "surrogatepass"  # as json reads bytes


def with_members(data: bytes, changes: Mapping[str, str]) -> bytes:
    """Set members of the outermost object, which ``data`` must be. A member that is missing becomes the first one."""
    encoding = json.detect_encoding(data)
    text = data.decode(encoding, _ERRORS)
    first, spans = _member_spans(text)
    edits = []
    for name, value in changes.items():
        encoded = json.dumps(value)
        start, end = spans.get(name, (first, first))
        space = text[text.index("{") + 1 : first]
        edits.append((start, end, encoded if name in spans else f'"{name}": {encoded},{space}'))
    for start, end, encoded in sorted(edits, reverse=True):
        text = text[:start] + encoded + text[end:]
    return text.encode(encoding, _ERRORS)


def _member_spans(text: str) -> tuple[int, dict[str, tuple[int, int]]]:
    """Where the first member begins, and where the value of each member begins and ends."""
    decoder = json.JSONDecoder()
    spans: dict[str, tuple[int, int]] = {}
    at = first = _skip_space(text, _skip_space(text, 0) + 1)
    while text[at] != "}":
        name, at = decoder.raw_decode(text, at)
        start = _skip_space(text, _skip_space(text, at) + 1)
        _, end = decoder.raw_decode(text, start)
        spans[name] = start, end
        at = _skip_space(text, end)
        if text[at] == ",":
            at = _skip_space(text, at + 1)
    return first, spans


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()

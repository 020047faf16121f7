"""JSON, compressed by gzip, as base64 of a limited length. The browser's ``DecompressionStream`` reads it."""

import base64
import json
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence

_GZIP_FORMAT = 31
# A tenth less time for the whole page than level 6, for a tenth more bytes.
_LEVEL = 4
_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def to_json(value: object) -> str:
    """Encode as JSON in ASCII, without spaces."""
    return _encoder.encode(value)


def compressed(text: str) -> str:
    """Compress a text in ASCII, as base64."""
    return base64.b64encode(zlib.compress(text.encode("ascii"), _LEVEL, _GZIP_FORMAT)).decode("ascii")


def first_that_fit(
    values: Iterable[object], room: int, *, share: float = 1, at_least: int = 0
) -> tuple[list[str], int]:
    """Return the first values as JSON texts that fit into a share of the room, and the room that they leave.

    ``room`` is in characters of the values compressed together. ``at_least`` values are returned even if they do not
    fit.
    """
    texts = list(map(to_json, values))

    def length(count: int) -> int:
        return len(compressed(array_of(texts[:count])))

    count = len(texts)
    if length(count) > share * room:
        count = max(bisect_right(range(count), share * room, key=length) - 1, min(at_least, count), 0)
    return texts[:count], max(room - length(count), 0)


def array_of(texts: Sequence[str], count: int = 0) -> str:
    """The array of JSON texts, filled up with null to ``count`` elements."""
    return f"[{','.join((*texts, *('null',) * (count - len(texts))))}]"

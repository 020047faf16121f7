"""The points of a run's series, and how they are kept: a JSON array of arrays, which SQL can read too. Pure."""

from collections.abc import Iterable

import msgspec
from msgspec import Struct


class Point(Struct, frozen=True, kw_only=True, array_like=True):
    """What was used up to ``elapsed_ms`` after the start, since the point before (or the start).

    ``vcpu_used`` is the mean over that step, ``memory_used_bytes`` the most that was seen in it.
    """

    elapsed_ms: int
    vcpu_used: float | None
    memory_used_bytes: int | None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(tuple[Point, ...])


def encode_points(points: Iterable[Point]) -> bytes:
    """``[[1000,0.5,1048576],[2000,null,1048576]]``."""
    return _encoder.encode(tuple(points))


def decode_points(text: bytes) -> tuple[Point, ...]:
    """The points again. Raises ``msgspec.DecodeError`` if the text is none of ours."""
    return _decoder.decode(text)

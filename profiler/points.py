"""The points of a run's series, and how they are kept: a JSON array of arrays, which SQL can read too. Pure."""

from collections.abc import Iterable

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

# Every point is written as far as these; what was added since then is left off where it is not known.
_MIN_ROW_LENGTH = 3


class Point(Struct, frozen=True, kw_only=True, array_like=True):
    """What was used up to ``elapsed_ms`` after the start, since the point before (or the start).

    ``vcpu_used`` is the mean over that step, ``memory_used_bytes`` the most that was seen in it.
    ``block_read_bytes`` and ``block_write_bytes`` are what was read and written since the last
    point that knows it (or the start). ``gpu_percent`` is the mean of what was read of the GPUs
    in the step, ``gpu_memory_bytes`` the most that all of them held together.

    The order of the fields is that of the file: a new one comes last, with None as its default.
    """

    elapsed_ms: int
    vcpu_used: float | None
    memory_used_bytes: int | None
    block_read_bytes: int | None = None
    block_write_bytes: int | None = None
    gpu_percent: float | None = None
    gpu_memory_bytes: int | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(tuple[Point, ...])


def encode_points(points: Iterable[Point]) -> bytes:
    """``[[1000,0.5,1048576],[2000,null,1048576,4096,0]]``."""
    return _encoder.encode([_row(point) for point in points])


def decode_points(text: bytes) -> tuple[Point, ...]:
    """The points again. Raises ``msgspec.DecodeError`` if the text is none of ours."""
    return _decoder.decode(text)


def _row(point: Point) -> tuple[float | int | None, ...]:
    row: tuple[float | int | None, ...] = astuple(point)
    length = len(row)
    while length > _MIN_ROW_LENGTH and row[length - 1] is None:
        length -= 1
    return row[:length]

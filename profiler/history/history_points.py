"""The points of a run's time series in the history, as JSON."""

from collections.abc import Iterable
from functools import cache

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from profiler.aggregation.time_series import RunSeries
from profiler.core.timestamps import NS_PER_MS
from profiler.record.units import VCPU_DIGITS

_GPU_DIGITS = 2
# The fields of the first version are always written. Later fields are omitted from the end while they are None.
_MIN_ROW_LENGTH = 3


class Point(Struct, frozen=True, kw_only=True, array_like=True):
    """The usage in one step, which ends ``elapsed_ms`` after the start of the run.

    ``vcpu_used`` is the mean over the step, ``memory_used_bytes`` the maximum. ``block_read_bytes``
    and ``block_write_bytes`` are the bytes read and written since the last point with a known value (or
    the start). ``gpu_percent`` is the mean utilization of the GPUs in the step, ``gpu_memory_bytes``
    the maximum of the memory used on all GPUs together.

    The fields are stored in this order. A new field comes last, with None as its default.
    """

    elapsed_ms: int
    vcpu_used: float | None
    memory_used_bytes: int | None
    block_read_bytes: int | None = None
    block_write_bytes: int | None = None
    gpu_percent: float | None = None
    gpu_memory_bytes: int | None = None


_encoder = msgspec.json.Encoder()


@cache
def _decoder() -> msgspec.json.Decoder[tuple[Point, ...]]:
    """The decoder, which is slow to make: it is not for the run that is measured."""
    return msgspec.json.Decoder(tuple[Point, ...])


def encode_points(points: Iterable[Point]) -> bytes:
    """Points as JSON, such as ``[[1000,0.5,1048576],[2000,null,1048576,4096,0]]``."""
    return _encoder.encode([_row(point) for point in points])


def decode_points(text: bytes) -> tuple[Point, ...]:
    """Decode points. Raises ``msgspec.DecodeError`` if the text has another format."""
    return _decoder().decode(text)


def _row(point: Point) -> tuple[float | int | None, ...]:
    row: tuple[float | int | None, ...] = astuple(point)
    length = len(row)
    while length > _MIN_ROW_LENGTH and row[length - 1] is None:
        length -= 1
    return row[:length]


def points_of(series: RunSeries, duration_ms: float | None) -> tuple[Point, ...]:
    """The points of a run; the last one ends with the run, if its duration is known."""
    points, before_ms = [], 0.0
    for step in series.steps():
        end_ms = step.end_ns / NS_PER_MS
        known_end_ms = end_ms if duration_ms is None else min(end_ms, max(duration_ms, before_ms))
        gpus_bytes = step.gpus_memory_bytes
        points.append(
            Point(
                elapsed_ms=round(known_end_ms),
                vcpu_used=None if step.vcpu_used is None else round(step.vcpu_used, VCPU_DIGITS),
                memory_used_bytes=step.memory_bytes,
                block_read_bytes=step.block_read_bytes,
                block_write_bytes=step.block_write_bytes,
                gpu_percent=None if step.gpu_percent is None else round(step.gpu_percent, _GPU_DIGITS),
                gpu_memory_bytes=None if gpus_bytes is None else round(gpus_bytes),
            )
        )
        before_ms = end_ms
    return tuple(points)

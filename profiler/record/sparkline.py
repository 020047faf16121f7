"""A time series as one line of text: ``▁▂▅█``, for the terminal and for messages."""

import math
from collections.abc import Sequence
from itertools import pairwise

GAP = " "
"""The character of a part of the series without a measurement."""

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII_BLOCKS = "_.:-=+*#"
# Below this share of the limit, a curve is drawn up to its own peak: else it would be a flat line.
MIN_SHARE_OF_LIMIT = 0.3

# The least top of each curve: what is below it is noise, which must not fill a chart. The report page has both rules,
# too: the page's data carries them.
LEAST_VCPU, LEAST_MB, LEAST_PERCENT = 0.1, 1.0, 10.0


def curve_top(highest: float, limit: float | None, least: float) -> tuple[float, bool]:
    """The value at the top of a curve, and whether it is the limit.

    It is the limit, or the highest value if that is far below the limit, but at least ``least``.
    """
    top = max(highest, least)
    return (float(limit), True) if limit and top >= MIN_SHARE_OF_LIMIT * limit else (top, False)


def sparkline(values: Sequence[float | None], *, width: int, top: float, ascii_only: bool = False) -> str:
    """Draw a series with one character for each value, or for the maximum of several values.

    Args:
        values: The series; None is a gap.
        width: The maximum length. A longer series is divided into ``width`` buckets of almost equal size, and each
            bucket shows its largest value, so that no peak is lost. A shorter series is not stretched.
        top: The value of the highest block, above 0. Values above it are drawn with the highest block.
        ascii_only: Draw with ASCII characters instead of block elements.

    Returns:
        One line of ``min(width, len(values))`` characters. A bucket without any value is ``GAP``.
    """
    length = min(max(width, 0), len(values))
    blocks = _ASCII_BLOCKS if ascii_only else _BLOCKS
    bounds = [bucket * len(values) // length for bucket in range(length + 1)] if length else [0]
    return "".join(_character(values[start:end], blocks, top) for start, end in pairwise(bounds))


def _character(bucket: Sequence[float | None], blocks: str, top: float) -> str:
    measured = [value for value in bucket if value is not None]
    if not measured:
        return GAP
    return blocks[math.floor(min(max(measured) / top, 1) * (len(blocks) - 1) + 0.5)]

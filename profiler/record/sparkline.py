"""A time series as one line of text: ``▁▂▅█``, for the terminal and for messages."""

import math
from collections.abc import Sequence

from profiler.core.optional_math import max_known

GAP = " "
"""The character of a part of the series without a measurement."""

_BLOCKS = "▁▂▃▄▅▆▇█"
# Below this share of the limit, a curve is drawn up to its own peak: else it would be a flat line.
MIN_SHARE_OF_LIMIT = 0.3

# The least top of each curve: what is below it is noise, which must not fill a chart. The report
# page has both rules, too: the page's data carries them.
LEAST_VCPU = 0.1
LEAST_MB = 1.0
LEAST_PERCENT = 10.0


def curve_top(highest: float, limit: float | None, least: float) -> tuple[float, bool]:
    """The top of a curve: the limit or, if that is far above, the highest value; and whether it
    is the limit.
    """
    top = max(highest, least)
    if limit and top >= MIN_SHARE_OF_LIMIT * limit:
        return (float(limit), True)
    return (top, False)


def draw_sparkline(values: Sequence[float | None], *, width: int, top: float) -> str:
    """Draw a series on one line, with one character for each value, at most ``width``; None is a
    gap.

    A longer series is divided into ``width`` buckets of almost equal size, and each bucket shows
    its largest value, so that no peak is lost; one without any value is ``GAP``. Values above
    ``top`` are drawn with the highest block.
    """
    length = min(max(width, 0), len(values))
    line = ""
    for bucket in range(length):
        start = bucket * len(values) // length
        end = (bucket + 1) * len(values) // length
        largest = max_known(*values[start:end])
        if largest is None:
            line += GAP
        else:
            line += _BLOCKS[math.floor(min(largest / top, 1) * (len(_BLOCKS) - 1) + 0.5)]
    return line

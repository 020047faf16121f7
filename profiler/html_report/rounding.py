"""Numbers of the report page: finite, and no longer than a reader sees."""

import math

from profiler.record.record_model import Number

_DIGITS = 3


def round_to(value: Number | None, digits: int = _DIGITS) -> Number | None:
    """Round to ``digits`` decimals. None for None, NaN and infinity."""
    if value is None or not math.isfinite(value):
        return None
    rounded = round(value, digits)
    return int(rounded) if rounded == int(rounded) else rounded

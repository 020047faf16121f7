"""Readings of devices that cannot be true: they count as missing, and are never made possible."""

from profiler.record.units import format_count

_PERCENT = 100.0
# Drivers round, and measure the period of a percentage a little too short.
_MAX_PERCENT = 105.0
_LEAST = -1.0


def possible_percent(value: float) -> float | None:
    """The percentage, from 0 to 100; None if it is outside by more than rounding."""
    known = possible_amount(value, _MAX_PERCENT)
    return None if known is None else min(known, _PERCENT)


def possible_amount(value: float, most: float) -> float | None:
    """An amount that a driver computes, at least 0; None if it is negative by more than rounding,
    or above ``most``.
    """
    return max(float(value), 0.0) if _LEAST <= value <= most else None


def impossible_warning(source: str, impossible: int) -> tuple[str, ...]:
    """The sentence about so many impossible values, if there were any."""
    if not impossible:
        return ()
    return (f"{source} reported {format_count(impossible, 'value')} that cannot be: left out.",)

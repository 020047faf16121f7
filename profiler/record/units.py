"""The record's units, and the texts of durations, sizes and money, which the report page's
``formats.js`` has, too.

All round half up. A share and a number of vCPUs never read 0 if they are not 0, and a share never
reads 100 % if it is less. A browser test compares both languages.
"""

import math
from collections.abc import Callable, Mapping
from typing import Final

from profiler.core.optional_math import difference, known, quotient
from profiler.core.timestamps import MS_PER_HOUR, MS_PER_MINUTE, MS_PER_SECOND, NS_PER_SECOND

MIB = 1024 * 1024
MB_PER_GB = 1024
APPROXIMATELY: Final = "≈ "
VCPU_DIGITS = 5
_MIN_SAVING_PERCENT = 0.5
CPU_SECONDS_DIGITS = 6
_MIN_BILLED_SECONDS = 60
_USD_OF_A_CENT = 0.01
_MAX_MB_WITH_FRACTION = 10
_TEXT_DIGITS = 2
_MAX_DIGITS = 20
_PERCENT = 100
_MANY_PERCENT = 1000


def rounded_number(value: float | None) -> float | None:
    """Round to an int if the value is whole, else to three decimals."""
    if value is None:
        return None
    if float(value).is_integer():
        return int(value)
    return round(value, 3)


def bytes_to_mebibytes(size_bytes: float | None) -> float | None:
    """Convert bytes to the record's MB, which are MiB."""
    return rounded_number(quotient(size_bytes, MIB))


def billed_time_ms(pull_started_ns: int | None, ended_ns: int | None) -> int | None:
    """The time that Fargate bills: from the start of the image pull to the end, in whole
    seconds, at least 60.
    """
    span_ns = difference(ended_ns, pull_started_ns)
    if span_ns is None or span_ns < 0:
        return None
    seconds = -(-span_ns // NS_PER_SECOND)
    return max(seconds, _MIN_BILLED_SECONDS) * 1000


def format_count(count: int, noun: str) -> str:
    """Format as ``1 run``, ``5 runs``, ``2 days``, ``1,200 families`` or ``3 processes``."""
    if noun.endswith("y") and noun[-2:] != "ay":
        plural = f"{noun[:-1]}ies"
    else:
        plural = f"{noun}{'es' if noun.endswith('s') else 's'}"
    return f"{count:,} {noun if count == 1 else plural}"


def format_duration(milliseconds: float) -> str:
    """Format as ``50 ms``, ``9.7 s``, ``1m 05s``, ``3h 12m`` or ``2d 03h``."""
    if (whole_ms := _round_half_up(milliseconds)) < MS_PER_SECOND:
        return f"{whole_ms} ms"
    if (tenths := _round_half_up(milliseconds / 100)) < 60 * 10:
        return f"{tenths / 10:.1f} s"
    if (seconds := _round_half_up(milliseconds / MS_PER_SECOND)) < 60 * 60:
        return f"{seconds // 60}m {seconds % 60:02d}s"
    if (minutes := _round_half_up(milliseconds / MS_PER_MINUTE)) < 24 * 60:
        return f"{minutes // 60}h {minutes % 60:02d}m"
    hours = _round_half_up(milliseconds / MS_PER_HOUR)
    return f"{hours // 24}d {hours % 24:02d}h"


def format_period(milliseconds: float) -> str:
    """Format a time between repetitions as ``10 s`` or ``1.5 s``, from a minute on as a
    duration.
    """
    tenths = _round_half_up(milliseconds / 100)
    return f"{tenths / 10:g} s" if tenths < 60 * 10 else format_duration(milliseconds)


def format_minutes(minutes: float) -> str:
    """Format as ``6 minutes``; less than one as a duration."""
    if minutes < 1:
        return format_duration(MS_PER_MINUTE * minutes)
    return format_count(round(minutes), "minute")


def format_memory(megabytes: float) -> str:
    """Format as ``0.3 MB``, ``512 MB``, ``1.8 GB`` or ``2 GB``, with at most one decimal below
    10 MB and from 1 GB.
    """
    rounded_mb = _round_half_up(megabytes)
    if rounded_mb >= MB_PER_GB:
        return f"{_format_decimal(megabytes / MB_PER_GB, 1)} GB"
    return f"{_format_decimal(megabytes, 1 if megabytes < _MAX_MB_WITH_FRACTION else 0)} MB"


def format_part(part: str, whole: str) -> str:
    """Join two values: ``0.1 of 2 vCPU``, ``300 MB of 2 GB``."""
    unit = f" {whole.rpartition(' ')[2]}"
    return f"{part.removesuffix(unit)} of {whole}"


def format_gpu_hours(hours: float) -> str:
    """Format as ``2.5 idle GPU-hours``, with at most two decimals, or more to show one
    significant digit.
    """
    return f"{_format_decimal(hours, _significant_decimals(hours, _TEXT_DIGITS))} idle GPU-hours"


def format_vcpu(count: float) -> str:
    """Format as ``0.25 vCPU``, with at most two decimals, or more to show one significant digit."""
    return f"{_format_decimal(count, _significant_decimals(count, _TEXT_DIGITS))} vCPU"


def format_bare_vcpu(count: float) -> str:
    """A number of vCPUs in a place whose label gives the unit."""
    return format_vcpu(count).removesuffix(" vCPU")


def format_percent(percent: float) -> str:
    """Format as ``45 %``, ``0.4 %`` or ``0.02 %``: whole from 1 on, below that with one
    significant digit. From 99.5 on and below 100 it is ``99.5 %`` to ``99.9 %``.
    """
    size = abs(percent)
    sign = "-" if percent < 0 else ""
    if _rounds_up_to_all(size):
        return f"{sign}{_almost_all_percent(size)} %"
    digits = 0 if size >= 1 else _significant_decimals(size, 1)
    return f"{sign}{_format_decimal(size, digits)} %"


def format_time_share(percent: float) -> str:
    """Format a share of a run's time: parts that were estimated can come to more than 100 %."""
    return format_percent(min(percent, _PERCENT))


def format_share(part: float | None, whole: float | None) -> str:
    """Format a part in percent of its whole: ``81 %``; "" unless both are known."""
    if part is None or not whole:
        return ""
    return format_percent(_PERCENT * part / whole)


def format_memory_share(used_mb: float | None, size_mb: float | None) -> str:
    """Format memory in percent of its size: ``81 % of 4 GB``; "" unless both are known."""
    if used_mb is None or not size_mb:
        return ""
    return f"{format_share(used_mb, size_mb)} of {format_memory(size_mb)}"


def saving_words(percent: float | None) -> str:
    """A saving in percent: ``saves 35 %``, ``costs 4 % more``; "" if it is unknown, or below half a
    percent.
    """
    if percent is None or abs(percent) < _MIN_SAVING_PERCENT:
        return ""
    if percent > 0:
        return f"saves {format_percent(percent)}"
    return f"costs {format_percent(-percent)} more"


def format_range(least: float, most: float, digits: int = 2) -> str:
    """Format as ``1.31 to 1.62``, with at most ``digits`` decimals, or as one number if both
    read the same.
    """
    first, last = (_format_decimal(value, digits) for value in (least, most))
    return first if first == last else f"{first} to {last}"


def format_task_size(vcpu: float | None, memory_mb: float | None) -> str:
    """Format as ``1 vCPU, 2 GB``; a part that is None is left out."""
    parts = (
        known(format_vcpu, vcpu),
        known(format_memory, memory_mb),
    )
    return ", ".join(filter(None, parts))


def format_usd(usd: float) -> str:
    """Format as ``$1,930.11``, ``-$0.012`` or ``$0.000012``: two decimals, or more to show two
    significant digits.
    """
    digits = _usd_decimals(usd)
    whole, fraction = divmod(_round_half_up(abs(usd), digits), 10**digits)
    return f"{'-' if usd < 0 else ''}${whole:,}.{fraction:0{digits}d}"


def rounded_usd(usd: float) -> float:
    """The amount that :func:`format_usd` writes, as a number."""
    digits = _usd_decimals(usd)
    amount = _round_half_up(abs(usd), digits) / float(f"1e{digits}")
    return -amount if usd < 0 and amount else amount


def _usd_decimals(usd: float) -> int:
    return _significant_decimals(abs(usd), _TEXT_DIGITS, 10)


def format_usd_a_month(usd: float, mark: str = "") -> str:
    """Format an amount a month as ``$4.10``, with the mark of an estimate as ``≈ $4.10``; below a
    cent, which no bill has, as ``<$0.01``: it needs no mark, nor does ``$0.00``.
    """
    if 0 < abs(usd) < _USD_OF_A_CENT:
        return f"{'-' if usd < 0 else ''}<$0.01"
    return f"{mark if usd else ''}{format_usd(usd)}"


def format_change(new: float, old: float, as_text: Callable[[float], str]) -> str:
    """Format the change as ``+10 %``, ``-3 %``, ``12×``, or ``=`` if both values read the same;
    empty if old is 0.
    """
    if as_text(new) == as_text(old):
        return "="
    if old <= 0:
        return ""
    percent = _PERCENT * (new - old) / old
    if percent >= _MANY_PERCENT:
        return f"{_round_half_up(new / old):,}×"
    if 0 < new < old and _rounds_up_to_all(-percent):
        return f"-{_almost_all_percent(-percent)} %"
    rounded = _round_half_up(abs(percent))
    if rounded:
        return f"{'-' if new < old else '+'}{rounded} %"
    return "="


def format_value(value: float, unit: str) -> str:
    """Format a value of the metric catalogue in its unit."""
    if unit in _FORMATS:
        return _FORMATS[unit](value)
    return _format_decimal(value, _TEXT_DIGITS)


_FORMATS: Mapping[str, Callable[[float], str]] = {
    "ms": format_duration,
    "s": lambda value: format_duration(value * MS_PER_SECOND),
    "MB": format_memory,
    "bytes": lambda value: format_memory(value / MIB),
    "%": format_percent,
    "vCPU": format_vcpu,
    "USD": format_usd,
}


def _rounds_up_to_all(percent: float) -> bool:
    """Whether less than 100 % would read ``100 %``. What sums of parts lose by their binary digits
    is not less.
    """
    return _round_half_up(percent) == _PERCENT and _round_half_up(percent, 6) < _PERCENT * 10**6


def _almost_all_percent(percent: float) -> str:
    """``99.5`` to ``99.9``."""
    return f"{min(_round_half_up(percent, 1), 999) / 10:.1f}"


def _significant_decimals(value: float, digits: int, least: int = 1) -> int:
    """The decimals with which a value that is not 0 has as many significant digits as ``least``:
    1 or 10.
    """
    while value > 0 and _round_half_up(value, digits + 1) < 10 * least and digits < _MAX_DIGITS:
        digits += 1
    return digits


def _format_decimal(value: float, digits: int) -> str:
    """Format with at most ``digits`` decimals, without trailing zeros, and a comma between
    thousands.
    """
    scaled = _round_half_up(value, digits)
    text = f"{scaled / 10**digits:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text


def _round_half_up(value: float, digits: int = 0) -> int:
    """Return ``value`` × 10 ** ``digits``, rounded as the page's JavaScript does: Python rounds
    0.5 to 0.
    """
    return math.floor(value * float(f"1e{digits}") + 0.5)

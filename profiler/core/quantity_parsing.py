"""Sizes and times as people write them in options."""

import re

_MB_PER_UNIT = {"m": 1, "mb": 1, "mib": 1, "g": 1024, "gb": 1024, "gib": 1024}
_MS_PER_UNIT = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# The record has no finer values, so that two different values have different exact texts.
_NUMBER = r"(\d{1,9}(?:\.\d{1,3})?)"
_SIZE = re.compile(rf"{_NUMBER} ?([mg](?:i?b)?)", re.ASCII | re.IGNORECASE)
_TIME = re.compile(rf"{_NUMBER} ?(ms|[smhd]) ?", re.ASCII | re.IGNORECASE)
_TIMES = re.compile(rf"(?:{_TIME.pattern})+(?<! )", re.ASCII | re.IGNORECASE)


def parse_memory_mb(text: str) -> float:
    """Parse ``900MB``, ``900m``, ``1.5GiB`` or ``0.9g``: MB are MiB. Raises ValueError, whose
    text is a sentence.
    """
    match = _SIZE.fullmatch(text)
    size_mb = 0.0
    if match:
        size_mb = round(float(match[1]) * _MB_PER_UNIT[match[2].lower()], 3)
    if size_mb <= 0:
        raise ValueError(
            f"{text!r} is not a size above 0: write a number with MB or GB, as in 900MB or 1.5GB."
        )
    return size_mb


def parse_duration_ms(text: str) -> float:
    """Parse ``90s``, ``1h30m``, ``100ms`` or seconds without a unit.

    Raises ValueError, whose text is a sentence.
    """
    duration_ms = duration_ms_or_none(text)
    if not duration_ms:
        raise ValueError(
            f"{text!r} is not a time above 0: write ms, s, m, h or d after numbers, as in 90s or "
            "1h30m."
        )
    return duration_ms


def parse_seconds(text: str) -> float:
    """Parse a time as :func:`parse_duration_ms` does, in seconds."""
    return parse_duration_ms(text) / 1000


def seconds_text(seconds: float) -> str:
    """A time as :func:`parse_seconds` takes it, in its largest unit without a rest: ``20ms``,
    ``1h``.
    """
    milliseconds = round(seconds * 1000)
    for unit, unit_ms in reversed(_MS_PER_UNIT.items()):
        if milliseconds and milliseconds % unit_ms == 0:
            return f"{milliseconds // unit_ms}{unit}"
    return "0s"


def is_number(text: str) -> bool:
    """Whether the text is a number without a unit."""
    return bool(re.fullmatch(_NUMBER, text, re.ASCII))


def parse_percent(text: str) -> float:
    """Parse a number with or without a percent sign.

    Raises ValueError, whose text is a sentence.
    """
    number = text.removesuffix("%").rstrip()
    if not is_number(number):
        raise ValueError(f"{text!r} is not a share: write a number, as in 20 or 20%.")
    return float(number)


def duration_ms_or_none(text: str) -> float | None:
    """The milliseconds of a time as people write it, 0 included; None if the text is not a time."""
    if is_number(text):
        text += "s"
    if not _TIMES.fullmatch(text):
        return None
    return round(
        sum(float(number) * _MS_PER_UNIT[unit.lower()] for number, unit in _TIME.findall(text)), 3
    )

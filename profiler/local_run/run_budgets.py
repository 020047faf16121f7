"""The budgets of ``task-profiler run``: how they are written, and which of them a run has exceeded."""

import re
from collections.abc import Mapping

# The record has no finer values, so that two different values are different in a sentence, too.
_NUMBER_AND_UNIT = re.compile(r"(\d{1,9}(?:\.\d{1,3})?) ?([a-z]*)", re.ASCII | re.IGNORECASE)


def parse_memory_mb(text: str) -> float:
    """Parse ``900MB`` or ``1.5GB``, which are MiB and GiB. Raises ValueError, whose text is a sentence."""
    units = {"mb": 1, "mib": 1, "gb": 1024, "gib": 1024}
    return _parse(text, units, "a size: write a number with MB or GB, as in 900MB or 1.5GB.")


def parse_duration_ms(text: str) -> float:
    """Parse ``90s``, ``10m`` or ``1.5h``. Raises ValueError, whose text is a sentence."""
    units = {"s": 1000, "m": 60_000, "h": 3_600_000}
    return _parse(text, units, "a duration: write a number with s, m or h, as in 90s, 10m or 1.5h.")


def parse_cpu_seconds(text: str) -> float:
    """Parse a number of seconds. Raises ValueError, whose text is a sentence."""
    return _parse(text, {"": 1}, "a number of seconds: write it without a unit, as in 60 or 0.5.")


def _parse(text: str, units: Mapping[str, int], expected: str) -> float:
    found = _NUMBER_AND_UNIT.fullmatch(text)
    factor = None if found is None else units.get(found[2].lower())
    value = 0.0 if found is None or factor is None else round(float(found[1]) * factor, 3)
    if value <= 0:
        raise ValueError(f"{text!r} is not {expected}")
    return value

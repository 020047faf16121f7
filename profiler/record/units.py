"""Numbers as the record shows them: units converted, rounded, None kept None."""

from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.model import Number

MIB = 1024 * 1024
VCPU_DIGITS = 5
CPU_SECONDS_DIGITS = 6
_MIN_BILLED_SECONDS = 60


def as_number(value: float | None) -> Number | None:
    """A whole number without a fraction, any other with at most three digits."""
    if value is None:
        return None
    return int(value) if float(value).is_integer() else round(value, 3)


def mebibytes(size_bytes: float | None) -> Number | None:
    """Bytes as the record's MB (MiB)."""
    return None if size_bytes is None else as_number(size_bytes / MIB)


def span_ms(start_ns: int | None, end_ns: int | None) -> int | None:
    """Milliseconds from one time to another; None if either is unknown or they are reversed."""
    if start_ns is None or end_ns is None or end_ns < start_ns:
        return None
    return (end_ns - start_ns) // 1_000_000


def billed_ms(pull_started_ns: int | None, ended_ns: int | None) -> int | None:
    """Start of the image pull to the end, up to the next whole second, at least a minute: Fargate's rule."""
    if pull_started_ns is None or ended_ns is None or ended_ns < pull_started_ns:
        return None
    seconds = -((pull_started_ns - ended_ns) // NS_PER_SECOND)
    return max(seconds, _MIN_BILLED_SECONDS) * 1000

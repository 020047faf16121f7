"""Classifies the lines of a log stream: reports, invalid reports, and lines of other programs."""

import msgspec
from msgspec import Struct

from profiler.record.model import Report, decode

_TYPES = frozenset({"task.report", "task.checkpoint"})
_TYPE_MARKERS = ('"task.report"', '"task.checkpoint"')
_MAX_REASON_LENGTH = 500


class InvalidReport(Struct, frozen=True):
    """A line that has the type of a report and cannot be decoded as one, and why."""

    reason: str


class _TypedLine(Struct):
    type: object = None


_type_decoder = msgspec.json.Decoder(_TypedLine)


def read_line(message: str) -> Report | InvalidReport | None:
    """Return the report in a line; None for any other line, such as the batch's own output."""
    if not any(marker in message for marker in _TYPE_MARKERS):
        return None
    try:
        line_type = _type_decoder.decode(message).type
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        # A truncated report, or one with NaN. A log line that only quotes a report does not start with a brace.
        return InvalidReport(_reason(error)) if message.lstrip().startswith("{") else None
    if line_type not in _TYPES:
        return None
    try:
        return decode(message)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        return InvalidReport(_reason(error))


def _reason(error: Exception) -> str:
    return f"The line is not a valid report: {error}"[:_MAX_REASON_LENGTH]

"""Sorts the lines of a stream: reports, broken reports, and what other programs wrote."""

import msgspec
from msgspec import Struct

from profiler.record import Report, decode

_TYPES = frozenset({"task.report", "task.checkpoint"})
_TYPE_MARKERS = ('"task.report"', '"task.checkpoint"')
_MAX_REASON_LENGTH = 500


class InvalidReport(Struct, frozen=True):
    """A line that says it is a report and cannot be read as one, and why."""

    reason: str


class _Kind(Struct):
    type: object = None


_kind_decoder = msgspec.json.Decoder(_Kind)


def read_line(message: str) -> Report | InvalidReport | None:
    """The report in a line; None for a line of the batch's own."""
    if not any(mark in message for mark in _TYPE_MARKERS):
        return None
    try:
        kind = _kind_decoder.decode(message).type
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        # Cut or with NaN in it; a log line that only quotes a report does not begin like one.
        return InvalidReport(_reason(error)) if message.lstrip().startswith("{") else None
    if kind not in _TYPES:
        return None
    try:
        return decode(message)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        return InvalidReport(_reason(error))


def _reason(error: Exception) -> str:
    return f"The line is no valid report: {error}"[:_MAX_REASON_LENGTH]

"""Classifies the lines of a log stream: reports, notices, invalid ones, and lines of other
programs.
"""

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec import Struct

from profiler.core.optional_math import any_known
from profiler.record.impossible_values import decode_leniently, is_too_long
from profiler.record.notice_model import NoticeLine, ScheduleNoticeLine, decode_notice_json
from profiler.record.record_model import Report, decode
from profiler.record.stacks_line import is_stacks_line

# In JSON: a search for these skips the lines of other programs.
_REPORTS = ('"task.report"', '"task.checkpoint"')
_NOTICES = ('"task.notice"',)
_SURROGATE_MARKERS = ("\\ud", "\\uD")
# Each escape of a JSON text; the group is a surrogate that is not half of a pair.
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)

_Line = TypeVar("_Line")


class InvalidReport(Struct, frozen=True):
    """A line that has the type of a report and cannot be decoded as one, and why."""

    reason: str


class _TypedLine(Struct):
    type: object = None


def replace_lone_surrogates(json_text: str) -> str:
    """Replace each escaped surrogate that is not half of a pair by U+FFFD, because no UTF-8 text
    can contain it.
    """
    if "\\" not in json_text:  # the case of most lines; far faster than the search for a marker
        return json_text
    if not any(marker in json_text for marker in _SURROGATE_MARKERS):
        return json_text
    return _ESCAPE.sub(lambda escape: "\\ufffd" if escape.group(1) else escape.group(), json_text)


def decode_report_line(message: str) -> Report | InvalidReport | None:
    """Return the report in a line; None for any other line, such as the batch's own output."""
    return _decode_typed_line(message, _REPORTS, decode, "report")


def decode_notice_line(message: str) -> NoticeLine | InvalidReport | None:
    """Return the notice of a running task in a line; None for any other line."""
    notice = _decode_typed_line(message, _NOTICES, decode_notice_json, "notice")
    return None if isinstance(notice, ScheduleNoticeLine) else notice


def is_profiler_line(message: str) -> bool:
    """Whether Task Profiler has written the line: a report, also as text, a notice, or stacks.

    A batch that is wrapped by ``run`` can print its report as one line of text.
    """
    is_own = any_known(decode_report_line(message), decode_notice_line(message))
    return is_own or contains_call_stacks(message) or message.startswith("REPORT TaskId: ")


def _decode_typed_line(
    message: str, types: tuple[str, ...], decode_line: Callable[[str], _Line], what: str
) -> _Line | InvalidReport | None:
    """Decode a line if it has one of the types; None if not."""
    if not any(map(message.__contains__, types)):
        return None
    message = replace_lone_surrogates(message)
    if is_too_long(message):
        reason = f"The line is no {what} of a monitor: it is longer than 64 KiB."
    else:
        try:
            return decode_line(message)  # nearly all lines, which this alone decodes
        except (msgspec.DecodeError, UnicodeError) as error:
            reason = _invalid_line_reason(error, what)
    try:
        line_type = decode_leniently(_TypedLine, message).type
    except (msgspec.DecodeError, UnicodeError) as error:
        # A truncated report. A log line that only quotes a report does not start with a brace.
        if message.lstrip().startswith("{"):
            return InvalidReport(_invalid_line_reason(error, what))
        return None
    return InvalidReport(reason) if f'"{line_type}"' in types else None


def contains_call_stacks(message: str) -> bool:
    """Whether a line has the call stacks of a run: up to 200 KB that are neither indexed nor
    shown.
    """
    head = message[:1024]
    return head.lstrip().startswith("{") and is_stacks_line(head.encode(errors="replace"))


def _invalid_line_reason(error: Exception, what: str) -> str:
    return f"The line is not a valid {what}: {error}"[:500]

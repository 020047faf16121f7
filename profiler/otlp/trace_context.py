"""The ids of a run's trace and spans, and the parent from a W3C ``traceparent``."""

import re
from collections.abc import Mapping
from hashlib import sha256

from msgspec import Struct

_TRACE_BYTES, _SPAN_BYTES = 16, 8
# https://www.w3.org/TR/trace-context/: a later version may append fields; version ff is invalid.
_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_NAME = "traceparent"


class SpanParent(Struct, frozen=True, kw_only=True):
    """The span that started the run, in hexadecimal digits, and its trace flags."""

    trace_id: str
    span_id: str
    flags: int


def trace_id(task_id: str) -> str:
    """The trace id of a run without a parent: the same for every export of the task."""
    return _digest("trace", task_id, _TRACE_BYTES)


def span_id(task_id: str, span: str) -> str:
    """The id of one of the run's spans: the same for every export of the task."""
    return _digest(f"span/{span}", task_id, _SPAN_BYTES)


def find_parent(*labels: Mapping[str, str] | None) -> SpanParent | None:
    """The parent in the first of the maps that has a valid ``TRACEPARENT``, in any letter case."""
    for values in labels:
        for name, value in (values or {}).items():
            parent = parse_traceparent(value) if name.lower() == _NAME else None
            if parent is not None:
                return parent
    return None


def parse_traceparent(text: str) -> SpanParent | None:
    """The parent that a ``traceparent`` names; None if it is not valid."""
    match = _TRACEPARENT.fullmatch(text.strip())
    if match is None:
        return None
    version, trace, span, flags, rest = match.groups()
    if (version == "00" and rest is not None) or not int(trace, 16) or not int(span, 16):
        return None
    return SpanParent(trace_id=trace, span_id=span, flags=int(flags, 16))


def _digest(purpose: str, task_id: str, length: int) -> str:
    digest = sha256(f"task-profiler/{purpose}/{task_id}".encode(errors="replace")).digest()[:length]
    return (digest if any(digest) else b"\1" * length).hex()  # an id of zeros is invalid

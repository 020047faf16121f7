"""Points in time: RFC 3339 text at the edges, integer nanoseconds since 1970 inside.

Docker and ECS print 0 to 9 fractional digits; ``datetime`` holds six, so the fraction is read
apart from the rest.
"""

import re
from datetime import UTC, datetime

NS_PER_MS = 1_000_000
NS_PER_SECOND = 1_000_000_000

_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(?:\.(\d{1,18}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def parse_ns(text: object) -> int | None:
    """Nanoseconds since 1970 of an RFC 3339 time, or None if ``text`` is none.

    Year 1, which Docker writes for "never", counts as none, and so does any time before 1970.
    """
    match = _RFC3339.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    seconds_text, fraction, offset = match.groups()
    try:
        moment = datetime.fromisoformat(seconds_text + ("+00:00" if offset in "Zz" else offset))
        whole_seconds = int(moment.timestamp())
    except (ValueError, OverflowError):
        return None
    if whole_seconds <= 0:
        return None
    return whole_seconds * NS_PER_SECOND + int((fraction or "0").ljust(9, "0")[:9])


def format_ms(moment_ns: int) -> str:
    """RFC 3339 in UTC with milliseconds, as Lambda prints ``time``."""
    seconds, rest_ns = divmod(moment_ns, NS_PER_SECOND)
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest_ns // NS_PER_MS:03d}Z"

"""RFC 3339 times of a record."""

from datetime import UTC, datetime, timedelta


def parse_time(text: str | None) -> datetime | None:
    """The moment in UTC, None if ``text`` is none."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment.tzinfo is not None else None


def subtract_ms(moment: datetime, milliseconds: float | None) -> datetime:
    """The moment so many milliseconds before."""
    try:
        return moment - timedelta(milliseconds=milliseconds or 0)
    except OverflowError:
        return moment

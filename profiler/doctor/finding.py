"""One thing that was found."""

from typing import Literal

from msgspec import Struct

Level = Literal["ok", "note", "problem"]


class Finding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``note``: works, but could be better; ``problem``: there will be no report, or a poor one.

    ``text`` says what is, ``advice`` what to change.
    """

    topic: str
    level: Level
    text: str
    advice: str | None = None


def ok(topic: str, text: str) -> Finding:
    """Nothing to do."""
    return Finding(topic=topic, level="ok", text=text)


def note(topic: str, text: str, advice: str | None = None) -> Finding:
    """Something to know."""
    return Finding(topic=topic, level="note", text=text, advice=advice)


def problem(topic: str, text: str, advice: str) -> Finding:
    """Something to change."""
    return Finding(topic=topic, level="problem", text=text, advice=advice)

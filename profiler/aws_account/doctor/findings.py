"""The result of a check of ``task-profiler doctor``."""

from typing import Literal

from msgspec import Struct

Level = Literal["ok", "note", "problem"]


class Finding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fact, and the change to make.

    Level ``problem``: there will be no report, or an incomplete one.
    """

    topic: str
    level: Level
    text: str
    advice: str | None = None


def ok(topic: str, text: str) -> Finding:
    """A finding that requires no change."""
    return Finding(topic=topic, level="ok", text=text)


def note(topic: str, text: str, advice: str | None = None) -> Finding:
    """A finding to know about."""
    return Finding(topic=topic, level="note", text=text, advice=advice)


def problem(topic: str, text: str, advice: str | None = None) -> Finding:
    """A finding that requires a change."""
    return Finding(topic=topic, level="problem", text=text, advice=advice)

"""Slack's blocks of a message: texts within Slack's limits; external text is sanitized and escaped."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from profiler.core.text import on_one_line

JsonObject = dict[str, Any]

ELLIPSIS = "…"
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_FIRST_SUPPLEMENTARY = "\U00010000"
# Slack's limits; Slack refuses a longer message (invalid_blocks).
MAX_HEADER_LENGTH = 150
MAX_SECTION_LENGTH = 3000
MAX_URL_LENGTH = 3000
# Limits for readability.
MAX_NAME_LENGTH = 120
MAX_SENTENCE_LENGTH = 400
MAX_VALUE_LENGTH = 60
_TAB_WIDTH = 4
_BUTTONS = {"log_stream": "Log stream", "ecs_task": "ECS task", "kibana": "Kibana"}
# A text is truncated to this length before it is sanitized, which bounds the time for it.
_MAX_INPUT_LENGTH = 20_000


class SlackMessage(Struct, frozen=True, kw_only=True):
    """What is sent to Slack. Notifications and screen readers use ``text`` instead of the blocks."""

    text: str
    blocks: list[JsonObject]


def escape_text(text: str, max_length: int) -> str:
    """Return ``text`` on one line, escaped, truncated to ``max_length`` UTF-16 units, but never within an entity."""
    return _cut(" ".join(on_one_line(text[:_MAX_INPUT_LENGTH]).split()), max_length)


def code_line(text: str, max_length: int) -> str:
    """Return one line for a code block, with its indentation, escaped and truncated as by ``escape_text``.

    A backtick, three of which would end the block, becomes an apostrophe.
    """
    return _cut(on_one_line(text[:_MAX_INPUT_LENGTH].expandtabs(_TAB_WIDTH)).rstrip().replace("`", "'"), max_length)


def _cut(clean: str, max_length: int) -> str:
    """Return the printable text escaped, truncated to ``max_length`` UTF-16 units, but never within an entity."""
    if _escaped_length(clean) <= max_length:
        return clean.translate(_ESCAPES)
    left = max_length - len(ELLIPSIS)
    for end, character in enumerate(clean):
        left -= _escaped_length(character)
        if left < 0:
            return clean[:end].rstrip().translate(_ESCAPES) + ELLIPSIS
    return clean.translate(_ESCAPES)


def plain_text(text: str) -> JsonObject:
    """Return a text object without formatting; ``:words:`` do not become emoji."""
    return {"type": "plain_text", "text": text, "emoji": False}


def mrkdwn(text: str) -> JsonObject:
    """Return a text object with formatting, in which Slack does not turn addresses and names into links."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def utf16_length(text: str) -> int:
    """Return the length in UTF-16 units. Slack's unit is not documented; this is the larger of the two possible."""
    return len(text) + sum(character >= _FIRST_SUPPLEMENTARY for character in text)


def _escaped_length(text: str) -> int:
    """Return the length in UTF-16 units after escaping."""
    return utf16_length(text.translate(_ESCAPES))


def buttons(links: Mapping[str, str | None]) -> JsonObject | None:
    """Return a button for each known address; the names are those of ``links_of``."""
    elements = [
        {"type": "button", "action_id": action, "text": plain_text(_BUTTONS[action]), "url": url}
        for action, url in links.items()
        if url is not None and len(url) <= MAX_URL_LENGTH
    ]
    return {"type": "actions", "elements": elements} if elements else None


def section(lines: Iterable[str], *, formatted: bool = False) -> JsonObject | None:
    """Return a section with the lines that are not empty; a line that does not fit is left out."""
    text = ""
    for line in lines:
        longer = f"{text}\n{line}" if text and line else text + line
        if utf16_length(longer) <= MAX_SECTION_LENGTH:
            text = longer
    if not text:
        return None
    return {"type": "section", "text": mrkdwn(text) if formatted else plain_text(text)}


def value_fields(named: Iterable[tuple[str, str | None]]) -> JsonObject | None:
    """Return a section with the values that are known, each below its name."""
    fields = [mrkdwn(f"*{name}*\n{short(value)}") for name, value in named if value]
    return {"type": "section", "fields": fields} if fields else None


def names_in_a_row(named: Iterable[tuple[str, str | None]]) -> str:
    """Return the names of things that are known, each after what it is the name of."""
    texts = ((name, escape_text(value or "", MAX_NAME_LENGTH)) for name, value in named)
    return "  ·  ".join(f"{name} {text}".strip() for name, text in texts if text)


def context(text: str) -> JsonObject | None:
    """Return a context block; None without text."""
    return {"type": "context", "elements": [plain_text(text)]} if text else None


def short(value: str | None) -> str:
    """Return a value for a field, escaped and truncated."""
    return escape_text(value or "", MAX_VALUE_LENGTH)

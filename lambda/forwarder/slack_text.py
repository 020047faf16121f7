"""Foreign text for Slack: cleaned and cut first, then escaped. Also the block kit's text objects. Pure.

Text from outside (names, ECS's words) only ever goes into ``plain_text`` objects, in which Slack
knows no mentions, links or formatting; ``mrkdwn`` objects hold this program's own words and numbers.
The three characters that Slack reads as markup are escaped in both.
"""

from typing import Any

JsonObject = dict[str, Any]

ELLIPSIS = "…"
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
# More is never looked at: a text that is longer is cut anyway.
_MAX_INPUT_LENGTH = 20_000
_FIRST_SUPPLEMENTARY = "\U00010000"


def escape_text(text: str, max_length: int) -> str:
    """``text`` on one line, escaped, at most ``max_length`` characters as Slack counts; never half an entity."""
    clean = " ".join(sanitize(text[:_MAX_INPUT_LENGTH]).split())
    if _escaped_length(clean) <= max_length:
        return clean.translate(_ESCAPES)
    left = max_length - len(ELLIPSIS)
    for end, character in enumerate(clean):
        left -= _escaped_length(character)
        if left < 0:
            return clean[:end].rstrip().translate(_ESCAPES) + ELLIPSIS
    return clean.translate(_ESCAPES)


def sanitize(text: str) -> str:
    """Without lone surrogates, which UTF-8 cannot hold, and with blanks for what cannot be printed."""
    whole = text.encode("utf-8", "replace").decode()
    return "".join(character if character.isprintable() else " " for character in whole)


def plain_text(text: str) -> JsonObject:
    """A text without formatting; ``:words:`` in it stay words."""
    return {"type": "plain_text", "text": text, "emoji": False}


def mrkdwn(text: str) -> JsonObject:
    """A text with formatting, in which Slack finds no links and names by itself."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def utf16_length(text: str) -> int:
    """Its length in UTF-16 units: the larger of the ways in which Slack might count."""
    return len(text) + sum(character >= _FIRST_SUPPLEMENTARY for character in text)


def _escaped_length(text: str) -> int:
    """Its width once escaped."""
    return utf16_length(text.translate(_ESCAPES))

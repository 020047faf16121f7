"""Texts that a template of EventBridge can embed: it inserts them as they are, without an escape.

So a text has no quotation mark, backslash or control character, which would end or break the JSON
string around it. Markdown, which Teams and others draw, cannot be escaped by a backslash then, and
Slack's has no escape: its characters are replaced by others that look alike.
"""

import re

from profiler.core.text import first_whole_letters, on_one_line

# Other control characters become spaces.
_ESCAPED_IN_JSON = str.maketrans({'"': "'", "\\": "/"})
_WITHOUT_LINKS = str.maketrans(
    {
        "[": "\N{FULLWIDTH LEFT SQUARE BRACKET}",
        "]": "\N{FULLWIDTH RIGHT SQUARE BRACKET}",
        "<": "\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}",
        ">": "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}",
        "|": "\N{BROKEN BAR}",
    }
)
# Some readers make a link of an address without any Markdown.
_ADDRESS = re.compile(r"(?<=:)//|(?<=\bwww)\.", re.IGNORECASE)
_IN_ADDRESS = {"//": "\N{DIVISION SLASH}" * 2, ".": "\N{FULLWIDTH FULL STOP}"}
# Within a word, such as nightly_etl, "_" is a character like any other. A "*" behind a space ends
# no emphasis, and no other is left to end one: so an expression of cron can be copied.
_EMPHASIS = re.compile(r"(?<!\s)\*|\*(?![\s)])|[~`]")
# One that begins a stress needs one behind it that ends it: a name such as _nightly has one alone.
_BEGINS_STRESS = re.compile(r"(?<!\w)_+(?=[^\s_])")
_ENDS_STRESS = re.compile(r"(?<=[^\s_])_+(?!\w)")
_AT_EDGES = re.compile(r"(?<!\w)_+|_+(?!\w)")
_UNEMPHATIC = str.maketrans(
    {
        "*": "\N{ASTERISK OPERATOR}",
        "~": "\N{TILDE OPERATOR}",
        "`": "'",
        "_": "\N{FULLWIDTH LOW LINE}",
    }
)
_HEADING = re.compile(r"^\s*#")


def embeddable_text(text: str, max_length: int) -> str:
    """The text on one line, and without the characters that need an escape in JSON.

    It has at most ``max_length`` characters and twice as many bytes: an event is limited in bytes.
    """
    line = on_one_line(first_whole_letters(text, max_length).translate(_ESCAPED_IN_JSON)).strip()
    return line.encode(errors="replace")[: 2 * max_length].decode(errors="ignore")


def without_emphasis(text: str) -> str:
    """The text without what Markdown, Slack's too, draws bold, in italics, struck or as code."""
    plain = _EMPHASIS.sub(_replace_emphasis, text)
    begun = _BEGINS_STRESS.search(plain)
    if begun is None or _ENDS_STRESS.search(plain, begun.end()) is None:
        return plain
    return _AT_EDGES.sub(_replace_emphasis, plain)


def _replace_emphasis(found: re.Match[str]) -> str:
    return found[0].translate(_UNEMPHATIC)


def markdown_escaped(text: str) -> str:
    """The text as Markdown that shows the same: no link, no emphasis, no heading."""
    plain = without_emphasis(text.translate(_WITHOUT_LINKS))
    plain = _HEADING.sub("\N{FULLWIDTH NUMBER SIGN}", plain)
    return _ADDRESS.sub(lambda found: _IN_ADDRESS[found[0]], plain)

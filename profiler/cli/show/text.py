"""Lines of styled text for a terminal. rich is not needed for them, and its import takes longer than the command."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from profiler.cli.output import printable
from profiler.record.units import format_count

INDENT = "  "
_RESET = "\x1b[0m"
_CODES: Mapping[str, str] = {
    "bold": "\x1b[1m",
    "dim": "\x1b[2m",
    "good": "\x1b[1;32m",
    "bad": "\x1b[1;31m",
    "warning": "\x1b[1;33m",
    "neutral": "\x1b[1;36m",
    "red": "\x1b[31m",
    "green": "\x1b[32m",
    "yellow": "\x1b[33m",
}


class Glyphs(Struct, frozen=True, kw_only=True):
    """The characters of bars and lines: block elements, or ASCII where the encoding has no block elements."""

    average: str = "█"
    p95: str = "▓"
    peak: str = "░"
    rest: str = "·"
    limit: str = "▔"
    dot: str = "●"
    separator: str = " · "
    arrow: str = "→"
    at_least: str = "≥"
    times: str = "×"
    ellipsis: str = "…"
    is_ascii: bool = False


BLOCKS = Glyphs()
ASCII = Glyphs(
    average="#",
    p95="=",
    peak="-",
    rest=".",
    limit="^",
    dot="*",
    separator=", ",
    arrow="->",
    at_least=">",
    times="x",
    ellipsis="...",
    is_ascii=True,
)


class Span(Struct, frozen=True):
    """A text in one style; "" is the terminal's own style."""

    text: str
    style: str = ""


Line = tuple[Span, ...]
EMPTY: Line = ()


def line(*parts: str | Span) -> Line:
    """Build a line. Characters that a terminal would act on are escaped."""
    spans = (Span(part) if isinstance(part, str) else part for part in parts)
    return tuple(Span(printable(span.text), span.style) for span in spans if span.text)


def wrapped(text: str, width: int, *, first: str = INDENT, style: str = "") -> tuple[Line, ...]:
    """Wrap a text to lines. Later lines are indented as far as the text of the first line."""
    rows = textwrap.wrap(printable(text), max(width - len(first), 20), break_long_words=False, break_on_hyphens=False)
    return tuple(line(first if number == 0 else " " * len(first), Span(row, style)) for number, row in enumerate(rows))


def shorten(text: str, width: int, glyphs: Glyphs) -> str:
    """Cut a text that is too long."""
    return text if len(text) <= width else text[: max(width - len(glyphs.ellipsis), 0)] + glyphs.ellipsis


def render_lines(lines: Iterable[Sequence[Span]], *, is_coloured: bool, encoding: str) -> bytes:
    """Render the lines, with colours if wanted."""
    rows = []
    for spans in lines:
        row = "".join(
            f"{_CODES[span.style]}{span.text}{_RESET}" if is_coloured and span.style else span.text for span in spans
        )
        rows.append(row.rstrip() + "\n")
    return "".join(rows).encode(encoding, errors="backslashreplace")


class Section(Struct, frozen=True, kw_only=True):
    """Lines that belong together.

    Attributes:
        lines: The lines, the most important ones first.
        rank: If the page is too long, the sections with the highest rank lose their last lines first.
        min_lines: How many lines are left at least, or none.
    """

    lines: tuple[Line, ...]
    rank: int = 0
    min_lines: int = 1


def arrange(sections: Sequence[Section], max_lines: int) -> list[Line]:
    """Put the sections below each other, with an empty line between them, in at most ``max_lines`` lines.

    If lines were left out, the last line says how many.
    """
    shown = [section for section in sections if section.lines]
    count = sum(len(section.lines) for section in shown)
    if _height(shown) <= max_lines:
        return _joined(shown)
    while shown and _height(shown) > max_lines - 1:
        last = max(range(len(shown)), key=lambda number: (shown[number].rank, number))
        section = shown[last]
        if len(section.lines) > section.min_lines:
            shown[last] = Section(lines=section.lines[:-1], rank=section.rank, min_lines=section.min_lines)
        else:
            del shown[last]
    left_out = count - sum(len(section.lines) for section in shown)
    return [*_joined(shown), line(Span(f"{INDENT}{format_count(left_out, 'line')} left out: --json has all.", "dim"))]


def _joined(sections: Sequence[Section]) -> list[Line]:
    lines: list[Line] = []
    for section in sections:
        lines += [EMPTY, *section.lines] if lines else section.lines
    return lines


def _height(sections: Sequence[Section]) -> int:
    return sum(len(section.lines) for section in sections) + max(len(sections) - 1, 0)

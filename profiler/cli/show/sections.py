"""Sections of a page, cut to a number of lines."""

from collections.abc import Sequence

from msgspec import Struct

from profiler.cli.styled_text import EMPTY, INDENT, Line, Span, line
from profiler.record.units import format_count


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
    return [
        *_joined(shown),
        line(Span(f"{INDENT}{format_count(left_out, 'line')} omitted: --json prints everything.", "dim")),
    ]


def _joined(sections: Sequence[Section]) -> list[Line]:
    lines: list[Line] = []
    for section in sections:
        lines += [EMPTY, *section.lines] if lines else section.lines
    return lines


def _height(sections: Sequence[Section]) -> int:
    return sum(len(section.lines) for section in sections) + max(len(sections) - 1, 0)

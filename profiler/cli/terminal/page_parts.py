"""What the pages of a run share: texts after their labels, and the choice of lines that fit."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from profiler.cli.styled_text import INDENT, Line, Span, with_empty_lines_between, wrapped_lines
from profiler.record.units import format_count

MAX_WIDTH = 120
LABEL_WIDTH = 9


class View(Struct, frozen=True, kw_only=True):
    """The settings of a page: the width of the terminal, the time now, and whether lines of the
    log follow.
    """

    width: int
    now_ns: int
    reads_log: bool = False


class PageText(Struct, frozen=True):
    """A text of a page, which is wrapped when the page is drawn; "" has no line.

    ``first`` begins the first line, and indents the others.
    """

    first: Span
    text: str
    style: str = ""


Part = PageText | Line
"""A text of any length, or a line that fits."""

Section = tuple[int, Iterable[Part]]
"""A rank, and parts that belong together. Of a page that is too long, the highest ranks are left
out first.
"""


def label_span(name: str, style: str = "dim", width: int = LABEL_WIDTH) -> Span:
    """The beginning of a line: a name, or as much space."""
    return Span(f"{INDENT}{name:<{width}}", style)


def indented(text: str, style: str = "") -> PageText:
    """A text without a label."""
    return PageText(Span(INDENT), text, style)


def labelled_once(name: str, texts: Iterable[str]) -> Iterator[PageText]:
    """Texts below each other, the first one after the label."""
    for text in texts:
        if text:
            yield PageText(label_span(name), text)
            name = ""


def fit_sections(sections: Iterable[Section], width: int, max_lines: int) -> list[Line]:
    """Put the sections below each other, in at most ``max_lines`` lines.

    A section loses its last lines first.
    """
    ranked = [(rank, drawn_lines(parts, width)) for rank, parts in sections]
    shown = [lines for _, lines in ranked]
    if len(with_empty_lines_between(shown)) <= max_lines:
        return with_empty_lines_between(shown)
    left_out = 0
    by_rank = sorted(ranked, key=lambda section: section[0])
    for _, lines in reversed(by_rank):
        while lines and len(with_empty_lines_between(shown)) >= max_lines:
            lines.pop()
            left_out += 1
    omitted = f"{INDENT}{format_count(left_out, 'line')} omitted: --json prints everything."
    return [
        *with_empty_lines_between(shown),
        *wrapped_lines(omitted.strip(), width, INDENT, style="dim"),
    ]


def drawn_lines(parts: Iterable[Part], width: int) -> list[Line]:
    """The lines of the parts, with the texts wrapped."""
    lines: list[Line] = []
    for part in parts:
        if isinstance(part, PageText):
            lines += wrapped_lines(part.text, width, part.first, style=part.style)
        else:
            lines.append(part)
    return lines

"""Lines and tables of styled text for a terminal."""

import os
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from msgspec import Struct

from profiler.cli.printing import (
    STDOUT,
    encoded,
    stdout_encoding,
    terminal_columns,
    without_commands,
    write_out,
)
from profiler.core.text import columns_of, printable

INDENT = "  "
_MIN_COLUMN_WIDTH = 8
_MIN_CUT_WIDTH = 12
# On a narrower terminal, a table that does not fit has its cells below each other.
MIN_COLUMNS = 80
_UNLIMITED = 10_000
# A sentence about more families or runs names these, and counts the others.
MAX_NAMES = 3
# Textwrap does not wrap at this character, and printable() removes it from texts.
_NO_BREAK = "\N{NO-BREAK SPACE}"
# While textwrap counts characters, it follows one that takes two columns; printable() removes it.
_FILLER = "\ue000"
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:[kMGT]?B|vCPU|ms|s)\b|%)")
RESET = "\x1b[0m"
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
    "blue": "\x1b[94m",
    "magenta": "\x1b[35m",
    "cyan": "\x1b[36m",
    "pink": "\x1b[95m",
    "bright red": "\x1b[91m",
    "grey": "\x1b[90m",
}

# As in the report page: red is a failure, dark red a kill.
OUTCOME_STYLES: Mapping[str, str] = {
    "success": "green",
    "failure": "bright red",
    "out of memory": "red",
    "stopped": "grey",
    "unknown": "yellow",
}


class Span(Struct, frozen=True):
    """A text in one style; "" is the terminal's own style."""

    text: str
    style: str = ""


Line = tuple[Span, ...]
EMPTY: Line = ()


def line(*parts: str | Span) -> Line:
    """Build a line. Characters that a terminal would act on are escaped."""
    return tuple(span for span in _printable_spans(parts) if span.text)


def _printable_spans(parts: Iterable[str | Span]) -> Iterator[Span]:
    for part in parts:
        if isinstance(part, str):
            yield Span(printable(part))
        else:
            yield Span(printable(part.text), part.style)


def length(spans: Iterable[Span]) -> int:
    """The number of columns."""
    return sum(columns_of(span.text) for span in spans)


def wrapped(text: str, width: int | None, *first: str | Span, style: str = "") -> tuple[Line, ...]:
    """Wrap a text to lines of ``width``, None: one line.

    ``first`` begins the first line, and indents the others.
    """
    joined = _BEFORE_UNIT.sub(_NO_BREAK, printable(text))
    start = line(*first)
    indent = Span(" " * length(start))
    room = max((width or _UNLIMITED) - len(indent.text), 20)
    rows = _wrap(joined, textwrap.TextWrapper(room, break_long_words=False, break_on_hyphens=False))
    lines = []
    for row in rows:
        lines.append(line(*start, Span(row.replace(_NO_BREAK, " "), style)))
        start = (indent,)
    return tuple(lines)


def _wrap(text: str, wrapper: textwrap.TextWrapper) -> list[str]:
    filled = "".join(character + _FILLER * (columns_of(character) - 1) for character in text)
    return [row.replace(_FILLER, "") for row in wrapper.wrap(filled)]


def separated(parts: Iterable[Iterable[Line]]) -> list[Line]:
    """The parts below each other, with an empty line between them; one without lines is left
    out.
    """
    lines: list[Line] = []
    for part in map(tuple, parts):
        if lines and part:
            lines.append(EMPTY)
        lines += part
    return lines


def sentences_about(named: Iterable[tuple[str, str, str]], width: int | None) -> Iterator[Line]:
    """Each sentence once, after its names, below an empty line; ``named``: name, sentence,
    style.
    """
    concerned: dict[tuple[str, str], list[str]] = {}
    for name, sentence, style in named:
        concerned.setdefault((sentence, style), []).append(name)
    if concerned:
        yield EMPTY
    for (sentence, style), names in concerned.items():
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        yield from wrapped(
            f"{', '.join(names[:MAX_NAMES])}{more}: {sentence}", width, "- ", style=style
        )


def shorten(text: str, width: int) -> str:
    """Cut a text that is too long."""
    if columns_of(text) <= width:
        return text
    room = max(width - 1, 0)
    shown = text[:room]
    while columns_of(shown) > room:
        shown = shown[:-1]
    return shown + "…"


def shorten_name(text: str, width: int) -> str:
    """Cut the middle of a name that is too long: the names of a workflow's families begin alike."""
    if columns_of(text) <= width:
        return text
    most = 2 * width // 3
    end = text[-most:] if most else ""
    while columns_of(end) > most:
        end = end[1:]
    return shorten(text, width - columns_of(end)) + end


def render_lines(lines: Iterable[Sequence[Span]], *, is_coloured: bool, encoding: str) -> bytes:
    """Encode the lines, with or without colours."""
    rows = []
    for spans in lines:
        row = ""
        for span in spans:
            if is_coloured and span.style:
                row += f"{_CODES[span.style]}{span.text}{RESET}"
            else:
                row += span.text
        rows.append(without_commands(row.rstrip()) + "\n")
    return encoded("".join(rows), encoding)


def write_lines(lines: Iterable[Line], descriptor: int = STDOUT) -> None:
    """Write lines to standard output or standard error, with colours on a terminal.

    NO_COLOR and FORCE_COLOR count.
    """
    write_out(
        render_lines(lines, is_coloured=shows_colours(descriptor), encoding=stdout_encoding()),
        descriptor,
    )


def write_paragraph(sentence: str) -> None:
    """Write a sentence to standard output, below an empty line."""
    write_lines([EMPTY, *wrapped(sentence, terminal_columns())])


def shows_colours(descriptor: int = STDOUT) -> bool:
    """Whether standard output, or standard error, takes colours."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (
        os.isatty(descriptor) and os.environ.get("TERM") != "dumb"
    )


def table_width() -> int | None:
    """The width of a table in columns: the terminal's width; None in a pipe."""
    return terminal_columns()


class Column(Struct, frozen=True):
    """A column of a table.

    A text that is too long continues on the next line (``folds``), or is cut (``is_cut``),
    a name in its middle (``is_name``).

    Without room for all columns, the one with the highest ``rank`` is left out first; 0: never.
    """

    title: str
    is_right: bool = False
    folds: bool = False
    is_cut: bool = False
    is_name: bool = False
    rank: int = 0


def folding(*titles: str) -> list[Column]:
    """Columns with these titles that fold."""
    return [Column(title, folds=True) for title in titles]


def table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[str | Span]],
    *,
    gap: int = 2,
    width: int | None = None,
) -> list[Line]:
    """Align the cells in columns, with ``gap`` spaces between them, below their titles.

    Only columns that fold or are cut become narrower than their texts to fit into ``width``; None:
    no limit. Where words would be broken at less than 80 columns, the cells of a row are below each
    other, each after its title.
    """
    titles = [Span(column.title, "bold") for column in columns]
    cells = [[*_printable_spans(row)] for row in (titles, *rows)]
    widths = [0] * len(columns)
    for row in cells:
        for place, cell in enumerate(row):
            widths[place] = max(widths[place], columns_of(cell.text))
    if width is not None:
        needed = _needed(columns, widths, gap, width)
        columns = [columns[place] for place in needed]
        widths = [widths[place] for place in needed]
        cells = [[*map(row.__getitem__, needed)] for row in cells]
        longest_words = []
        for place, column in enumerate(columns):
            if column.is_cut:
                longest_words.append(_MIN_CUT_WIDTH)
            else:
                longest_words.append(_longest_word(row[place].text for row in cells))
        available = width - gap * (len(columns) - 1)
        # Words are broken only if nothing else is left.
        _narrow(columns, widths, longest_words, available)
        if sum(widths) > available and width < MIN_COLUMNS:
            return _below_each_other(columns, cells[1:], width)
        _narrow(columns, widths, [_MIN_COLUMN_WIDTH] * len(widths), available)
    lines: list[Line] = []
    for row in cells:
        lines += _aligned(columns, row, widths, " " * gap)
    return lines


def _below_each_other(
    columns: Sequence[Column], rows: Iterable[Sequence[Span]], width: int
) -> list[Line]:
    """The known cells of each row below each other, and the rows with an empty line between."""
    title_width = max(columns_of(column.title) for column in columns)
    parts: list[list[Line]] = []
    for row in rows:
        lines: list[Line] = []
        for column, cell in zip(columns, row, strict=True):
            title = Span(f"{column.title:<{title_width}}  ", "bold")
            lines += wrapped(cell.text, width, title, style=cell.style)
        parts.append(lines)
    return separated(parts)


def _longest_word(texts: Iterable[str]) -> int:
    """The columns of the longest part that is not folded."""
    longest = 0
    for text in texts:
        for part in _Fold.wordsep_re.split(text):
            longest = max(longest, columns_of(part or ""))
    return longest


def _narrow(
    columns: Sequence[Column], widths: list[int], least: Sequence[int], available: int
) -> None:
    """Take the missing width from the widest columns that fold or are cut, down to ``least``."""
    narrows = [place for place, column in enumerate(columns) if column.folds or column.is_cut]
    while sum(widths) > available:
        foldable = [place for place in narrows if widths[place] > least[place]]
        if not foldable:
            return
        widths[max(foldable, key=widths.__getitem__)] -= 1


def _needed(columns: Sequence[Column], widths: Sequence[int], gap: int, width: int) -> list[int]:
    """The places of the columns without those that are left out for lack of room."""
    needed = list(range(len(columns)))
    least = list(widths)
    for place, column in enumerate(columns):
        if column.is_cut:
            least[place] = min(widths[place], _MIN_CUT_WIDTH)
        elif column.folds:
            least[place] = min(widths[place], _MIN_COLUMN_WIDTH)
    while gap * (len(needed) - 1) + sum(least[place] for place in needed) > width:
        last = max(needed, key=lambda place: columns[place].rank)
        if not columns[last].rank:
            break
        needed.remove(last)
    return needed


class _Fold(textwrap.TextWrapper):
    """Folds a cell at spaces, around characters of two columns, and after a hyphen, an
    underscore or a slash.
    """

    wordsep_re = re.compile(rf"(\s+|(?<=[-_/])(?=[^\W\d_])|(?=.{_FILLER})|(?<={_FILLER}))")


def _aligned(
    columns: Sequence[Column], row: Sequence[Span], widths: Sequence[int], gap: str
) -> Iterator[Line]:
    """The lines of a row: as many as its highest cell has."""
    folded = []
    for column, cell, width in zip(columns, row, widths, strict=True):
        if column.folds and columns_of(cell.text) > width:
            folded.append(_wrap(cell.text, _Fold(width)))
        elif column.is_cut:
            cut = shorten_name if column.is_name else shorten
            folded.append([cut(cell.text, width)])
        else:
            folded.append([cell.text])
    for texts in zip_longest(*folded, fillvalue=""):
        spans: list[Span] = []
        for place, text in enumerate(texts):
            padding = Span(" " * (widths[place] - columns_of(text)))
            cell = Span(text, row[place].style)
            if place:
                spans.append(Span(gap))
            if columns[place].is_right:
                spans += (padding, cell)
            else:
                spans += (cell, padding)
        yield tuple(span for span in spans if span.text)

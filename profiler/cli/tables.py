"""Tables of styled text for a terminal."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import zip_longest
from textwrap import TextWrapper

from msgspec import Struct

from profiler.cli.standard_streams import stdout_encoding, terminal_columns, text_as_encoded
from profiler.cli.styled_text import (
    FILLER,
    Line,
    Span,
    cut_end,
    cut_middle,
    displayed_columns,
    printable_spans,
    room_after,
    with_empty_lines_between,
    wrapped_lines,
    wrapped_rows,
)
from profiler.core.text import columns_of

_MIN_COLUMN_WIDTH = 8
_MIN_CUT_WIDTH = 12
_MAX_CUT_WIDTH = 28
# On a narrower terminal, a table that does not fit has its cells below each other.
MIN_COLUMNS = 80


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


def folding_columns(*titles: str) -> list[Column]:
    """Columns with these titles that fold."""
    return [Column(title, folds=True) for title in titles]


def aligned_table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[str | Span]],
    *,
    gap: int = 2,
    width: int | None = None,
) -> list[Line]:
    """Align the cells in columns, with ``gap`` spaces between them, below their titles, as the
    encoding of standard output has them.

    Only columns that fold or are cut become narrower than their texts to fit into ``width``; None:
    no limit. Where words would be broken at less than 80 columns, the cells of a row are below each
    other, each after its title.
    """
    titles = [Span(column.title, "bold") for column in columns]
    encoding = stdout_encoding()
    cells = []
    for row in (titles, *rows):
        cells.append(
            [
                Span(text_as_encoded(cell.text, encoding), cell.style)
                for cell in printable_spans(row)
            ]
        )
    widths = [0] * len(columns)
    for row in cells:
        for place, cell in enumerate(row):
            widths[place] = max(widths[place], columns_of(cell.text))
    if width is not None:
        every_column, every_row = columns, cells[1:]
        needed = _indices_of_fitting_columns(
            columns, _least_widths(columns, widths, cells), gap, width
        )
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
        _narrow_columns(columns, widths, longest_words, available)
        if sum(widths) > available and width < MIN_COLUMNS:
            return _below_each_other(every_column, every_row, width)
        _narrow_columns(columns, widths, [_MIN_COLUMN_WIDTH] * len(widths), available)
    lines: list[Line] = []
    for row in cells:
        lines += _aligned_lines(columns, row, widths, " " * gap)
    return lines


def _below_each_other(
    columns: Sequence[Column], rows: Iterable[Sequence[Span]], width: int
) -> list[Line]:
    """The cells of each row that are not empty below each other, and the rows with an empty line
    between. A row of one bold cell is a heading, which has no title.
    """
    title_width = max(columns_of(column.title) for column in columns)
    parts: list[list[Line]] = []
    for row in rows:
        lines: list[Line] = []
        heading, *others = row
        if heading.style == "bold" and not any(cell.text for cell in others):
            parts.append([*wrapped_lines(heading.text, width, style=heading.style)])
            continue
        for column, cell in zip(columns, row, strict=True):
            title = Span(f"{column.title:<{title_width}}  ", "bold")
            for row_of_name in _rows_of_name(column, cell.text, room_after((title,), width)):
                lines += wrapped_lines(row_of_name, width, title, style=cell.style)
                title = Span(" " * displayed_columns((title,)))
        parts.append(lines)
    return with_empty_lines_between(parts)


def _rows_of_name(column: Column, text: str, width: int) -> list[str]:
    """A name on as many rows as it needs; another text as it is."""
    if column.is_name and columns_of(text) > width:
        return wrapped_rows(text, _Fold(width))
    return [text]


def _longest_word(texts: Iterable[str]) -> int:
    """The columns of the longest part that is not folded."""
    longest = 0
    for text in texts:
        for part in _Fold.wordsep_re.split(text):
            longest = max(longest, columns_of(part or ""))
    return longest


def _narrow_columns(
    columns: Sequence[Column], widths: list[int], least: Sequence[int], available: int
) -> None:
    """Take the missing width from the widest columns that fold or are cut, down to ``least``."""
    narrows = [place for place, column in enumerate(columns) if column.folds or column.is_cut]
    while sum(widths) > available:
        foldable = [place for place in narrows if widths[place] > least[place]]
        if not foldable:
            return
        widths[max(foldable, key=widths.__getitem__)] -= 1


def _least_widths(
    columns: Sequence[Column], widths: Sequence[int], cells: Sequence[Sequence[Span]]
) -> list[int]:
    """The widths that the columns need."""
    least = list(widths)
    for place, column in enumerate(columns):
        if column.is_cut:
            names = {row[place].text for row in cells} if column.is_name else set()
            least[place] = min(widths[place], _least_width(names))
        elif column.folds:
            least[place] = min(widths[place], _MIN_COLUMN_WIDTH)
    return least


def _least_width(names: Collection[str]) -> int:
    """The width from which on names that are cut differ, if that is not too wide."""
    for width in range(_MIN_CUT_WIDTH, _MAX_CUT_WIDTH):
        if len({cut_middle(name, width) for name in names}) == len(names):
            return width
    return _MAX_CUT_WIDTH


def _indices_of_fitting_columns(
    columns: Sequence[Column], least: Sequence[int], gap: int, width: int
) -> list[int]:
    """The places of the columns without those that are left out for lack of room; ``least``: the
    widths that the columns need.
    """
    needed = list(range(len(columns)))
    while gap * (len(needed) - 1) + sum(least[place] for place in needed) > width:
        last = max(needed, key=lambda place: columns[place].rank)
        if not columns[last].rank:
            break
        needed.remove(last)
    return needed


class _Fold(TextWrapper):
    """Folds a cell at spaces, around characters of two columns, and after a hyphen, an
    underscore or a slash.
    """

    wordsep_re = re.compile(rf"(\s+|(?<=[-_/])(?=[^\W\d_])|(?=.{FILLER})|(?<={FILLER}))")


def _aligned_lines(
    columns: Sequence[Column], row: Sequence[Span], widths: Sequence[int], gap: str
) -> Iterator[Line]:
    """The lines of a row: as many as its highest cell has."""
    folded = []
    for column, cell, width in zip(columns, row, widths, strict=True):
        if column.folds and columns_of(cell.text) > width:
            folded.append(wrapped_rows(cell.text, _Fold(width)))
        elif column.is_cut:
            cut = cut_middle if column.is_name else cut_end
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

"""Rows that stay at the bottom of a terminal while other output scrolls above them.

Other programs, or other parts of this one, write to the same terminal, so lines cannot be redrawn in place. The bottom
rows are removed from the scrolling region instead (DECSTBM, like the progress bar of apt).
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

BAR_WIDTH = 30
RED, GREEN, _GREY = "\x1b[31m", "\x1b[32m", "\x1b[90m"
_RESET = "\x1b[0m"
_SAVE_CURSOR, _RESTORE_CURSOR = "\x1b7", "\x1b8"
_CLEAR_LINE = "\x1b[2K"
_MIN_TERMINAL_ROWS = 6
_MIN_TERMINAL_COLUMNS = 30

Part = tuple[str, str]
"""A text and the control code of its colour; no code is the terminal's own colour."""


class Terminal(Struct, frozen=True, kw_only=True):
    """The current size of a terminal."""

    columns: int
    rows: int


class BottomRows:
    """The reserved rows. Nothing is reserved or drawn in a terminal that is too small.

    Args:
        count: The number of rows.
        get_terminal: Returns the terminal's size.
        write: Writes to the terminal at once.
        is_coloured: Whether colours are written.
    """

    def __init__(
        self, count: int, get_terminal: Callable[[], Terminal], write: Callable[[str], None], *, is_coloured: bool
    ) -> None:
        self._count = count
        self._get_terminal = get_terminal
        self._write = write
        self._is_coloured = is_coloured
        self._terminal: Terminal | None = None

    def draw(self, rows: Sequence[Sequence[Part]]) -> None:
        """Show the rows, cut to the width of the terminal."""
        terminal = self._get_terminal()
        if terminal.rows < _MIN_TERMINAL_ROWS or terminal.columns < _MIN_TERMINAL_COLUMNS:
            self.close()
            return
        if terminal != self._terminal:
            make_room = "\n" * self._count + f"\x1b[{self._count}A" if self._terminal is None else ""
            # Setting the scrolling region moves the cursor to the top.
            scrolling = f"\x1b[1;{terminal.rows - self._count}r"
            self._write(f"{make_room}{_SAVE_CURSOR}{scrolling}{_RESTORE_CURSOR}")
            self._terminal = terminal
        texts = [_text(row, terminal.columns, is_coloured=self._is_coloured) for row in rows]
        self._write(self._at_bottom(texts, terminal))

    def close(self) -> None:
        """Clear the rows and restore the scrolling region."""
        if self._terminal is not None:
            cleared = self._at_bottom([""] * self._count, self._terminal)
            self._write(f"{cleared}{_SAVE_CURSOR}\x1b[r{_RESTORE_CURSOR}")
            self._terminal = None

    def _at_bottom(self, texts: Sequence[str], terminal: Terminal) -> str:
        first = terminal.rows - self._count + 1
        drawn = "".join(f"\x1b[{first + row};1H{_CLEAR_LINE}{text}" for row, text in enumerate(texts))
        return f"{_SAVE_CURSOR}{drawn}{_RESTORE_CURSOR}"


def bar(share: float, colour: str = GREEN) -> tuple[Part, Part]:
    """A bar of ``BAR_WIDTH`` characters, filled to the share (0 to 1) in steps of half a character."""
    halves = int(2 * BAR_WIDTH * min(max(share, 0), 1))
    filled = "━" * (halves // 2) + "╸" * (halves % 2)
    return (filled, colour), ("━" * (BAR_WIDTH - len(filled)), _GREY)


def _text(row: Sequence[Part], columns: int, *, is_coloured: bool) -> str:
    texts = []
    for text, colour in row:
        cut = text[:columns]
        columns -= len(cut)
        if not is_coloured and colour == _GREY:
            texts.append(" " * len(cut))  # without colours, the rest of a bar looks like the filled part
        else:
            texts.append(f"{colour}{cut}{_RESET}" if is_coloured and colour and cut else cut)
    return "".join(texts)

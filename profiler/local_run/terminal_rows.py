"""Rows at the bottom of a terminal, outside of its scrolling region (DECSTBM), as other programs
write to it, too.
"""

from collections.abc import Callable, Sequence
from os import terminal_size

RED = "\x1b[31m"
GREEN = "\x1b[32m"
YELLOW = "\x1b[33m"
_GREY = "\x1b[90m"
BOLD = "\x1b[1m"
DIM = "\x1b[2m"
_RESET = "\x1b[0m"
# The cursor has the command's colours, which the rows must not have.
_SAVE_CURSOR = f"\x1b7{_RESET}"
_RESTORE_CURSOR = "\x1b8"
_CLEAR_LINE = "\x1b[2K"
_CLEAR_BELOW = "\x1b[J"
# Down by one row in the same column, which a line feed does not keep. Scrolls at the end of the
# region.
_INDEX = "\x1bD"
_WHOLE_REGION = "\x1b[r"
_MIN_TERMINAL_ROWS = 6
_MIN_TERMINAL_COLUMNS = 30

# A text and the control code of its colour; no code is the terminal's own colour.
Part = tuple[str, str]
Row = Sequence[Part]


class BottomRows:
    """The reserved rows. Nothing is reserved or drawn in a terminal that is too small."""

    def __init__(
        self,
        get_terminal: Callable[[], terminal_size],
        write: Callable[[str], None],
        *,
        is_coloured: bool,
    ) -> None:
        self._get_terminal = get_terminal
        self._write = write
        self._is_coloured = is_coloured
        self._reserved: tuple[terminal_size, int] | None = None

    def draw(self, build_rows: Callable[[terminal_size], Sequence[Row]]) -> None:
        """Show the rows for the current size of the terminal, cut to its width."""
        terminal = self._get_terminal()
        if terminal.lines < _MIN_TERMINAL_ROWS or terminal.columns < _MIN_TERMINAL_COLUMNS:
            self.close()
            return
        texts = [
            _row_text(row, terminal.columns, is_coloured=self._is_coloured)
            for row in build_rows(terminal)
        ]
        before = self._reserved
        self._reserved = (terminal, len(texts))
        room = "" if before == self._reserved else _make_room(len(texts), erase=before is not None)
        # The command may have reset the terminal: the region is set each time. This moves the
        # cursor to the top.
        region = f"\x1b[1;{terminal.lines - len(texts)}r"
        self._write(f"{room}{_SAVE_CURSOR}{region}{_at_bottom(texts, terminal)}{_RESTORE_CURSOR}")

    def close(self) -> None:
        """Clear the rows and restore the scrolling region. The cursor does not move."""
        if self._reserved is None:
            return
        terminal, count = self._reserved
        self._reserved = None
        if terminal == self._get_terminal():
            cleared = _at_bottom([""] * count, terminal)
            self._write(f"{_SAVE_CURSOR}{cleared}{_WHOLE_REGION}{_RESTORE_CURSOR}")
        else:
            self._write(_make_room(1, erase=True))


def _make_room(count: int, *, erase: bool) -> str:
    """Make the region the whole screen, and scroll up as far as the cursor is within the last
    ``count`` rows.

    ``erase`` clears what is below its row: rows from before the terminal was resized are anywhere
    there.
    """
    erased = f"{_SAVE_CURSOR}{_CLEAR_LINE}{_CLEAR_BELOW}{_RESTORE_CURSOR}" if erase else ""
    whole = f"{_SAVE_CURSOR}{_WHOLE_REGION}{_RESTORE_CURSOR}"
    return f"{whole}{_INDEX}{erased}{_INDEX * (count - 1)}\x1b[{count}A"


def _at_bottom(texts: Sequence[str], terminal: terminal_size) -> str:
    first = terminal.lines - len(texts) + 1
    return "".join(f"\x1b[{first + row};1H{_CLEAR_LINE}{text}" for row, text in enumerate(texts))


def bar(share: float, colour: str = GREEN, *, width: int = 30) -> tuple[Part, Part]:
    """A bar, filled to the share (0 to 1) in steps of half a character."""
    halves = int(2 * width * min(max(share, 0), 1))
    filled = "━" * (halves // 2) + "╸" * (halves % 2)
    return (filled, colour), ("━" * (width - len(filled)), _GREY)


def _row_text(row: Row, columns: int, *, is_coloured: bool) -> str:
    """The row, cut at ``columns``, with the codes of its colours."""
    texts = []
    for text, colour in row:
        cut = text[:columns]
        columns -= len(cut)
        if is_coloured and colour and cut:
            cut = f"{colour}{cut}{_RESET}"
        elif colour == _GREY:  # without colours, the rest of a bar looks like the filled part
            cut = " " * len(cut)
        texts.append(cut)
    return "".join(texts)

"""A table that is drawn again and again on the alternate screen of a terminal, as top does."""

import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from profiler.cli.printing import STDOUT, stdout_encoding, write_out
from profiler.cli.styled_text import Line, Span, render_lines

# The alternate screen without a cursor, and back to the rows and the cursor from before.
_ENTER, _LEAVE = b"\x1b[?1049h\x1b[?25l", b"\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_REST_OF_LINE, _CLEAR_BELOW = b"\x1b[H", b"\x1b[K", b"\x1b[J"


@contextmanager
def alternate_screen() -> Iterator[None]:
    """Show the alternate screen of standard output for the length of the block, however it ends or is suspended."""
    try:
        signal.signal(signal.SIGTSTP, _suspend)
        write_out(_ENTER)
        yield
    finally:
        with suppress(OSError):  # the terminal was closed
            os.write(STDOUT, _LEAVE)


def _suspend(number: int, _frame: object) -> None:
    """Give the screen back until the shell continues the program."""
    write_out(_LEAVE)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    signal.signal(number, _suspend)
    write_out(_ENTER)


def screen_size() -> tuple[int, int]:
    """The columns and the rows of the terminal at this moment."""
    size = shutil.get_terminal_size()
    return size.columns, size.lines


def draw(lines: Sequence[Line], *, is_coloured: bool) -> None:
    """Show the lines from the top, cut to the size of the terminal."""
    columns, rows = screen_size()
    cut = [cut_line(line, columns) for line in lines[:rows]]
    text = render_lines(cut, is_coloured=is_coloured, encoding=stdout_encoding())
    drawn = text.removesuffix(b"\n").replace(b"\n", _CLEAR_REST_OF_LINE + b"\r\n")
    write_out(_HOME + drawn + _CLEAR_REST_OF_LINE + _CLEAR_BELOW)


def cut_line(line: Line, columns: int) -> Line:
    """The beginning of a line."""
    spans = []
    for span in line:
        spans.append(Span(span.text[:columns], span.style))
        columns -= len(spans[-1].text)
    return tuple(span for span in spans if span.text)

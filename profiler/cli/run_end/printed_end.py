"""The end of ``run`` as it is printed: for the terminal of standard error, for a pipe, or for a file."""

import os
import sys
from collections.abc import Mapping, Sequence

from profiler.cli.charts.time_lines import BLOCK_CHARACTERS
from profiler.cli.printing import STDERR
from profiler.cli.run_end.end_page import MAX_LINES, MAX_WIDTH, EndView, end_lines
from profiler.cli.styled_text import ASCII, BLOCKS, RESET, Glyphs, is_coloured, render_lines, wrapped
from profiler.record.record_model import Record, Report

_PIPE_WIDTH = 80
_FILE_ENCODING = "utf-8"
_SHOWN = f"{BLOCKS.dot}{BLOCKS.limit}{BLOCKS.separator}{BLOCKS.arrow}{BLOCKS.at_least}{BLOCKS.times}▁"


def printed_end(
    report: Report,
    last: Record | None,
    environment: Mapping[str, str],
    now_ns: int,
    *,
    is_file: bool,
    history: Sequence[str] | None,
) -> bytes:
    """Draw the end of a run.

    Args:
        report: The run.
        last: The last success that the run can be compared with.
        environment: NO_COLOR, FORCE_COLOR and TERM are read.
        now_ns: The time now.
        is_file: Whether it is for a file, else for standard error.
        history: The options by which other commands find the run; None: it is in no history.
    """
    encoding = _FILE_ENCODING if is_file else (sys.stderr.encoding if sys.stderr else None) or _FILE_ENCODING
    is_colourful = not is_file and is_coloured(environment, STDERR)
    # The command may have left the cursor within a line, and a colour: the end begins with a line of its own.
    before = b"" if is_file else RESET.encode() * is_colourful + b"\n"
    view = EndView(
        width=_PIPE_WIDTH if is_file else _stderr_width(),
        glyphs=_glyphs(encoding),
        now_ns=now_ns,
        max_lines=MAX_LINES - before.count(b"\n"),
        history=history,
    )
    lines = end_lines(report, last, view)
    return before + render_lines(lines, is_coloured=is_colourful, encoding=encoding)


def printed_summary(sentence: str, *, is_file: bool) -> bytes:
    """The sentence after several runs, below an empty line."""
    rows = wrapped(sentence, _PIPE_WIDTH if is_file else _stderr_width(), first="")
    return b"\n" + render_lines(rows, is_coloured=False, encoding=_FILE_ENCODING) if rows else b""


def _glyphs(encoding: str) -> Glyphs:
    try:
        (_SHOWN + BLOCK_CHARACTERS).encode(encoding)
    except UnicodeEncodeError:
        return ASCII
    return BLOCKS


def _stderr_width() -> int:
    """The columns of the terminal, or what is used of them; 80 in a pipe, and on a terminal without a size."""
    try:
        columns = os.get_terminal_size(STDERR).columns
    except OSError:
        columns = 0
    return min(columns or _PIPE_WIDTH, MAX_WIDTH)

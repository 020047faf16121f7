"""Rows at the bottom of the terminal of standard error, and the progress of a long operation in
one of them.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from os import terminal_size

from profiler.cli.printing import warn
from profiler.cli.standard_streams import STDERR
from profiler.local_run.terminal_rows import BottomRows, Part, bar

SILENT_SECONDS = 3.0
_MIN_SECONDS_BETWEEN_DRAWS = 0.1

ShowProgress = Callable[[str, float | None], None]
"""(text, share that is done: 0 to 1; None: unknown) Shows the progress."""


def stderr_rows(write: Callable[[str], None]) -> BottomRows:
    """Rows at the bottom of the terminal of standard error, while this process is in the
    foreground.
    """
    return BottomRows(_stderr_size, write, is_coloured=not os.environ.get("NO_COLOR"))


@contextmanager
def say_if_slow(sentence: str) -> Iterator[None]:
    """Print a sentence once if the block lasts for some seconds, unless standard error is a
    terminal, which shows the progress.
    """
    if os.isatty(STDERR):
        yield
        return
    timer = threading.Timer(SILENT_SECONDS, warn, (sentence,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def progress_row() -> Iterator[ShowProgress]:
    """Yield the function that shows the progress; it does nothing if standard error is not a
    terminal.
    """
    if not os.isatty(STDERR) or os.environ.get("TERM") == "dumb":
        yield lambda text, share: None  # noqa: ARG005  as ShowProgress
        return
    rows = stderr_rows(_write_stderr)
    start = time.perf_counter()
    next_draw = start

    def show(text: str, share: float | None) -> None:
        nonlocal next_draw
        now = time.perf_counter()
        if now >= next_draw:
            rows.draw(lambda _: [_progress_parts(text, share, now - start)])
            next_draw = now + _MIN_SECONDS_BETWEEN_DRAWS

    try:
        yield show
    finally:
        rows.close()


def _progress_parts(text: str, share: float | None, elapsed_seconds: float) -> tuple[Part, ...]:
    if not share:
        return ((f"{text} …", ""),)
    seconds = round(elapsed_seconds * (1 - share) / share)
    left = f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d} left"
    return (f"{text} ", ""), *bar(share), (f" {share:4.0%} {left}", "")


def _stderr_size() -> terminal_size:
    """The size; 0 if drawing is impossible."""
    try:
        size = os.get_terminal_size(STDERR)
    except OSError:
        return terminal_size((0, 0))
    with suppress(OSError):  # standard error is not the terminal of this session
        # In the background, after ``stty tostop``, drawing would stop this process and its command.
        if os.tcgetpgrp(STDERR) != os.getpgrp():
            return terminal_size((0, 0))
    return size


def _write_stderr(text: str) -> None:
    with suppress(OSError):  # the terminal was closed: the operation goes on
        os.write(STDERR, text.encode())

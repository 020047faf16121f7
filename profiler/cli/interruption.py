"""Ctrl-C, SIGTERM and SIGHUP, which a closed terminal or a cancelled CI job sends, end a command
alike, with the exit code of a shell.

An act holds them back, so that none comes between a call that changes something and the sentence
about it.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from profiler.cli.printing import safe_message_text
from profiler.cli.standard_streams import STDERR, write_out
from profiler.core.errors import FIRST_SIGNAL_EXIT_CODE

TYPE_CHECKING = False  # type checkers take this name for true
if TYPE_CHECKING:
    from types import FrameType

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StoppedBySignal(KeyboardInterrupt):
    """A signal asks the command to end."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = FIRST_SIGNAL_EXIT_CODE + number


def exit_code_of_exception(end: BaseException | None) -> int:
    """The exit code of a command whose end this exception began: a signal's, or 1 where it got no
    answer to a question.
    """
    if isinstance(end, StoppedBySignal):
        return end.exit_code
    is_ctrl_c = isinstance(end, KeyboardInterrupt)
    return FIRST_SIGNAL_EXIT_CODE + signal.SIGINT if is_ctrl_c else 1


def keep_finalizers_quiet() -> None:
    """Report no exception of a finalizer from now on.

    An exception of a signal's handler leaves an object half made where it comes in a constructor.
    Its finalizer fails then, and Python would print a traceback into the terminal.
    """
    sys.unraisablehook = _ignore_unraisable


def _ignore_unraisable(_unraisable: object) -> None:
    pass


class HeldSignals:
    """The signals that came while a block held them back."""

    def __init__(self, sentence: str) -> None:
        self._numbers: list[int] = []
        # Made before a signal's handler prints it, which may interrupt an import.
        self._line = f"{safe_message_text(sentence)}\n".encode()

    def receive(self, number: int, _frame: "FrameType | None") -> None:
        """Remember a signal, and tell the person what is awaited."""
        if not self._numbers:
            write_out(self._line, STDERR)
        self._numbers.append(number)

    def raise_if_stopped(self) -> None:
        """Raise Stopped if a signal has asked for it."""
        if self._numbers:
            raise StoppedBySignal(self._numbers[0])


@contextmanager
def signals_end_command() -> Iterator[None]:
    """Let each of the signals raise Stopped in the block."""

    def end(number: int, _frame: "FrameType | None") -> None:
        keep_finalizers_quiet()
        raise StoppedBySignal(number)

    with _handle_signals(end):
        yield


@contextmanager
def hold_stop_signals(sentence: str) -> Iterator[HeldSignals]:
    """Hold the signals back in the block, which asks for them where it may end. The first one
    prints ``sentence``, which says what is awaited.
    """
    held = HeldSignals(sentence)
    with _handle_signals(held.receive):
        yield held


@contextmanager
def _handle_signals(handler: Callable[[int, "FrameType | None"], None]) -> Iterator[None]:
    """Handle the signals in the block, but for those that the caller ignores, as ``nohup`` does."""
    previous = {}
    for number in _NUMBERS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            previous[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before or signal.SIG_DFL)

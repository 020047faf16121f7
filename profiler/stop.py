"""SIGTERM and SIGINT as a request to end, installed before anything heavy is imported.

A container's first process gets no signal it has not asked for, so until this is installed a
SIGTERM would be lost. The kernel writes each signal into a pipe; waiting for the pipe is waiting
for the next tick or the signal, whichever comes first, without polling and without a race.
"""

import os
import select
import signal
from collections.abc import Callable
from types import FrameType

TYPE_CHECKING = False  # what typing calls so, without importing it
if TYPE_CHECKING:
    from socket import socket

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Says when the end was asked for, and waits for it.

    ``requested_ns`` is the first signal's moment by ``monotonic_ns``, None as long as there was none.
    """

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._monotonic_ns = monotonic_ns
        self.requested_ns: int | None = None
        self._pipe: tuple[int, int] | None = None

    def install(self) -> None:
        """Catch the signals from now on. Only the main thread may call this."""
        self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        for number in _STOP_SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  the form signal.signal asks for
        if self.requested_ns is None:
            self.requested_ns = self._monotonic_ns()

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until the end is asked for; says whether it was."""
        if self.requested_ns is None and seconds > 0:
            select.select(self._signals(), [], [], seconds)
        return self.requested_ns is not None

    def wait_readable(self, source: "socket", seconds: float) -> bool:
        """Wait so long, or until ``source`` can be read or the end is asked for; says whether it can be read."""
        watched: list[socket | int] = [source]
        if self.requested_ns is None:
            watched += self._signals()
        return source in select.select(watched, [], [], seconds)[0]

    def _signals(self) -> list[int]:
        return [self._pipe[0]] if self._pipe else []

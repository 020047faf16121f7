"""SIGTERM and SIGINT as a request to end, installed before anything heavy is imported.

A container's first process gets no signal it has not asked for, so until this is installed a
SIGTERM would be lost. The kernel writes each signal into a pipe; waiting for the pipe is waiting
for the next tick or the signal, whichever comes first, without polling and without a race.
"""

import os
import select
import signal
from types import FrameType

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Says whether the end was asked for, and waits for it."""

    def __init__(self) -> None:
        self.requested = False
        self._pipe: tuple[int, int] | None = None

    def install(self) -> None:
        """Catch the signals from now on. Only the main thread may call this."""
        self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        for number in _STOP_SIGNALS:
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  the form signal.signal asks for
        self.requested = True

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until the end is asked for; says whether it was."""
        if not self.requested and seconds > 0:
            select.select([self._pipe[0]] if self._pipe else [], [], [], seconds)
        return self.requested

"""The handler of SIGTERM and SIGINT, which ask to stop; installed before any slow import.

The kernel does not deliver a signal to process 1 of a container that has no handler for it: a
SIGTERM before the installation would be lost. Python writes each signal into a pipe (its wakeup
descriptor), which a wait polls.
"""

import os
import select
import signal
from collections.abc import Callable
from types import FrameType

TYPE_CHECKING = False  # type checkers take this name for true; importing typing would cost time
if TYPE_CHECKING:
    from _typeshed import HasFileno

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_MAX_WAIT_SECONDS = 24 * 3600  # poll(2) takes at most 2^31 milliseconds; a wait may end early


class SignalHandler:
    """Receives stop signals and waits for them.

    ``requested_ns`` is the time of the first one by ``monotonic_ns``.
    """

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._monotonic_ns = monotonic_ns
        self.requested_ns: int | None = None
        self._pipe: tuple[int, int] | None = None
        self._poll = select.poll()  # select(2) fails for descriptors above 1023
        self._source_poll = self._poll
        self._watched: tuple[int, bool] | None = None
        self._has_ended_wait = False

    def install(self) -> None:
        """Handle the signals from now on. Only the main thread may call this."""
        self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll.register(self._pipe[0], select.POLLIN)
        self._watched = None
        signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        for number in _STOP_SIGNALS:
            signal.signal(number, self._on_signal)

    # The signature that signal.signal requires.
    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if not self.is_requested:
            self.requested_ns = self._monotonic_ns()

    @property
    def is_requested(self) -> bool:
        return self.requested_ns is not None

    def wait(self, seconds: float) -> bool:
        """Wait until the timeout or a stop request; returns True if a stop was requested."""
        if not self.is_requested and seconds > 0:
            self._poll.poll(_milliseconds(seconds))
        return self.is_requested

    def wait_readable(self, source: "HasFileno", seconds: float) -> bool:
        """Wait for the timeout, data or a stop request, which ends one wait, perhaps the next;
        True if readable.
        """
        watched = (source.fileno(), self._has_ended_wait)
        if watched != self._watched:  # the same connection is waited for again and again
            self._watched = watched
            self._source_poll = select.poll()
            self._source_poll.register(source, select.POLLIN)
            if self._pipe is not None and not self._has_ended_wait:
                self._source_poll.register(self._pipe[0], select.POLLIN)
        ready = dict(self._source_poll.poll(_milliseconds(seconds)))
        self._has_ended_wait = self.is_requested
        return watched[0] in ready


def _milliseconds(seconds: float) -> float:
    return 1000 * min(max(seconds, 0), _MAX_WAIT_SECONDS)

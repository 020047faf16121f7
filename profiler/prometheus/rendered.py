"""A snapshot's text, made once however many scrape it."""

from collections.abc import Callable
from threading import Lock

from profiler.prometheus.snapshot import Snapshot


class RenderCache:
    """The last text that ``make`` made, for all who ask before the next snapshot: who asks meanwhile waits for it."""

    def __init__(self, make: Callable[[Snapshot], bytes]) -> None:
        self._make = make
        self._lock = Lock()
        self._snapshot: Snapshot | None = None
        self._text = b""

    def render(self, snapshot: Snapshot) -> bytes:
        """This snapshot's text."""
        with self._lock:
            if self._snapshot is not snapshot:
                self._text = self._make(snapshot)
                self._snapshot = snapshot
            return self._text

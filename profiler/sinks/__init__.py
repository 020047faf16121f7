"""Destinations of record lines. A sink that fails returns a reason and never raises."""

from typing import Protocol

from msgspec import Struct


class DeliveryFailure(Struct, frozen=True):
    """The line was not delivered. ``reason`` is a sentence that says why and what to do."""

    reason: str


class LineSink(Protocol):
    """A destination of lines."""

    def write(self, line: bytes) -> DeliveryFailure | None:
        """Write one line, or drop it while nothing reads the output; None means success."""
        ...

    def keep(self, line: bytes) -> DeliveryFailure | None:
        """Write one line, which is not dropped, but may be written later; None means success."""
        ...

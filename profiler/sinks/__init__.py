"""Where lines go. A sink that fails answers with a reason and never raises."""

from typing import Protocol

from msgspec import Struct


class DeliveryFailure(Struct, frozen=True):
    """The line did not arrive, and what to do about it, as a sentence."""

    reason: str


class LineSink(Protocol):
    """Takes whole lines."""

    def write(self, line: bytes) -> DeliveryFailure | None:
        """Write one line; None means that it was taken."""
        ...

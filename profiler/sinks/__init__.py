"""Where the report goes. A sink that fails returns a reason and never raises."""

from msgspec import Struct


class DeliveryFailure(Struct, frozen=True):
    """The line was not delivered. ``reason`` is a sentence that says why and what to do."""

    reason: str

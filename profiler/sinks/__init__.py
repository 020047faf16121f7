"""Where the report goes. A sink that fails returns a reason and never raises."""

from msgspec import Struct

from profiler.core.ecs_terms import LogTarget

__all__ = ("DeliveryFailure", "LogTarget", "TransientFailure")


class DeliveryFailure(Struct, frozen=True):
    """The line was not delivered. ``reason`` is one sentence: the cause and what to do."""

    reason: str


class TransientFailure(DeliveryFailure, frozen=True):
    """A failure that may pass; ``reason`` is a part of a sentence.

    ``has_expired``: of the credentials.
    """

    has_expired: bool = False

"""Where readings come from. A source that fails answers with a reason and never raises."""

from msgspec import Struct


class Unavailable(Struct, frozen=True):
    """No reading this time, and why, in a few words.

    ``timed_out`` marks the failures that slow the asking down.
    """

    reason: str
    timed_out: bool = False

"""Where the report goes. A sink that fails returns a reason and never raises."""

from msgspec import Struct


class LogTarget(Struct, frozen=True, kw_only=True):
    """A log stream. With ``region`` None, boto3 determines the region (AWS_REGION)."""

    group: str
    stream: str
    region: str | None = None


class DeliveryFailure(Struct, frozen=True):
    """The line was not delivered. ``reason`` is one sentence: the cause and what to do."""

    reason: str


class TransientFailure(DeliveryFailure, frozen=True):
    """A failure that may pass; ``reason`` is a part of a sentence.

    With ``has_expired``, another attempt needs new credentials.
    """

    has_expired: bool = False

"""What a CloudWatch Logs subscription delivers: base64 of a compressed JSON document, one log stream each."""

import base64
import binascii
import zlib
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from forwarder.errors import PayloadError

MAX_PAYLOAD_BYTES = 64 * 1024 * 1024
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32  # gzip and zlib alike
_CONTROL_MESSAGE = "CONTROL_MESSAGE"


class LogEvent(Struct, frozen=True):
    """One line; ``timestamp`` in milliseconds since 1970, ``id`` text on AWS and a number on emulators."""

    id: str | int = ""
    timestamp: int = 0
    message: str = ""


class Payload(Struct, frozen=True, rename="camel"):
    """The lines of one stream. A control message (a health check) has none of interest."""

    message_type: str = ""
    log_group: str = ""
    log_stream: str = ""
    log_events: tuple[LogEvent, ...] = ()

    @property
    def lines(self) -> tuple[LogEvent, ...]:
        """The stream's lines; none for a control message."""
        return () if self.message_type == _CONTROL_MESSAGE else self.log_events


def decode_payload(event: object) -> Payload:
    """Read a Lambda event of a subscription.

    Raises PayloadError if it is none, is broken, or unpacks to more than 64 MiB.
    """
    compressed = _compressed(event)
    unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        document = unpacker.decompress(compressed, MAX_PAYLOAD_BYTES + 1)
    except zlib.error as error:
        raise PayloadError(
            f"The event's data is neither gzip nor zlib ({error}): send it from a subscription."
        ) from error
    if len(document) > MAX_PAYLOAD_BYTES:
        raise PayloadError(f"The event's data unpacks to more than {MAX_PAYLOAD_BYTES} bytes and is not read.")
    if not unpacker.eof:
        raise PayloadError("The event's data is cut short: send it again.")
    try:
        return msgspec.json.decode(document, type=Payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PayloadError(f"The event's data is no CloudWatch Logs document: {error}.") from error


def _compressed(event: object) -> bytes:
    logs = event.get("awslogs") if isinstance(event, Mapping) else None
    data = logs.get("data") if isinstance(logs, Mapping) else None
    if not isinstance(data, str):
        raise PayloadError("The event holds no awslogs.data: invoke this function from a CloudWatch Logs subscription.")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise PayloadError(f"The event's awslogs.data is not base64 ({error}).") from error

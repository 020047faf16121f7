"""The profiler's own log: JSON lines on stderr, by structlog.

structlog takes 7 MiB of memory, so it is imported with the first line. Most monitors never log one.
"""

from typing import BinaryIO, Protocol

import msgspec


class Log(Protocol):
    """Messages for the operators of the program."""

    def info(self, event: str, **fields: object) -> None:
        """Log something worth knowing."""
        ...

    def warning(self, event: str, **fields: object) -> None:
        """Log that something is wrong; the record of the run stays correct."""
        ...

    def error(self, event: str, **fields: object) -> None:
        """Log that the operator has to change something."""
        ...


class JsonLog:
    """Writes one JSON object per line to ``stream``, which must be unbuffered."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def info(self, event: str, **fields: object) -> None:
        """Log at level info."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Log at level warning."""
        self._write("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Log at level error."""
        self._write("error", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        import structlog  # see the module's docstring

        logger = structlog.wrap_logger(
            structlog.BytesLogger(self._stream),
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.JSONRenderer(serializer=_serialize),
            ],
        )
        try:
            getattr(logger, level)(event, **fields)
        except (OSError, ValueError):
            # A full disk or a closed pipe: there is no other place to report it.
            return


def _serialize(event: dict[str, object], **_options: object) -> bytes:
    return msgspec.json.encode(event, enc_hook=repr)


class NullLog:
    """Discards all messages: for commands whose output belongs to the profiled program."""

    def info(self, event: str, **fields: object) -> None:
        """Discard the message."""

    def warning(self, event: str, **fields: object) -> None:
        """Discard the message."""

    def error(self, event: str, **fields: object) -> None:
        """Discard the message."""

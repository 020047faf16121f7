"""The profiler's own log: JSON lines on stderr, by structlog.

structlog brings 7 MiB of modules with it. A monitor that has nothing to say never imports it.
"""

from typing import BinaryIO, Protocol

import msgspec


class Log(Protocol):
    """What parts of the program say to the people who run it."""

    def info(self, event: str, **fields: object) -> None:
        """Something worth knowing."""
        ...

    def warning(self, event: str, **fields: object) -> None:
        """Something is not as it should be; the run's record stays true."""
        ...

    def error(self, event: str, **fields: object) -> None:
        """Somebody has to change something."""
        ...


class JsonLog:
    """One JSON object a line on ``stream`` (unbuffered); structlog is imported with the first line."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def info(self, event: str, **fields: object) -> None:
        """A line of level info."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """A line of level warning."""
        self._write("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """A line of level error."""
        self._write("error", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        import structlog  # lazily, see the module's docstring

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
            # Nobody reads the log (a full disk, a closed pipe): nothing is left to say it with.
            return


def _serialize(event: dict[str, object], **_options: object) -> bytes:
    return msgspec.json.encode(event, enc_hook=repr)


class NullLog:
    """Says nothing: for a program whose output belongs to somebody else."""

    def info(self, event: str, **fields: object) -> None:
        """Nothing."""

    def warning(self, event: str, **fields: object) -> None:
        """Nothing."""

    def error(self, event: str, **fields: object) -> None:
        """Nothing."""

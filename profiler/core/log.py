"""The profiler's own log: JSON lines on stderr, by structlog."""

import msgspec

from profiler.core.deadline_writer import Output


class Log:
    """Messages for the operators of the program.

    This class discards them, :class:`JsonLog` writes them.

    A warning: the record of the run stays correct. An error: the operator has to change something.
    """

    def info(self, event: str, **fields: object) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write("error", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        """Write nothing."""


class JsonLog(Log):
    """Writes one JSON object per line. While the output has no reader, only errors are kept."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        from structlog import processors  # 7 MiB of memory, and most monitors never log a line

        event_dict = {**fields, "event": event}
        processors.add_log_level(None, level, event_dict)
        processors.TimeStamper(fmt="iso", utc=True)(None, level, event_dict)
        write = self._output.keep if level == "error" else self._output.write
        # There is no other place to report a lost line.
        write(msgspec.json.encode(event_dict, enc_hook=repr) + b"\n")

"""The monitor's standard output, which ECS forwards to the monitor's own log stream."""

from typing import BinaryIO

from profiler.sinks import DeliveryFailure


class StreamSink:
    """Writes each line immediately, so that it is not lost if the process is killed.

    ``stream`` must be unbuffered. Otherwise Python would retry a write that failed on a full disk when
    it exits, and change the exit code.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, line: bytes) -> DeliveryFailure | None:
        """Write one line."""
        rest = memoryview(line + b"\n")
        try:
            while rest:
                written = self._stream.write(rest)
                if not written:
                    return DeliveryFailure("Standard output takes no more.")
                rest = rest[written:]
        except (OSError, ValueError) as error:
            return DeliveryFailure(f"Standard output cannot be written ({error}).")
        return None

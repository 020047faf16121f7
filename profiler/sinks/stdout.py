"""The monitor's own standard output, which ECS carries into the monitor's own log stream."""

from typing import BinaryIO

from profiler.sinks import DeliveryFailure


class StreamSink:
    """Writes each line at once, so that it is out before anything can happen to the process.

    ``stream`` is unbuffered: what a full disk refused must not come up again when Python ends,
    where it would change the exit code.
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

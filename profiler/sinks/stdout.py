"""The monitor's standard output, which ECS forwards to the monitor's own log stream."""

from profiler.core.deadline_writer import Output
from profiler.sinks import DeliveryFailure


class StdoutSink:
    """Writes each line immediately, so that it is not lost if the process is killed."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def write(self, line: bytes) -> DeliveryFailure | None:
        """Write one line; while nothing reads the output, it is dropped."""
        return _failure(self._output.write(line + b"\n"))

    def keep(self, line: bytes) -> DeliveryFailure | None:
        """Write one line, which is not dropped: it is written as soon as the output is read."""
        return _failure(self._output.keep(line + b"\n"))


def _failure(reason: str | None) -> DeliveryFailure | None:
    return None if reason is None else DeliveryFailure(f"Standard output {reason}.")

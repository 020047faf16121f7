"""Samples of a local command on their way into its statistics; the end is joined to the last of them."""

from msgspec.structs import replace

from profiler.sources import Unavailable
from profiler.sources.container_stats import ContainerSample
from profiler.usage import ContainerUsage


class SampleBuffer:
    """Feeds the statistics one sample late, so that a short last step can be joined to it.

    A rate over a step of a few milliseconds is mostly the rounding of the counters.
    """

    def __init__(self, interval_ns: int, started_ns: int) -> None:
        self.usage = ContainerUsage(interval_ns)
        self.failures = 0
        self._interval_ns = interval_ns
        self._started_ns = started_ns
        self._pending: tuple[ContainerSample, int] | None = None

    def add(self, sample: ContainerSample | Unavailable, received_ns: int) -> None:
        """Take the reading of a tick."""
        if isinstance(sample, Unavailable):
            self.failures += 1
            return
        self._flush()
        self._pending = sample, received_ns

    def finish(self, final: ContainerSample, received_ns: int) -> None:
        """Take the counters at the end, if there was any sample before."""
        if self._pending is None:
            return
        last, _ = self._pending
        if final.read_ns - last.read_ns < self._interval_ns // 2:
            final = replace(last, read_ns=final.read_ns, cpu_ns=final.cpu_ns)
        else:
            self._flush()
        self._pending = final, received_ns
        self._flush()

    def _flush(self) -> None:
        if self._pending is not None:
            sample, received_ns = self._pending
            self.usage.add(sample, docker_id="", received_ns=received_ns, started_ns=self._started_ns)
            self._pending = None

"""The interfaces of collectors.

Only type checkers import this module: to make the classes would delay each run.
"""

from collections.abc import Mapping
from typing import Protocol

from profiler.aggregation.record_parts import RecordPart
from profiler.aggregation.statistics import DeviceReadings
from profiler.collectors.neuron.neuron_collector import LiveNeuron
from profiler.collectors.nvidia.gpu_usage import LiveGpus
from profiler.readers.container_sample import ContainerSample, ResourceLimits
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.readers.linux.wait_types import Wait
from profiler.record.record_model import Record


class Collector(Protocol):
    """Has a part of each record. ``record`` is that of the draft: without measurements.

    A collector can have the methods of the Protocols below in addition.
    """

    def part(self, record: Record, batch: str) -> RecordPart: ...


class ThreadCollector(Protocol):
    """Reads in a thread, one last time before each report.

    ``stop`` also ends the collector's child process.
    """

    def start(self) -> None: ...
    def final_reading(self, max_seconds: float) -> None: ...
    def stop(self, max_seconds: float) -> None: ...


class BatchFollower(Protocol):
    """Looks for something of each batch, as long as it runs.

    Returns a started collector that is to replace it.
    """

    def on_batch_started(self, container: ContainerMetadata) -> Collector | None: ...


class SampleFollower(Protocol):
    """Compares its readings with each sample of a batch; ``sizes`` are its container's limits.

    ``takes_late_samples``: a sample may come ten seconds late.
    """

    takes_late_samples: bool

    def on_sample(self, batch: str, sample: ContainerSample, sizes: ResourceLimits) -> None: ...


class DeviceCollector(Protocol):
    """Reads devices. ``name`` is the source's name in ``sampling.sources``.

    ``take_readings`` adds the readings of the batch's devices since its last call. ``idle_ns`` is
    for how long all of its GPUs were idle between two moments (monotonic) of the last seconds,
    which is known until ``known_until_ns``, and None if the devices are no GPUs. ``latest`` is None
    before the first reading.
    """

    name: str

    def take_readings(self, batch: str, into: DeviceReadings) -> None: ...
    def idle_ns(self, batch: str, start_ns: int, end_ns: int) -> int: ...
    def known_until_ns(self) -> int | None: ...
    def latest(self) -> LiveGpus | LiveNeuron | None: ...


class ForgettingCollector(Protocol):
    """Keeps something of each batch, and drops it after the batch's report."""

    def forget(self, batch: str) -> None: ...


class RequiredCollector(Protocol):
    """``startup_error`` is why a required one has no readings.

    ``child_pid`` is excluded from the measurements.
    """

    @property
    def startup_error(self) -> str | None: ...
    @property
    def child_pid(self) -> int | None: ...


class WaitCollector(Protocol):
    """Knows what a batch waited for longest since a time, as of its last record, None if it is
    unknown; and the work that the present wait of each thread holds back, empty if unknown.
    """

    def longest_wait(self, batch: str, since_ns: int) -> Wait | None: ...
    def held_back_ns(self, batch: str) -> Mapping[int, float]: ...


class WaitFollower(Protocol):
    """Gets the work that the present wait of each thread of a batch holds back (ns, by the kernel's
    ids of threads), while it ``wants_waits``.
    """

    def wants_waits(self, batch: str) -> bool: ...
    def on_waits(self, batch: str, held_back_ns: Mapping[int, float]) -> None: ...


class LineCollector(Protocol):
    """Has the line of the call stacks that belongs to a final record; None without any."""

    def stacks_line(self, record: Record, batch: str) -> bytes | None: ...

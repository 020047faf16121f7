"""The interface of all collectors for the monitor and ``run``.

A collector reads in a thread (:mod:`profiler.core.threads`), so that a driver that hangs costs only its own numbers.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from profiler.aggregation.time_series import DeviceReadings
from profiler.core.threads import ThreadFailure
from profiler.readers.container_sample import ContainerSample
from profiler.record.record_model import Record, with_warnings

if TYPE_CHECKING:
    from profiler.collectors.neuron.neuron_usage import LiveNeuron
    from profiler.collectors.nvidia.gpu_usage import LiveGpus
    from profiler.readers.ecs.task_metadata import ContainerMetadata

# A report waits at most this long for the last reading of each collector.
_FINAL_READING_SECONDS = 0.3
_STOP_SECONDS = 1.5


class Collector:
    """Collects one kind of values from ``start`` to ``stop``. A method does nothing unless a subclass defines it.

    ``name`` is the source's name in ``sampling.sources``.
    """

    name = ""

    @property
    def startup_error(self) -> str | None:
        """Why a collector that the settings require (``on``) has no readings, as a sentence; else None."""
        return None

    @property
    def child_pid(self) -> int | None:
        """The child process that the collector runs for itself: it is not part of what is measured."""
        return None

    def start(self) -> None:
        """Start collecting; returns at once."""

    def on_batch_started(self, container: "ContainerMetadata") -> None:
        """The batch container runs; called again as long as it does."""

    def on_sample(self, name: str, sample: ContainerSample) -> None:
        """Compare the readings with this sample of a container's task stats."""

    def take_readings(self, into: DeviceReadings) -> None:
        """Add the readings of all the batch's devices since the last call."""

    def latest(self) -> "LiveGpus | LiveNeuron | None":
        """Return the last reading for the live metrics; None before the first."""
        return None

    def final_reading(self, max_seconds: float) -> None:
        """Take one last reading before a report is written, within ``max_seconds``."""

    def add_to_record(self, record: Record) -> Record:
        """Return the record with what is known so far: values, the name of the source, and warnings."""
        return record

    def stacks_line(self, record: Record) -> bytes | None:  # noqa: ARG002  for subclasses
        """Return the line of the call stacks that belongs to a final record; None without any."""
        return None

    def stop(self, max_seconds: float) -> None:
        """Stop collecting and end the collector's thread and child process, within ``max_seconds``."""


def failure_warnings(failure: ThreadFailure | None, values: str) -> tuple[str, ...]:
    """A sentence if an error has ended the thread that collects the ``values``."""
    return () if failure is None else (failure.sentence(values),)


def final_readings(collectors: Iterable[Collector]) -> None:
    """Take one last reading of each collector before a report."""
    for collector in collectors:
        collector.final_reading(_FINAL_READING_SECONDS)


def take_readings(collectors: Iterable[Collector]) -> DeviceReadings:
    """Return the readings of all devices since the last call."""
    readings = DeviceReadings()
    for collector in collectors:
        collector.take_readings(readings)
    return readings


def stop_collectors(collectors: Iterable[Collector]) -> None:
    """Stop all collectors after the report."""
    for collector in collectors:
        collector.stop(_STOP_SECONDS)


def with_collected(record: Record, collectors: Iterable[Collector]) -> Record:
    """Return the record with the values, sources and warnings of all collectors, in their order."""
    for collector in collectors:
        record = collector.add_to_record(record)
    return record


def stacks_line(record: Record, collectors: Iterable[Collector]) -> bytes | None:
    """Return the line of the call stacks that belongs to a final record; None without any."""
    lines = (collector.stacks_line(record) for collector in collectors)
    return next((line for line in lines if line is not None), None)


def with_source(record: Record, name: str | None, warnings: Sequence[str] = ()) -> Record:
    """Return the record with one more source (None: the source had no data) and with its warnings."""
    if name is not None and record.sampling is not None:
        sources = (*record.sampling.sources, name)
        record = replace(record, sampling=replace(record.sampling, sources=sources))
    return with_warnings(record, warnings)

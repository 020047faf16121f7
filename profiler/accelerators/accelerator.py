"""What the lives of the monitor and of ``run`` know of GPUs and Neuron cores, whichever there are.

Each collector is watched beside the main loop, in a thread of its own: a driver that hangs
costs its own numbers and nothing else.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from profiler.record import Record
from profiler.sources.task_metadata import ContainerMetadata

if TYPE_CHECKING:  # imported only where there is one
    from profiler.accelerators.gpu_usage import GpuReadings
    from profiler.accelerators.neuron_usage import NeuronReadings

_FINAL_READING_SECONDS = 0.3
_STOP_SECONDS = 1.5


class Collector(Protocol):
    """One kind of collector, watched from ``start`` to ``stop``.

    The monitor has the batch's processes watched in the same way (:mod:`profiler.processes.process_watch`).
    """

    @property
    def name(self) -> str:
        """The source's name in ``sampling.sources``."""
        ...

    @property
    def has_data(self) -> bool:
        """Whether there was anything to read."""
        ...

    @property
    def startup_error(self) -> str | None:
        """Why there is nothing to read although it was asked for, as a sentence."""
        ...

    @property
    def child_pid(self) -> int | None:
        """The process that it runs for itself, if any: no part of what is profiled."""
        ...

    def start(self) -> None:
        """Begin to watch; returns at once."""
        ...

    def on_batch_started(self, container: ContainerMetadata) -> None:
        """The batch runs now: what only its processes tell can be found out."""
        ...

    def final_reading(self, max_seconds: float) -> None:
        """Take one last reading before a report is written."""
        ...

    def stop(self, max_seconds: float) -> None:
        """End the watch and whatever runs for it."""
        ...

    def add_to_record(self, record: Record) -> Record:
        """The record with what is known of this kind."""
        ...

    def latest(self) -> "GpuReadings | NeuronReadings | None":
        """What was read last, for those who look on while it runs."""
        ...

    def warnings(self) -> tuple[str, ...]:
        """What a reader of the numbers has to know, as sentences."""
        ...


def start_collectors(collectors: Iterable[Collector]) -> None:
    """Begin to watch."""
    for collector in collectors:
        collector.start()


def final_readings(collectors: Iterable[Collector]) -> None:
    """One last reading of each, which may delay the report by so much."""
    for collector in collectors:
        collector.final_reading(_FINAL_READING_SECONDS)


def stop_collectors(collectors: Iterable[Collector]) -> None:
    """End them, after the report."""
    for collector in collectors:
        collector.stop(_STOP_SECONDS)


def with_collected(record: Record, collectors: Iterable[Collector]) -> Record:
    """The record with GPUs and Neuron cores, their sources and warnings."""
    for collector in collectors:
        record = collector.add_to_record(record)
        if collector.has_data and record.sampling is not None:
            sources = (*record.sampling.sources, collector.name)
            record = replace(record, sampling=replace(record.sampling, sources=sources))
        if record.monitor is not None:
            warnings = (*record.monitor.warnings, *collector.warnings())
            record = replace(record, monitor=replace(record.monitor, warnings=warnings))
    return record

"""What the monitor and ``run`` know of a collector: GPUs, Neuron devices or the batch's processes.

Each collector reads in a thread of its own (:mod:`profiler.collectors.background`), so that a driver that hangs costs
only its own numbers. :class:`Collector` is what all collectors do. The other protocols are what some of them do in
addition; :class:`Collectors` lists who does what.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from profiler.record.model import Record
from profiler.sources.ecs.task_metadata import ContainerMetadata

if TYPE_CHECKING:
    from profiler.collectors.neuron.usage import NeuronReadings
    from profiler.collectors.nvidia.usage import GpuReadings

# A report waits at most this long for the last reading of each collector.
_FINAL_READING_SECONDS = 0.3
_STOP_SECONDS = 1.5


class Collector(Protocol):
    """Measures one kind of resource from ``start`` to ``stop``."""

    def start(self) -> None:
        """Start measuring; returns at once."""
        ...

    def final_reading(self, max_seconds: float) -> None:
        """Take one last reading before a report is written, within ``max_seconds``."""
        ...

    def stop(self, max_seconds: float) -> None:
        """Stop measuring and end the collector's thread and child process, within ``max_seconds``."""
        ...

    def add_to_record(self, record: Record) -> Record:
        """Return the record with this collector's numbers, its source name and its warnings."""
        ...


class BatchListener(Protocol):
    """A collector that reads something from the batch's running processes."""

    def on_batch_started(self, container: ContainerMetadata) -> None:
        """The batch container runs; called again as long as it does."""
        ...


class LiveReadings(Protocol):
    """A collector whose last reading is exported while it runs."""

    @property
    def name(self) -> str:
        """The source's name in ``sampling.sources``."""
        ...

    def latest(self) -> "GpuReadings | NeuronReadings | None":
        """Return the last reading; None before the first."""
        ...


class RequirableCollector(Protocol):
    """A collector that the settings can require (``on``)."""

    @property
    def startup_error(self) -> str | None:
        """Why a required collector has no readings, as a sentence; None if it has some or is not required."""
        ...


class Collectors(Struct, frozen=True, kw_only=True):
    """The collectors of one run, and the protocols that each of them implements.

    ``child_pids`` return the child processes that collectors run for themselves: these are not part of what is
    measured.
    """

    all: tuple[Collector, ...] = ()
    batch_listeners: tuple[BatchListener, ...] = ()
    live: tuple[LiveReadings, ...] = ()
    requirable: tuple[RequirableCollector, ...] = ()
    child_pids: tuple[Callable[[], int | None], ...] = ()


def start_collectors(collectors: Iterable[Collector]) -> None:
    """Start all collectors."""
    for collector in collectors:
        collector.start()


def final_readings(collectors: Iterable[Collector]) -> None:
    """Take one last reading of each collector before a report."""
    for collector in collectors:
        collector.final_reading(_FINAL_READING_SECONDS)


def stop_collectors(collectors: Iterable[Collector]) -> None:
    """Stop all collectors after the report."""
    for collector in collectors:
        collector.stop(_STOP_SECONDS)


def with_collected(record: Record, collectors: Iterable[Collector]) -> Record:
    """Return the record with the numbers, sources and warnings of all collectors, in their order."""
    for collector in collectors:
        record = collector.add_to_record(record)
    return record


def with_source(record: Record, name: str | None, warnings: Sequence[str] = ()) -> Record:
    """Return the record with one more source (None: the source had no data) and with its warnings."""
    if name is not None and record.sampling is not None:
        sources = (*record.sampling.sources, name)
        record = replace(record, sampling=replace(record.sampling, sources=sources))
    if warnings and record.monitor is not None:
        all_warnings = (*record.monitor.warnings, *warnings)
        record = replace(record, monitor=replace(record.monitor, warnings=all_warnings))
    return record

"""What the lives of the monitor and of ``run`` know of GPUs and Neuron cores, whichever there are.

Each accelerator is watched beside the main loop, in a thread of its own: a driver that hangs
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

_SETTLE_SECONDS = 0.3
_END_SECONDS = 1.5


class Accelerator(Protocol):
    """One kind of accelerator, watched from ``start`` to ``stop``.

    The monitor has the batch's processes watched in the same way (:mod:`profiler.processes.process_watch`).
    """

    @property
    def name(self) -> str:
        """The source's name in ``sampling.sources``."""
        ...

    @property
    def has_read(self) -> bool:
        """Whether there was anything to read."""
        ...

    @property
    def complaint(self) -> str | None:
        """Why there is nothing to read although it was asked for, as a sentence."""
        ...

    @property
    def helper_pid(self) -> int | None:
        """The process that it runs for itself, if any: no part of what is profiled."""
        ...

    def start(self) -> None:
        """Begin to watch; returns at once."""
        ...

    def batch_seen(self, container: ContainerMetadata) -> None:
        """The batch runs now: what only its processes tell can be found out."""
        ...

    def settle(self, at_most_seconds: float) -> None:
        """Take one last reading before a report is written."""
        ...

    def stop(self, at_most_seconds: float) -> None:
        """End the watch and whatever runs for it."""
        ...

    def onto(self, record: Record) -> Record:
        """The record with what is known of this kind."""
        ...

    def latest(self) -> "GpuReadings | NeuronReadings | None":
        """What was read last, for those who look on while it runs."""
        ...

    def warnings(self) -> tuple[str, ...]:
        """What a reader of the numbers has to know, as sentences."""
        ...


def start_all(accelerators: Iterable[Accelerator]) -> None:
    """Begin to watch."""
    for accelerator in accelerators:
        accelerator.start()


def settle_all(accelerators: Iterable[Accelerator]) -> None:
    """One last reading of each, which may delay the report by so much."""
    for accelerator in accelerators:
        accelerator.settle(_SETTLE_SECONDS)


def stop_all(accelerators: Iterable[Accelerator]) -> None:
    """End them, after the report."""
    for accelerator in accelerators:
        accelerator.stop(_END_SECONDS)


def with_accelerators(record: Record, accelerators: Iterable[Accelerator]) -> Record:
    """The record with GPUs and Neuron cores, their sources and warnings."""
    for accelerator in accelerators:
        record = accelerator.onto(record)
        if accelerator.has_read and record.sampling is not None:
            sources = (*record.sampling.sources, accelerator.name)
            record = replace(record, sampling=replace(record.sampling, sources=sources))
        if record.monitor is not None:
            warnings = (*record.monitor.warnings, *accelerator.warnings())
            record = replace(record, monitor=replace(record.monitor, warnings=warnings))
    return record

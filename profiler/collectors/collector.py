"""The interfaces of collectors. Each reads in a thread: a driver that hangs costs only its own numbers."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from profiler.aggregation.task_record import RecordPart, ResourceLimits, with_parts
from profiler.aggregation.time_series import DeviceReadings
from profiler.core.threads import BackgroundCall, ThreadFailure
from profiler.readers import Unavailable
from profiler.readers.container_sample import ContainerSample
from profiler.record.record_model import Record

if TYPE_CHECKING:
    from profiler.collectors.neuron.neuron_usage import LiveNeuron
    from profiler.collectors.nvidia.gpu_usage import LiveGpus
    from profiler.readers.ecs.task_metadata import ContainerMetadata
    from profiler.readers.linux.waited_target import Wait

# The only batch of ``run``.
COMMAND = ""


class Collector(Protocol):
    """Collects one kind of values. :class:`Collectors` finds by its methods which of the Protocols below it has."""

    def part(self, record: Record, batch: str) -> RecordPart:
        """Return what is known so far of a batch for its record: values, the name of the source, and warnings."""


class ThreadCollector(Protocol):
    """Reads in a thread."""

    def start(self) -> None:
        """Start collecting; returns at once."""

    def final_reading(self, max_seconds: float) -> None:
        """Take one last reading before a report is written, within ``max_seconds``."""

    def stop(self, max_seconds: float) -> None:
        """Stop collecting and end the collector's thread and child process, within ``max_seconds``."""


class BatchFollower(Protocol):
    """Looks for something of each batch."""

    def on_batch_started(self, container: "ContainerMetadata") -> None:
        """The batch container runs; called again as long as it does."""


class SampleFollower(Protocol):
    """Compares its readings with the samples of the task stats."""

    def on_sample(self, batch: str, sample: ContainerSample, sizes: ResourceLimits) -> None:
        """Receive a sample of a batch, and the limits of its container."""


class DeviceCollector(Protocol):
    """Reads devices. ``name`` is the source's name in ``sampling.sources``."""

    name: str

    def take_readings(self, into: DeviceReadings) -> None:
        """Add the readings of all the batch's devices since the last call."""

    def idle_ns(self, start_ns: int, end_ns: int) -> int:
        """Return for how long all GPUs were idle between two moments (monotonic) of the last minutes."""

    def latest(self) -> "LiveGpus | LiveNeuron | None":
        """Return the last reading for the live metrics; None before the first."""


class RequiredCollector(Protocol):
    """May be required by the settings (``on``), and may have a child process, which is not measured."""

    @property
    def startup_error(self) -> str | None:
        """Why a required collector has no readings, as a sentence; else None."""

    @property
    def child_pid(self) -> int | None:
        """The collector's own child process."""


class WaitCollector(Protocol):
    """Knows what batches wait for."""

    def longest_wait(self, batch: str, since_ns: int) -> "Wait | None":
        """Return what a batch waited for longest since then, as of its last record; None if unknown."""


class LineCollector(Protocol):
    """Has a line of its own."""

    def stacks_line(self, record: Record, batch: str) -> bytes | None:
        """Return the line of the call stacks that belongs to a final record; None without any."""


class Collectors:
    """All collectors of a process. Each is called for what it can do.

    ``batch`` is :attr:`ContainerMetadata.followed_id`, for the only batch of ``run`` COMMAND.
    """

    def __init__(self, *collectors: Collector) -> None:
        self._all = collectors
        self._threads: tuple[ThreadCollector, ...] = self._with("start")
        self._batch_followers: tuple[BatchFollower, ...] = self._with("on_batch_started")
        self._sample_followers: tuple[SampleFollower, ...] = self._with("on_sample")
        self.devices: tuple[DeviceCollector, ...] = self._with("take_readings")
        self._required: tuple[RequiredCollector, ...] = self._with("child_pid")
        self._waits: tuple[WaitCollector, ...] = self._with("longest_wait")
        self._lines: tuple[LineCollector, ...] = self._with("stacks_line")

    def _with(self, method: str) -> tuple[Any, ...]:
        # isinstance() of a Protocol would import the module inspect, which takes 10 ms.
        return tuple(collector for collector in self._all if hasattr(collector, method))

    def __iter__(self) -> Iterator[Collector]:
        """All of them."""
        return iter(self._all)

    def start(self) -> None:
        for collector in self._threads:
            collector.start()

    def on_batch_started(self, container: "ContainerMetadata") -> None:
        for collector in self._batch_followers:
            collector.on_batch_started(container)

    def on_sample(self, batch: str, sample: ContainerSample, sizes: ResourceLimits) -> None:
        for collector in self._sample_followers:
            collector.on_sample(batch, sample, sizes)

    def take_readings(self) -> DeviceReadings:
        """Return the readings of all devices since the last call."""
        readings = DeviceReadings()
        for collector in self.devices:
            collector.take_readings(readings)
        return readings

    def idle_gpu_ns(self, start_ns: int, end_ns: int) -> int:
        """Return for how long all GPUs were idle between two moments (monotonic) of the last minutes."""
        return max((collector.idle_ns(start_ns, end_ns) for collector in self.devices), default=0)

    def startup_errors(self) -> tuple[str, ...]:
        """Return why required collectors have no readings."""
        errors = (collector.startup_error for collector in self._required)
        return tuple(error for error in errors if error is not None)

    def has_child(self, pid: object) -> bool:
        """Whether the process is a child of a collector."""
        return any(pid == collector.child_pid for collector in self._required)

    def longest_wait(self, batch: str, since_ns: int) -> "Wait | None":
        """Return what a batch waited for longest since then; None if that is not known."""
        waits = (collector.longest_wait(batch, since_ns) for collector in self._waits)
        return next((wait for wait in waits if wait is not None), None)

    def final_readings(self) -> None:
        """Take one last reading of each collector before a report, which waits at most this long for each."""
        for collector in self._threads:
            collector.final_reading(0.3)

    def stacks_line(self, record: Record, batch: str = COMMAND) -> bytes | None:
        """Return the line of the call stacks that belongs to a final record; None without any."""
        lines = (collector.stacks_line(record, batch) for collector in self._lines)
        return next((line for line in lines if line is not None), None)

    def stop(self) -> None:
        """Stop all collectors after the report."""
        for collector in self._threads:
            collector.stop(1.5)


def with_collected(record: Record, collectors: Iterable[Collector], batch: str = COMMAND) -> Record:
    """Return the record with the values, sources and warnings of all collectors."""
    return with_parts(record, [collector.part(record, batch) for collector in collectors])


def failure_warnings(failure: ThreadFailure | None, values: str) -> tuple[str, ...]:
    """A sentence if an error has ended the thread that collects the ``values``."""
    return () if failure is None else (failure.sentence(values),)


class TaskTags:
    """Adds the task's tags, or why they are missing. Nothing waits for the request, which may take seconds."""

    def __init__(self, request: BackgroundCall[Mapping[str, str] | Unavailable]) -> None:
        self._request = request

    def part(self, record: Record, batch: str) -> RecordPart:  # noqa: ARG002  of no batch
        """Return the tags, or a warning. A checkpoint without an answer yet has neither."""
        answer = self._request.result_so_far()
        if isinstance(answer, Mapping):
            return RecordPart(values={"tags": answer or None})
        if answer is None and record.status == "running":
            return RecordPart()
        reason = "/taskWithTags had not answered when the run ended" if answer is None else answer.reason
        return RecordPart(warnings=(f"The task's tags are missing: {reason}.",))

"""The interface of all collectors. Each reads in a thread: a driver that hangs costs only its own numbers."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from profiler.aggregation.task_record import RecordPart, with_parts
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
        """The collector's own child process, which is excluded from the measurements."""
        return None

    def start(self) -> None:
        """Start collecting; returns at once."""

    def on_batch_started(self, container: "ContainerMetadata") -> None:
        """The batch container runs; called again as long as it does."""

    def on_sample(self, name: str, sample: ContainerSample) -> None:
        """Compare the readings with a sample of the task stats."""

    def take_readings(self, into: DeviceReadings) -> None:
        """Add the readings of all the batch's devices since the last call."""

    def idle_ns(self, start_ns: int, end_ns: int) -> int:  # noqa: ARG002  for subclasses
        """Return for how long all the batch's GPUs were idle between two moments (monotonic) of the last minutes."""
        return 0

    def latest(self) -> "LiveGpus | LiveNeuron | None":
        """Return the last reading for the live metrics; None before the first."""
        return None

    def longest_wait(self, name: str, since_ns: int) -> "Wait | None":  # noqa: ARG002  for subclasses
        """Return what a batch container waited for longest since then, as of its last record; None if unknown."""
        return None

    def final_reading(self, max_seconds: float) -> None:
        """Take one last reading before a report is written, within ``max_seconds``."""

    def part(self, record: Record) -> RecordPart:  # noqa: ARG002  for subclasses
        """Return what is known so far for a record: values, the name of the source, and warnings."""
        return RecordPart()

    def stacks_line(self, record: Record) -> bytes | None:  # noqa: ARG002  for subclasses
        """Return the line of the call stacks that belongs to a final record; None without any."""
        return None

    def stop(self, max_seconds: float) -> None:
        """Stop collecting and end the collector's thread and child process, within ``max_seconds``."""


def failure_warnings(failure: ThreadFailure | None, values: str) -> tuple[str, ...]:
    """A sentence if an error has ended the thread that collects the ``values``."""
    return () if failure is None else (failure.sentence(values),)


def final_readings(collectors: Iterable[Collector]) -> None:
    """Take one last reading of each collector before a report, which waits at most this long for each."""
    for collector in collectors:
        collector.final_reading(0.3)


def take_readings(collectors: Iterable[Collector]) -> DeviceReadings:
    """Return the readings of all devices since the last call."""
    readings = DeviceReadings()
    for collector in collectors:
        collector.take_readings(readings)
    return readings


def idle_gpu_ns(collectors: Iterable[Collector], start_ns: int, end_ns: int) -> int:
    """Return for how long all GPUs were idle between two moments (monotonic) of the last minutes."""
    return max((collector.idle_ns(start_ns, end_ns) for collector in collectors), default=0)


def stop_collectors(collectors: Iterable[Collector]) -> None:
    """Stop all collectors after the report."""
    for collector in collectors:
        collector.stop(1.5)


def with_collected(record: Record, collectors: Iterable[Collector]) -> Record:
    """Return the record with the values, sources and warnings of all collectors."""
    return with_parts(record, [collector.part(record) for collector in collectors])


def stacks_line(record: Record, collectors: Iterable[Collector]) -> bytes | None:
    """Return the line of the call stacks that belongs to a final record; None without any."""
    lines = (collector.stacks_line(record) for collector in collectors)
    return next((line for line in lines if line is not None), None)


def longest_wait(collectors: Iterable[Collector], name: str, since_ns: int) -> "Wait | None":
    """Return what a batch container waited for longest since then; None if that is not known."""
    waits = (collector.longest_wait(name, since_ns) for collector in collectors)
    return next((wait for wait in waits if wait is not None), None)


class TaskTags(Collector):
    """Adds the task's tags, or why they are missing. Nothing waits for the request, which may take seconds."""

    def __init__(self, request: BackgroundCall[Mapping[str, str] | Unavailable]) -> None:
        self._request = request

    def part(self, record: Record) -> RecordPart:
        """Return the tags, or a warning. A checkpoint without an answer yet has neither."""
        answer = self._request.result_so_far()
        if isinstance(answer, Mapping):
            return RecordPart(values={"tags": answer or None})
        if answer is None and record.status == "running":
            return RecordPart()
        reason = "/taskWithTags had not answered when the run ended" if answer is None else answer.reason
        return RecordPart(warnings=(f"The task's tags are missing: {reason}.",))

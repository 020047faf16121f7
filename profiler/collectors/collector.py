"""The collectors of a process.

Each reads in a thread: a driver that hangs costs only its own numbers.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from profiler.aggregation.record_assembly import left_out_warning
from profiler.aggregation.record_parts import RecordPart
from profiler.aggregation.statistics import DeviceReadings
from profiler.core.background_call import BackgroundCall
from profiler.core.optional_math import first_of, known_values, sum_of_both
from profiler.readers import Unavailable
from profiler.record.record_model import Record

if TYPE_CHECKING:
    from profiler.aggregation.gpu_idle_breakdown import IdleGpus
    from profiler.collectors.collector_kinds import (
        BatchFollower,
        Collector,
        DeviceCollector,
        ForgettingCollector,
        LineCollector,
        RequiredCollector,
        SampleFollower,
        ThreadCollector,
        WaitCollector,
        WaitFollower,
    )
    from profiler.readers.ecs.task_metadata import ContainerMetadata
    from profiler.readers.linux.wait_types import Wait

# The only batch of ``run``.
COMMAND = ""


class Collectors:
    """All collectors of a process.

    ``batch`` is :attr:`ContainerMetadata.followed_id`, for ``run`` COMMAND.

    ``are_timed``: one needs each sample of a batch at once, or its readings count for the time at
    which they are taken.
    """

    def __init__(self, *collectors: "Collector") -> None:
        self._set_collectors(collectors)

    def _set_collectors(self, collectors: "tuple[Collector, ...]") -> None:
        self._all = collectors
        self.threads: tuple[ThreadCollector, ...] = self._collectors_with("start")
        self._batch_followers: tuple[BatchFollower, ...] = self._collectors_with("on_batch_started")
        self.sample_followers: tuple[SampleFollower, ...] = self._collectors_with("on_sample")
        self.devices: tuple[DeviceCollector, ...] = self._collectors_with("take_readings")
        self.are_timed = bool(self.devices) or not all(
            follower.takes_late_samples for follower in self.sample_followers
        )
        self._forgetting: tuple[ForgettingCollector, ...] = self._collectors_with("forget")
        self.required: tuple[RequiredCollector, ...] = self._collectors_with("child_pid")
        self._waits: tuple[WaitCollector, ...] = self._collectors_with("longest_wait")
        self._wait_followers: tuple[WaitFollower, ...] = self._collectors_with("on_waits")
        self._lines: tuple[LineCollector, ...] = self._collectors_with("stacks_line")

    def _collectors_with(self, method: str) -> tuple[Any, ...]:
        # From Python 3.12 on, isinstance() of a Protocol imports the module inspect, which would
        # delay a run.
        return tuple(collector for collector in self._all if hasattr(collector, method))

    def __iter__(self) -> "Iterator[Collector]":  # noqa: D105
        return iter(self._all)

    def on_batch_started(self, container: "ContainerMetadata") -> None:
        for follower in self._batch_followers:
            replacement = follower.on_batch_started(container)
            if replacement is None:
                continue
            collectors = list(self._all)
            position = [id(collector) for collector in collectors].index(id(follower))
            collectors[position] = replacement
            self._set_collectors(tuple(collectors))

    def take_readings(self, batch: str = COMMAND) -> DeviceReadings:
        readings = DeviceReadings()
        for collector in self.devices:
            collector.take_readings(batch, readings)
        return readings

    def idle_gpus(self, batch: str, offset_ns: int) -> "IdleGpus":
        """The idle time of the batch's GPUs, on a clock that is ahead of the monotonic one."""
        return _GpusOfBatch(self.devices, batch, offset_ns)

    def forget(self, batch: str) -> None:
        for collector in self._forgetting:
            collector.forget(batch)

    def startup_errors(self) -> tuple[str, ...]:
        return known_values(collector.startup_error for collector in self.required)

    def longest_wait(self, batch: str, since_ns: int) -> "Wait | None":
        return first_of(collector.longest_wait(batch, since_ns) for collector in self._waits)

    def held_back_ns(self, batch: str) -> Mapping[int, float]:
        """The work that the present wait of each thread of the batch holds back."""
        held_back_ns: dict[int, float] = {}
        for collector in self._waits:
            held_back_ns.update(collector.held_back_ns(batch))
        return held_back_ns

    def pass_waits_on(self, batch: str, held_back_ns: Callable[[], Mapping[int, float]]) -> None:
        """Tell those who want to know it now what the waits of the batch's threads hold back."""
        for follower in self._wait_followers:
            if follower.wants_waits(batch):
                follower.on_waits(batch, held_back_ns())

    def final_readings(self) -> None:
        for collector in self.threads:
            collector.final_reading(0.3)  # a report waits at most this long for each

    def stacks_line(self, record: Record, batch: str = COMMAND) -> bytes | None:
        with suppress(Exception):  # a defect of this line must not lose the report
            return first_of(collector.stacks_line(record, batch) for collector in self._lines)
        return None

    def stop(self) -> None:
        for collector in self.threads:
            collector.stop(1.5)


class _GpusOfBatch:
    """The idle time of a batch's GPUs (an ``IdleGpus``), on a clock that is ``offset_ns`` ahead of
    the monotonic one.
    """

    def __init__(
        self, collectors: "tuple[DeviceCollector, ...]", batch: str, offset_ns: int
    ) -> None:
        self._collectors = collectors
        self._batch = batch
        self._offset_ns = offset_ns

    def idle_ns(self, start_ns: int, end_ns: int) -> int:
        start_ns -= self._offset_ns
        end_ns -= self._offset_ns
        return max(
            (collector.idle_ns(self._batch, start_ns, end_ns) for collector in self._collectors),
            default=0,
        )

    def known_until_ns(self) -> int | None:
        known = (collector.known_until_ns() for collector in self._collectors)
        return sum_of_both(first_of(known), self._offset_ns)


def collected_parts(
    collectors: "Iterable[Collector]", record: Record, batch: str = COMMAND
) -> tuple[RecordPart, ...]:
    """The parts that all collectors have of a record, which has no measurement yet."""
    return tuple(_part_or_warning(collector, record, batch) for collector in collectors)


def _part_or_warning(collector: "Collector", record: Record, batch: str) -> RecordPart:
    try:
        return collector.part(record, batch)
    except Exception as error:  # noqa: BLE001  whatever it is, the rest of the record is worth more
        return RecordPart(warnings=(left_out_warning(error, type(collector).__name__),))


TagRequest: TypeAlias = BackgroundCall[Mapping[str, str] | Unavailable]


class TaskTags:
    """Adds the task's tags, or why they are missing.

    Nothing waits for the request, which may take seconds.

    ``request_for`` starts the request for the task of a batch, or returns the one that was started
    before.
    """

    def __init__(self, request_for: Callable[[str], TagRequest]) -> None:
        self._request_for = request_for
        self._requests: dict[str, TagRequest] = {}

    def on_batch_started(self, container: "ContainerMetadata") -> None:
        self._request(container.followed_id)

    def _request(self, batch: str) -> TagRequest:
        if batch not in self._requests:
            self._requests[batch] = self._request_for(batch)
        return self._requests[batch]

    def forget(self, batch: str) -> None:
        self._requests.pop(batch, None)

    def part(self, record: Record, batch: str) -> RecordPart:
        answer = self._request(batch).result_so_far()
        if isinstance(answer, Mapping):
            return RecordPart(values={"tags": answer or None})
        if answer is None and record.status == "running":
            return RecordPart()
        if answer is None:
            reason = "/taskWithTags had not answered when the run ended"
        else:
            reason = answer.reason
        return RecordPart(warnings=(f"The task's tags are missing: {reason}.",))

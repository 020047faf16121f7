"""Samples the task for the monitor: its metadata, the usage of each container, and warnings
about the measurement.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aggregation.container_usage import ContainerUsage
from profiler.aggregation.record_evidence import KillEvidence, RunEvidence
from profiler.aggregation.record_parts import (
    RecordPart,
    container_limits,
    kernel_memory_warnings,
    pinned_memory_warnings,
)
from profiler.aggregation.run_end import RunEnd, with_clock_shift
from profiler.aggregation.slowdown import CpuDemand
from profiler.collectors.collector import Collectors
from profiler.core.clock import Clock, ClockJumpDetector
from profiler.core.deadline_writer import Output
from profiler.core.ecs_terms import FARGATE
from profiler.core.log import Log
from profiler.core.optional_math import first_known, known, product
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.monitor.followed_container import FollowedContainer, FollowedContainers
from profiler.readers import SourceHealth, Unavailable
from profiler.readers.container_sample import ContainerSample
from profiler.readers.ecs.container_stats import StatsReading, decoded_sample_of
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata, runs_on_instance
from profiler.readers.linux.host import Host
from profiler.readers.linux.instance import SwapCounters
from profiler.record.record_model import Record
from profiler.record.units import MIB, format_count

_Counters = TypeVar("_Counters")
_TASK_PERIOD_NS = 10 * NS_PER_SECOND
_OWN_CONTAINER_ATTEMPTS = 3
_PAIR = 2  # the monitor and one batch
# A container whose readings do not change for this many of its usual steps may have ended.
_STALE_STEPS = 2


class _CountersAtStart(Struct, Generic[_Counters]):
    """Keeps what the machine's counters were when a batch was first seen."""

    _read: Callable[[], _Counters | None]
    _by_batch: dict[str, _Counters | None] = field(default_factory=dict)

    def on_batch_started(self, container: ContainerMetadata) -> None:
        if container.followed_id not in self._by_batch:
            self._by_batch[container.followed_id] = self._read()

    def forget(self, batch: str) -> None:
        self._by_batch.pop(batch, None)


class SwapWarning(_CountersAtStart[SwapCounters]):
    """Compares the instance's swap counters with those when a batch was first seen: earlier
    swapping does not count.
    """

    def part(self, record: Record, batch: str) -> RecordPart:
        """Return a warning if at least 1 MiB was swapped while the task ran on an instance."""
        now = self._read() if runs_on_instance(record.launch_type) else None
        before = self._by_batch.get(batch)
        if now is None or before is None:
            return RecordPart()
        out_mib = (now.out_bytes - before.out_bytes) // MIB
        in_mib = (now.in_bytes - before.in_bytes) // MIB
        if max(out_mib, in_mib) < 1:
            return RecordPart()
        amounts = f"{out_mib} MiB out, {in_mib} MiB back in"
        text = (
            f"The instance swapped while the batch ran ({amounts}): give it more memory, or fewer "
            "tasks at a time."
        )
        return RecordPart(warnings=(text,))


class MachineKills(_CountersAtStart[int]):
    """Compares the machine's count of kills for lack of memory with that when a batch was first
    seen to run: one that has not risen excludes that a kill was the batch's end.
    """

    def on_batch_started(self, container: ContainerMetadata) -> None:
        if not container.is_stopped:
            super().on_batch_started(container)

    def part(self, record: Record, batch: str) -> RecordPart:  # noqa: ARG002  of the machine
        before = self._by_batch.get(batch)
        if before is None or self._read() != before:
            return RecordPart()
        return RecordPart(evidence=RunEvidence(kills=KillEvidence(excludes_kill_at_end=True)))


class OutputWarning:
    """Counts the lines that were dropped because nobody read the monitor's outputs, which may be
    the same.
    """

    def __init__(self, stdout: Output, stderr: Output) -> None:
        self._names = {stdout: "standard output"}
        if stderr is not stdout:
            self._names[stderr] = "standard error"

    def part(self, record: Record, batch: str) -> RecordPart:  # noqa: ARG002  of no record
        """The warnings about dropped lines; no values."""
        sentences: list[str] = []
        for output, name in self._names.items():
            if output.dropped:
                were = "was" if output.dropped == 1 else "were"
                sentences.append(
                    f"The monitor's {name} was not read for a while (a log driver that hangs?): "
                    f"{format_count(output.dropped, 'line')} {were} dropped."
                )
        return RecordPart(warnings=tuple(sentences))


def _clock_shift_since(followed: FollowedContainer, jumped_ns: int) -> int:
    """The time by which the wall clock was set between the container's start and ``jumped_ns``."""
    if followed.shift_at_start_ns is None:
        return 0
    return jumped_ns - followed.shift_at_start_ns


def _is_plain_news(
    followed: FollowedContainer, reading: StatsReading, before: StatsReading
) -> bool:
    """Whether a container has a new sample, for which no line is due."""
    docker_id = followed.container.docker_id or ""
    sample = reading.get(docker_id)
    earlier = before.get(docker_id)
    if sample is None or isinstance(sample, Unavailable):
        return False
    if earlier is None or isinstance(earlier, Unavailable):
        return False
    if not followed.is_listed or sample.read_ns <= earlier.read_ns:
        return False
    if isinstance(sample, ContainerSample):
        return followed.has_free_memory(sample.memory_used_bytes)
    # With page cache and all: where that is little, the rest need not be known yet.
    return followed.has_free_memory(sample.usage_bytes) or followed.has_free_memory(
        sample.decoded_sample().memory_used_bytes
    )


class TaskSource(Protocol):
    """Where a task, the stats of its containers and the monitor's own container are read.

    What did not change is the same object again. ``has_news``: the task is to be read now.
    ``is_resumed``: it ran before the monitor, so what its containers used until the first sample
    has no times.
    """

    name: str
    has_news: bool
    is_resumed: bool

    def read_task(self, max_seconds: float | None = None) -> TaskMetadata | Unavailable: ...
    def read_stats(self, max_seconds: float | None = None) -> StatsReading | Unavailable: ...
    def read_own_container(self) -> ContainerMetadata | Unavailable: ...


class TaskSampler:
    """Samples all containers on each tick, and reads the task only when something may have
    changed.

    The collectors receive each sample of a batch that is not a duplicate, by the clock as it was
    set at the start. A batch's time series has at most ``2 * series_points`` steps.
    ``is_repeated``: the last answer repeated the one before, as nine of ten on Fargate.
    """

    def __init__(
        self,
        source: TaskSource,
        clock: Clock,
        log: Log,
        interval_ns: int,
        collectors: Collectors,
        *,
        series_points: int = 0,
        host: Host,
    ) -> None:
        self._source = source
        self.source_name = source.name
        self._series_points = series_points
        self.host = host
        self.followed = FollowedContainers()
        self._watched: Sequence[FollowedContainer] = ()
        self._collectors = collectors
        self._clock = clock
        self.interval_ns = interval_ns
        self._task_read_ns = 0
        self._own_attempts = 0
        self._seen_ids: frozenset[str] = frozenset()
        self.stats_health = SourceHealth("/task/stats", log)
        self.task_health = SourceHealth("/task", log)
        self._log = log
        self._clock_jumps = ClockJumpDetector(clock)
        self._present: list[ContainerUsage] = []
        self.task: TaskMetadata | None = None
        self.own: ContainerMetadata | None = None
        self.last_reading: StatsReading | None = None
        self.is_repeated = False
        self.is_waiting = False
        self._had_new_samples = False
        self.readings = 0
        self._kept: list[tuple[StatsReading, int, int]] = []

    def tick(
        self,
        watched: Sequence[FollowedContainer],
        *,
        may_wait: bool = False,
        on_late: Callable[[], None] | None = None,
    ) -> bool:
        """Read the stats, and the task if necessary: then returns True.

        The end of the ``watched`` is awaited. ``may_wait``: a reading without news is only kept, as
        :attr:`is_waiting` tells. A later tick adds it, and calls ``on_late`` after each.
        """
        if watched and watched != self._watched:
            self._follow_only(watched)
        previous = self.last_reading
        reading = self._read_stats()
        self.is_waiting = may_wait and self._may_readings_wait(reading, previous, watched)
        if self.is_waiting and not isinstance(reading, Unavailable):
            self._add_or_keep(reading)
            return False
        self.add_kept(on_late)
        self.is_repeated = reading is previous
        refreshed = self._task_is_due(reading, watched) and self.read_task_again()
        if isinstance(reading, Unavailable):
            pass
        elif self.is_repeated and not refreshed:
            for usage in self._present:
                usage.duplicates += 1
        else:
            self._add_samples(reading, self._clock.monotonic_ns(), self._clock_jumps.jumped_ns)
        self.add_device_readings()
        return refreshed

    def read_stats(self, max_seconds: float) -> None:
        """Read the stats alone, between two ticks."""
        self.read_stats_for_next_tick(max_seconds)
        self.add_kept()

    def read_stats_for_next_tick(self, max_seconds: float | None = None) -> None:
        """Read the stats, which the next tick adds.

        Ten at once cost half as much as one at a time.
        """
        reading = self._read_stats(max_seconds)
        if not isinstance(reading, Unavailable):
            self._add_or_keep(reading)

    def _add_or_keep(self, reading: StatsReading) -> None:
        self._kept.append((reading, self._clock.monotonic_ns(), self._clock_jumps.jumped_ns))

    def add_kept(self, on_each: Callable[[], None] | None = None) -> None:
        """Add the readings that were kept; call ``on_each`` after each of them. A defect leaves
        those after it for the next call.
        """
        kept = self._kept
        self._kept = []
        try:
            while kept:
                self._add_samples(*kept.pop(0))
                if on_each is not None:
                    on_each()
        finally:
            self._kept[:0] = kept

    def _may_readings_wait(
        self,
        reading: StatsReading | Unavailable,
        before: StatsReading | None,
        watched: Sequence[FollowedContainer],
    ) -> bool:
        """Whether nothing is due, the containers are as before, and each of the watched has a new
        sample, as at the tick before: statistics that change less often do not wait.
        """
        had_new_samples = self._had_new_samples
        self._had_new_samples = False
        if isinstance(reading, Unavailable) or before is None or reading is before or not watched:
            return False
        self._had_new_samples = all(
            _is_plain_news(followed, reading, before) for followed in watched
        )
        are_usual = had_new_samples and self._had_new_samples
        return are_usual and not self._must_read_task and reading.keys() == before.keys()

    def _read_stats(self, max_seconds: float | None = None) -> StatsReading | Unavailable:
        """Read the stats, and log when they begin or cease to be readable."""
        reading = self._source.read_stats(max_seconds)
        self._log_clock_jumps()
        if isinstance(reading, Unavailable):
            self.stats_health.on_failure(reading)
            return reading
        malformed = self._malformed_sample(reading)
        if malformed is None:
            self.stats_health.on_success()
        else:
            self.stats_health.on_failure(malformed)
        self.last_reading = reading
        self.readings += 1
        return reading

    def _malformed_sample(self, reading: StatsReading) -> Unavailable | None:
        """The first watched container whose stats could not be read."""
        for followed in self._watched:
            sample = reading.get(followed.container.docker_id or "")
            if followed.is_listed and isinstance(sample, Unavailable):
                return sample
        return None

    def add_device_readings(self) -> None:
        """Add the devices' readings since the last call to the batches that have samples."""
        if not self._collectors.devices:
            return
        now_ns = self._clock.monotonic_ns()
        for followed in self.followed.all:
            if followed.may_be_batch:
                readings = self._collectors.take_readings(followed.container.followed_id)
                followed.interval_devices.merge(readings)
                followed.usage.add_devices(readings, now_ns)

    @property
    def max_threads(self) -> int | None:
        """The largest numbers of threads of all containers together; None if one of them is
        unknown.
        """
        largest: list[int] = []
        for followed in self.followed.all:
            if not followed.usage.samples:
                continue
            if followed.usage.max_pids is None:
                return None
            largest.append(followed.usage.max_pids)
        return sum(largest) if largest else None

    def read_task_again(self, max_seconds: float | None = None) -> bool:
        """Read the task; returns True on success. After a failure the last metadata is kept."""
        self._log_clock_jumps()
        self._task_read_ns = self._clock.monotonic_ns()
        task = self._source.read_task(max_seconds)
        if isinstance(task, Unavailable):
            self.task_health.on_failure(task)
            return False
        self.task_health.on_success()
        self.task = self.followed.add_task(task)
        for followed in self.followed.listed:
            if followed.shift_at_start_ns is None and followed.container.started_ns is not None:
                followed.shift_at_start_ns = self._clock_jumps.jumped_ns
        if not self.is_own_container_settled:
            own = self._source.read_own_container()
            self._own_attempts += 1
            self.own = None if isinstance(own, Unavailable) else own
        return True

    def _log_clock_jumps(self) -> None:
        if self._clock_jumps.check():
            for warning in self._clock_jumps.warnings:
                self._log.warning(warning)

    @property
    def is_batch_alone(self) -> bool:
        """Whether no other container than the batch and the monitor uses the machine, which is
        Fargate's.
        """
        return (
            self.task is not None
            and self.task.launch_type == FARGATE
            and len(self.task.containers) <= _PAIR
        )

    def by_clock_of_start(self, followed: FollowedContainer, end: RunEnd) -> RunEnd:
        """The end with durations by the wall clock as it was set when the container started."""
        self._log_clock_jumps()
        shift_ns = _clock_shift_since(followed, self._clock_jumps.jumped_ns)
        now_ns = self._clock.wall_ns()
        return with_clock_shift(end, followed.container.started_ns, shift_ns, now_ns=now_ns)

    def warnings(self, followed: FollowedContainer) -> tuple[str, ...]:
        """Sentences about the measurement of a container, for its record."""
        usage = followed.usage
        container = followed.container
        sentences = list(self._clock_jumps.warnings)
        if followed.is_listed and container.restart_count:
            times = "once" if container.restart_count == 1 else f"{container.restart_count} times"
            sentences.append(
                f"ECS restarted the container {times}: the values cover all attempts that were "
                "seen."
            )
        if self.stats_health.failures and not usage.samples:
            sentences.append(
                "The task stats of the container could never be read: "
                f"{self.stats_health.last_reason}."
            )
        if usage.impossible:
            sentences.append(
                f"The task stats had {format_count(usage.impossible, 'value')} of CPU time or "
                "memory that cannot be right on this machine: left out."
            )
        sentences.extend(kernel_memory_warnings(usage) + pinned_memory_warnings(usage))
        return tuple(sentences)

    @property
    def is_own_container_settled(self) -> bool:
        """Whether the monitor's own container is known, or was read often enough without
        success.
        """
        return self.own is not None or self._own_attempts >= _OWN_CONTAINER_ATTEMPTS

    def _task_is_due(
        self, reading: StatsReading | Unavailable, watched: Sequence[FollowedContainer]
    ) -> bool:
        """Whether to read the task now: something may have started or ended, or the last read is
        old.
        """
        if self._must_read_task:
            return True
        if isinstance(reading, Unavailable):
            return not reading.timed_out
        if not self.is_repeated:
            before = self._seen_ids
            self._seen_ids = frozenset(reading)
            if self._seen_ids != before:
                return True
        now_ns = self._clock.monotonic_ns()
        return any(self._may_have_ended(followed, reading, now_ns) for followed in watched)

    @property
    def _must_read_task(self) -> bool:
        """Whether to read the task at this tick, whatever the stats show."""
        if self._source.has_news or self.task is None or not self.is_own_container_settled:
            return True
        return self._clock.monotonic_ns() - self._task_read_ns >= _TASK_PERIOD_NS

    def _may_have_ended(
        self, followed: FollowedContainer, reading: StatsReading, now_ns: int
    ) -> bool:
        """Whether the container has no new sample, for longer than usual."""
        sample = reading.get(followed.container.docker_id or "")
        if not followed.is_listed or sample is None or isinstance(sample, Unavailable):
            return True
        usage = followed.usage
        if usage.received_ns is None or not followed.may_be_batch:
            return False
        waited_ns = now_ns - usage.received_ns
        if waited_ns <= _STALE_STEPS * self.interval_ns:
            return False
        usual_ns = first_known(
            known(round, product(usage.usual_step_ms, NS_PER_MS)), _TASK_PERIOD_NS
        )
        return waited_ns > _STALE_STEPS * usual_ns

    def _add_samples(self, reading: StatsReading, received_ns: int, jumped_ns: int) -> None:
        """Add each listed container's sample to its usage, and the task's CPU use to the batches'
        demand.
        """
        present: list[ContainerUsage] = []
        self._present = present
        for followed in self.followed.listed:
            container = followed.container
            sample = decoded_sample_of(reading.get(container.docker_id or ""))
            if sample is None or container.docker_id is None:
                continue
            if not followed.usage.samples:
                self._begin_usage(followed)
            usage = followed.usage
            present.append(usage)
            is_new = usage.add_sample(
                sample,
                epoch=container.docker_id,
                received_ns=received_ns,
                started_ns=container.started_ns,
                attempt_started_ns=container.attempt_started_ns,
                is_new=not (container.restart_count or self._source.is_resumed),
                shares_network=container.shares_network,
                clock_shift_ns=_clock_shift_since(followed, jumped_ns),
            )
            if is_new and self._collectors.sample_followers:
                self._show_collectors(followed, usage, sample)
        # The vCPUs of all containers, for the steps that the batches' samples have ended.
        task_vcpu = sum([usage.last_vcpu or 0.0 for usage in present])
        for followed in self.followed.all:
            if followed.may_be_batch and (held_ns := followed.usage.take_ended_step_ns()):
                followed.demand.add_step(task_vcpu, held_ns)

    def _show_collectors(
        self, followed: FollowedContainer, usage: ContainerUsage, sample: ContainerSample
    ) -> None:
        """Give the sample of a batch to the collectors that compare with it."""
        if not followed.may_be_batch or self.task is None:
            return
        sample = replace(sample, read_ns=usage.last_read_by_start_ns or sample.read_ns)
        sizes = container_limits(followed.container, self.task, self.host, usage.memory_limit_bytes)
        batch = followed.container.followed_id
        for collector in self._collectors.sample_followers:
            collector.on_sample(batch, sample, sizes)
        self._collectors.pass_waits_on(batch, partial(self._collectors.held_back_ns, batch))

    def _begin_usage(self, followed: FollowedContainer) -> None:
        """Begin the usage of a container; until the batches are known, each may be one."""
        followed.usage = ContainerUsage(self.interval_ns, self._series_points, self.host)
        if self._watched and followed not in self._watched:
            followed.keep_totals_only()
        else:
            task_vcpu = (self.task or TaskMetadata()).vcpu_limit
            followed.vcpu_size = first_known(task_vcpu, self.host.vcpu)
            followed.may_be_batch = True
            followed.demand = CpuDemand(followed.vcpu_size)

    def _follow_only(self, watched: Sequence[FollowedContainer]) -> None:
        """Drop the data that only batches need for all other containers, when the batches are
        known.
        """
        self._watched = watched
        for followed in self.followed.all:
            if followed.may_be_batch and followed not in watched:
                followed.keep_totals_only()

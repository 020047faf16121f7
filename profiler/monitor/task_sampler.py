"""Samples the task for the monitor: its metadata, the usage of each container, and warnings about the measurement."""

from collections.abc import Callable, Collection, Iterator, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aggregation.container_usage import ContainerUsage
from profiler.aggregation.slowdown import CpuDemand
from profiler.aggregation.task_record import RecordPart
from profiler.aggregation.time_series import DeviceReadings
from profiler.collectors.collector import Collector, take_readings
from profiler.core.clock import Clock, ClockJumpDetector
from profiler.core.deadline_writer import Output
from profiler.core.ecs_terms import FARGATE
from profiler.core.log import Log
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.readers import SourceHealth, Unavailable
from profiler.readers.container_sample import ContainerSample
from profiler.readers.ecs.container_stats import StatsReading
from profiler.readers.ecs.endpoint_client import TaskMetadataSource
from profiler.readers.ecs.task_metadata import ContainerMetadata, Restarts, TaskMetadata, runs_on_instance
from profiler.readers.linux.host import Host, SwapCounters
from profiler.record.record_model import Record
from profiler.record.units import MIB, format_count

_TASK_PERIOD_NS = 10 * NS_PER_SECOND
_OWN_CONTAINER_ATTEMPTS = 3
_PAIR = 2  # the monitor and one batch
# A container whose readings do not change for this many of its usual steps may have ended.
_STALE_STEPS = 2


class SwapWarning(Collector):
    """Compares the instance's swap counters with those at :meth:`start`: earlier swapping does not count."""

    def __init__(self, read: Callable[[], SwapCounters | None]) -> None:
        self._read = read
        self._before: SwapCounters | None = None

    def start(self) -> None:
        self._before = self._read()

    def part(self, record: Record) -> RecordPart:
        """Return a warning if at least 1 MiB was swapped while the task ran on an instance."""
        now = self._read() if runs_on_instance(record.launch_type) else None
        if now is None or self._before is None:
            return RecordPart()
        out_mib = (now.out_bytes - self._before.out_bytes) // MIB
        in_mib = (now.in_bytes - self._before.in_bytes) // MIB
        if max(out_mib, in_mib) < 1:
            return RecordPart()
        amounts = f"{out_mib} MiB out, {in_mib} MiB back in"
        text = f"The instance swapped while the batch ran ({amounts}): give it more memory, or fewer tasks at a time."
        return RecordPart(warnings=(text,))


class OutputWarning(Collector):
    """Counts the lines that were dropped because nobody read the monitor's outputs, which may be the same."""

    def __init__(self, stdout: Output, stderr: Output) -> None:
        self._names = {stdout: "standard output"} | ({} if stderr is stdout else {stderr: "standard error"})

    def part(self, record: Record) -> RecordPart:  # noqa: ARG002  of no record
        return RecordPart(warnings=tuple(self._sentences()))

    def _sentences(self) -> Iterator[str]:
        for output, name in self._names.items():
            if output.dropped:
                lines = "1 line was" if output.dropped == 1 else f"{output.dropped} lines were"
                yield f"The monitor's {name} was not read for a while (a log driver that hangs?): {lines} dropped."


def _clock_was_set(jumped_ns: int) -> str:
    """The warning that the wall clock was set during the run."""
    direction = "forward" if jumped_ns > 0 else "back"
    return (
        f"The wall clock was set {direction} by {abs(jumped_ns) / NS_PER_SECOND:.0f} s during the run: "
        "times after it are off by that much; durations are corrected."
    )


class BatchLoad(Struct, eq=False):
    """The data of a batch beyond the usage of its container.

    ``demand`` covers all containers of the task, in the steps of the batch. ``interval_devices`` are the readings of
    the devices since the last checkpoint. ``vcpu_size`` is the task's size, else the host's.
    """

    vcpu_size: float | None
    demand: CpuDemand
    interval_devices: DeviceReadings = field(default_factory=DeviceReadings)


class TaskSampler:
    """Samples all containers on each tick, and reads the task only when something may have changed.

    ``on_sample`` receives the container's name and each sample that is not a duplicate, by the clock as it was set at
    the start. A batch's time series has at most ``2 * series_points`` steps. ``is_repeated`` is whether the last answer
    repeated the one before, as nine of ten do on Fargate.
    """

    def __init__(
        self,
        source: TaskMetadataSource,
        clock: Clock,
        log: Log,
        interval_ns: int,
        on_sample: Callable[[str, ContainerSample], None] = lambda _name, _sample: None,
        *,
        series_points: int = 0,
        host: Host,
        devices: Sequence[Collector] = (),
    ) -> None:
        self._source, self.source_name = source, source.name
        self._series_points = series_points
        self.host = host
        self._restarts = Restarts()
        self._shift_at_start_ns: dict[str, int] = {}
        self._devices = devices
        self._watched: Collection[str] = ()
        self._watched_names: frozenset[str] = frozenset()
        self._on_sample = on_sample
        self._clock = clock
        self._interval_ns = interval_ns
        self._task_read_ns: int | None = None
        self._own_attempts = 0
        self._seen_ids: frozenset[str] = frozenset()
        self._stale_at_ns: dict[str, int] = {}  # when a batch whose last sample stays the same may have ended
        self.stats_health = SourceHealth("/task/stats", log)
        self.task_health = SourceHealth("/task", log)
        self._log = log
        self._clock_jumps = ClockJumpDetector(clock)
        self._present: list[ContainerUsage] = []
        self.task: TaskMetadata | None = None
        self.own: ContainerMetadata | None = None
        self.usages: dict[str, ContainerUsage] = {}
        self.loads: dict[str, BatchLoad] = {}
        self.last_reading: StatsReading | None = None
        self.is_repeated = False
        self.readings = 0

    def tick(self, watched: Collection[str]) -> bool:
        """Read the stats, and the task if necessary; returns True if the task was read.

        ``watched`` are the containers whose end is awaited.
        """
        if watched and watched != self._watched:
            self._follow_only(watched)
        previous, reading = self.last_reading, self._read_stats()
        self.is_repeated = reading is previous
        refreshed = self._task_is_due(reading, watched) and self.refresh()
        if isinstance(reading, Unavailable):
            pass
        elif self.is_repeated and not refreshed:
            for usage in self._present:
                usage.duplicates += 1
        else:
            self._add_samples(reading)
        self.add_device_readings()
        return refreshed

    def sample(self, max_seconds: float) -> None:
        """Read the stats alone, between two ticks."""
        reading = self._read_stats(max_seconds)
        if not isinstance(reading, Unavailable):
            self._add_samples(reading)

    def _read_stats(self, max_seconds: float | None = None) -> StatsReading | Unavailable:
        reading = self._source.stats(max_seconds)
        self._look_at_clock()
        if isinstance(reading, Unavailable):
            self.stats_health.on_failure(reading)
            return reading
        containers = () if self.task is None else self.task.containers
        watched = (reading.get(one.docker_id or "") for one in containers if one.name in self._watched_names)
        malformed = next((sample for sample in watched if isinstance(sample, Unavailable)), None)
        if malformed is None:
            self.stats_health.on_success()
        else:
            self.stats_health.on_failure(malformed)
        self.last_reading = reading
        self.readings += 1
        return reading

    def add_device_readings(self) -> None:
        """Add the devices' readings since the last call to the batches that have samples."""
        if not self._devices or not self.loads:
            return
        readings, now_ns = take_readings(self._devices), self._clock.monotonic_ns()
        for name, load in self.loads.items():
            load.interval_devices.merge(readings)
            self.usages[name].add_devices(readings, now_ns)

    @property
    def max_threads(self) -> int | None:
        """The largest numbers of threads of all containers together; None if one of them is unknown."""
        largest = [usage.max_pids for usage in self.usages.values()]
        known = [pids for pids in largest if pids is not None]
        return sum(known) if known and len(known) == len(largest) else None

    def refresh(self, max_seconds: float | None = None) -> bool:
        """Read the task; returns True on success. After a failure the last metadata is kept."""
        self._look_at_clock()
        self._task_read_ns = self._clock.monotonic_ns()
        task = self._source.task(max_seconds)
        if isinstance(task, Unavailable):
            self.task_health.on_failure(task)
            return False
        self.task_health.on_success()
        self.task = self._restarts.join(task)
        for container in self.task.containers:
            if container.started_ns is not None:
                self._shift_at_start_ns.setdefault(container.name, self._clock_jumps.jumped_ns)
        if not self.is_own_container_settled:
            own = self._source.own_container()
            self._own_attempts += 1
            self.own = None if isinstance(own, Unavailable) else own
        return True

    def _look_at_clock(self) -> None:
        jumped_ns = self._clock_jumps.check()
        if jumped_ns:
            self._log.warning(_clock_was_set(jumped_ns))

    @property
    def is_batch_alone(self) -> bool:
        """Whether no other container than the batch and the monitor uses the machine, which is Fargate's."""
        return self.task is not None and self.task.launch_type == FARGATE and len(self.task.containers) <= _PAIR

    def clock_shift_ns(self, name: str) -> int:
        """By how much the wall clock was set since the container's start was seen."""
        jumped_ns = self._clock_jumps.jumped_ns
        return jumped_ns - self._shift_at_start_ns.get(name, jumped_ns)

    def warnings(self, name: str) -> tuple[str, ...]:
        """Sentences about the measurement of a container, for its record."""
        usage, sentences = self.usages.get(name), []
        container = None if self.task is None else self.task.container(name)
        if self._clock_jumps.jumped_ns:
            sentences.append(_clock_was_set(self._clock_jumps.jumped_ns))
        if container is not None and container.restart_count:
            times = "once" if container.restart_count == 1 else f"{container.restart_count} times"
            sentences.append(f"ECS restarted the container {times}: the values cover all attempts that were seen.")
        if self.stats_health.failures and (usage is None or not usage.samples):
            sentences.append(f"The task stats of the container could never be read: {self.stats_health.last_reason}.")
        if usage is not None and usage.impossible:
            sentences.append(
                f"The task stats had {format_count(usage.impossible, 'value')} of CPU time or memory that cannot be "
                "right on this machine: left out."
            )
        return tuple(sentences)

    @property
    def is_own_container_settled(self) -> bool:
        """Whether the monitor's own container is known, or was read often enough without success."""
        return self.own is not None or self._own_attempts >= _OWN_CONTAINER_ATTEMPTS

    def _task_is_due(self, reading: StatsReading | Unavailable, watched: Collection[str]) -> bool:
        now_ns = self._clock.monotonic_ns()
        if not self.is_own_container_settled or self.task is None or self._task_read_ns is None:
            return True
        if now_ns - self._task_read_ns >= _TASK_PERIOD_NS:
            return True
        if isinstance(reading, Unavailable):
            return not reading.timed_out
        if not self.is_repeated:
            before, self._seen_ids = self._seen_ids, frozenset(reading)
            if self._seen_ids != before:
                return True
        return any(self._is_missing(name, self.task, reading, now_ns) for name in watched)

    def _is_missing(self, name: str, task: TaskMetadata, reading: StatsReading, now_ns: int) -> bool:
        container = task.container(name)
        if container is None or not isinstance(reading.get(container.docker_id or ""), ContainerSample):
            return True
        stale_at_ns = self._stale_at_ns.get(name)
        return stale_at_ns is not None and now_ns >= stale_at_ns

    def _add_samples(self, reading: StatsReading) -> None:
        received_ns = self._clock.monotonic_ns()
        present = self._present = []
        for container in self.task.containers if self.task is not None else ():
            sample = reading.get(container.docker_id or "")
            if not isinstance(sample, ContainerSample) or container.docker_id is None:
                continue
            usage = self.usages.get(container.name)
            if usage is None:
                usage = self.usages[container.name] = self._new_usage(container)
            present.append(usage)
            if usage.add(
                sample,
                epoch=container.docker_id,
                received_ns=received_ns,
                started_ns=container.started_ns,
                attempt_started_ns=container.attempt_started_ns,
                is_new=not container.restart_count,
                shares_network=container.shares_network,
                clock_shift_ns=self.clock_shift_ns(container.name),
            ):
                if container.name in self.loads:
                    usual_step_ms = usage.steps_ms.median()
                    usual_step_ns = _TASK_PERIOD_NS if usual_step_ms is None else round(usual_step_ms * NS_PER_MS)
                    stale_ns = _STALE_STEPS * max(usual_step_ns, self._interval_ns) + 1
                    self._stale_at_ns[container.name] = received_ns + stale_ns
                self._on_sample(container.name, replace(sample, read_ns=usage.last_read_by_start_ns or sample.read_ns))
        # The vCPUs of all containers, for the steps that the batches' samples have ended.
        task_vcpu = sum(usage.last_vcpu or 0.0 for usage in present)
        for name, load in self.loads.items():
            held_ns = self.usages[name].take_ended_step_ns()
            if held_ns:
                load.demand.add(task_vcpu, held_ns)

    def _new_usage(self, container: ContainerMetadata) -> ContainerUsage:
        """The usage of a container; until the batches are known, each container may be one."""
        if self._watched_names and container.name not in self._watched_names:
            usage = ContainerUsage(self._interval_ns, machine=self.host)
            usage.keep_totals_only()
            return usage
        task_vcpu = None if self.task is None else self.task.vcpu_limit
        vcpu_size = self.host.vcpu if task_vcpu is None else task_vcpu
        self.loads[container.name] = BatchLoad(vcpu_size, CpuDemand(vcpu_size))
        return ContainerUsage(self._interval_ns, self._series_points, self.host)

    def _follow_only(self, watched: Collection[str]) -> None:
        """Drop the data that only batches need for all other containers, when the batches are known."""
        self._watched, self._watched_names = watched, frozenset(watched)
        for name in self.loads.keys() - self._watched_names:
            del self.loads[name]
            self.usages[name].keep_totals_only()

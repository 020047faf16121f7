"""The monitor's view of its task: the last metadata, and each container's usage so far."""

from collections.abc import Callable, Collection, Iterable, Sequence

from profiler.aggregation.container_usage import ContainerUsage
from profiler.aggregation.slowdown import CpuDemand
from profiler.aggregation.time_series import DeviceReadings
from profiler.collectors.base import DeviceCollector, take_readings
from profiler.core.clock import Clock, ClockJumpDetector
from profiler.core.log import Log
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.sources import SourceHealth, Unavailable
from profiler.sources.ecs.client import TaskSource
from profiler.sources.ecs.container_stats import ContainerSample, StatsReading
from profiler.sources.ecs.task_metadata import ContainerMetadata, TaskMetadata

_TASK_PERIOD_NS = 10 * NS_PER_SECOND
_OWN_CONTAINER_ATTEMPTS = 3
# A container whose readings do not change for this many of its usual steps may have ended.
_STALE_STEPS = 2
_MAX_PROBLEMS_LOGGED = 20


class BatchLoad:
    """What concerns a batch beyond the usage of its container.

    ``demand`` covers all containers of the task, in the steps of the batch. ``interval_devices`` are the readings of
    the devices since the last checkpoint. ``vcpu_size`` is the task's size, else what bounds the container.
    """

    def __init__(self, vcpu_size: float | None) -> None:
        self.vcpu_size = vcpu_size
        self.demand = CpuDemand(vcpu_size)
        self.interval_devices = DeviceReadings()


class Observation:
    """Samples all containers on each tick, and reads the task only when something may have changed.

    Args:
        source: Reads the task metadata endpoint.
        clock: The clock, which is also checked for jumps.
        log: Gets a line for each change of state.
        interval_ns: The sampling interval.
        on_sample: Receives the container's name and each sample that is not a duplicate.
        series_points: Half the largest number of steps of a batch's time series; 0 for none.
        host_vcpu: The vCPUs of the host, which bound a task without limits.
        devices: The collectors of devices.
    """

    def __init__(
        self,
        source: TaskSource,
        clock: Clock,
        log: Log,
        interval_ns: int,
        on_sample: Callable[[str, ContainerSample], None] = lambda _name, _sample: None,
        *,
        series_points: int = 0,
        host_vcpu: float | None = None,
        devices: Sequence[DeviceCollector] = (),
    ) -> None:
        self._source = source
        self._series_points = series_points
        self._host_vcpu = host_vcpu
        self._devices = devices
        self._watched: Collection[str] = ()
        self._on_sample = on_sample
        self._clock = clock
        self._interval_ns = interval_ns
        self._task_read_ns: int | None = None
        self._own_attempts = 0
        self._seen_ids: frozenset[str] = frozenset()
        self._last_fresh_ns: dict[str, int] = {}
        self._stats_health = SourceHealth("/task/stats", log)
        self._task_health = SourceHealth("/task", log)
        self._refused: dict[str, SourceHealth] = {}
        self._logged_problems: set[str] = set()
        self._log = log
        self._clock_jumps = ClockJumpDetector(clock)
        self._current: tuple[ContainerMetadata, ...] = ()
        self.task: TaskMetadata | None = None
        self.own: ContainerMetadata | None = None
        self.usages: dict[str, ContainerUsage] = {}
        self.loads: dict[str, BatchLoad] = {}
        self.last_reading: StatsReading | None = None
        self.readings = 0

    @property
    def failures(self) -> int:
        """Failed reads of the stats, and entries of single containers that could not be decoded."""
        return self._stats_health.failures + sum(health.failures for health in self._refused.values())

    @property
    def source_name(self) -> str:
        """The source's name for ``sampling.sources``."""
        return self._source.name

    def tick(self, watched: Collection[str]) -> bool:
        """Read the stats, and the task if necessary; returns True if the task was read.

        ``watched`` are the containers whose end is awaited.
        """
        self._check_clock()
        if watched and watched != self._watched:
            self._follow_only(watched)
        reading = self._read_stats()
        if isinstance(reading, Unavailable):
            refreshed = self._task_is_due(None, watched, timed_out=reading.timed_out) and self.refresh()
        else:
            refreshed = self._task_is_due(reading, watched, timed_out=False) and self.refresh()
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
        if isinstance(reading, Unavailable):
            self._stats_health.on_failure(reading)
            return reading
        self._stats_health.on_success()
        self.last_reading = reading
        self.readings += 1
        self._record_refused(reading)
        self._log_problems("/task/stats", reading.problems)
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
        self._task_read_ns = self._clock.monotonic_ns()
        task = self._source.task(max_seconds)
        if isinstance(task, Unavailable):
            self._task_health.on_failure(task)
            return False
        self._task_health.on_success()
        self._log_problems("/task", task.problems)
        self.task = task
        # Of several containers with one name (one replaced the other), only the last started one is sampled:
        # alternating samples of both would look like restarts.
        last_started = {container.name: task.container(container.name) for container in task.containers}
        self._current = tuple(container for container in last_started.values() if container is not None)
        if not self.is_own_container_settled:
            own = self._source.own_container()
            self._own_attempts += 1
            self.own = None if isinstance(own, Unavailable) else own
        return True

    def warnings(self, name: str) -> tuple[str, ...]:
        """Sentences about the measurement of a container, for its record."""
        usage = self.usages.get(name)
        sentences = (
            _clock_was_set(self._clock_jumps.jumped_ns) if self._clock_jumps.jumped_ns else None,
            _was_replaced(usage.replacements) if usage is not None and usage.replacements else None,
        )
        return tuple(sentence for sentence in sentences if sentence is not None)

    @property
    def is_own_container_settled(self) -> bool:
        """Whether the monitor's own container is known, or was read often enough without success."""
        return self.own is not None or self._own_attempts >= _OWN_CONTAINER_ATTEMPTS

    def _task_is_due(self, reading: StatsReading | None, watched: Collection[str], *, timed_out: bool) -> bool:
        now_ns = self._clock.monotonic_ns()
        if not self.is_own_container_settled or self.task is None or self._task_read_ns is None:
            return True
        if now_ns - self._task_read_ns >= _TASK_PERIOD_NS:
            return True
        if reading is None:
            return not timed_out
        ids = frozenset(reading.samples)
        changed = ids != self._seen_ids
        self._seen_ids = ids
        return changed or any(self._is_missing(name, self.task, reading, now_ns) for name in watched)

    def _is_missing(self, name: str, task: TaskMetadata, reading: StatsReading, now_ns: int) -> bool:
        container = task.container(name)
        if container is None or container.docker_id not in reading.samples:
            return True
        fresh_ns = self._last_fresh_ns.get(name)
        if fresh_ns is None or now_ns - fresh_ns <= _STALE_STEPS * self._interval_ns:
            return False
        usual_step_ms = self.usages[name].median_step_ms
        usual_step_ns = _TASK_PERIOD_NS if usual_step_ms is None else usual_step_ms * NS_PER_MS
        return now_ns - fresh_ns > _STALE_STEPS * usual_step_ns

    def _add_samples(self, reading: StatsReading) -> None:
        received_ns = self._clock.monotonic_ns()
        present: list[ContainerUsage] = []
        for container in self._current:
            sample = reading.samples.get(container.docker_id or "")
            if sample is None or container.docker_id is None:
                continue
            usage = self.usages.get(container.name)
            if usage is None:
                usage = self.usages[container.name] = self._new_usage(container)
            present.append(usage)
            started_ns = None if container.restart_count else container.started_ns
            if usage.add(
                sample,
                docker_id=container.docker_id,
                received_ns=received_ns,
                started_ns=started_ns,
                shares_network=container.shares_network,
            ):
                self._last_fresh_ns[container.name] = received_ns
                self._on_sample(container.name, sample)
        self._add_demand(present)

    def _new_usage(self, container: ContainerMetadata) -> ContainerUsage:
        """The usage of a container; until the batches are known, each container may be one."""
        if self._watched and container.name not in self._watched:
            usage = ContainerUsage(self._interval_ns)
            usage.keep_totals_only()
            return usage
        limits = (None if self.task is None else self.task.vcpu_limit, container.vcpu_limit, self._host_vcpu)
        self.loads[container.name] = BatchLoad(next((limit for limit in limits if limit is not None), None))
        return ContainerUsage(self._interval_ns, self._series_points)

    def _follow_only(self, watched: Collection[str]) -> None:
        """The batches are known: what only they need is dropped for all other containers."""
        self._watched = watched
        for name in self.loads.keys() - set(watched):
            del self.loads[name]
            self.usages[name].keep_totals_only()

    def _add_demand(self, present: Iterable[ContainerUsage]) -> None:
        """Add the vCPUs of all present containers for the steps that the batches' samples have ended."""
        task_vcpu: float | None = None
        for name, load in self.loads.items():
            held_ns = self.usages[name].take_ended_step_ns()
            if held_ns:
                if task_vcpu is None:
                    task_vcpu = sum(usage.last_vcpu or 0.0 for usage in present)
                load.demand.add(task_vcpu, held_ns)

    def _check_clock(self) -> None:
        jumped_ns = self._clock_jumps.check()
        if jumped_ns:
            self._log.warning(_clock_was_set(jumped_ns))

    def _log_problems(self, source: str, problems: tuple[str, ...]) -> None:
        """Log each problem with a single value once."""
        for problem in problems:
            if problem not in self._logged_problems and len(self._logged_problems) < _MAX_PROBLEMS_LOGGED:
                self._logged_problems.add(problem)
                self._log.warning(f"A value of {source} cannot be right and is left out", reason=problem)

    def _record_refused(self, reading: StatsReading) -> None:
        for docker_id in self._refused.keys() - reading.refused.keys():
            if docker_id in reading.samples:
                self._refused[docker_id].on_success()
        for docker_id, reason in reading.refused.items():
            health = self._refused.setdefault(
                docker_id, SourceHealth(f"The stats of container {docker_id[:12]}", self._log)
            )
            health.on_failure(Unavailable(reason))


def _clock_was_set(jumped_ns: int) -> str:
    direction = "forward" if jumped_ns > 0 else "back"
    return (
        f"The wall clock was set {direction} by {abs(jumped_ns) / NS_PER_SECOND:.0f} s during the run: "
        "times and durations may be off by that much, CPU seconds and memory peaks are not."
    )


def _was_replaced(count: int) -> str:
    times = "once" if count == 1 else f"{count} times"
    return (
        f"The container was replaced by a new one {times}: "
        "start and duration cover the last container, CPU time and traffic cover all of them."
    )

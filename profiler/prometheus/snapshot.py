"""What is known at one moment, immutable: built by the main loop, shown by the server's threads."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from profiler import __version__
from profiler.aggregation.build_record import container_limits
from profiler.aggregation.container_usage import ContainerUsage, vcpu_between
from profiler.collectors.base import LiveReadings
from profiler.collectors.neuron.usage import NeuronReadings
from profiler.collectors.nvidia.usage import GpuReadings, LatestGpu
from profiler.core.clock import Clock, Ticker
from profiler.core.ecs import cluster_name, task_id
from profiler.core.optional_math import max_known
from profiler.core.timestamps import NS_PER_SECOND
from profiler.monitor.observation import Observation
from profiler.record.units import MIB
from profiler.sources import Unavailable
from profiler.sources.ecs.container_stats import ContainerSample, StatsReading
from profiler.sources.ecs.task_metadata import ContainerMetadata, TaskMetadata
from profiler.sources.linux.host import Host, InstanceReading, OwnUsage


class ContainerSnapshot(Struct, frozen=True, kw_only=True):
    """A container by its last sample. Counters count from its start; what is not known is None."""

    name: str
    started_seconds: float | None = None
    cpu_seconds: float | None = None
    vcpu_used: float | None = None
    vcpu_limit: float | None = None
    memory_used_bytes: int | None = None
    memory_limit_bytes: float | None = None
    network_rx_bytes: int | None = None
    network_tx_bytes: int | None = None
    block_read_bytes: int | None = None
    block_write_bytes: int | None = None


class ContainersSnapshot(Struct, frozen=True, kw_only=True):
    """All containers with a sample; the counters of a network that they share are the task's."""

    containers: tuple[ContainerSnapshot, ...] = ()
    task_rx_bytes: int | None = None
    task_tx_bytes: int | None = None


class TaskSnapshot(Struct, frozen=True, kw_only=True):
    """Which task this is."""

    family: str | None = None
    task_id: str | None = None
    revision: str | None = None
    cluster: str | None = None
    launch_type: str | None = None
    availability_zone: str | None = None


class GpusSnapshot(Struct, frozen=True, kw_only=True):
    """The GPUs; ``scope`` is ``batch`` where they are known to be the batch's, else ``instance``."""

    gpus: tuple[LatestGpu, ...] = ()
    scope: str = "instance"


class MonitorSnapshot(Struct, frozen=True, kw_only=True):
    """The monitor itself."""

    version: str
    cpu_seconds: float
    memory_peak_bytes: int | None = None
    read_failures: int = 0
    missed_ticks: int = 0


class Snapshot(Struct, frozen=True, kw_only=True):
    """Everything, as known at ``taken_ns`` (monotonic).

    ``sources`` tells which of them answer; what one that does not has told before is left out.
    """

    taken_ns: int
    monitor: MonitorSnapshot
    sources: Mapping[str, bool] = {}
    task: TaskSnapshot = TaskSnapshot()
    containers: ContainersSnapshot = ContainersSnapshot()
    gpus: GpusSnapshot = GpusSnapshot()
    neuron: NeuronReadings | None = None
    instance: InstanceReading | None = None


def without_readings(snapshot: Snapshot) -> Snapshot:
    """What is still true of a snapshot that was not followed by another: who, but not how much."""
    return Snapshot(
        taken_ns=snapshot.taken_ns,
        monitor=snapshot.monitor,
        sources=dict.fromkeys(snapshot.sources, False),
        task=snapshot.task,
    )


# ECS allows 10 in a task definition and adds a few of its own.
MAX_CONTAINERS = 16
# Stats that have not moved for so long are no longer made by anybody: agents renew them every 20 s at least.
_MAX_SAMPLE_AGE_NS = 60 * NS_PER_SECOND


class _LastSample(Struct, frozen=True):
    """A container's last sample, when it came (monotonic), and the vCPU of the step that ended with it."""

    sample: ContainerSample
    received_ns: int
    vcpu: float | None = None


class ContainerTracker:
    """Remembers one sample of each container, for the step to the next one."""

    def __init__(self, host: Host, hold_ns: int) -> None:
        self._host = host
        self._max_sample_age_ns = max(_MAX_SAMPLE_AGE_NS, hold_ns)
        self._last: dict[str, _LastSample] = {}
        self._task_rx_bytes: int | None = None
        self._task_tx_bytes: int | None = None

    def update(
        self, task: TaskMetadata, reading: StatsReading, usages: Mapping[str, ContainerUsage], now_ns: int
    ) -> ContainersSnapshot:
        """Take an answer, again or anew; what it does not show is forgotten."""
        self._last = {docker_id: self._next(docker_id, sample, now_ns) for docker_id, sample in reading.samples.items()}
        found: dict[str, ContainerSnapshot] = {}
        has_task_network = False
        for container in task.containers:
            last = self._last.get(container.docker_id or "")
            if (
                last is None
                or now_ns - last.received_ns > self._max_sample_age_ns
                or task.container(container.name) is not container
            ):
                continue
            found[container.name] = self._now(container, task, last, usages.get(container.name))
            if container.shares_network:
                self._add_task_network(last.sample)
                has_task_network = True
            if len(found) == MAX_CONTAINERS:
                break
        return ContainersSnapshot(
            containers=tuple(found.values()),
            task_rx_bytes=self._task_rx_bytes if has_task_network else None,
            task_tx_bytes=self._task_tx_bytes if has_task_network else None,
        )

    def _next(self, docker_id: str, sample: ContainerSample, now_ns: int) -> _LastSample:
        before = self._last.get(docker_id)
        if before is not None and before.sample.read_ns == sample.read_ns:
            return before
        return _LastSample(sample, now_ns, vcpu_between(before.sample if before is not None else None, sample))

    def _add_task_network(self, sample: ContainerSample) -> None:
        """The containers' samples are of different moments: only the largest so far never falls."""
        self._task_rx_bytes = max_known(self._task_rx_bytes, sample.network_rx_bytes)
        self._task_tx_bytes = max_known(self._task_tx_bytes, sample.network_tx_bytes)

    def _now(
        self, container: ContainerMetadata, task: TaskMetadata, last: _LastSample, usage: ContainerUsage | None
    ) -> ContainerSnapshot:
        sizes = container_limits(container, task, usage, self._host)
        sample = last.sample
        own_network = not container.shares_network
        return ContainerSnapshot(
            name=container.name,
            started_seconds=_seconds(container.started_ns),
            cpu_seconds=_seconds(sample.cpu_ns),
            vcpu_used=last.vcpu,
            vcpu_limit=sizes.vcpu,
            memory_used_bytes=sample.memory_used_bytes,
            memory_limit_bytes=sizes.memory_bytes,
            network_rx_bytes=sample.network_rx_bytes if own_network else None,
            network_tx_bytes=sample.network_tx_bytes if own_network else None,
            block_read_bytes=sample.block_read_bytes,
            block_write_bytes=sample.block_write_bytes,
        )


def _seconds(duration_ns: int | None) -> float | None:
    return None if duration_ns is None else duration_ns / NS_PER_SECOND


INSTANCE = "instance"
_INSTANCE_PERIOD_NS = 10 * NS_PER_SECOND
_MIN_HOLD_NS = 10 * NS_PER_SECOND
_HOLD_TICKS = 3


def hold_ns(interval_ns: int) -> int:
    """How long a reading is shown that is not followed by another: a missed tick or two are no gap."""
    return max(_HOLD_TICKS * interval_ns, _MIN_HOLD_NS)


class Liveness:
    """Whether a source still answers, by the number of its answers."""

    def __init__(self, hold_ns: int) -> None:
        self._hold_ns = hold_ns
        self._answers = 0
        self._since_ns: int | None = None

    def is_up(self, answers: int, now_ns: int) -> bool:
        """Whether it answered within the time that a reading is held."""
        if answers != self._answers:
            self._answers = answers
            self._since_ns = now_ns
        return self._since_ns is not None and now_ns - self._since_ns <= self._hold_ns


class SnapshotBuilder:
    """``read_instance`` is asked every 10 s at most, and only where the task runs on an instance."""

    def __init__(
        self,
        observation: Observation,
        collectors: Sequence[LiveReadings],
        *,
        ticker: Ticker,
        clock: Clock,
        host: Host,
        read_own_usage: Callable[[], OwnUsage],
        read_instance: Callable[[], InstanceReading | Unavailable],
        interval_ns: int,
    ) -> None:
        self._observation = observation
        self._collectors = collectors
        self._ticker = ticker
        self._clock = clock
        self._own_usage = read_own_usage
        self._read_instance = read_instance
        self._hold_ns = hold_ns(interval_ns)
        self._tracker = ContainerTracker(host, self._hold_ns)
        self._liveness: dict[str, Liveness] = {}
        self._instance: InstanceReading | None = None
        self._instance_due_ns: int | None = None

    def snapshot(self) -> Snapshot:
        """The state now."""
        now_ns = self._clock.monotonic_ns()
        task = self._observation.task
        sources: dict[str, bool] = {}
        gpus, neuron = GpusSnapshot(), None
        for collector in self._collectors:
            latest = collector.latest()
            if isinstance(latest, GpuReadings) and self._update_liveness(
                sources, collector.name, latest.readings, now_ns
            ):
                gpus = GpusSnapshot(gpus=latest.gpus, scope="batch" if latest.is_known else INSTANCE)
            if isinstance(latest, NeuronReadings) and self._update_liveness(
                sources, collector.name, latest.reports, now_ns
            ):
                neuron = latest
        return Snapshot(
            taken_ns=now_ns,
            containers=self._containers(sources, now_ns),
            gpus=gpus,
            neuron=neuron,
            instance=self._current_instance(sources, task, now_ns),
            task=TaskSnapshot() if task is None else _task(task),
            monitor=self._monitor(),
            sources=sources,
        )

    def _update_liveness(self, sources: dict[str, bool], name: str, answers: int, now_ns: int) -> bool:
        liveness = self._liveness.setdefault(name, Liveness(self._hold_ns))
        sources[name] = liveness.is_up(answers, now_ns)
        return sources[name]

    def _containers(self, sources: dict[str, bool], now_ns: int) -> ContainersSnapshot:
        observation = self._observation
        is_up = self._update_liveness(sources, observation.source_name, observation.readings, now_ns)
        if not is_up or observation.task is None or observation.last_reading is None:
            return ContainersSnapshot()
        return self._tracker.update(observation.task, observation.last_reading, observation.usages, now_ns)

    def _current_instance(
        self, sources: dict[str, bool], task: TaskMetadata | None, now_ns: int
    ) -> InstanceReading | None:
        if task is None or not task.runs_on_instance:
            return None
        if self._instance_due_ns is None or now_ns >= self._instance_due_ns:
            self._instance_due_ns = now_ns + _INSTANCE_PERIOD_NS
            reading = self._read_instance()
            self._instance = None if isinstance(reading, Unavailable) else reading
        sources[INSTANCE] = self._instance is not None
        return self._instance

    def _monitor(self) -> MonitorSnapshot:
        used = self._own_usage()
        return MonitorSnapshot(
            version=__version__,
            cpu_seconds=used.cpu_seconds,
            memory_peak_bytes=None if used.max_rss_mb is None else round(used.max_rss_mb * MIB),
            read_failures=self._observation.failures,
            missed_ticks=self._ticker.missed,
        )


def _task(task: TaskMetadata) -> TaskSnapshot:
    return TaskSnapshot(
        family=task.family,
        task_id=None if task.arn is None else task_id(task.arn),
        revision=task.revision,
        cluster=cluster_name(task.cluster),
        launch_type=task.launch_type,
        availability_zone=task.availability_zone,
    )

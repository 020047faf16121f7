"""Snapshots: the readings at one moment. The main loop builds them, and the server's threads read them.

Snapshots are immutable, so that threads can share them without a lock.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from profiler.aggregation.container_usage import ContainerUsage
from profiler.aggregation.task_record import container_limits
from profiler.collectors.collector import Collector
from profiler.collectors.neuron.neuron_usage import LiveNeuron
from profiler.collectors.nvidia.gpu_usage import LatestGpu, LiveGpus
from profiler.core.clock import Clock, Ticker
from profiler.core.ecs_terms import cluster_name, task_id
from profiler.core.optional_math import max_known
from profiler.core.timestamps import NS_PER_SECOND
from profiler.core.version import __version__
from profiler.monitor.observation import Observation
from profiler.readers import Unavailable
from profiler.readers.ecs.container_stats import ContainerSample, StatsReading
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from profiler.readers.linux.host import Host, InstanceReading, OwnUsage
from profiler.record.accelerators import WHOLE_INSTANCE
from profiler.record.units import MIB

# ECS allows 10 containers in a task definition and adds a few of its own.
MAX_CONTAINERS = 16
# The name of the instance among the sources.
INSTANCE = "instance"
_BATCH_SCOPE = "batch"
# A sample that is older belongs to a container without stats: agents refresh stats every 20 s at least.
_MAX_SAMPLE_AGE_NS = 60 * NS_PER_SECOND
_INSTANCE_PERIOD_NS = 10 * NS_PER_SECOND
_MIN_HOLD_NS = 10 * NS_PER_SECOND
_HOLD_TICKS = 3


class ContainerSnapshot(Struct, frozen=True, kw_only=True):
    """The last sample of a container. Counters start at the container's start; unknown values are None."""

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
    """All containers with a sample. The counters of a network that they share are those of the task."""

    containers: tuple[ContainerSnapshot, ...] = ()
    task_rx_bytes: int | None = None
    task_tx_bytes: int | None = None


class TaskSnapshot(Struct, frozen=True, kw_only=True):
    """The identity of the task."""

    family: str | None = None
    task_id: str | None = None
    revision: str | None = None
    cluster: str | None = None
    launch_type: str | None = None
    availability_zone: str | None = None


class GpusSnapshot(Struct, frozen=True, kw_only=True):
    """The GPUs: those of the batch if these are known (``scope`` is ``batch``), else those of the instance."""

    gpus: tuple[LatestGpu, ...] = ()
    scope: str = WHOLE_INSTANCE


class MonitorSnapshot(Struct, frozen=True, kw_only=True):
    """The monitor's own resource usage and errors."""

    version: str
    cpu_seconds: float
    memory_peak_bytes: int | None = None
    read_failures: int = 0
    missed_ticks: int = 0


class Snapshot(Struct, frozen=True, kw_only=True):
    """All readings at one moment.

    ``taken_ns`` is the time of the monotonic clock. ``sources`` maps each source to whether it answers; readings of a
    source that does not answer are left out.
    """

    taken_ns: int
    monitor: MonitorSnapshot
    sources: Mapping[str, bool] = {}
    task: TaskSnapshot = TaskSnapshot()
    containers: ContainersSnapshot = ContainersSnapshot()
    gpus: GpusSnapshot = GpusSnapshot()
    neuron: LiveNeuron | None = None
    instance: InstanceReading | None = None


def without_readings(snapshot: Snapshot) -> Snapshot:
    """The part of an old snapshot that is still valid: the identity of the task, and the monitor's counters."""
    return Snapshot(
        taken_ns=snapshot.taken_ns,
        monitor=snapshot.monitor,
        sources=dict.fromkeys(snapshot.sources, False),
        task=snapshot.task,
    )


class ContainerTracker:
    """Shows the last sample of each container, and keeps the counters of a network that they share.

    Args:
        host: The instance, whose size limits containers without limits of their own.
        hold_ns: How long a reading is shown, in nanoseconds, if no other follows.
    """

    def __init__(self, host: Host, hold_ns: int) -> None:
        self._host = host
        self._max_sample_age_ns = max(_MAX_SAMPLE_AGE_NS, hold_ns)
        self._task_rx_bytes: int | None = None
        self._task_tx_bytes: int | None = None

    def update(
        self, task: TaskMetadata, reading: StatsReading, usages: Mapping[str, ContainerUsage], now_ns: int
    ) -> ContainersSnapshot:
        """The containers with a sample in the last reading, which the usages know already."""
        snapshots: list[ContainerSnapshot] = []
        has_task_network = False
        for container in task.containers:
            usage = usages.get(container.name)
            sample = None if usage is None or self._is_old(usage, now_ns) else usage.last_sample
            if usage is None or sample is None or container.docker_id not in reading.samples:
                continue
            snapshots.append(self._snapshot(container, task, usage, sample))
            if container.shares_network:
                self._add_task_network(sample)
                has_task_network = True
            if len(snapshots) == MAX_CONTAINERS:
                break
        return ContainersSnapshot(
            containers=tuple(snapshots),
            task_rx_bytes=self._task_rx_bytes if has_task_network else None,
            task_tx_bytes=self._task_tx_bytes if has_task_network else None,
        )

    def _is_old(self, usage: ContainerUsage, now_ns: int) -> bool:
        return usage.received_ns is None or now_ns - usage.received_ns > self._max_sample_age_ns

    def _add_task_network(self, sample: ContainerSample) -> None:
        """The containers' samples have different times. The maximum so far never decreases, as counters must not."""
        self._task_rx_bytes = max_known(self._task_rx_bytes, sample.network_rx_bytes)
        self._task_tx_bytes = max_known(self._task_tx_bytes, sample.network_tx_bytes)

    def _snapshot(
        self, container: ContainerMetadata, task: TaskMetadata, usage: ContainerUsage, sample: ContainerSample
    ) -> ContainerSnapshot:
        limits = container_limits(container, task, usage, self._host)
        own_network = not container.shares_network
        return ContainerSnapshot(
            name=container.name,
            started_seconds=_seconds(container.started_ns),
            cpu_seconds=_seconds(sample.cpu_ns),
            vcpu_used=usage.vcpu_at_last_sample,
            vcpu_limit=limits.vcpu,
            memory_used_bytes=sample.memory_used_bytes,
            memory_limit_bytes=limits.memory_bytes,
            network_rx_bytes=sample.network_rx_bytes if own_network else None,
            network_tx_bytes=sample.network_tx_bytes if own_network else None,
            block_read_bytes=sample.block_read_bytes,
            block_write_bytes=sample.block_write_bytes,
        )


def _seconds(duration_ns: int | None) -> float | None:
    return None if duration_ns is None else duration_ns / NS_PER_SECOND


def hold_ns(interval_ns: int) -> int:
    """How long a reading is shown, in nanoseconds, if no other follows: one or two missed ticks make no gap."""
    return max(_HOLD_TICKS * interval_ns, _MIN_HOLD_NS)


class Liveness:
    """Detects whether a source still answers, from the number of its answers."""

    def __init__(self, hold_ns: int) -> None:
        self._hold_ns = hold_ns
        self._answers = 0
        self._last_answer_ns: int | None = None

    def is_up(self, answers: int, now_ns: int) -> bool:
        """Whether the last answer is not older than the time for which a reading is shown."""
        if answers != self._answers:
            self._answers = answers
            self._last_answer_ns = now_ns
        return self._last_answer_ns is not None and now_ns - self._last_answer_ns <= self._hold_ns


class SnapshotBuilder:
    """Builds snapshots from the readings of the main loop.

    Args:
        observation: The readings of the task and its containers.
        collectors: The collectors of GPUs and NeuronCores.
        ticker: Counts missed ticks.
        clock: The clock.
        host: The instance.
        read_own_usage: Reads the monitor's own resource usage.
        read_instance: Reads the instance; called every 10 s at most, and only if the task runs on an instance.
        interval_ns: The sampling interval in nanoseconds.
    """

    def __init__(
        self,
        observation: Observation,
        collectors: Sequence[Collector],
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
        self._read_own_usage = read_own_usage
        self._read_instance = read_instance
        self._hold_ns = hold_ns(interval_ns)
        self._tracker = ContainerTracker(host, self._hold_ns)
        self._liveness: dict[str, Liveness] = {}
        self._instance: InstanceReading | None = None
        self._instance_due_ns: int | None = None

    def snapshot(self) -> Snapshot:
        """Build a snapshot of the current readings."""
        now_ns = self._clock.monotonic_ns()
        task = self._observation.task
        sources: dict[str, bool] = {}
        gpus, neuron = GpusSnapshot(), None
        for collector in self._collectors:
            latest = collector.latest()
            if latest is None and collector.name in self._liveness:
                sources[collector.name] = False  # it has stopped
            if isinstance(latest, LiveGpus) and self._update_liveness(sources, collector.name, latest.readings, now_ns):
                gpus = GpusSnapshot(gpus=latest.gpus, scope=_BATCH_SCOPE if latest.is_known else WHOLE_INSTANCE)
            if isinstance(latest, LiveNeuron) and self._update_liveness(
                sources, collector.name, latest.reports, now_ns
            ):
                neuron = latest
        return Snapshot(
            taken_ns=now_ns,
            containers=self._containers(sources, now_ns),
            gpus=gpus,
            neuron=neuron,
            instance=self._current_instance(sources, task, now_ns),
            task=TaskSnapshot() if task is None else _task_snapshot(task),
            monitor=self._monitor_snapshot(),
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

    def _monitor_snapshot(self) -> MonitorSnapshot:
        own_usage = self._read_own_usage()
        return MonitorSnapshot(
            version=__version__,
            cpu_seconds=own_usage.cpu_seconds,
            memory_peak_bytes=None if own_usage.max_rss_mb is None else round(own_usage.max_rss_mb * MIB),
            read_failures=self._observation.failures,
            missed_ticks=self._ticker.missed,
        )


def _task_snapshot(task: TaskMetadata) -> TaskSnapshot:
    return TaskSnapshot(
        family=task.family,
        task_id=None if task.arn is None else task_id(task.arn),
        revision=task.revision,
        cluster=cluster_name(task.cluster),
        launch_type=task.launch_type,
        availability_zone=task.availability_zone,
    )

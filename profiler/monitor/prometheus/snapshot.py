"""Snapshots: the readings at one moment, immutable, so that the main loop and the server share
them without a lock.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from profiler.aggregation.record_parts import container_limits
from profiler.collectors.nvidia.gpu_usage import NO_GPUS, LiveGpus
from profiler.core.optional_math import max_known
from profiler.core.timestamps import NS_PER_SECOND
from profiler.monitor.shared_parts import SharedParts
from profiler.monitor.task_sampler import TaskSampler
from profiler.readers import Unavailable
from profiler.readers.container_sample import ContainerSample, ResourceLimits
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata, runs_on_instance
from profiler.readers.linux.host import OwnUsage
from profiler.readers.linux.instance import NO_INSTANCE, InstanceReading
from profiler.record.batch_job import NO_JOB, BatchJob

if TYPE_CHECKING:
    from profiler.collectors.neuron.neuron_collector import LiveNeuron

# A sample that is older belongs to a container without stats: agents refresh stats every 20 s at
# least.
_MAX_SAMPLE_AGE_NS = 60 * NS_PER_SECOND
_INSTANCE_PERIOD_NS = 10 * NS_PER_SECOND
# A reading is shown for three intervals if no other follows: one or two missed ticks make no gap.
_HOLD_INTERVALS = 3
_MIN_HOLD_NS = 10 * NS_PER_SECOND


class ContainerSnapshot(Struct, frozen=True, kw_only=True):
    """The last sample of a container, and its limits."""

    container: ContainerMetadata
    sample: ContainerSample
    vcpu_used: float | None = None
    limits: ResourceLimits = ResourceLimits()


class Snapshot(Struct, frozen=True, kw_only=True):
    """All readings at one moment. Readings of sources that do not answer are left out.

    ``batch_job`` is the job of AWS Batch that the task is an attempt of.

    From ``valid_until_ns`` (monotonic) on, they are too old to be shown. The bytes of the task are
    those of the network that containers share; None without such a network.
    """

    valid_until_ns: int
    own_usage: OwnUsage
    read_failures: int = 0
    missed_ticks: int = 0
    sources: Mapping[str, bool] = {}
    task: TaskMetadata = TaskMetadata()
    containers: tuple[ContainerSnapshot, ...] = ()
    task_rx_bytes: int | None = None
    task_tx_bytes: int | None = None
    gpus: LiveGpus = NO_GPUS
    neuron: "LiveNeuron | None" = None
    instance: InstanceReading = NO_INSTANCE
    batch_job: BatchJob = NO_JOB

    def valid_part_at(self, now_ns: int) -> "Snapshot":
        """The part that is still valid: of an old snapshot, the identity of the task and the
        monitor's counters.
        """
        if now_ns <= self.valid_until_ns:
            return self
        return Snapshot(
            valid_until_ns=self.valid_until_ns,
            own_usage=self.own_usage,
            read_failures=self.read_failures,
            missed_ticks=self.missed_ticks,
            sources=dict.fromkeys(self.sources, False),
            task=self.task,
            batch_job=self.batch_job,
        )


class SnapshotBuilder(Struct, eq=False):
    """Takes snapshots of the main loop's readings."""

    sampler: TaskSampler
    shared: SharedParts
    read_instance: Callable[[], InstanceReading | Unavailable]
    batch_job: BatchJob = NO_JOB
    # By source: the number of its answers, and when that number last grew.
    _answers: dict[str, tuple[int, int]] = field(default_factory=dict)
    _task_rx_bytes: int | None = None
    _task_tx_bytes: int | None = None
    _instance: InstanceReading = NO_INSTANCE
    _instance_due_ns: int = 0

    @property
    def hold_ns(self) -> int:
        return max(_HOLD_INTERVALS * self.sampler.interval_ns, _MIN_HOLD_NS)

    def take_snapshot(self) -> Snapshot:
        """The values of this moment; what is older than ``hold_ns`` is left out."""
        sampler = self.sampler
        shared = self.shared
        now_ns = self.shared.clock.monotonic_ns()
        sources: dict[str, bool] = {}
        gpus, neuron = self._devices(sources, now_ns)
        containers = tuple(self._containers(sources, now_ns))
        has_task_network = any(shown.container.shares_network for shown in containers)
        return Snapshot(
            valid_until_ns=now_ns + self.hold_ns,
            own_usage=shared.read_own_usage(),
            read_failures=sampler.stats_health.failures,
            missed_ticks=shared.ticker.missed,
            sources=sources,
            task=sampler.task or TaskMetadata(),
            containers=containers,
            task_rx_bytes=self._task_rx_bytes if has_task_network else None,
            task_tx_bytes=self._task_tx_bytes if has_task_network else None,
            gpus=gpus,
            neuron=neuron,
            instance=self._current_instance(sources, now_ns),
            batch_job=self.batch_job,
        )

    def _answers_now(self, name: str, answers: int, now_ns: int) -> bool:
        """Whether the last of a source's ``answers`` is not older than the time for which a
        reading is shown.
        """
        known, changed_ns = self._answers.get(name, (0, None))
        if answers != known:
            changed_ns = now_ns
            self._answers[name] = answers, now_ns
        return changed_ns is not None and now_ns - changed_ns <= self.hold_ns

    def _devices(
        self, sources: dict[str, bool], now_ns: int
    ) -> "tuple[LiveGpus, LiveNeuron | None]":
        """The devices whose last reading is recent; adds to ``sources`` whether each answers."""
        gpus = NO_GPUS
        neuron = None
        for collector in self.shared.collectors.devices:
            latest = collector.latest()
            if latest is None:
                if collector.name in self._answers:
                    sources[collector.name] = False  # the collector has stopped
                continue
            answers = latest.readings if isinstance(latest, LiveGpus) else latest.reports
            is_up = self._answers_now(collector.name, answers, now_ns)
            sources[collector.name] = is_up
            if isinstance(latest, LiveGpus):
                gpus = latest if is_up else NO_GPUS
            else:
                neuron = latest if is_up else None
        return gpus, neuron

    def _containers(self, sources: dict[str, bool], now_ns: int) -> Iterator[ContainerSnapshot]:
        """The containers with a sample in the last reading of the stats."""
        observed = self.sampler
        name = observed.source_name
        sources[name] = self._answers_now(name, observed.readings, now_ns)
        if not sources[name] or observed.task is None or observed.last_reading is None:
            return
        for shown in observed.followed.listed:
            container = shown.container
            usage = shown.usage
            latest = observed.last_reading.get(container.docker_id or "")
            sample = usage.last_sample
            if sample is None or latest is None or isinstance(latest, Unavailable):
                continue
            if usage.received_ns is None or now_ns - usage.received_ns > max(
                _MAX_SAMPLE_AGE_NS, self.hold_ns
            ):
                continue
            if container.shares_network:
                # The containers' samples have different times. The maximum never decreases, as
                # counters must not.
                self._task_rx_bytes = max_known(self._task_rx_bytes, sample.network_rx_bytes)
                self._task_tx_bytes = max_known(self._task_tx_bytes, sample.network_tx_bytes)
            yield ContainerSnapshot(
                container=container,
                sample=sample,
                vcpu_used=usage.vcpu_at_last_sample,
                limits=container_limits(
                    container, observed.task, observed.host, usage.memory_limit_bytes
                ),
            )

    def _current_instance(self, sources: dict[str, bool], now_ns: int) -> InstanceReading:
        """The instance's values, read once in a while; none on Fargate."""
        task = self.sampler.task
        if task is None or not runs_on_instance(task.launch_type):
            return NO_INSTANCE
        if now_ns >= self._instance_due_ns:
            self._instance_due_ns = now_ns + _INSTANCE_PERIOD_NS
            reading = self.read_instance()
            self._instance = NO_INSTANCE if isinstance(reading, Unavailable) else reading
        sources["instance"] = self._instance is not NO_INSTANCE
        return self._instance

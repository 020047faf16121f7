"""Makes a Snapshot of what the main loop knows. Called by the main loop, never by a scrape."""

from collections.abc import Callable, Sequence

from profiler import __version__
from profiler.accelerators.accelerator import Collector
from profiler.accelerators.gpu_usage import GpuReadings
from profiler.accelerators.neuron_usage import NeuronReadings
from profiler.clock import Clock, Ticker
from profiler.figures import MIB
from profiler.observation import Observation
from profiler.prometheus.containers import ContainerTracker
from profiler.prometheus.snapshot import ContainersSnapshot, GpusSnapshot, MonitorSnapshot, Snapshot, TaskSnapshot
from profiler.sources import Unavailable
from profiler.sources.host import Host
from profiler.sources.instance import InstanceReading
from profiler.sources.own_process import OwnUsage
from profiler.sources.task_metadata import TaskMetadata
from profiler.summary import cluster_name, task_id
from profiler.times import NS_PER_SECOND

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

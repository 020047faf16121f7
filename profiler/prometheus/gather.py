"""Makes a Snapshot of what the main loop knows. Called by the main loop, never by a scrape."""

from collections.abc import Callable, Sequence

from profiler import __version__
from profiler.accelerators.accelerator import Accelerator
from profiler.accelerators.gpu_usage import GpuReadings
from profiler.accelerators.neuron_usage import NeuronReadings
from profiler.clock import Clock, Grid
from profiler.figures import MIB
from profiler.observation import Observation
from profiler.prometheus.containers import ContainerTracker
from profiler.prometheus.snapshot import ContainersNow, GpusNow, MonitorNow, Snapshot, TaskNow
from profiler.sources import Unavailable
from profiler.sources.host import Host
from profiler.sources.instance import InstanceReading
from profiler.sources.own_process import OwnUsage
from profiler.sources.task_metadata import TaskMetadata
from profiler.summary import cluster_name, task_id
from profiler.times import NS_PER_SECOND

INSTANCE = "instance"
_INSTANCE_PERIOD_NS = 10 * NS_PER_SECOND
_SHORTEST_HOLD_NS = 10 * NS_PER_SECOND
_HOLD_TICKS = 3


def hold_ns(interval_ns: int) -> int:
    """How long a reading is shown that is not followed by another: a missed tick or two are no gap."""
    return max(_HOLD_TICKS * interval_ns, _SHORTEST_HOLD_NS)


class Pulse:
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


class Gather:
    """``read_instance`` is asked every 10 s at most, and only where the task runs on an instance."""

    def __init__(
        self,
        observation: Observation,
        accelerators: Sequence[Accelerator],
        *,
        grid: Grid,
        clock: Clock,
        host: Host,
        own_usage: Callable[[], OwnUsage],
        read_instance: Callable[[], InstanceReading | Unavailable],
        interval_ns: int,
    ) -> None:
        self._observation = observation
        self._accelerators = accelerators
        self._grid = grid
        self._clock = clock
        self._own_usage = own_usage
        self._read_instance = read_instance
        self._hold_ns = hold_ns(interval_ns)
        self._tracker = ContainerTracker(host, self._hold_ns)
        self._pulses: dict[str, Pulse] = {}
        self._instance: InstanceReading | None = None
        self._instance_due_ns: int | None = None

    def snapshot(self) -> Snapshot:
        """The state now."""
        now_ns = self._clock.monotonic_ns()
        task = self._observation.task
        sources: dict[str, bool] = {}
        gpus, neuron = GpusNow(), None
        for accelerator in self._accelerators:
            latest = accelerator.latest()
            if isinstance(latest, GpuReadings) and self._note(sources, accelerator.name, latest.readings, now_ns):
                gpus = GpusNow(gpus=latest.gpus, scope="batch" if latest.is_known else INSTANCE)
            if isinstance(latest, NeuronReadings) and self._note(sources, accelerator.name, latest.reports, now_ns):
                neuron = latest
        return Snapshot(
            taken_ns=now_ns,
            containers=self._containers(sources, now_ns),
            gpus=gpus,
            neuron=neuron,
            instance=self._on_instance(sources, task, now_ns),
            task=TaskNow() if task is None else _task(task),
            monitor=self._monitor(),
            sources=sources,
        )

    def _note(self, sources: dict[str, bool], name: str, answers: int, now_ns: int) -> bool:
        pulse = self._pulses.setdefault(name, Pulse(self._hold_ns))
        sources[name] = pulse.is_up(answers, now_ns)
        return sources[name]

    def _containers(self, sources: dict[str, bool], now_ns: int) -> ContainersNow:
        observation = self._observation
        is_up = self._note(sources, observation.source_name, observation.readings, now_ns)
        if not is_up or observation.task is None or observation.last_reading is None:
            return ContainersNow()
        return self._tracker.follow(observation.task, observation.last_reading, observation.usages, now_ns)

    def _on_instance(self, sources: dict[str, bool], task: TaskMetadata | None, now_ns: int) -> InstanceReading | None:
        if task is None or not task.runs_on_instance:
            return None
        if self._instance_due_ns is None or now_ns >= self._instance_due_ns:
            self._instance_due_ns = now_ns + _INSTANCE_PERIOD_NS
            reading = self._read_instance()
            self._instance = None if isinstance(reading, Unavailable) else reading
        sources[INSTANCE] = self._instance is not None
        return self._instance

    def _monitor(self) -> MonitorNow:
        used = self._own_usage()
        return MonitorNow(
            version=__version__,
            cpu_seconds=used.cpu_seconds,
            memory_peak_bytes=None if used.max_rss_mb is None else round(used.max_rss_mb * MIB),
            read_failures=self._observation.failures,
            missed_ticks=self._grid.missed,
        )


def _task(task: TaskMetadata) -> TaskNow:
    return TaskNow(
        family=task.family,
        task_id=None if task.arn is None else task_id(task.arn),
        revision=task.revision,
        cluster=cluster_name(task.cluster),
        launch_type=task.launch_type,
        availability_zone=task.availability_zone,
    )

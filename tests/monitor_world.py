"""A monitor on a fake clock, with a task that is a function of time, and collectors that note
their calls.
"""

import json
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from profiler.aggregation.record_parts import RecordPart
from profiler.aggregation.statistics import DeviceReadings
from profiler.collectors.collector import Collectors
from profiler.collectors.collector_kinds import Collector
from profiler.core.clock import Ticker
from profiler.monitor.loop import MonitoredTask, monitor_task
from profiler.monitor.shared_parts import (
    NO_LIVE_METRICS,
    NONE_KEPT,
    LiveMetrics,
    ReportedBatches,
    SharedParts,
)
from profiler.monitor.task_sampler import TaskSampler, TaskSource
from profiler.monitor.upload_or_print import ReportDelivery
from profiler.readers.container_sample import ContainerSample, ResourceLimits
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from profiler.readers.linux.host import Host, OwnUsage
from profiler.record.record_model import Gpu, Record
from profiler.settings import TaskSettings
from tests.fakes import (
    START_NS,
    FakeCalls,
    FakeClock,
    FakeLog,
    FakeLogsSink,
    FakeStdout,
    FakeStop,
    FakeTaskSource,
    sample,
    seconds,
    task_settings,
)

MIB = 1024 * 1024
OWN = ContainerMetadata(
    name="task-monitor", docker_id="m", known_status="RUNNING", started_ns=START_NS
)


class FakeCollector:
    """Notes the calls of the monitor, and how many reports were delivered before each."""

    def __init__(self, fakes: "PlayedMonitor") -> None:
        self._world = fakes
        self.calls: list[tuple[str, int]] = []

    def _note(self, what: str) -> None:
        self.calls.append((what, len(self._world.streams.lines)))

    def start(self) -> None:
        self._note("start")

    def on_batch_started(self, container: ContainerMetadata) -> None:
        self._note(f"started {container.docker_id}")

    def final_reading(self, max_seconds: float) -> None:
        assert max_seconds < 1
        self._note("final reading")

    def stop(self, max_seconds: float) -> None:
        self._note("stop")

    def part(self, record: Record, batch: str) -> RecordPart:
        assert batch == "b"
        return RecordPart(
            values={"gpus": (Gpu(uuid="GPU-a"),)}, source="fake", warnings=("A warning.",)
        )


class FakeDevices:
    """Two GPUs at 20 % and at one more percent a second, with 1 and 3 GiB, and a NeuronCore at 7
    %.
    """

    name = "fake devices"

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def part(self, record: Record, batch: str) -> RecordPart:
        return RecordPart()

    def take_readings(self, _batch: str, into: DeviceReadings) -> None:
        for percent, gibibytes in ((20, 1), (self._clock.now_ns / seconds(1), 3)):
            into.gpu_percent.add_reading(percent)
            into.gpu_memory_bytes.add_reading(gibibytes * 1024 * MIB)
        into.neuron_percent.add_reading(7)


class FakeMonitor:
    """The process of a monitor on a fake clock, with ``collectors`` and a log stream."""

    settings: TaskSettings
    reported: ReportedBatches = NONE_KEPT
    collectors: tuple[Collector, ...] = ()
    interval_ns, stop_seconds = seconds(1), 25.0

    def __init__(self, clock: FakeClock, stop_at: float | None) -> None:
        self.clock = clock
        self.stop = FakeStop(clock, stop_at)
        self.log, self.streams, self.output = FakeLog(), FakeLogsSink(), FakeStdout()
        self.budget = FakeCalls(clock)
        self.own_cpu_seconds: Callable[[], float] = lambda: 0.5

    def shared(self, *more: Collector) -> SharedParts:
        return SharedParts(
            clock=self.clock,
            ticker=Ticker(self.clock.monotonic_ns(), self.interval_ns),
            stop=self.stop,
            stop_seconds=self.stop_seconds,
            log=self.log,
            collectors=Collectors(*self.collectors, *more),
            delivery=ReportDelivery(self.streams, self.output, self.log, self.budget),
            read_own_usage=lambda: OwnUsage(cpu_seconds=self.own_cpu_seconds(), max_rss_mb=27.1),
            reported=self.reported,
        )

    def task_of(
        self, source: TaskSource, shared: SharedParts, warnings: tuple[str, ...]
    ) -> MonitoredTask:
        host = Host(vcpu=4, memory_bytes=16 * 1024 * MIB, cpu_architecture="X86_64")
        points, collectors = self.settings.series_points, shared.collectors
        self.sampler = TaskSampler(
            source,
            self.clock,
            self.log,
            self.interval_ns,
            collectors,
            series_points=points,
            host=host,
        )
        return MonitoredTask(self.settings, self.sampler, shared, warnings)


class PlayedMonitor(FakeMonitor):
    """A task whose batch uses half a vCPU and 100 MiB from second 0 until ``batch_ends``.

    Sees the batches' samples.
    """

    takes_late_samples = True

    def __init__(
        self,
        *,
        batch_ends: float | None = None,
        exit_code: int | None = 0,
        stop_at: float | None = None,
        clock: FakeClock | None = None,
        interval_seconds: float = 1.0,
        stop_seconds: float = 25.0,
        **settings: Any,
    ) -> None:
        super().__init__(clock or FakeClock(), stop_at)
        self.docker_id = "b"
        self.batch_ends = batch_ends
        self.exit_code = exit_code
        self.memory_mib: Callable[[float], int] = lambda _at: 100
        # The fields of the batch and of the task that are not the usual ones.
        self.of_batch: Callable[[float], dict[str, Any]] = lambda _at: {}
        self.of_task: Callable[[float], dict[str, Any]] = lambda _at: {}
        self.others: tuple[ContainerMetadata, ...] = ()
        self.devices: tuple[FakeDevices, ...] = ()
        self.exporter: LiveMetrics = NO_LIVE_METRICS
        self.on_sample: Callable[[str, ContainerSample, ResourceLimits], None] = (
            lambda _batch, _sample, _sizes: None
        )
        self.interval_ns, self.stop_seconds = seconds(interval_seconds), stop_seconds
        self.warnings: tuple[str, ...] = ()
        self.settings = task_settings(**settings)
        self.source = FakeTaskSource(self.clock, self.usual_task, self.usual_stats, OWN)

    def batch(self, at: float) -> ContainerMetadata:
        batch = ContainerMetadata(
            name="batch",
            docker_id=self.docker_id,
            known_status="RUNNING",
            started_ns=START_NS,
            memory_limit_bytes=1024 * MIB,
            log_driver="awslogs",
            log_options={
                "awslogs-group": "/ecs/jobs",
                "awslogs-region": "eu-central-1",
                "awslogs-stream": "ecs/batch/0123",
            },
        )
        if self.batch_ends is not None and at >= self.batch_ends:
            finished_ns = START_NS + seconds(self.batch_ends)
            batch = replace(
                batch, known_status="STOPPED", exit_code=self.exit_code, finished_ns=finished_ns
            )
        return replace(batch, **self.of_batch(at))

    def usual_task(self, at: float) -> TaskMetadata:
        task = TaskMetadata(
            arn="arn:aws:ecs:eu-west-1:111122223333:task/jobs/0123",
            family="etl",
            vcpu_limit=1.0,
            memory_limit_bytes=2048 * MIB,
            pull_started_ns=START_NS - seconds(20),
            containers=(self.batch(at), OWN, *self.others),
        )
        return replace(task, **self.of_task(at))

    def usual_stats(self, at: float) -> dict[str, ContainerSample]:
        samples = {"m": sample(START_NS + seconds(at), at * 0.001, 30 * MIB)}
        if at > 0 and (self.batch_ends is None or at < self.batch_ends):
            samples[self.docker_id] = self.batch_sample(at)
        return samples

    def batch_sample(self, at: float) -> ContainerSample:
        return sample(START_NS + seconds(at), at * 0.5, self.memory_mib(at) * MIB)

    def shared(self, *more: Collector) -> SharedParts:
        return super().shared(*more, *self.devices, self)

    def part(self, record: Record, batch: str) -> RecordPart:
        return RecordPart()

    def task(self, shared: SharedParts) -> MonitoredTask:
        return self.task_of(self.source, shared, self.warnings)

    def run(self) -> "PlayedMonitor":
        shared = self.shared()
        monitor_task(self.task(shared), shared, self.exporter)
        return self

    def report(self) -> dict[str, Any]:
        ((_, line),) = self.streams.lines
        document: dict[str, Any] = json.loads(line)
        assert document["type"] == "task.report"
        record: dict[str, Any] = document["record"]
        return record

    def printed(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output.lines]

"""A monitored task and its snapshot for Prometheus."""

from profiler.collectors.collector import Collector, Collectors
from profiler.core.clock import Ticker
from profiler.monitor.prometheus.snapshot import Snapshot, SnapshotBuilder
from profiler.monitor.report_delivery import Delivery
from profiler.monitor.shared_parts import SharedParts
from profiler.monitor.task_sampler import TaskSampler
from profiler.readers import Unavailable
from profiler.readers.container_sample import ContainerSample
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from profiler.readers.linux.host import Host, InstanceReading, OwnUsage
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
)

MIB = 2**20
OWN = ContainerMetadata(name="task-monitor", docker_id="m", started_ns=START_NS)
BATCH = ContainerMetadata(name="batch", docker_id="b", started_ns=START_NS, memory_limit_bytes=512 * MIB)
TASK = TaskMetadata(
    arn="arn:aws:ecs:eu-west-1:111122223333:task/jobs/0123",
    cluster="arn:aws:ecs:eu-west-1:111122223333:cluster/jobs",
    family="etl",
    revision="7",
    launch_type="EC2",
    vcpu_limit=2.0,
    containers=(BATCH, OWN),
)


class World:
    """A batch that uses half a vCPU; ``tick`` is a second and a snapshot."""

    def __init__(self, *accelerators: Collector, task: TaskMetadata = TASK) -> None:
        self.clock = FakeClock()
        self.task: TaskMetadata | Unavailable = task
        self.instance: InstanceReading | Unavailable = InstanceReading(memory_size_bytes=1)
        self.instance_reads = 0
        self.source = FakeTaskSource(self.clock, lambda _at: self.task, lambda at: {"b": self.batch(at)}, OWN)
        host = Host(vcpu=8, memory_bytes=2**35)
        shared = SharedParts(
            clock=self.clock,
            ticker=Ticker(0, seconds(1)),
            stop=FakeStop(self.clock),
            stop_seconds=25,
            log=FakeLog(),
            collectors=Collectors(*accelerators),
            delivery=Delivery(FakeLogsSink(), FakeStdout(), FakeLog(), FakeCalls()),
            read_own_usage=lambda: OwnUsage(cpu_seconds=0.5),
        )
        self.sampler = TaskSampler(self.source, self.clock, FakeLog(), seconds(1), shared.collectors, host=host)
        self.builder = SnapshotBuilder(self.sampler, shared, self.read_instance)

    def read_instance(self) -> InstanceReading | Unavailable:
        self.instance_reads += 1
        return self.instance

    @staticmethod
    def batch(at: float, **more: int) -> ContainerSample:
        return sample(START_NS + seconds(at), at * 0.5, 100 * MIB, **more)

    def tick(self, ticks: int = 1) -> Snapshot:
        for _ in range(ticks):
            self.clock.advance(1)
            self.sampler.tick(())
            snapshot = self.builder.take()
        return snapshot

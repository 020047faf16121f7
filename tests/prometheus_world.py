"""A monitored task and its snapshot for Prometheus."""

from profiler.collectors.collector_kinds import Collector
from profiler.monitor.prometheus.snapshot import Snapshot, SnapshotBuilder
from profiler.readers import Unavailable
from profiler.readers.container_sample import ContainerSample
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from profiler.readers.linux.instance import InstanceReading
from tests.fakes import START_NS, sample, seconds
from tests.monitor_world import MIB, OWN, PlayedMonitor

BATCH = ContainerMetadata(
    name="batch", docker_id="b", started_ns=START_NS, memory_limit_bytes=512 * MIB
)
TASK = TaskMetadata(
    arn="arn:aws:ecs:eu-west-1:111122223333:task/jobs/0123",
    cluster="arn:aws:ecs:eu-west-1:111122223333:cluster/jobs",
    family="etl",
    revision="7",
    launch_type="EC2",
    vcpu_limit=2.0,
    containers=(BATCH, OWN),
)


class ScrapedTask(PlayedMonitor):
    """A batch that uses half a vCPU; ``tick`` is a second and a snapshot."""

    def __init__(self, *accelerators: Collector, task: TaskMetadata = TASK) -> None:
        super().__init__()
        self.collectors = accelerators
        self.answer: TaskMetadata | Unavailable = task
        self.instance: InstanceReading | Unavailable = InstanceReading(memory_size_bytes=1)
        self.instance_reads = 0
        self.source.task_at = lambda _at: self.answer
        self.source.stats_at = lambda at: {"b": self.reading(at)}
        shared = self.shared()
        self.task(shared)
        self.builder = SnapshotBuilder(self.sampler, shared, self.read_instance)

    def read_instance(self) -> InstanceReading | Unavailable:
        self.instance_reads += 1
        return self.instance

    @staticmethod
    def reading(at: float, **more: int) -> ContainerSample:
        return sample(START_NS + seconds(at), at * 0.5, 100 * MIB, **more)

    def tick(self, ticks: int = 1) -> Snapshot:
        for _ in range(ticks):
            self.clock.advance(1)
            self.sampler.tick(())
            snapshot = self.builder.take_snapshot()
        return snapshot

"""The process collector starts where processes are visible, and only there."""

from msgspec.structs import replace

from profiler.aggregation.task_record import RecordPart
from profiler.collectors.collector import Collector, with_collected
from profiler.collectors.processes.discovery import LazyProcessCollector
from profiler.readers.container_sample import ContainerSample
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.record.record_model import Container, Monitor, Process, Record, Sampling
from tests.fakes import sample

BATCH = ContainerMetadata(name="batch", docker_id="b", known_status="RUNNING")
RECORD = Record(
    task_id="t", container=Container(name="batch"), status="success", sampling=Sampling(), monitor=Monitor()
)


class FakeCollector(Collector):
    """Notes its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def on_batch_started(self, container: ContainerMetadata) -> None:
        self.calls.append(f"started {container.docker_id}")

    def on_sample(self, name: str, sample: ContainerSample) -> None:
        self.calls.append(f"sample {name}")

    def final_reading(self, max_seconds: float) -> None:
        self.calls.append("final reading")

    def stop(self, max_seconds: float) -> None:
        self.calls.append("stop")

    def part(self, record: Record) -> RecordPart:
        processes = (Process(name="job"),)
        return RecordPart(values={"processes": processes}, source="processes", warnings=("A warning.",))


def call_everything(lazy: LazyProcessCollector) -> None:
    lazy.on_sample("batch", sample(1))
    lazy.final_reading(0.3)
    lazy.stop(1)


def test_without_visible_processes_no_collector_is_made_and_the_search_ends() -> None:
    searched: list[str] = []

    def is_visible(docker_id: str) -> bool:
        searched.append(docker_id)
        return False

    def make() -> FakeCollector:
        raise AssertionError("no process is visible")

    lazy = LazyProcessCollector(is_visible, make)
    lazy.start()
    for _ in range(20):
        lazy.on_batch_started(BATCH)
    lazy.on_batch_started(replace(BATCH, docker_id="c"))
    lazy.on_batch_started(replace(BATCH, docker_id=None))
    call_everything(lazy)
    assert searched == [*["b"] * 5, "c"]
    assert lazy.part(RECORD) == RecordPart()


def test_once_seen_the_collector_is_started_and_receives_every_call() -> None:
    collector = FakeCollector()
    seen = iter([False, True])
    lazy = LazyProcessCollector(lambda _: next(seen), lambda: collector)
    lazy.on_batch_started(BATCH)
    lazy.on_sample("batch", sample(1))
    for _ in range(2):
        lazy.on_batch_started(BATCH)
    call_everything(lazy)
    assert collector.calls == ["start", "started b", "started b", "sample batch", "final reading", "stop"]
    record = with_collected(RECORD, (lazy,))
    assert (record.sampling, record.monitor) == (Sampling(sources=("processes",)), Monitor(warnings=("A warning.",)))
    assert record.processes == (Process(name="job"),)

"""The watch over processes begins where these are visible, and only there."""

from msgspec.structs import replace

from profiler.collectors.base import with_source
from profiler.collectors.processes.discovery import LazyProcessCollector
from profiler.record.model import Container, Monitor, Process, Record, Sampling
from profiler.sources.ecs.container_stats import ContainerSample
from profiler.sources.ecs.task_metadata import ContainerMetadata
from tests.fakes import sample

BATCH = ContainerMetadata(name="batch", docker_id="b", known_status="RUNNING")
RECORD = Record(
    task_id="t", container=Container(name="batch"), status="success", sampling=Sampling(), monitor=Monitor()
)


class FakeWatch:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def start(self) -> None:
        self.told.append("start")

    def on_batch_started(self, container: ContainerMetadata) -> None:
        self.told.append(f"seen {container.docker_id}")

    def on_sample(self, name: str, sample: ContainerSample) -> None:
        self.told.append(f"heard {name}")

    def final_reading(self, max_seconds: float) -> None:
        self.told.append("settle")

    def stop(self, max_seconds: float) -> None:
        self.told.append("stop")

    def add_to_record(self, record: Record) -> Record:
        return with_source(replace(record, processes=(Process(name="job"),)), "processes", ("A warning.",))


def tell(sighting: LazyProcessCollector) -> None:
    sighting.on_sample("batch", sample(1))
    sighting.final_reading(0.3)
    sighting.stop(1)


def test_where_nothing_is_visible_nothing_is_made_and_nobody_looks_for_ever() -> None:
    looked: list[str] = []

    def is_visible(docker_id: str) -> bool:
        looked.append(docker_id)
        return False

    def make() -> FakeWatch:
        raise AssertionError("there is nothing to watch")

    sighting = LazyProcessCollector(is_visible, make)
    sighting.start()
    for _ in range(20):
        sighting.on_batch_started(BATCH)
    sighting.on_batch_started(replace(BATCH, docker_id="c"))
    tell(sighting)
    assert looked == [*["b"] * 5, "c"]
    assert sighting.add_to_record(RECORD) == RECORD


def test_a_container_that_is_pulled_has_no_processes_to_look_for() -> None:
    sighting = LazyProcessCollector(lambda _: True, FakeWatch)
    sighting.on_batch_started(replace(BATCH, docker_id=None))
    assert sighting.add_to_record(RECORD) == RECORD


def test_once_seen_the_watch_is_started_and_told_everything() -> None:
    watch = FakeWatch()
    seen = iter([False, True])
    sighting = LazyProcessCollector(lambda _: next(seen), lambda: watch)
    sighting.on_batch_started(BATCH)
    sighting.on_sample("batch", sample(1))
    for _ in range(2):
        sighting.on_batch_started(BATCH)
    tell(sighting)
    assert watch.told == ["start", "seen b", "seen b", "heard batch", "settle", "stop"]
    record = sighting.add_to_record(RECORD)
    assert (record.sampling, record.monitor) == (Sampling(sources=("processes",)), Monitor(warnings=("A warning.",)))
    assert record.processes == (Process(name="job"),)

"""The watch over processes begins where these are visible, and only there."""

from msgspec.structs import replace

from profiler.processes.process_sighting import ProcessSighting
from profiler.record import Container, Process, Record
from profiler.sources.container_stats import ContainerSample
from profiler.sources.task_metadata import ContainerMetadata
from tests.fakes import sample

BATCH = ContainerMetadata(name="batch", docker_id="b", known_status="RUNNING")
RECORD = Record(task_id="t", container=Container(name="batch"), status="success")


class FakeWatch:
    """Writes down what it is told."""

    name = "processes"
    has_read = True
    complaint = None
    helper_pid = None

    def __init__(self) -> None:
        self.told: list[str] = []

    def start(self) -> None:
        self.told.append("start")

    def batch_seen(self, container: ContainerMetadata) -> None:
        self.told.append(f"seen {container.docker_id}")

    def heard(self, name: str, sample: ContainerSample) -> None:
        self.told.append(f"heard {name}")

    def settle(self, at_most_seconds: float) -> None:
        self.told.append("settle")

    def stop(self, at_most_seconds: float) -> None:
        self.told.append("stop")

    def onto(self, record: Record) -> Record:
        return replace(record, processes=(Process(name="job"),))

    def latest(self) -> None:
        return None

    def warnings(self) -> tuple[str, ...]:
        return ("A warning.",)


def tell(sighting: ProcessSighting) -> None:
    sighting.heard("batch", sample(1))
    sighting.settle(0.3)
    sighting.stop(1)


def test_where_nothing_is_visible_nothing_is_made_and_nobody_looks_for_ever() -> None:
    looked: list[str] = []

    def is_visible(docker_id: str) -> bool:
        looked.append(docker_id)
        return False

    def make() -> FakeWatch:
        raise AssertionError("there is nothing to watch")

    sighting = ProcessSighting(is_visible, make)
    sighting.start()
    for _ in range(20):
        sighting.batch_seen(BATCH)
    sighting.batch_seen(replace(BATCH, docker_id="c"))
    tell(sighting)
    assert looked == [*["b"] * 5, "c"]
    assert (sighting.has_read, sighting.onto(RECORD), sighting.warnings()) == (False, RECORD, ())


def test_a_container_that_is_pulled_has_no_processes_to_look_for() -> None:
    sighting = ProcessSighting(lambda _: True, FakeWatch)
    sighting.batch_seen(replace(BATCH, docker_id=None))
    assert not sighting.has_read


def test_once_seen_the_watch_is_started_and_told_everything() -> None:
    watch = FakeWatch()
    seen = iter([False, True])
    sighting = ProcessSighting(lambda _: next(seen), lambda: watch)
    sighting.batch_seen(BATCH)
    sighting.heard("batch", sample(1))
    for _ in range(2):
        sighting.batch_seen(BATCH)
    tell(sighting)
    assert watch.told == ["start", "seen b", "seen b", "heard batch", "settle", "stop"]
    assert (sighting.has_read, sighting.warnings()) == (True, ("A warning.",))
    assert sighting.onto(RECORD).processes == (Process(name="job"),)

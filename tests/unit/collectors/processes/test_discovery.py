"""The process collector starts where processes are visible, and only there."""

from pathlib import Path

from msgspec.structs import replace

from profiler.aggregation.task_record import RecordPart
from profiler.collectors.collector import Collectors, with_collected
from profiler.collectors.processes.discovery import LazyProcessCollector, pids_of, visible_devices
from profiler.readers.container_sample import ContainerSample, ResourceLimits
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.readers.linux.waited_target import Wait
from profiler.record.record_model import Container, Monitor, Process, Record, Sampling
from tests.fakes import sample

BATCH = ContainerMetadata(name="batch", docker_id="b", known_status="RUNNING")
RECORD = Record(
    task_id="t", container=Container(name="batch"), status="success", sampling=Sampling(), monitor=Monitor()
)


class FakeCollector:
    """Notes its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def on_batch_started(self, container: ContainerMetadata) -> None:
        self.calls.append(f"started {container.docker_id}")

    def on_sample(self, batch: str, sample: ContainerSample, sizes: ResourceLimits) -> None:
        self.calls.append(f"sample {batch}")

    def final_reading(self, max_seconds: float) -> None:
        self.calls.append("final reading")

    def stop(self, max_seconds: float) -> None:
        self.calls.append("stop")

    def longest_wait(self, batch: str, since_ns: int) -> Wait | None:
        return Wait("sleep", batch)

    def forget(self, batch: str) -> None:
        self.calls.append(f"forget {batch}")

    def part(self, record: Record, batch: str) -> RecordPart:
        processes = (Process(name="job"),)
        return RecordPart(values={"processes": processes}, source="processes", warnings=("A warning.",))


def call_everything(lazy: LazyProcessCollector) -> None:
    lazy.on_sample("b", sample(1), ResourceLimits())
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
    assert lazy.part(RECORD, "b") == RecordPart()


def test_once_seen_the_collector_is_started_and_receives_every_call() -> None:
    collector = FakeCollector()
    seen = iter([False, True])
    lazy = LazyProcessCollector(lambda _: next(seen), lambda: collector)
    lazy.on_batch_started(BATCH)
    lazy.on_sample("b", sample(1), ResourceLimits())
    for _ in range(2):
        lazy.on_batch_started(BATCH)
    call_everything(lazy)
    assert collector.calls == ["start", "started b", "started b", "sample b", "final reading", "stop"]
    assert Collectors(lazy).longest_wait("b", 0) == Wait("sleep", "b")
    record = with_collected(RECORD, (lazy,), "b")
    assert (record.sampling, record.monitor) == (Sampling(sources=("processes",)), Monitor(warnings=("A warning.",)))
    assert record.processes == (Process(name="job"),)


DOCKER_ID = "c0ffee" * 10


def process(folder: Path, pid: int, docker_id: str, *environment: str) -> None:
    (folder / str(pid)).mkdir()
    (folder / str(pid) / "cgroup").write_text(f"0::/../{docker_id}\n")
    (folder / str(pid) / "environ").write_bytes(b"".join(entry.encode() + b"\0" for entry in environment))


def test_the_first_process_with_the_variable_determines_the_gpus(tmp_path: Path) -> None:
    process(tmp_path, 7, "another", "NVIDIA_VISIBLE_DEVICES=GPU-wrong")
    process(tmp_path, 100, DOCKER_ID, "HOME=/", "NVIDIA_VISIBLE_DEVICES=GPU-late")
    process(tmp_path, 20, DOCKER_ID, "HOME=/", "NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b", "X_NVIDIA_VISIBLE_DEVICES=no")
    process(tmp_path, 8, DOCKER_ID, "HOME=/")
    process(tmp_path, 9, "unreadable")
    (tmp_path / "9" / "environ").unlink()
    for name in ("10", "self"):
        (tmp_path / name).mkdir()
    assert visible_devices(DOCKER_ID, str(tmp_path)) == "GPU-a,GPU-b"
    assert list(pids_of(DOCKER_ID, str(tmp_path))) == [8, 20, 100]
    assert visible_devices("unreadable", str(tmp_path)) is None
    assert visible_devices(DOCKER_ID, str(tmp_path / "nowhere")) is None

"""The process collector starts where processes are visible, and only there."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.aggregation.record_parts import RecordPart
from profiler.collectors.collector import Collectors
from profiler.collectors.processes.discovery import ProcessDiscovery, pids_of, visible_devices
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.record.record_model import Container, Monitor, Record, Sampling
from tests.collected import with_collected

BATCH = ContainerMetadata(name="batch", docker_id="b", known_status="RUNNING")
RECORD = Record(
    task_id="t",
    container=Container(name="batch"),
    status="success",
    sampling=Sampling(),
    monitor=Monitor(),
)


def test_without_visible_processes_no_collector_is_made_and_the_search_ends() -> None:
    searched: list[str] = []

    def is_visible(docker_id: str) -> bool:
        searched.append(docker_id)
        return False

    collectors = Collectors(ProcessDiscovery(is_visible, pytest.fail))
    for _ in range(20):
        collectors.on_batch_started(BATCH)
    collectors.on_batch_started(replace(BATCH, docker_id="c"))
    collectors.on_batch_started(replace(BATCH, docker_id=None))
    assert searched == [*["b"] * 5, "c"]
    assert with_collected(RECORD, collectors, "b") == RECORD


def test_once_processes_are_seen_their_collector_is_started_and_receives_every_call() -> None:
    calls, seen = list[str](), iter([False, True])
    collector: Any = SimpleNamespace(
        start=lambda: calls.append("start"),
        on_batch_started=lambda container: calls.append(f"started {container.docker_id}"),
        final_reading=lambda _: calls.append("final reading"),
        stop=lambda _: calls.append("stop"),
        part=lambda _record, _batch: RecordPart(source="processes"),
    )
    collectors = Collectors(ProcessDiscovery(lambda _: next(seen), lambda: collector))
    for _ in range(3):
        collectors.on_batch_started(BATCH)
    collectors.final_readings()
    collectors.stop()
    assert calls == ["start", "started b", "started b", "final reading", "stop"]
    assert with_collected(RECORD, collectors, "b").sampling == Sampling(sources=("processes",))


DOCKER_ID = "c0ffee" * 10


def process(folder: Path, pid: int, docker_id: str, *environment: str) -> None:
    (folder / str(pid)).mkdir()
    (folder / str(pid) / "cgroup").write_text(f"0::/../{docker_id}\n")
    (folder / str(pid) / "environ").write_bytes(
        b"".join(entry.encode() + b"\0" for entry in environment)
    )


def test_the_first_process_with_the_variable_determines_the_gpus(tmp_path: Path) -> None:
    process(tmp_path, 7, "another", "NVIDIA_VISIBLE_DEVICES=GPU-wrong")
    process(tmp_path, 100, DOCKER_ID, "HOME=/", "NVIDIA_VISIBLE_DEVICES=GPU-late")
    process(
        tmp_path,
        20,
        DOCKER_ID,
        "HOME=/",
        "NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b",
        "X_NVIDIA_VISIBLE_DEVICES=no",
    )
    process(tmp_path, 8, DOCKER_ID, "HOME=/")
    process(tmp_path, 9, "unreadable")
    (tmp_path / "9" / "environ").unlink()
    for name in ("10", "self"):
        (tmp_path / name).mkdir()
    assert visible_devices(DOCKER_ID, str(tmp_path)) == "GPU-a,GPU-b"
    assert list(pids_of(DOCKER_ID, str(tmp_path))) == [8, 20, 100]
    assert visible_devices("unreadable", str(tmp_path)) is None
    assert visible_devices(DOCKER_ID, str(tmp_path / "nowhere")) is None

"""The decoders against documents that others recorded on real ECS.

They are not part of the project. ``TASK_PROFILER_RECORDINGS`` names a folder of them: answers of
``/task/stats`` as ``*stats*.json``, answers of ``/task`` as other ``*meta*.json``.
"""

import os
from pathlib import Path

import pytest

from profiler.sources.container_stats import StatsReading, decode_stats
from profiler.sources.task_metadata import TaskMetadata, decode_task

FOLDER = os.environ.get("TASK_PROFILER_RECORDINGS", "")

pytestmark = pytest.mark.skipif(not FOLDER, reason="TASK_PROFILER_RECORDINGS names no folder of recorded documents")


def recordings(*, stats: bool) -> list[Path]:
    paths = sorted(Path(FOLDER).glob("*.json")) if FOLDER else []
    return [path for path in paths if ("stats" in path.name) == stats]


@pytest.mark.parametrize("path", recordings(stats=True), ids=lambda path: path.stem)
def test_recorded_stats(path: Path) -> None:
    reading = decode_stats(path.read_bytes())
    assert isinstance(reading, StatsReading)
    assert reading.refused == {}
    assert reading.samples
    for sample in reading.samples.values():
        assert sample.cpu_ns
        assert sample.memory_used_bytes
        assert sample.memory_limit_bytes


@pytest.mark.parametrize("path", recordings(stats=False), ids=lambda path: path.stem)
def test_recorded_tasks(path: Path) -> None:
    task = decode_task(path.read_bytes())
    assert isinstance(task, TaskMetadata)
    assert task.arn
    assert task.family
    for container in task.containers:
        assert container.docker_id
        assert container.started_ns
        assert container.known_status


def test_the_fargate_pair_gives_the_numbers_worked_out_by_hand() -> None:
    reading = decode_stats((Path(FOLDER) / "ecs_exporter__fargate_task_stats.json").read_bytes())
    task = decode_task((Path(FOLDER) / "ecs_exporter__fargate_task_metadata.json").read_bytes())
    assert isinstance(reading, StatsReading)
    assert isinstance(task, TaskMetadata)
    exporter = task.container("ecs-exporter")
    assert exporter is not None
    assert exporter.docker_id is not None
    sample = reading.samples[exporter.docker_id]
    assert sample.memory_used_bytes == 45010944
    # precpu of the document: 242770940 ns at 05:22:39.406479661
    vcpu = ((sample.cpu_ns or 0) - 242770940) / (sample.read_ns - 1740633759406479661)
    assert vcpu == pytest.approx(0.00799, abs=0.000005)
    assert (task.vcpu_limit, exporter.vcpu_limit) == (0.25, None)
    gone = task.container("nonessential")
    assert gone is not None
    assert (gone.docker_id in reading.without_stats, gone.exit_code, gone.stopped) == (True, 0, True)

"""The decoders against documents that others recorded on real ECS and on real Neuron devices.

They are not part of the project. ``TASK_PROFILER_RECORDINGS`` names a folder of them: answers of
``/task/stats`` as ``*stats*.json``, answers of ``/task`` as other ``*meta*.json``. A folder ``neuron``
beside it may hold what neuron-monitor printed, one report a line.
"""

import os
from pathlib import Path

import pytest

from profiler.collectors.neuron.neuron_monitor_reports import NeuronReport, decode_report
from profiler.readers import Unavailable
from profiler.readers.container_sample import ContainerSample
from profiler.readers.ecs.container_stats import decode_stats
from profiler.readers.ecs.task_metadata import TaskMetadata, decode_task

FOLDER = os.environ.get("TASK_PROFILER_RECORDINGS", "")

pytestmark = pytest.mark.skipif(not FOLDER, reason="TASK_PROFILER_RECORDINGS names no folder of recorded documents")


def recordings(*, stats: bool) -> list[Path]:
    paths = sorted(Path(FOLDER).glob("*.json")) if FOLDER else []
    return [path for path in paths if ("stats" in path.name) == stats]


@pytest.mark.parametrize("path", recordings(stats=True), ids=lambda path: path.stem)
def test_recorded_stats(path: Path) -> None:
    reading = decode_stats(path.read_bytes())
    assert not isinstance(reading, Unavailable)
    assert reading
    for one in reading.values():
        assert isinstance(one, ContainerSample)
        assert all((one.cpu_ns, one.memory_used_bytes, one.memory_limit_bytes))


@pytest.mark.parametrize("path", recordings(stats=False), ids=lambda path: path.stem)
def test_recorded_tasks(path: Path) -> None:
    task = decode_task(path.read_bytes())
    assert isinstance(task, TaskMetadata)
    assert task.arn
    assert task.family
    assert all(one.docker_id and one.started_ns and one.known_status for one in task.containers)


@pytest.fixture(scope="module")
def neuron() -> dict[str, list[NeuronReport]]:
    """The recorded reports by the beginning of their file's name."""
    folder = Path(FOLDER).parent / "neuron"
    if not folder.is_dir():
        pytest.skip(f"no reports of neuron-monitor were recorded in {folder}")
    found: dict[str, list[NeuronReport]] = {}
    for path in sorted(folder.glob("*.json*")):
        for line in path.read_bytes().splitlines():
            report = decode_report(line)
            assert isinstance(report, NeuronReport), path
            found.setdefault(path.name.partition("-")[0], []).append(report)
    return found


def test_recorded_neuron_reports_agree_with_themselves(neuron: dict[str, list[NeuronReport]]) -> None:
    """What a runtime holds on its devices is what it holds for all cores together."""
    assert neuron
    for reports in neuron.values():
        for report in reports:
            assert report.problems == ()
            for runtime in report.runtimes:
                assert runtime.utilization_percent
                assert runtime.completed
                assert runtime.failed == 0
                assert runtime.latency is not None
                cores = runtime.core_memory_bytes
                assert not cores or sum(cores.values()) == runtime.device_memory_bytes

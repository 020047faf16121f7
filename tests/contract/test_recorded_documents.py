"""The decoders against documents that others recorded on real ECS and on real Neuron devices.

They are not part of the project. ``TASK_PROFILER_RECORDINGS`` names a folder of them: answers of
``/task/stats`` as ``*stats*.json``, answers of ``/task`` as other ``*meta*.json``. A folder
``neuron`` beside it may hold what neuron-monitor printed, one report a line.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from profiler.collectors.neuron.neuron_monitor_reports import NeuronReport, decode_report
from profiler.core.optional_math import sum_known
from profiler.readers.container_sample import ContainerSample
from profiler.readers.ecs.container_stats import decode_stats
from profiler.readers.ecs.task_metadata import TaskMetadata, decode_task

FOLDER = Path(os.environ.get("TASK_PROFILER_RECORDINGS", "/dev/null"))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_recorded_stats_and_tasks(path: Path) -> None:
    if "stats" in path.name:
        reading = decode_stats(path.read_bytes())
        assert isinstance(reading, Mapping)
        samples = [one for one in reading.values() if isinstance(one, ContainerSample)]
        assert len(samples) == len(reading) > 0
        assert all(
            one.cpu_ns and one.memory_used_bytes and one.memory_limit_bytes for one in samples
        )
    else:
        task = decode_task(path.read_bytes())
        assert isinstance(task, TaskMetadata)
        assert task.arn
        assert task.family
        assert all(one.docker_id and one.started_ns and one.known_status for one in task.containers)


@pytest.mark.parametrize(
    "path", sorted(FOLDER.parent.glob("neuron/*.json*")), ids=lambda path: path.stem
)
def test_recorded_neuron_reports_agree_with_themselves(path: Path) -> None:
    """What a runtime holds on its devices is what it holds for all cores together."""
    for line in path.read_bytes().splitlines():
        report = decode_report(line)
        assert isinstance(report, NeuronReport)
        assert report.problems == ()
        assert report.impossible == 0
        for runtime in report.runtimes:
            assert all((runtime.utilization_percent, runtime.completed, runtime.latency))
            assert runtime.failed == 0
            cores = runtime.core_memory_bytes
            assert not cores or sum_known(*cores.values()) == runtime.device_memory_bytes

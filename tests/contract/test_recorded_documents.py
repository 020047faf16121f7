"""The decoders against documents that others recorded on real ECS and on real Neuron devices.

They are not part of the project. ``TASK_PROFILER_RECORDINGS`` names a folder of them: answers of
``/task/stats`` as ``*stats*.json``, answers of ``/task`` as other ``*meta*.json``. A folder ``neuron``
beside it may hold what neuron-monitor printed, one report a line.
"""

import os
from pathlib import Path

import pytest

from profiler.collectors.neuron.neuron_collector import NeuronUsage
from profiler.collectors.neuron.neuron_monitor_reports import NeuronReport, decode_report
from profiler.readers import Unavailable
from profiler.readers.container_sample import ContainerSample
from profiler.readers.ecs.container_stats import decode_stats
from profiler.readers.ecs.task_metadata import TaskMetadata, decode_task
from profiler.record.record_model import Neuron, NeuronExecutions, NeuronLatency
from tests.values import present

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


def test_the_fargate_pair_gives_the_numbers_worked_out_by_hand() -> None:
    reading = decode_stats((Path(FOLDER) / "ecs_exporter__fargate_task_stats.json").read_bytes())
    task = decode_task((Path(FOLDER) / "ecs_exporter__fargate_task_metadata.json").read_bytes())
    assert not isinstance(reading, Unavailable)
    assert isinstance(task, TaskMetadata)
    exporter = task.container("ecs-exporter")
    assert exporter is not None
    sample = reading[present(exporter.docker_id)]
    assert isinstance(sample, ContainerSample)
    assert sample.memory_used_bytes == 84111360 - (3379200 + 39100416 - 33927168)
    # precpu of the document: 242770940 ns at 05:22:39.406479661
    vcpu = ((sample.cpu_ns or 0) - 242770940) / (sample.read_ns - 1740633759406479661)
    assert vcpu == pytest.approx(0.00799, abs=0.000005)
    assert (task.vcpu_limit, exporter.vcpu_share) == (0.25, None)
    gone = task.container("nonessential")
    assert gone is not None
    assert (gone.docker_id in reading, gone.exit_code, gone.is_stopped) == (False, 0, True)


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


def neuron_record(reports: list[NeuronReport]) -> Neuron:
    usage = NeuronUsage(1)
    for report in reports:
        usage.add(report)
    return present(usage.record(restarts=0))


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


def test_the_recorded_trn1_run_gives_the_numbers_worked_out_by_hand(neuron: dict[str, list[NeuronReport]]) -> None:
    record = neuron_record(neuron["wandb"])
    busy, idle = record.cores
    assert busy.utilization_percent is not None
    # (1.363157 × 0.999163 + 1.356082 × 1.000533 + 1.312837 × 0.999577) ÷ 2.999274
    assert (busy.utilization_percent.avg, busy.utilization_percent.max) == (1.344, 1.363)
    assert idle.utilization_percent is not None
    assert (idle.utilization_percent.avg, idle.utilization_percent.max) == (0.0, 0.0)
    assert present(idle.memory_used_mb).max == 0.031  # 32,768 bytes of code, on a core that did nothing
    assert present(record.device_memory_used_mb).max == 97.559  # 102,298,328 bytes
    assert record.executions == NeuronExecutions(completed=780, failed=0)
    assert record.latency_seconds == NeuronLatency(p50_max=0.000095367, p99_max=0.000131845, p100_max=0.000148535)
    assert (record.device_memory_size_mb, record.ecc_uncorrected) == (None, 0)


def test_other_recordings_have_the_numbers_that_they_show(neuron: dict[str, list[NeuronReport]]) -> None:
    first = neuron_record(neuron["kr"])  # 89 % over 62 ms of an Inf1: nothing about the utilization
    assert [core.utilization_percent for core in first.cores] == [None] * 4
    assert first.executions == NeuronExecutions(completed=14, failed=0)
    runtime_1 = neuron_record(neuron["DOCS"])
    assert [present(core.utilization_percent).max for core in runtime_1.cores] == [42.01, 42.02, 42.03, 42.04]
    assert runtime_1.executions == NeuronExecutions(completed=123, failed=0)
    assert (runtime_1.ecc_uncorrected, present(runtime_1.latency_seconds).p100_max) == (0, 0.01100013)
    idle = Neuron(device_memory_size_mb=32768, restarts=0)
    assert neuron_record(neuron["allsmi"]) == idle, "an idle node has a size and no numbers"

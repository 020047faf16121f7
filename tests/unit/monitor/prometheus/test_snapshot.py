"""From what the main loop knows to a snapshot, on a fake clock."""

from unittest.mock import Mock

from msgspec.structs import replace

from profiler.collectors.neuron.neuron_collector import NeuronCollector
from profiler.collectors.neuron.neuron_monitor_reports import NeuronReport, RuntimeReport
from profiler.collectors.nvidia.gpu_collector import GpuCollector
from profiler.collectors.nvidia.gpu_usage import NO_GPUS
from profiler.collectors.nvidia.visible_gpus import GpuScope
from profiler.core.log import Log
from profiler.core.threads import ThreadFailure
from profiler.monitor.prometheus.snapshot import ContainerSnapshot, Snapshot
from profiler.readers import Unavailable
from profiler.readers.container_sample import ResourceLimits
from profiler.readers.ecs.container_stats import StatsReading
from profiler.readers.ecs.task_metadata import TaskMetadata
from profiler.readers.linux.instance import NO_INSTANCE, InstanceReading
from tests.fakes import FakeClock, seconds
from tests.monitor_world import MIB, OWN
from tests.prometheus_world import BATCH, TASK, ScrapedTask
from tests.scripted_gpus import ScriptedSource, reading
from tests.values import present


def test_a_container_by_its_last_sample() -> None:
    fakes = ScrapedTask()
    (first,) = fakes.tick().containers
    assert first == ContainerSnapshot(
        container=present(fakes.sampler.task).containers[0],
        sample=ScrapedTask.reading(1),
        vcpu_used=0.5,
        limits=ResourceLimits(vcpu=2.0, memory_bytes=512 * MIB),
    )
    (second,) = fakes.tick().containers
    assert second.sample.cpu_ns == seconds(1)
    assert second.vcpu_used == 0.5


def test_statistics_that_stand_still_keep_their_last_step() -> None:
    """Fargate renews them every 10 s."""
    fakes = ScrapedTask()
    fakes.source.stats_at = lambda at: {"b": fakes.reading(at // 10 * 10)}
    assert [fakes.tick().containers[0].vcpu_used for _ in range(12)] == [None] * 9 + [0.5] * 3


def test_a_container_vanishes_with_its_stats_or_a_minute_after_they_stop_to_move() -> None:
    fakes = ScrapedTask()
    fakes.source.stats_at = lambda at: {"b": fakes.reading(min(at, 5))} if at < 70 else {}
    assert len(fakes.tick(65).containers) == 1
    assert fakes.tick().containers == ()
    fakes.sampler.interval_ns = seconds(30)
    assert len(fakes.builder.take_snapshot().containers) == 1  # held for three intervals
    fakes.sampler.interval_ns = seconds(1)
    fakes.source.stats_at = lambda at: {"b": fakes.reading(at)} if at < 70 else {}
    assert [len(fakes.tick().containers) for _ in range(5)] == [1, 1, 1, 0, 0]


def test_readings_are_held_for_ten_seconds_after_the_endpoint_failed_and_come_back() -> None:
    fakes = ScrapedTask()
    fakes.tick(3)
    usual, fakes.source.stats_at = fakes.source.stats_at, lambda _at: Unavailable("refused")
    assert len(fakes.tick(10).containers) == 1
    gone = fakes.tick()
    assert gone.containers == ()
    assert gone.sources["task-metadata-v4"] is False
    assert gone.read_failures == 11
    assert gone.task is fakes.sampler.task
    fakes.source.stats_at = usual
    back = fakes.tick()
    assert back.sources["task-metadata-v4"] is True
    assert back.containers[0].container.name == "batch"


def test_a_network_of_ones_own_is_the_containers() -> None:
    fakes = ScrapedTask()
    fakes.source.stats_at = lambda at: {
        "b": fakes.reading(at, network_rx_bytes=5, network_tx_bytes=6)
    }
    fakes.answer, task = Unavailable("refused"), fakes.answer
    now = fakes.tick()
    assert now.task == TaskMetadata()
    assert now.containers == ()
    fakes.answer = task
    now = fakes.tick()
    assert not now.containers[0].container.shares_network
    assert now.task_rx_bytes is None
    assert now.task_tx_bytes is None


def test_a_shared_network_is_the_tasks_and_never_falls() -> None:
    """The containers' samples of it are of different moments, and one of them may end."""
    both = tuple(replace(one, network_mode="awsvpc") for one in (BATCH, OWN))
    fakes = ScrapedTask(task=replace(TASK, containers=both))
    answers = [{"b": 10, "m": 12}, {"b": 15, "m": 12}, {"m": 14}, {"m": 20}]

    def stats_at(at: float) -> StatsReading:
        return {
            docker_id: fakes.reading(at, network_rx_bytes=rx)
            for docker_id, rx in answers.pop(0).items()
        }

    fakes.source.stats_at = stats_at
    snapshots = [fakes.tick() for _ in range(4)]
    assert [one.task_rx_bytes for one in snapshots] == [12, 15, 15, 20]
    assert all(one.container.shares_network for now in snapshots for one in now.containers)


def test_the_instance_is_read_every_ten_seconds_and_may_be_down() -> None:
    fakes = ScrapedTask()
    assert fakes.tick(25).instance == InstanceReading(memory_size_bytes=1)
    assert fakes.instance_reads == 3
    fakes.instance = Unavailable("no /proc")
    snapshot = fakes.tick(10)
    assert snapshot.instance is NO_INSTANCE
    assert snapshot.sources["instance"] is False
    for launch_type in ("FARGATE", None):  # without an instance nothing is read of it
        fakes = ScrapedTask(task=replace(TASK, launch_type=launch_type))
        snapshot = fakes.tick()
        assert snapshot.instance is NO_INSTANCE
        assert fakes.instance_reads == 0
        assert "instance" not in snapshot.sources


def shown(snapshot: Snapshot) -> list[str]:
    return [gpu.sample.facts.uuid for gpu in snapshot.gpus.gpus]


def test_gpus_vanish_ten_seconds_after_their_last_reading() -> None:
    source = ScriptedSource(reading("GPU-a", "GPU-b", percent=40), Unavailable("lost"))
    watch = GpuCollector(source, GpuScope(()), FakeClock(), Log(), seconds(1), is_required=False)
    fakes = ScrapedTask(watch)
    assert "nvml" not in fakes.tick().sources
    watch.take_reading()
    now = fakes.tick()
    assert shown(now) == ["GPU-a", "GPU-b"]
    assert now.sources["nvml"] is True
    watch.take_reading()
    assert len(shown(fakes.tick(10))) == 2
    gone = fakes.tick()
    assert gone.gpus is NO_GPUS
    assert gone.sources["nvml"] is False


def test_neuron_cores_vanish_with_the_reports() -> None:
    silent = Mock(restarts=0, pid=None, outage=None, failure=None)
    silent.name = "neuron-monitor"
    watch = NeuronCollector(silent, 1, Log(), is_required=False)
    fakes, hear = ScrapedTask(watch), watch._on_report
    assert fakes.tick().neuron is None
    hear(
        NeuronReport(
            runtimes=(RuntimeReport(utilization_percent={0: 60.0}, completed=5),), device_count=1
        )
    )
    now = present(fakes.tick().neuron)
    assert now.utilization_percent == {0: 60.0}
    assert now.completed == 5
    hear(NeuronReport(device_count=1))
    idle = present(fakes.tick().neuron)
    assert idle.utilization_percent == {}
    assert idle.completed == 5
    gone = fakes.tick(11)
    assert gone.neuron is None
    assert gone.sources["neuron-monitor"] is False
    hear(NeuronReport(device_count=1))
    assert fakes.tick().sources["neuron-monitor"]
    silent.failure = ThreadFailure(0, "KeyError: 'cores'")
    gone = fakes.tick()  # a collector that has stopped is down at once
    assert gone.neuron is None
    assert gone.sources["neuron-monitor"] is False

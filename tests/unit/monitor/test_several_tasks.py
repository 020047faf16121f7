"""One loop with several tasks whose containers have the same names: each record is that of its own task."""

import json
from collections import Counter
from typing import Any

from msgspec.structs import replace

from profiler.aggregation.task_record import RecordPart
from profiler.monitor.loop import MonitorLoop
from profiler.readers.container_sample import ContainerSample, ResourceLimits
from profiler.readers.ecs.container_stats import StatsReading
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from profiler.readers.linux.waited_target import Wait
from profiler.record.record_model import Gpu, Record
from tests.fakes import START_NS, seconds
from tests.monitor_world import MIB, World


class CountingCollector:
    """Knows of each batch its id, its samples and its limit."""

    def __init__(self) -> None:
        self.started: set[str] = set()
        self.samples: Counter[str] = Counter()
        self.limits: dict[str, float | None] = {}

    def on_batch_started(self, container: ContainerMetadata) -> None:
        self.started.add(container.followed_id)

    def on_sample(self, batch: str, _sample: ContainerSample, sizes: ResourceLimits) -> None:
        self.samples[batch] += 1
        self.limits[batch] = sizes.memory_bytes

    def longest_wait(self, batch: str, _since_ns: int) -> Wait | None:
        return Wait("disk", batch)

    def part(self, _record: Record, batch: str) -> RecordPart:
        return RecordPart(values={"gpus": (Gpu(uuid=f"GPU-of-{batch}"),)}, warnings=(f"{self.samples[batch]} samples",))


class Instance:
    """Two tasks of one monitor, 0123 and 9999, each with a container ``batch``. The Docker ids are ``b`` and ``z``."""

    def __init__(self, *, stop_at: float | None = None, **settings: Any) -> None:
        self.first = World(stop_at=stop_at, **settings)
        self.second = World(clock=self.first.clock, **settings)
        self.second.stop, self.second.docker_id = self.first.stop, "z"
        self.second.source.task_at = self.second_task
        self.collector = CountingCollector()
        self.first.collectors = (self.collector,)

    def second_task(self, at: float) -> TaskMetadata:
        """Its batch starts later, was restarted once and has a limit of its own."""
        batch, own = self.second.usual_task(at).containers
        started_ns = START_NS + seconds(10)
        batch = replace(batch, started_ns=started_ns, restart_count=1, memory_limit_bytes=512 * MIB)
        arn = "arn:aws:ecs:eu-west-1:111122223333:task/jobs/9999"
        return replace(self.second.usual_task(at), arn=arn, containers=(batch, own))

    def run(self) -> "Instance":
        shared = self.first.shared()
        MonitorLoop([self.first.task(shared), self.second.task(shared)], shared).run()
        return self

    def reports(self) -> tuple[dict[str, Any], dict[str, Any]]:
        records = [json.loads(line)["record"] for _, line in self.first.streams.lines]
        assert [record["container"]["name"] for record in records] == ["batch", "batch"]
        first, second = sorted(records, key=lambda record: str(record["taskId"]))
        return first, second

    def printed(self, kind: str) -> list[tuple[str, dict[str, Any]]]:
        lines = self.first.printed()
        return [(line["record"]["taskId"], line) for line in lines if line["type"] == kind]


def test_two_batches_of_one_name_have_records_of_their_own() -> None:
    both = Instance()
    both.first.batch_ends, both.second.batch_ends, both.second.exit_code = 30.5, 50.5, 3
    both.second.memory_mib = lambda at: 200 if at < 40 else 300
    first, second = both.run().reports()
    assert (first["status"], first["exitCode"], first["container"]["id"]) == ("success", 0, "b")
    assert (second["status"], second["exitCode"], second["container"]["id"]) == ("failure", 3, "z")
    for metric, values in {
        "durationMs": (30_500, 40_500),
        "cpuSeconds": (15.0, 25.0),
        "maxMemoryUsedMB": (100, 300),
        "memorySizeMB": (1024, 512),
    }.items():
        assert (first["metrics"][metric], second["metrics"][metric]) == values
    assert set(first["series"]["memoryUsedMB"]) == {100.0}
    assert {200.0, 300.0} <= {*second["series"]["memoryUsedMB"]}
    assert ("restarts" in first["container"], second["container"]["restarts"]) == (False, 1)
    assert [gpu["uuid"] for gpu in (*first["gpus"], *second["gpus"])] == ["GPU-of-b", "GPU-of-z"]
    assert (first["monitor"]["warnings"], second["monitor"]["warnings"][-1]) == (["30 samples"], "50 samples")
    assert both.collector.started == {"b", "z"}
    assert (both.collector.limits["b"], both.collector.limits["z"]) == (1024 * MIB, 512 * MIB)


def test_two_batches_of_one_name_have_checkpoints_and_notices_of_their_own() -> None:
    both = Instance(checkpoint_seconds=20.0, expected_seconds=25.0)
    both.first.batch_ends, both.second.batch_ends = 50.5, 45.5
    first, second = both.run().reports()
    intervals = [(task, line["record"]["interval"]) for task, line in both.printed("task.checkpoint")]
    assert [(task, one["startedAt"][-10:], one["cpuSeconds"]) for task, one in intervals] == [
        ("0123", "53:20.000Z", 10.0),
        ("9999", "53:30.000Z", 9.5),
        ("0123", "53:40.000Z", 10.0),
        ("9999", "53:40.000Z", 10.0),
    ]
    notices = [(task, line["time"], line["notice"]["evidence"]) for task, line in both.printed("task.notice")]
    assert [(task, time[-10:], evidence["waitingFor"]) for task, time, evidence in notices] == [
        ("0123", "53:46.000Z", "disk b"),
        ("9999", "53:56.000Z", "disk z"),
    ]
    assert ([one["at"] for one in first["notices"]], [one["at"] for one in second["notices"]]) == (
        [notices[0][1]],
        [notices[1][1]],
    )


def test_a_stop_is_waited_for_by_all_tasks_at_the_same_time() -> None:
    both = Instance(stop_at=20.2)
    both.second.batch_ends = 21.4
    first, second = both.run().reports()
    assert (first["status"], second["status"]) == ("stopped", "stopped")
    assert ("exitCode" in first, second["exitCode"]) == (False, 0)
    assert first["metrics"]["durationMs"] > 21_900
    assert second["metrics"]["durationMs"] == 11_400
    assert both.first.clock.now_ns <= seconds(22.3)


def test_a_defect_in_one_task_does_not_end_another() -> None:
    both = Instance()
    both.first.batch_ends = 30.5

    def stats_at(at: float) -> StatsReading:
        if at >= 20:
            raise KeyError
        return both.second.usual_stats(at)

    both.second.source.stats_at = stats_at
    first, second = both.run().reports()
    assert (first["status"], first["metrics"]["cpuSeconds"], first["monitor"]["warnings"]) == (
        "success",
        15.0,
        ["30 samples"],
    )
    assert (second["status"], second["metrics"]["cpuSeconds"]) == ("unknown", 9.5)
    assert second["monitor"]["warnings"][0].startswith("The monitor failed (KeyError in ")

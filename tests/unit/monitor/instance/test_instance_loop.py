"""One monitor for all tasks of an instance: which it reports, with which numbers, and when."""

from pathlib import Path

from tests.instance_world import Box, Instance


def test_a_plain_task_is_reported_once_with_exact_totals(tmp_path: Path) -> None:
    world = Instance(Box(runs=((2.0, 12.4),)), folder=tmp_path).run()
    record = world.record()
    metrics = record["metrics"]
    assert (record["status"], record["exitCode"], record["family"]) == ("success", 0, "etl")
    assert (metrics["durationMs"], metrics["cpuSeconds"]) == (10_400, 5.2)
    assert (metrics["maxMemoryUsedMB"], metrics["memoryPeakSource"]) == (100, "kernel")
    assert world.log.events("error") == []

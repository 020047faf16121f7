"""The monitor beside real batches in real containers, against the kernel's own accounting."""

import json

import pytest

from tests.aws import FakeAws
from tests.e2e.kernel import KernelReading
from tests.e2e.reports import END_SECONDS, Start, finished, wait_for_samples
from tests.e2e.specs import BATCH, MONITOR, batch_container, monitor_container
from tests.e2e.task import Task
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

_MIB = 1024 * 1024


def watch_kernel(task: Task) -> list[KernelReading]:
    """The kernel's readings of the batch, from now to its end."""
    readings: list[KernelReading] = []

    def read() -> bool:
        if task[BATCH].facts.stopped:
            return True
        readings.append(task[BATCH].kernel())
        return False

    wait_until(read, END_SECONDS, "the batch's end")
    return readings


@pytest.mark.alone
def test_the_report_tells_what_the_kernel_counted(start: Start, aws: FakeAws) -> None:
    task = start(
        batch_container(
            "--cpu-seconds", "4", "--memory-mib", "200", "--idle-seconds", "2.5", "--exit-code", "4", cpus=0.8
        )
    )
    readings = watch_kernel(task)
    record = finished(aws, task)
    metrics = record["metrics"]
    facts = task[BATCH].facts
    assert (record["status"], record["exitCode"], facts.exit_code) == ("failure", 4, 4)
    assert record["likelyOutOfMemory"] is False
    assert record["container"]["name"] == BATCH
    assert record["container"]["id"] == facts.docker_id
    assert record["taskId"] == task.identity.task_id
    assert record["logStream"] == task.log_stream(BATCH)
    assert metrics["cpuSeconds"] == pytest.approx(task[BATCH].kernel().cpu_seconds, rel=0.01)
    used_mb = max(reading.memory_used_bytes for reading in readings) / _MIB
    assert metrics["maxMemoryUsedMB"] == pytest.approx(used_mb, rel=0.02)
    assert metrics["memorySizeMB"] == 512
    assert metrics["memoryPeakSource"] == "sampled"
    assert (metrics["vcpuSize"], metrics["vcpuShare"]) == (1, pytest.approx(0.8, abs=0.001))
    # It burns, then idles: the most is above the average, however busy the machine is, and within its quota. The kernel
    # grants the quota every 100 ms: the first step, of half a second, can hold that of seven such periods.
    used = metrics["vcpuUsed"]
    assert used["avg"] < used["max"] <= 7 * 0.8 / 5, json.dumps(record)
    assert used["p50"] <= 0.88, json.dumps(record)
    assert record["taskSize"] == {"vcpu": 1, "memoryMB": 1024}
    assert record["visible"] == {"memoryMB": record["visible"]["memoryMB"], "cpus": record["processor"]["count"]}
    assert record["sampling"]["samples"] >= 5
    assert record["sampling"]["failures"] == 0
    assert "processes" not in record  # the namespace is not shared
    assert "processes" not in record["sampling"]["sources"]
    assert [other["name"] for other in record["containers"]] == [MONITOR]
    assert task[MONITOR].facts.exit_code == 0


@pytest.mark.alone
def test_a_batch_that_is_stopped_at_once_has_a_sample(start: Start, aws: FakeAws) -> None:
    """ECS stops the monitor first and the batch only after it: the monitor must not wait for the batch."""
    task = start(batch_container("--memory-mib", "50", "--until-term"))
    task[BATCH].wait_output("ready", 120)
    wait_until(lambda: task.endpoint.paths, 120, "the monitor's first request")
    task.stop()
    record = finished(aws, task)
    assert record["status"] == "stopped"
    assert "exitCode" not in record
    assert "finishedAt" not in record
    assert record["sampling"]["samples"] >= 1
    assert record["metrics"]["maxMemoryUsedMB"] > 50
    assert (task[MONITOR].facts.exit_code, task[BATCH].facts.exit_code) == (0, 143)


def test_a_batch_that_is_stopped_before_the_monitor_has_its_exit_code(start: Start, aws: FakeAws) -> None:
    """In the stricter layout the batch depends on the monitor, which therefore sees its end."""
    task = start(
        batch_container("--memory-mib", "50", "--until-term", depends_on=(MONITOR,)),
        monitor_container(aws.environment(), essential=True, depends_on=()),
    )
    wait_for_samples(task, 3)
    task.stop()
    record = finished(aws, task)
    assert (record["status"], record["exitCode"]) == ("stopped", 143)
    assert "durationMs" in record["metrics"]
    assert task[MONITOR].facts.exit_code == 0

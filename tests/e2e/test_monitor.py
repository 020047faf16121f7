"""The monitor beside real batches in real containers, against the kernel's own accounting."""

import json
from typing import Any

import pytest

from tests.aws import FakeAws
from tests.e2e.images import BASE_IMAGE
from tests.e2e.kernel import KernelReading
from tests.e2e.reports import END_SECONDS, LOG_GROUP, Start, checkpoints, report_in_stream, wait_for_samples
from tests.e2e.specs import BATCH, MONITOR, ContainerSpec, batch_container, monitor_container
from tests.e2e.task import Task
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

_MIB = 1024 * 1024


def event_at(task: Task, container: str, what: Any) -> float:
    event = task.event(container, what)
    assert event is not None, (container, what, task.events)
    return event.at


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


def test_the_report_tells_what_the_kernel_counted(start: Start, aws: FakeAws) -> None:
    task = start(
        batch_container(
            "--cpu-seconds", "4", "--memory-mib", "200", "--idle-seconds", "2.5", "--exit-code", "4", cpus=0.8
        )
    )
    readings = watch_kernel(task)
    task.wait_stopped(END_SECONDS)
    record = report_in_stream(aws, task)
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
    assert record["sampling"]["samples"] >= 5
    assert record["sampling"]["failures"] == 0
    assert [other["name"] for other in record["containers"]] == [MONITOR]
    assert task[MONITOR].facts.exit_code == 0


def test_the_report_arrives_within_two_seconds_of_the_end(start: Start, aws: FakeAws) -> None:
    task = start(batch_container("--cpu-seconds", "1", "--idle-seconds", "1.5"))
    task.wait_stopped(END_SECONDS)
    (event,) = aws.events(LOG_GROUP, task.log_stream(BATCH))
    assert event.timestamp_ms / 1000 - event_at(task, BATCH, "stopped") < 2
    assert event_at(task, MONITOR, "stopped") - event_at(task, MONITOR, "signalled") < 4


def test_a_batch_killed_for_memory_is_reported_as_such(start: Start, aws: FakeAws) -> None:
    task = start(batch_container("--memory-mib", "180", "--cpu-seconds", "2.5", "--oom", memory_mib=200))
    task.wait_stopped(END_SECONDS)
    record = report_in_stream(aws, task)
    assert task[BATCH].facts.oom_killed
    assert (record["status"], record["exitCode"], record["likelyOutOfMemory"]) == ("failure", 137, True)
    assert record["metrics"]["memorySizeMB"] == 200


def test_a_batch_killed_by_somebody_is_not_called_out_of_memory(start: Start, aws: FakeAws) -> None:
    task = start(batch_container("--memory-mib", "20", "--until-term", memory_mib=400))
    wait_for_samples(task, 6)
    task[BATCH].kill("SIGKILL")
    task.wait_stopped(END_SECONDS)
    record = report_in_stream(aws, task)
    assert (record["status"], record["exitCode"]) == ("failure", 137)
    assert "likelyOutOfMemory" not in record


def test_stop_with_the_monitor_depending_on_the_batch(start: Start, aws: FakeAws) -> None:
    """ECS stops the monitor first and the batch only after it: the monitor must not wait for the batch."""
    task = start(batch_container("--memory-mib", "50", "--until-term"))
    wait_for_samples(task, 3)
    task.stop()
    task.wait_stopped(END_SECONDS)
    record = report_in_stream(aws, task)
    assert record["status"] == "stopped"
    assert "exitCode" not in record
    assert "finishedAt" not in record
    assert record["metrics"]["maxMemoryUsedMB"] > 50
    assert event_at(task, BATCH, "signalled") - event_at(task, MONITOR, "signalled") < 6
    assert task[BATCH].facts.exit_code == 143


def test_a_batch_that_is_stopped_at_once_has_a_sample(start: Start, aws: FakeAws) -> None:
    task = start(batch_container("--memory-mib", "50", "--until-term"))
    task[BATCH].wait_output("ready", 20)
    wait_until(lambda: task.endpoint.requests, 30, "the monitor's first request")
    task.stop()
    task.wait_stopped(END_SECONDS)
    record = report_in_stream(aws, task)
    assert record["status"] == "stopped"
    assert record["sampling"]["samples"] >= 1
    assert record["metrics"]["maxMemoryUsedMB"] > 50


@pytest.mark.parametrize(("essential", "batch_depends_on"), [(True, (MONITOR,)), (False, ())])
def test_stop_of_a_batch_that_the_monitor_does_not_depend_on(
    *, essential: bool, batch_depends_on: tuple[str, ...], start: Start, aws: FakeAws
) -> None:
    """In the stricter layout the batch is stopped first, and the monitor sees its end; without dependsOn both are."""
    task = start(
        batch_container("--memory-mib", "50", "--until-term", depends_on=batch_depends_on),
        monitor_container(aws.environment(), essential=essential, depends_on=()),
    )
    wait_for_samples(task, 3)
    task.stop()
    task.wait_stopped(END_SECONDS)
    record = report_in_stream(aws, task)
    assert (record["status"], record["exitCode"]) == ("stopped", 143)
    assert "durationMs" in record["metrics"]
    assert task[MONITOR].facts.exit_code == 0


def test_a_batch_that_is_killed_after_another_essential_container_has_ended(start: Start, aws: FakeAws) -> None:
    task = start(
        batch_container("--memory-mib", "50", "--until-term", "--ignore-term", stop_timeout_seconds=1),
        monitor_container(aws.environment() | {"TASK_PROFILER_CONTAINER": BATCH}, depends_on=()),
        others=(ContainerSpec(name="proxy", image=BASE_IMAGE, command=("sleep", "4")),),
    )
    task.wait_stopped(END_SECONDS)
    record = report_in_stream(aws, task)
    assert (record["status"], record["exitCode"]) == ("stopped", 137)
    assert task[MONITOR].facts.exit_code == 0


def test_a_batch_that_does_not_end_the_task_is_seen_by_polling(start: Start, aws: FakeAws) -> None:
    task = start(batch_container("--cpu-seconds", "1", "--idle-seconds", "1", essential=False))
    assert task[MONITOR].wait_stopped(END_SECONDS).exit_code == 0
    (event,) = aws.events(LOG_GROUP, task.log_stream(BATCH))
    assert event.timestamp_ms / 1000 - event_at(task, BATCH, "stopped") < 2.5
    assert report_in_stream(aws, task)["status"] == "success"


def test_a_missing_log_stream_costs_a_log_line_and_not_the_report(start: Start) -> None:
    task = start(batch_container("--idle-seconds", "2"), stream=False)
    task.wait_stopped(END_SECONDS)
    output, errors = task[MONITOR].logs()
    reports = [document for line in output.splitlines() if (document := json.loads(line))["type"] == "task.report"]
    assert [report["record"]["status"] for report in reports] == ["success"]
    logged = [json.loads(line) for line in errors.splitlines()]
    assert [line["level"] for line in logged] == ["error"]
    assert "does not exist" in logged[0]["event"]
    assert task[MONITOR].facts.exit_code == 0


def test_checkpoints_go_to_the_monitors_own_output(start: Start, aws: FakeAws) -> None:
    environment = {
        **aws.environment(),
        "TASK_PROFILER_CHECKPOINT_SECONDS": "2",
        "TASK_PROFILER_INTERVAL_SECONDS": "0.5",
    }
    task = start(batch_container("--memory-mib", "60", "--idle-seconds", "6"), monitor_container(environment))
    task.wait_stopped(END_SECONDS)
    records = checkpoints(task)
    assert len(records) >= 2, task[MONITOR].logs()
    assert {record["status"] for record in records} == {"running"}
    assert records[-1]["interval"]["memoryUsedMB"]["max"] > 60
    assert report_in_stream(aws, task)["sampling"]["duplicates"] > 0

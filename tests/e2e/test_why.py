"""Where the time of a batch went and what it ran, seen from the monitor's container with and without SYS_PTRACE.

The batches listen at the same port: the tests of a file run one after another.
"""

import json
from typing import Any

import pytest

from tests.aws import FakeAws
from tests.e2e.reports import END_SECONDS, LOG_GROUP, Start, finished, wait_for_samples
from tests.e2e.specs import BATCH, MONITOR, batch_container, monitor_container
from tests.e2e.task import Task

pytestmark = pytest.mark.e2e

_PEER = "127.0.0.1:5432"
_LOAD = ("--network-seconds", "12", "--cpu-seconds", "8")
_NETWORK_MS = 12_000
_POINTS = 5.0


def findings(task: Task) -> dict[str, Any]:
    """What the doctor finds in the monitor's container; its exit code is 1 for a problem."""
    output = task[MONITOR].execute("sh", "-c", "task-profiler doctor --json --seconds 1 || true")
    return {finding["topic"]: finding for finding in map(json.loads, output.splitlines())}


def waited(record: dict[str, Any]) -> float:
    """The share of the run in which it waited for its peer; the machine's other load prolongs the rest."""
    percent: float = 100 * _NETWORK_MS / record["metrics"]["durationMs"]
    return percent


def test_with_sys_ptrace_the_peer_and_the_functions_are_named(start: Start, aws: FakeAws) -> None:
    environment = {**aws.environment(), "TASK_PROFILER_STACKS": "on"}
    task = start(batch_container(*_LOAD, cpus=1), monitor_container(environment, ptrace=True), pid_mode_task=True)
    wait_for_samples(task, 2)
    found = findings(task)
    task.wait_stopped(END_SECONDS)
    assert ("level 2" in found["level"]["text"], found["call stacks"]["level"]) == (True, "ok")
    stacks, report = (json.loads(event.message) for event in aws.events(LOG_GROUP, task.log_stream(BATCH)))
    assert (stacks["type"], stacks["container"], report["type"]) == ("task.stacks", BATCH, "task.report")
    record = report["record"]
    assert stacks["taskId"] == record["taskId"]
    time, waited_percent = record["timeBreakdown"], waited(record)
    assert time["networkPercent"] == pytest.approx(waited_percent, abs=_POINTS)
    assert time["onCpuPercent"] + time["waitingForCpuPercent"] == pytest.approx(100 - waited_percent, abs=_POINTS)
    assert (time["waitingFor"][0]["kind"], time["waitingFor"][0]["target"]) == ("network", _PEER)
    top = record["stacks"]["top"][0]
    assert (top["function"], top["file"]) == ("_spin", "batch_load.py")
    folded = {stack for step in stacks["steps"] for stack in step["stacks"]}
    assert any("_wait_for_peer (batch_load.py)" in stack and stack.endswith(" [waiting]") for stack in folded)
    assert record["monitor"]["warnings"] == []
    assert (record["exitCode"], task[MONITOR].facts.exit_code) == (0, 0)


def test_without_it_only_the_cpu_is_told_apart_and_the_missing_right_is_named(start: Start, aws: FakeAws) -> None:
    environment = {**aws.environment(), "TASK_PROFILER_STACKS": "on"}
    task = start(batch_container(*_LOAD, cpus=1), monitor_container(environment), pid_mode_task=True)
    wait_for_samples(task, 2)
    found = findings(task)
    assert ("level 1" in found["level"]["text"], found["call stacks"]["level"]) == (True, "problem")
    record = finished(aws, task)
    time = record["timeBreakdown"]
    assert set(time) == {"onCpuPercent", "waitingForCpuPercent", "diskPercent", "otherPercent", "coveredPercent"}
    assert time["otherPercent"] == pytest.approx(waited(record), abs=_POINTS)
    assert "stacks" not in record
    (warning,) = record["monitor"]["warnings"]
    assert "SYS_PTRACE" in warning

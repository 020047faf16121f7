"""The monitor beside real batches in real containers, against the kernel's own accounting.

Batches that wait for a peer listen at the same port: the tests of a file run one after another.
"""

import json
import math
from typing import Any

import pytest
from msgspec import Struct

from tests.e2e.container import BATCH, MONITOR, batch_container, monitor_container
from tests.e2e.kernel import KernelReading
from tests.e2e.reports import LOG_GROUP, Start, finished, wait_for_samples
from tests.e2e.task import Task
from tests.recorded_agent import complete_answers, read_answers, recorded_answers, shape_of_answers
from tests.values import without_caused_by_others
from tools.moto_server import FakeAws
from tools.waiting import wait_until

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

    wait_until(read, "the batch's end")
    return readings


@pytest.mark.alone
def test_the_report_tells_what_the_kernel_counted(start: Start, aws: FakeAws) -> None:
    task = start(
        batch_container(
            "--cpu-seconds",
            "4",
            "--memory-mib",
            "200",
            "--idle-seconds",
            "2.5",
            "--exit-code",
            "4",
            cpus=0.8,
        )
    )
    readings = watch_kernel(task)
    record = finished(aws, task)
    metrics = record["metrics"]
    facts = task[BATCH].facts
    assert record["status"] == "failure"
    assert record["exitCode"] == 4
    assert facts.exit_code == 4
    assert record["likelyOutOfMemory"] is False
    assert record["container"]["name"] == BATCH
    assert record["container"]["id"] == facts.docker_id
    assert record["taskId"] == task.task_id
    assert record["logStream"] == task.log_stream(BATCH)
    # The kernel also counts the end of the process, which no sample sees and which a busy machine
    # makes longer.
    assert 4 <= metrics["cpuSeconds"] <= task[BATCH].kernel().cpu_seconds < 4.4
    used_mb = max(reading.memory_used_bytes for reading in readings) / _MIB
    assert metrics["maxMemoryUsedMB"] == pytest.approx(used_mb, rel=0.02)
    assert metrics["memorySizeMB"] == 512
    assert metrics["memoryPeakSource"] == "sampled"
    assert metrics["vcpuSize"] == 1
    assert metrics["vcpuShare"] == pytest.approx(0.8, abs=0.001)
    # It burns, then idles: the most is above the average, however busy the machine is, and within
    # its quota. The kernel grants the quota every 100 ms: the first step, of half a second, can
    # hold that of seven such periods.
    used = metrics["vcpuUsed"]
    assert used["avg"] < used["max"] <= 7 * 0.8 / 5, json.dumps(record)
    assert used["p50"] <= 0.88, json.dumps(record)
    assert record["taskSize"] == {"vcpu": 1, "memoryMB": 1024}
    assert record["visible"] == {
        "memoryMB": record["visible"]["memoryMB"],
        "cpus": record["processor"]["count"],
    }
    assert record["sampling"]["samples"] >= 5
    assert record["sampling"]["failures"] == 0
    assert "processes" not in record  # the namespace is not shared
    assert "processes" not in record["sampling"]["sources"]
    assert [other["name"] for other in record["containers"]] == [MONITOR]
    assert task[MONITOR].facts.exit_code == 0


@pytest.mark.alone
def test_a_batch_that_is_stopped_at_once_has_a_sample(start: Start, aws: FakeAws) -> None:
    """ECS stops the monitor first and the batch only after it: the monitor must not wait for the
    batch.
    """
    task = start(batch_container("--memory-mib", "50", "--until-term"))
    task[BATCH].wait_until_ready()
    wait_until(lambda: task.endpoint.paths, "the monitor's first request")
    task.stop()
    record = finished(aws, task)
    assert record["status"] == "stopped"
    assert "exitCode" not in record
    assert "finishedAt" not in record
    assert record["sampling"]["samples"] >= 1
    assert record["metrics"]["maxMemoryUsedMB"] > 50
    assert task[MONITOR].facts.exit_code == 0
    assert task[BATCH].facts.exit_code == 143


def test_a_batch_that_is_stopped_before_the_monitor_has_its_exit_code(
    start: Start, aws: FakeAws
) -> None:
    """In the stricter layout the batch depends on the monitor, which therefore sees its end."""
    task = start(
        batch_container("--memory-mib", "50", "--until-term", depends_on=(MONITOR,)),
        monitor_container(aws.environment(), essential=True, depends_on=()),
    )
    wait_for_samples(task, 3)
    task.stop()
    record = finished(aws, task)
    assert record["status"] == "stopped"
    assert record["exitCode"] == 143
    assert "durationMs" in record["metrics"]
    assert task[MONITOR].facts.exit_code == 0


_MARGIN = 1.1


class _Load(Struct, frozen=True, kw_only=True):
    """What a batch does, on which kind of mount its files are (None: its own layer), and the MiB
    that it holds, of mapped files, and of the page cache, for as long as it idles.
    """

    words: tuple[str, ...]
    files_on: str | None = None
    held_mib: int
    mapped_mib: int = 0
    cached_mib: int


# The rest of the maximum is the interpreter's.
_LOADS = {
    "anonymous, shared and mapped memory": _Load(
        words=("--memory-mib", "50", "--shared-mib", "50", "--mapped-mib", "50"),
        held_mib=100,
        mapped_mib=50,
        cached_mib=50,
    ),
    "file read twice": _Load(
        words=("--memory-mib", "40", "--file-mib", "300"), held_mib=40, cached_mib=300
    ),
    "files in a volume": _Load(
        words=("--memory-mib", "40", "--mapped-mib", "50", "--file-mib", "100"),
        files_on="volume",
        held_mib=40,
        mapped_mib=50,
        cached_mib=150,
    ),
    "files in a mounted tmpfs": _Load(
        words=("--memory-mib", "40", "--mapped-mib", "50", "--file-mib", "100"),
        files_on="tmpfs",
        held_mib=190,
        cached_mib=0,
    ),
}
# With the memory that the kernel needs for the page cache of a large file.
_MAX_INTERPRETER_MIB = 30


@pytest.mark.parametrize("kind", _LOADS)
def test_a_batch_runs_with_a_limit_of_its_maximum_and_a_tenth(
    kind: str, start: Start, aws: FakeAws
) -> None:
    load = _LOADS[kind]
    words = (*load.words, "--idle-seconds", "2.5")
    task = start(batch_container(*words, files_on=load.files_on, memory_mib=600))
    record = finished(aws, task)
    assert record["status"] == "success", record
    metrics = record["metrics"]
    used_mb, cache_mb = metrics["maxMemoryUsedMB"], metrics["memoryCacheMB"]["max"]
    assert load.held_mib <= used_mb <= load.held_mib + _MAX_INTERPRETER_MIB
    assert 0.97 * load.cached_mib <= cache_mb <= load.cached_mib + 20
    assert load.mapped_mib <= metrics["memoryMappedFileMB"]["max"] <= load.mapped_mib + 20
    assert metrics["memoryUsagePeakMB"] >= 0.97 * (load.held_mib + load.cached_mib)

    limit_mib = math.ceil(used_mb * _MARGIN)
    limited = start(batch_container(*words, files_on=load.files_on, memory_mib=limit_mib))
    again = finished(aws, limited)
    facts = limited[BATCH].facts
    assert facts.exit_code == 0
    assert facts.oom_killed is False
    assert again["status"] == "success"
    assert again["metrics"]["memorySizeMB"] == limit_mib
    assert again["likelyOutOfMemory"] is False


_PEER = "127.0.0.1:5432"
_LOAD = ("--network-seconds", "12", "--cpu-seconds", "8")
_NETWORK_MS = 12_000
_POINTS = 5.0


def findings(task: Task) -> dict[str, Any]:
    """What the doctor finds in the monitor's container; its exit code is 1 for a problem."""
    output = task[MONITOR].execute("sh", "-c", "task-profiler doctor --json --seconds 1 || true")
    return {finding["topic"]: finding for finding in map(json.loads, output.splitlines())}


def waited(record: dict[str, Any]) -> float:
    """The share of the run in which it waited for its peer; the machine's other load prolongs
    the rest.
    """
    percent: float = 100 * _NETWORK_MS / record["metrics"]["durationMs"]
    return percent


def test_with_sys_ptrace_the_peer_and_the_functions_are_named(start: Start, aws: FakeAws) -> None:
    environment = {**aws.environment(), "TASK_PROFILER_STACKS": "on"}
    task = start(
        batch_container(*_LOAD, cpus=1),
        monitor_container(environment, ptrace=True),
        pid_mode_task=True,
    )
    wait_for_samples(task, 2)
    found = findings(task)
    task.wait_stopped()
    assert "level 2" in found["level"]["text"]
    assert found["call stacks"]["level"] == "ok"
    stacks, report = (
        json.loads(event.message) for event in aws.events(LOG_GROUP, task.log_stream(BATCH))
    )
    assert stacks["type"] == "task.stacks"
    assert stacks["container"] == BATCH
    assert report["type"] == "task.report"
    record = report["record"]
    assert stacks["taskId"] == record["taskId"]
    time, waited_percent = record["timeBreakdown"], waited(record)
    assert time["networkPercent"] == pytest.approx(waited_percent, abs=_POINTS)
    assert time["onCpuPercent"] + time["waitingForCpuPercent"] == pytest.approx(
        100 - waited_percent, abs=_POINTS
    )
    assert time["waitingFor"][0]["kind"] == "network"
    assert time["waitingFor"][0]["target"] == _PEER
    top = record["stacks"]["top"][0]
    assert top["function"] == "_spin"
    assert top["file"] == "batch_load.py"
    folded = {stack for step in stacks["steps"] for stack in step["stacks"]}
    assert any(
        "_wait_for_peer (batch_load.py)" in stack and stack.endswith(" [waiting]")
        for stack in folded
    )
    assert not without_caused_by_others(record["monitor"]["warnings"])
    assert record["exitCode"] == 0
    assert task[MONITOR].facts.exit_code == 0


def test_without_it_only_the_cpu_is_told_apart_and_the_missing_right_is_named(
    start: Start, aws: FakeAws
) -> None:
    environment = {**aws.environment(), "TASK_PROFILER_STACKS": "on"}
    task = start(
        batch_container(*_LOAD, cpus=1), monitor_container(environment), pid_mode_task=True
    )
    wait_for_samples(task, 2)
    found = findings(task)
    assert "level 1" in found["level"]["text"]
    assert found["call stacks"]["level"] == "problem"
    record = finished(aws, task)
    time = record["timeBreakdown"]
    assert set(time) == {
        "onCpuPercent",
        "waitingForCpuPercent",
        "diskPercent",
        "otherPercent",
        "coveredPercent",
    }
    assert time["otherPercent"] == pytest.approx(waited(record), abs=_POINTS)
    assert "stacks" not in record
    # A busy machine adds warnings of its own.
    assert sum("SYS_PTRACE" in warning for warning in record["monitor"]["warnings"]) == 1


def test_the_endpoint_of_these_tests_answers_as_the_real_agent(start: Start, aws: FakeAws) -> None:
    """It has the members that the real ECS agent gave in a night of `make real`."""
    task = start(batch_container("--memory-mib", "20", "--until-term"))
    address = task[BATCH].placement.environment["ECS_CONTAINER_METADATA_URI_V4"]
    wait_for_samples(task, 3)
    answers = wait_until(lambda: complete_answers(address), "statistics of each container")
    assert _shape(answers) == shape_of_answers(recorded_answers()["running"])
    task.stop()
    finished(aws, task)
    assert _shape(read_answers(address)) == shape_of_answers(recorded_answers()["ended"])


def _shape(answers: dict[str, Any]) -> dict[str, Any]:
    """Without the times of the image's pull: in that night the images were there."""
    pull = ("PullStartedAt", "PullStoppedAt")
    task = {name: value for name, value in answers["/task"].items() if name not in pull}
    return shape_of_answers({**answers, "/task": task})

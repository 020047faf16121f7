"""The monitor in the batch's process namespace (`"pidMode": "task"`), against the kernel's own
accounting.

The kernel counts kills for the whole machine: the tests that kill are in this file, whose tests run
one after another.
"""

from typing import Any

import pytest

from tests.e2e.container import BATCH, batch_container, monitor_container
from tests.e2e.engine import Engine
from tests.e2e.kernel import KernelReading
from tests.e2e.reports import Start, checkpoints, finished, wait_for_samples
from tests.e2e.task import Task
from tests.values import without_caused_by_others
from tools.moto_server import FakeAws

pytestmark = pytest.mark.e2e

_MIB = 1024 * 1024
_SPIKE_MIB = 800
_NAME = "python3 batch_load.py"  # of all processes of the batch
# Processes and task stats are read at different moments, in which the batch starts children.
_STEP_MIB = 16
# Half a second apart, so that of two spikes of less than half a second one lies between two
# readings of each second.
_PHASES = (0, 0.5)
_ATTEMPTS = 5

as_either_user = pytest.mark.parametrize("as_root", [True, False], ids=["root", "65532"])


def kernel_mib(task: Task) -> float:
    """The kernel's own mark of the batch."""
    reading: KernelReading = task[BATCH].kernel()
    assert reading.memory_peak_bytes is not None
    return reading.memory_peak_bytes / _MIB


def ended(
    start: Start, aws: FakeAws, *load: str, as_root: bool = False, memory_mib: int = 512
) -> tuple[Task, dict[str, Any]]:
    """A batch in whose process namespace the monitor was, and its record."""
    monitor = monitor_container(aws.environment(), as_root=as_root)
    task = start(batch_container(*load, memory_mib=memory_mib), monitor, pid_mode_task=True)
    return task, finished(aws, task)


@as_either_user
@pytest.mark.parametrize("phase", _PHASES)
def test_a_spike_of_less_than_a_second_is_reported_at_any_phase(
    start: Start, aws: FakeAws, phase: float, *, as_root: bool
) -> None:
    spike = (
        "--wait-seconds",
        str(2 + phase),
        "--spike-mib",
        str(_SPIKE_MIB),
        "--spike-seconds",
        "0.4",
    )
    task, record = ended(
        start, aws, *spike, "--idle-seconds", "1.5", memory_mib=1024, as_root=as_root
    )
    reported_mib = record["metrics"]["maxMemoryUsedMB"]
    assert reported_mib >= 0.99 * kernel_mib(task)
    assert reported_mib == pytest.approx(kernel_mib(task), rel=0.02)
    assert "processes" in record["sampling"]["sources"]


@pytest.mark.alone
def test_as_root_the_kernels_mark_covers_a_spike_that_ends_with_the_batch(
    start: Start, aws: FakeAws
) -> None:
    """Nobody can look between such a spike and the end: the control group's mark is read when
    the process is gone.

    Docker may remove the group before the monitor runs again. Then the report does not call the
    peak the kernel's.
    """
    spike = ("--wait-seconds", "3.3", "--spike-mib", str(_SPIKE_MIB), "--spike-seconds", "0.05")
    for _ in range(_ATTEMPTS):
        task, record = ended(start, aws, *spike, memory_mib=1024, as_root=True)
        metrics = record["metrics"]
        if metrics["memoryPeakSource"] == "kernel":
            assert metrics["maxMemoryUsedMB"] == pytest.approx(kernel_mib(task), rel=0.01)
            return
    pytest.fail(f"The group was gone in each of {_ATTEMPTS} runs.")


@as_either_user
def test_the_peak_is_not_above_the_kernels_mark(
    start: Start, aws: FakeAws, *, as_root: bool
) -> None:
    """The mark of the process is: it counts Python's own files, which another container has read
    first.
    """
    task, record = ended(start, aws, "--memory-mib", "150", "--idle-seconds", "4", as_root=as_root)
    metrics = record["metrics"]
    assert metrics["maxMemoryUsedMB"] <= kernel_mib(task) + 0.1
    # What a process took in its last second is in no file that another user may read.
    assert as_root or metrics["memoryPeakSource"] == "sampled"


@as_either_user
def test_children_that_allocate_in_turn_are_not_added(
    start: Start, aws: FakeAws, *, as_root: bool
) -> None:
    turns = ("--turns", "8", "--turn-mib", "200", "--turn-seconds", "0.5")
    task, record = ended(
        start, aws, *turns, "--idle-seconds", "1.5", memory_mib=1024, as_root=as_root
    )
    metrics = record["metrics"]
    assert 200 <= metrics["maxMemoryUsedMB"] <= kernel_mib(task) + _STEP_MIB
    assert kernel_mib(task) < 300


@as_either_user
def test_a_killed_child_of_a_batch_that_succeeds_is_reported(
    start: Start, aws: FakeAws, *, as_root: bool
) -> None:
    _, record = ended(
        start,
        aws,
        "--wait-seconds",
        "3",
        "--oom-child",
        "--idle-seconds",
        "2",
        memory_mib=300,
        as_root=as_root,
    )
    assert record["status"] == "success"
    assert record["exitCode"] == 0
    if not as_root:  # the machine's counter may have risen in another task
        assert not {"likelyOutOfMemory", "memoryKills"} & record.keys()
        return
    assert record["likelyOutOfMemory"] is True
    assert record["outOfMemoryEvidence"] == "kernel-counter"
    assert record["memoryKills"]["count"] == 1
    # The name is known only if the child was seen before it was killed.
    assert {process["name"] for process in record["memoryKills"]["processes"]} <= {_NAME}


@as_either_user
def test_a_batch_that_was_killed_itself_is_told_by_the_counter(
    start: Start, aws: FakeAws, *, as_root: bool
) -> None:
    _, record = ended(
        start,
        aws,
        "--memory-mib",
        "150",
        "--wait-seconds",
        "3",
        "--oom",
        memory_mib=300,
        as_root=as_root,
    )
    assert record["status"] == "failure"
    assert record["exitCode"] == 137
    assert record["likelyOutOfMemory"] is True
    assert record["outOfMemoryEvidence"] == "kernel-counter"
    assert [process["name"] for process in record["memoryKills"]["processes"]] == [_NAME]


def test_the_course_is_of_every_second_where_stats_come_every_ten(
    start: Start, aws: FakeAws
) -> None:
    load = ("--memory-mib", "120", "--cpu-seconds", "6", "--idle-seconds", "7")
    task = start(
        batch_container(*load, cpus=1),
        monitor_container({**aws.environment(), "TASK_PROFILER_CHECKPOINT_SECONDS": "3"}),
        pid_mode_task=True,
        stats_period_seconds=10,
    )
    record = finished(aws, task)
    metrics = record["metrics"]
    assert record["sampling"]["samples"] >= 5  # of the stats there are two
    assert record["sampling"]["duplicates"] > 0
    assert metrics["cpuSeconds"] == pytest.approx(task[BATCH].kernel().cpu_seconds, rel=0.02)
    assert metrics["vcpuUsed"]["max"] > 1.2 * metrics["vcpuUsed"]["avg"]
    assert not without_caused_by_others(record["monitor"]["warnings"])
    on_own_output = checkpoints(task)
    assert {one["status"] for one in on_own_output} == {"running"}
    assert on_own_output[1]["interval"]["vcpuUsed"]["max"] > 0.1  # no stats came in this one
    (process,) = record["processes"]
    assert process["name"] == _NAME
    assert process["count"] == 1
    assert process["cpuSeconds"] == pytest.approx(task[BATCH].kernel().cpu_seconds, rel=0.1)
    assert process["maxMemoryUsedMB"] > 120


def test_many_short_processes_cost_the_monitor_little_and_nothing_is_made_up(
    start: Start, aws: FakeAws
) -> None:
    turns = ("--turns", "500", "--turn-seconds", "0.005")
    task, record = ended(start, aws, "--wait-seconds", "2", *turns, "--idle-seconds", "1.5")
    kernel = task[BATCH].kernel()
    assert record["likelyOutOfMemory"] is False
    assert record["metrics"]["cpuSeconds"] == pytest.approx(kernel.cpu_seconds, rel=0.05)
    assert record["metrics"]["maxMemoryUsedMB"] <= kernel_mib(task) + _STEP_MIB
    # A process that was first seen while it ended has no command line any more. What was not read
    # of the processes is in a row of its own.
    names = {process["name"] for process in record["processes"]}
    assert _NAME in names
    assert names <= {_NAME, "python3", "other"}
    assert record["monitor"]["cpuSeconds"] < 0.1 * record["metrics"]["durationMs"] / 1000 + 1


def test_a_paused_container_does_not_wait_for_a_disk(
    start: Start, aws: FakeAws, engine: Engine
) -> None:
    """Without SYS_PTRACE the monitor cannot see that the control group is frozen."""
    monitor = monitor_container(aws.environment(), ptrace=True)
    load = batch_container("--cpu-seconds", "600", "--until-usr1")
    task = start(load, monitor, pid_mode_task=True)
    wait_for_samples(task, 3)
    engine.command("pause", task[BATCH].facts.docker_id)
    wait_for_samples(task, 15)
    engine.command("unpause", task[BATCH].facts.docker_id)
    task.stop()
    record = finished(aws, task)
    assert record["timeBreakdown"]["diskPercent"] < 5
    assert record["timeBreakdown"]["otherPercent"] > 40

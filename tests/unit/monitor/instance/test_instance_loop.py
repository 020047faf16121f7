"""One monitor for all tasks of an instance: which it reports, with which numbers, and when."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest
from msgspec.structs import replace

from profiler.aggregation.record_parts import RecordPart
from profiler.collectors.processes.discovery import ProcessDiscovery
from profiler.collectors.processes.process_collector import ProcessCollector
from profiler.monitor.loop import MonitoredTask
from profiler.readers import Unavailable
from profiler.readers.container_sample import ContainerSample, ResourceLimits
from profiler.readers.ecs.task_metadata import TaskMetadata
from profiler.record.record_model import Record
from tests.fakes import seconds
from tests.instance_world import GONE, FakeContainer, FakeGroup, FakeInstance

BATCH = FakeContainer(runs=((2.0, 12.4),))


def changed(**changes: Any) -> FakeContainer:
    return FakeContainer(**{"runs": ((2.0, 12.4),), **changes})


def cache(at: float) -> float:
    """200 MiB are written from second 4 to second 8."""
    return min(max((at - 4) * 50, 0), 200)


ENDS: dict[str, tuple[FakeContainer, dict[str, Any]]] = {
    "plain": (BATCH, {"status": "success", "exitCode": 0, "cpuSeconds": 5.2, "durationMs": 10_400}),
    "failure": (
        changed(exit_code=3),
        {"status": "failure", "exitCode": 3, "likelyOutOfMemory": False},
    ),
    "out of memory": (
        changed(exit_code=137, is_out_of_memory=True, peak_mib=1024.25),
        {
            "status": "failure",
            "likelyOutOfMemory": True,
            "outOfMemoryEvidence": "kernel-counter",
            "maxMemoryUsedMB": 1024,
            "memoryUtilizationPercent": {
                "avg": 9.766,
                "p50": 9.766,
                "p95": 9.766,
                "p99": 9.766,
                "max": 100.0,
            },
        },
    ),
    "only a child was out of memory": (
        changed(exit_code=5, is_out_of_memory=True),
        {"likelyOutOfMemory": True},
    ),
    "killed at its limit while Docker was away": (
        changed(exit_code=137, peak_mib=1024),
        {"likelyOutOfMemory": True, "outOfMemoryEvidence": "exit-137-at-limit"},
    ),
    "killed at its limit by a program": (
        changed(exit_code=137, peak_mib=940, group_kills=0),
        {"likelyOutOfMemory": False, "outOfMemoryEvidence": None},
    ),
    "killed far from its limit": (changed(exit_code=137), {"likelyOutOfMemory": False}),
    "2 ms, most of it the CPU time of the container's start": (
        FakeContainer(runs=((2.0, 2.002),), vcpu=10),
        {"cpuSeconds": 0.02, "durationMs": 2, "vcpuUsed": None, "cpuUtilizationPercent": None},
    ),
    "stopped, and exits with 0": (changed(killed_at=12.0), {"status": "stopped", "exitCode": 0}),
    "stopped, and Docker logs the signal 12 ms after the end": (
        changed(killed_at=12.412, exit_code=143),
        {"status": "stopped", "exitCode": 143},
    ),
    "stopped, and killed": (
        changed(killed_at=12.0, exit_code=137),
        {"status": "stopped", "likelyOutOfMemory": False},
    ),
    "a spike of 0.2 s": (
        changed(memory_mib=lambda at: 300 if 5.2 < at < 5.4 else 100),
        {"maxMemoryUsedMB": 300, "memoryPeakSource": "kernel", "maxMemoryUsedAt": None},
    ),
    "page cache": (
        changed(memory_mib=lambda _at: 30, cache_mib=cache),
        {"maxMemoryUsedMB": 30, "memoryPeakSource": "kernel", "memoryUsagePeakMB": 230},
    ),
    "a spike before the page cache": (
        changed(memory_mib=lambda at: 250 if 3.2 < at < 3.4 else 30, cache_mib=cache),
        {"maxMemoryUsedMB": 250, "memoryPeakSource": "kernel"},
    ),
    "page cache that is deleted": (
        changed(memory_mib=lambda _at: 30, cache_mib=lambda at: cache(at) if at < 10.9 else 0),
        {"maxMemoryUsedMB": 30},
    ),
    "no group of the task": (
        changed(has_group=False),
        {"cpuSeconds": 5.0, "maxMemoryUsedMB": 100, "memoryPeakSource": "sampled"},
    ),
}


@pytest.mark.parametrize(("box", "expected"), ENDS.values(), ids=ENDS.keys())
def test_an_end_has_exact_numbers(
    box: FakeContainer, expected: dict[str, Any], tmp_path: Path
) -> None:
    record = FakeInstance(box, folder=tmp_path).run().record()
    found = {**record, **record["metrics"]}
    assert {name: found.get(name) for name in expected} == expected
    assert record["family"] == "etl"
    assert record["launchType"] == "EC2"
    assert record["sampling"]["sources"] == ["docker"]


def test_the_monitors_cpu_time_before_a_task_is_not_in_its_record(tmp_path: Path) -> None:
    fakes = FakeInstance(FakeContainer(runs=((100.0, 110.5),)), folder=tmp_path, until=130)
    fakes.own_cpu_seconds = lambda: 3000 + fakes.now / 100
    assert fakes.run().record()["monitor"]["cpuSeconds"] == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize(
    ("signalled", "asked", "desired", "container", "status"),
    [
        (12.0, 12.0, "STOPPED", "RUNNING", "stopped"),
        (12.0, 12.0, "RUNNING", "RUNNING", "success"),
        (12.39, 12.42, "STOPPED", "STOPPED", "success"),  # when the end has stopped the task
    ],
)
def test_another_signal_is_a_stop_if_the_agent_says_so(
    signalled: float, asked: float, desired: str, container: str, status: str, tmp_path: Path
) -> None:
    box = changed(killed_at=signalled, signal=28, is_stopped_by_ecs=False)
    fakes = FakeInstance(box, folder=tmp_path)
    fakes.events.delay = asked - signalled

    def at_stop(task: TaskMetadata) -> TaskMetadata:
        if fakes.now < asked:
            return replace(task, desired_status="RUNNING")
        containers = tuple(replace(one, known_status=container) for one in task.containers)
        return replace(task, containers=containers, desired_status=desired)

    fakes.change = at_stop
    assert fakes.run().record()["status"] == status


def test_the_record_of_a_job_of_aws_batch_has_the_job(tmp_path: Path) -> None:
    variables = {
        "AWS_BATCH_JOB_ID": "0f8fad5b-d9cb-469f-a165-70867728950e:4",
        "AWS_BATCH_JQ_NAME": "nightly",
        "AWS_BATCH_JOB_ATTEMPT": "2",
    }
    record = FakeInstance(changed(batch=variables), folder=tmp_path).run().record()
    assert record["batch"] == {
        "jobId": variables["AWS_BATCH_JOB_ID"],
        "queue": "nightly",
        "attempt": 2,
    }
    assert "batch" not in FakeInstance(BATCH, folder=tmp_path / "other").run().record()


def put_times(fakes: FakeInstance) -> list[float]:
    times: list[float] = []
    with patch.object(
        fakes.streams, "put", side_effect=lambda *_args, **_more: times.append(fakes.now)
    ):
        fakes.run()
    return times


@pytest.mark.parametrize("delay", [0.25, 0.5, 0.99])
def test_the_report_comes_within_a_second_of_the_end(delay: float, tmp_path: Path) -> None:
    fakes = FakeInstance(FakeContainer(runs=((2.0, 12 + delay),)), folder=tmp_path)
    assert [at - 12 - delay < 0.3 for at in put_times(fakes)] == [True]


@pytest.mark.parametrize(
    "second", [(65.6, 130.0), (70.0, 130.0), (90.0, 130.0), (65.6, 65.7), (65.6, 65.6005)]
)
def test_a_restart_policy_gives_one_report_of_all_attempts(
    second: tuple[float, float], tmp_path: Path
) -> None:
    """Also of one that starts late, and of one that is over before it is inspected."""
    fakes = FakeInstance(FakeContainer(runs=((1.0, 65.3), second)), folder=tmp_path, until=150)
    fakes.policies = {"0123-batch"}
    record = fakes.run().record()
    metrics, (start, end) = record["metrics"], second
    assert metrics["cpuSeconds"] == pytest.approx((64.3 + end - start) / 2, abs=1e-5)
    assert metrics["durationMs"] == pytest.approx(1000 * (end - 1), abs=1)
    assert record["container"]["restarts"] == 1
    assert record["startedAt"][11:19] == "00:53:21"
    assert "ECS restarted the container once" in record["monitor"]["warnings"][0]


@pytest.mark.diagonal
@pytest.mark.parametrize("late", [0.3, 0.5, 0.9])
@pytest.mark.parametrize("end", [66.02, 67.2, 130.0])
def test_no_cpu_time_counts_twice_where_an_attempts_end_is_heard_of_during_the_next_one(
    end: float, late: float, tmp_path: Path
) -> None:
    fakes = FakeInstance(FakeContainer(runs=((1.0, 65.3), (65.6, end))), folder=tmp_path, until=150)
    fakes.policies = {"0123-batch"}
    fakes.events.late = late
    metrics = fakes.run().record()["metrics"]
    assert metrics["cpuSeconds"] == pytest.approx((64.3 + end - 65.6) / 2, abs=1e-5)


def test_an_end_that_the_agent_does_not_restart_is_reported_at_once(tmp_path: Path) -> None:
    """Also where other containers keep the task running, and although the agent decides half a
    second late.
    """
    fakes = FakeInstance(
        BATCH, FakeContainer(name="keeper", runs=((1.0, None),)), folder=tmp_path, container="batch"
    )
    fakes.policies = {"0123-batch"}

    def decided(task: TaskMetadata) -> TaskMetadata:
        batch, keeper = task.containers
        batch = replace(batch, known_status="STOPPED" if fakes.now >= 12.9 else "RUNNING")
        return replace(task, containers=(batch, keeper))

    fakes.change = decided
    assert [12.9 <= at < 13.3 for at in put_times(fakes)] == [True]


def test_a_spike_at_the_end_of_an_attempt_is_not_forgotten(tmp_path: Path) -> None:
    """A spike at the end of an attempt is not forgotten in the next one."""
    box = changed(
        runs=((1.0, 65.3), (70.0, 130.0)), memory_mib=lambda at: 300 if at == 65.25 else 100
    )
    fakes = FakeInstance(box, folder=tmp_path, until=150)
    fakes.policies = {"0123-batch"}
    metrics = fakes.run().record()["metrics"]
    assert metrics["maxMemoryUsedMB"] == pytest.approx(300, abs=0.1)
    assert metrics["memoryPeakSource"] == "kernel"


def test_of_several_containers_the_batch_has_the_cpu_time_less_that_of_the_others(
    tmp_path: Path,
) -> None:
    proxy = FakeContainer(name="proxy", vcpu=0.1, runs=((1.0, 12.6),))
    record = FakeInstance(BATCH, proxy, folder=tmp_path, container="batch").run().record()
    assert record["metrics"]["cpuSeconds"] == pytest.approx(5.2, abs=0.006)
    assert record["metrics"]["memoryPeakSource"] == "sampled"
    other = record["containers"][0]
    assert other["name"] == "proxy"
    assert other["status"] == "RUNNING"


def test_what_docker_does_to_start_a_container_is_not_the_time_of_one_that_ends(
    tmp_path: Path,
) -> None:
    """Docker makes the group of a container, and computes in it, before the container starts."""
    late = FakeContainer(name="late", runs=((12.6, 14.0),), docker_seconds=0.4)
    fakes = FakeInstance(BATCH, late, folder=tmp_path, container="batch")
    metrics = fakes.run().record()["metrics"]
    assert metrics["cpuSeconds"] == 5.2
    assert metrics["memoryPeakSource"] == "sampled"


def sidecar(*, starts: float) -> FakeContainer:
    return FakeContainer(name="task-monitor", image="task-profiler:1", runs=((starts, 13.0),))


def test_network_traffic_is_that_of_the_containers_process(tmp_path: Path) -> None:
    fakes = FakeInstance(BATCH, folder=tmp_path)
    fakes.read_network = lambda pid: (1000 * round(fakes.now), pid)
    metrics = fakes.run().record()["metrics"]
    assert metrics["networkRxBytes"] == 12_000
    assert metrics["networkTxBytes"] == 100
    assert (
        FakeInstance(BATCH, folder=tmp_path / "2").run().record()["metrics"].get("networkRxBytes")
        is None
    )


def test_several_batches_have_one_warning_in_whatever_order_they_start(tmp_path: Path) -> None:
    fakes = FakeInstance(BATCH, FakeContainer(name="second", runs=((4.0, 12.4),)), folder=tmp_path)
    warnings = [record["monitor"]["warnings"] for record in fakes.run().records().values()]
    assert [len(of_one) for of_one in warnings] == [1, 1]


def test_a_container_that_ended_before_has_its_own_exact_cpu_time(tmp_path: Path) -> None:
    first = FakeContainer(name="first", vcpu=2, runs=((1.0, 3.9),))
    second = FakeContainer(name="second", runs=((4.0, 12.4),))
    assert cpu_seconds(FakeInstance(first, second, folder=tmp_path)) == {
        "0123-first": 5.8,
        "0123-second": 4.2,
    }


@pytest.mark.parametrize("found_at", [5, 99])
def test_a_group_that_is_not_found_is_looked_for_again(found_at: float, tmp_path: Path) -> None:
    fakes = FakeInstance(BATCH, folder=tmp_path)
    find = fakes.groups.open_container

    def late(*path: str) -> Any:
        return find(*path) if fakes.now > found_at else GONE

    with patch.object(fakes.groups, "open_container", late):
        record = fakes.run().record()
    assert record["metrics"]["cpuSeconds"] == 5.2
    is_soon = found_at == 5
    assert record["sampling"]["failures"] == (3 if is_soon else 10)
    assert record["sampling"]["samples"] == (8 if is_soon else 1)
    assert fakes.log.events("warning") == ["/task/stats cannot be read and is tried again"]


def test_a_container_that_never_follows_is_not_awaited_when_docker_has_removed_the_others(
    tmp_path: Path,
) -> None:
    fakes = FakeInstance(BATCH, FakeContainer(name="second", runs=((99.0, None),)), folder=tmp_path)
    fakes.events.gap, fakes.docker.is_empty_from = (18.0, 20.0), 14
    assert fakes.run().records().keys() == {"0123-batch"}
    assert not fakes.loop._tasks


def stopped(task: TaskMetadata) -> TaskMetadata:
    containers = tuple(replace(one, known_status="STOPPED") for one in task.containers)
    return replace(task, known_status="STOPPED", desired_status="STOPPED", containers=containers)


def test_a_task_that_never_started_or_was_stopped_before_has_no_report(tmp_path: Path) -> None:
    never = FakeInstance(FakeContainer(runs=((2.0, None),)), folder=tmp_path)
    never.events.gap, never.docker.is_empty_from = (11.0, 15.0), 14
    before = FakeInstance(FakeContainer(runs=((2.0, None),)), folder=tmp_path, began=60, until=70)
    before.change = stopped
    for fakes in (never, before):
        fakes.docker.change = lambda inspected: replace(
            inspected, is_running=False, started_ns=None
        )
        assert fakes.run().records() == {}
        assert not fakes.loop._tasks


LEFT_OUT: dict[str, tuple[list[FakeContainer], dict[str, Any], set[str]]] = {
    "a service": ([BATCH], {"service": "web"}, set()),
    "its own monitor started first": ([BATCH, sidecar(starts=1.0)], {}, set()),
    "its own monitor started later": ([BATCH, sidecar(starts=3.0)], {}, set()),
    "its own monitor never started": (
        [changed(runs=((2.0, 2.002),)), sidecar(starts=99)],
        {},
        {"0123-batch"},
    ),
    "a family that is not chosen": ([changed(family="other")], {}, set()),
    "a family that is chosen": ([changed(family="etl-night")], {}, {"0123-batch"}),
    "the monitor's own": ([changed(task="own", name="monitor")], {}, set()),
}


@pytest.mark.parametrize(("boxes", "answer", "reported"), LEFT_OUT.values(), ids=LEFT_OUT.keys())
def test_only_batches_without_a_monitor_are_reported(
    boxes: list[FakeContainer], answer: dict[str, Any], reported: set[str], tmp_path: Path
) -> None:
    fakes = FakeInstance(*boxes, folder=tmp_path, until=99)
    fakes.families = ("etl", "etl-*")
    fakes.tasks["0123"] = answer
    assert fakes.run().records().keys() == reported
    assert not fakes.output.lines
    assert all(group.is_closed for group in fakes.groups.opened)


def test_a_task_that_the_agent_never_answers_for_is_reported_from_its_labels(
    tmp_path: Path,
) -> None:
    fakes = FakeInstance(BATCH, folder=tmp_path)
    fakes.tasks["0123"] = None
    record = fakes.run().record()
    assert record["family"] == "etl"
    assert record["revision"] == "7"
    assert record["cluster"] == "jobs"
    assert record["metrics"]["cpuSeconds"] == 5.2
    (warning,) = record["monitor"]["warnings"]
    assert warning.startswith("The ECS agent never answered for the task")


def test_an_agent_that_answers_late_is_asked_again(tmp_path: Path) -> None:
    fakes = FakeInstance(BATCH, folder=tmp_path)
    fakes.change = lambda task: task if fakes.now > 6 else Unavailable("refused")
    assert fakes.run().record()["launchType"] == "EC2"


def test_without_a_stream_prefix_lines_go_to_the_stream_of_dockers_id(tmp_path: Path) -> None:
    """Each batch has a stream of its own, and with it a limit of notices of its own."""
    ids = {"0123": "0123456789abcdef" * 4, "4567": "fedcba9876543210" * 4}
    boxes = [
        FakeContainer(task=task, runs=((2.0, 25.4),), container_id=docker_id, has_prefix=False)
        for task, docker_id in ids.items()
    ]
    fakes = FakeInstance(*boxes, folder=tmp_path, until=40, expected_seconds=5.0).run()
    lines = [(target.stream, json.loads(line)) for target, line in fakes.streams.lines]
    for task, docker_id in ids.items():
        own = [line for stream, line in lines if stream == docker_id]
        assert sorted(line["type"] for line in own) == ["task.notice", "task.report"]
        assert {line["record"]["taskId"] for line in own} == {task}
        assert {line["record"]["logStream"] for line in own} == {docker_id}
    assert not fakes.output.lines


def test_another_log_driver_gets_the_report_on_standard_output(tmp_path: Path) -> None:
    fakes = FakeInstance(changed(driver="json-file"), folder=tmp_path).run()
    assert fakes.records() == {}
    (line,) = fakes.output.lines
    assert json.loads(line)["record"]["taskId"] == "0123"


def test_a_new_monitor_has_the_totals_of_a_running_task_and_reports_it_once(tmp_path: Path) -> None:
    box = FakeContainer(runs=((2.0, 42.0),), memory_mib=lambda at: 300 if at < 8 else 100)
    first = FakeInstance(box, folder=tmp_path, until=10).run()
    assert first.records() == {}
    second = FakeInstance(box, folder=tmp_path, began=15, until=60).run()
    record = second.record()
    metrics = record["metrics"]
    assert metrics["cpuSeconds"] == 20
    assert metrics["maxMemoryUsedMB"] == 300
    assert metrics["durationMs"] == 40_000
    assert record["sampling"]["cpuCoveredPercent"] == 100
    assert metrics["vcpuUsed"]["max"] == pytest.approx(0.5, rel=0.02)
    series = record["series"]
    hole = round(12_000 / series["stepMs"])
    assert set(series["vcpuUsed"][:hole]) == {None}
    assert None not in series["vcpuUsed"][hole + 1 :]
    assert [
        "The monitor of the instance started after" in one for one in record["monitor"]["warnings"]
    ] == [True]
    third = FakeInstance(box, folder=tmp_path, began=65, until=80).run()
    assert third.records() == {}
    assert third.docker.inspected == []


@pytest.mark.parametrize(
    ("ended", "is_in_stream", "reports"),
    [(50.0, False, 1), (50.0, True, 0), (-3530.0, False, 1), (-3550.0, False, 0)],
)
def test_what_ended_without_a_monitor_is_reported_unless_its_stream_has_the_report(
    *, ended: float, is_in_stream: bool, reports: int, tmp_path: Path
) -> None:
    fakes = FakeInstance(
        FakeContainer(runs=((ended - 10, ended),), exit_code=4), folder=tmp_path, began=60, until=70
    )
    fakes.began = 60
    fakes.streams.has_report = is_in_stream
    fakes.run()
    assert len(fakes.streams.lines) == reports
    for record in fakes.records().values():
        metrics = record["metrics"]
        assert record["status"] == "failure"
        assert metrics["cpuSeconds"] == 5
        assert metrics["durationMs"] == 10_000
        assert metrics["memoryPeakSource"] == "kernel"
        assert metrics.get("vcpuUsed") is None
    assert fakes.reported.has("0123-batch") == (ended > -3540)


def cpu_seconds(fakes: FakeInstance) -> dict[str, float]:
    """Of each run, by its task and container."""
    return {name: one["metrics"]["cpuSeconds"] for name, one in fakes.run().records().items()}


def test_an_end_while_docker_restarts_is_found_in_the_list(tmp_path: Path) -> None:
    fakes = FakeInstance(BATCH, FakeContainer(task="4567", runs=((12.0, 20.0),)), folder=tmp_path)
    fakes.events.gap = (11.0, 15.0)
    assert cpu_seconds(fakes) == {"0123-batch": 5.2, "4567-batch": 4}


def test_docker_that_does_not_answer_is_asked_again(tmp_path: Path) -> None:
    fakes = FakeInstance(BATCH, folder=tmp_path)
    fakes.docker.failing = lambda _: (
        Unavailable("it did not answer", timed_out=True) if 12.4 < fakes.now < 13 else None
    )
    record = fakes.run().record()
    assert record["status"] == "success"
    assert record["finishedAt"] == "2025-11-20T00:53:32.400Z"


def test_slow_puts_are_in_nobodys_way_and_a_stop_waits_for_them(tmp_path: Path) -> None:
    boxes = [FakeContainer(task=f"{number}", runs=((2.0, 12.4),)) for number in range(12)]
    fakes = FakeInstance(
        *boxes, FakeContainer(task="runs", runs=((1.0, None),)), folder=tmp_path, until=14
    )
    fakes.budget.last_seconds = 20
    records = fakes.run().records()
    assert len(records) == 12
    assert {one["metrics"]["cpuSeconds"] for one in records.values()} == {5.2}
    assert {one["sampling"]["missedTicks"] for one in records.values()} == {0}
    assert fakes.now < 14 + 25
    assert not fakes.reported.has("runs-batch")  # its successor reports it


def test_a_run_that_outlives_its_monitor_leaves_a_checkpoint_at_the_monitors_end(
    tmp_path: Path,
) -> None:
    """On an instance that drains, no other monitor follows. A batch that has ended, and one that
    has not begun, leave none; nor does a run whose report is written.
    """
    boxes = [
        FakeContainer(task="runs", runs=((2.0, 100.0),)),
        FakeContainer(task="ended", runs=((2.0, 12.4),)),
        FakeContainer(task="later", runs=((50.0, None),)),
    ]
    fakes = FakeInstance(*boxes, folder=tmp_path, until=31).run()
    (line,) = map(json.loads, fakes.output.lines)
    assert (line["type"], line["record"]["taskId"]) == ("task.checkpoint", "runs")
    assert (line["record"]["status"], "finishedAt" in line["record"]) == ("running", False)
    assert line["record"]["metrics"]["durationMs"] == 29_000
    assert line["record"]["metrics"]["cpuSeconds"] == 14.5
    assert list(fakes.records()) == ["ended-batch"]
    assert not fakes.reported.has("runs-batch")


def test_a_successor_reports_what_a_stopped_monitor_left_with_a_checkpoint(tmp_path: Path) -> None:
    box = FakeContainer(runs=((2.0, 60.0),))
    first = FakeInstance(box, folder=tmp_path, until=31).run()
    second = FakeInstance(box, folder=tmp_path, began=33, until=70).run()
    assert [json.loads(line)["type"] for line in first.output.lines] == ["task.checkpoint"]
    assert first.records() == {}
    assert (second.record()["status"], second.output.lines) == ("success", [])


def test_a_defect_of_a_checkpoint_at_the_end_costs_no_other_one(tmp_path: Path) -> None:
    boxes = [FakeContainer(task=name, runs=((2.0, None),)) for name in ("one", "two")]
    fakes = FakeInstance(*boxes, folder=tmp_path, until=31)
    with patch.object(MonitoredTask, "_print_last_checkpoints", autospec=True) as leave:
        leave.side_effect = [AttributeError("one"), None]
        fakes.run()
    assert leave.call_count == 2
    assert fakes.records() == {}
    assert not fakes.reported.has("one-batch")


def test_a_stop_right_after_an_end_still_reports_it(tmp_path: Path) -> None:
    record = FakeInstance(BATCH, folder=tmp_path, until=12.46).run().record()
    assert record["status"] == "success"
    assert record["metrics"]["cpuSeconds"] == 5.2


def test_a_put_that_fails_is_printed_and_counts_as_reported(tmp_path: Path) -> None:
    fakes = FakeInstance(BATCH, folder=tmp_path)
    fakes.budget.last_seconds = 90
    fakes.run()
    assert len(fakes.output.lines) == 1
    assert fakes.reported.has("0123-batch")


def test_a_container_that_is_removed_unseen_has_an_unknown_end(tmp_path: Path) -> None:
    fakes = FakeInstance(BATCH, folder=tmp_path)
    fakes.events.gap, fakes.docker.is_empty_from = (11.0, 15.0), 14
    record = fakes.run().record()
    assert record["status"] == "unknown"
    assert record["metrics"]["cpuSeconds"] == 5


def test_a_defect_with_one_container_costs_no_other_task(tmp_path: Path) -> None:
    fakes = FakeInstance(BATCH, FakeContainer(task="4567", runs=((1.0, 5.0),)), folder=tmp_path)

    def broken(docker_id: str) -> None:
        if docker_id.startswith("4567"):
            raise AttributeError(docker_id)

    fakes.docker.failing = broken
    assert fakes.run().records().keys() == {"0123-batch"}
    (error,) = fakes.log.events("error")
    assert error.startswith("The monitor cannot follow a container (AttributeError in ")


def test_a_defect_costs_none_of_the_samples_before_it(tmp_path: Path) -> None:
    fakes, sample = FakeInstance(BATCH, folder=tmp_path), FakeGroup.read_sample

    def broken(group: FakeGroup, read_ns: int) -> ContainerSample | Unavailable:
        if fakes.now > 9.5:
            raise AttributeError
        return sample(group, read_ns)

    with patch.object(FakeGroup, "read_sample", broken):
        record = fakes.run().record()
    assert record["status"] == "unknown"
    assert record["metrics"]["cpuSeconds"] == 3.5


def test_a_clock_that_is_set_twice_in_ten_seconds_changes_no_number(tmp_path: Path) -> None:
    fakes, sets = (
        FakeInstance(FakeContainer(runs=((2.0, 32.4),)), folder=tmp_path, until=60),
        [(14.5, 60), (17.5, -60)],
    )

    def set_clock() -> None:
        if sets and fakes.now > sets[0][0]:
            fakes.clock.wall_offset_ns += seconds(sets.pop(0)[1])

    fakes.on_wait = set_clock
    record = fakes.run().record()
    assert record["sampling"]["longestGapMs"] == 1000
    assert set(record["series"]["vcpuUsed"]) == {0.5}


class CountingCollector:
    """Counts the samples of each batch."""

    takes_late_samples = False

    def __init__(self) -> None:
        self.samples: Counter[str] = Counter()

    def on_sample(self, batch: str, _sample: ContainerSample, _sizes: ResourceLimits) -> None:
        self.samples[batch] += 1

    def part(self, _record: Record, batch: str) -> RecordPart:
        return RecordPart(warnings=(f"{batch}: {self.samples[batch]} samples",))


@pytest.mark.parametrize(("takes_late_samples", "max_age"), [(False, 0), (True, 9)])
def test_a_collector_that_appears_gets_each_sample_in_time(
    *, takes_late_samples: bool, max_age: int, tmp_path: Path
) -> None:
    fakes = FakeInstance(BATCH, FakeContainer(task="4567", runs=((9.0, 29.5),)), folder=tmp_path)
    ages_ns: dict[str, list[int]] = {}

    def on_sample(batch: str, sample: ContainerSample, _sizes: ResourceLimits) -> None:
        ages_ns.setdefault(batch, []).append(fakes.clock.wall_ns() - sample.read_ns)

    found = Mock(spec=ProcessCollector, on_sample=on_sample, takes_late_samples=takes_late_samples)
    found.on_batch_started.return_value, found.part.return_value = None, RecordPart()
    fakes.collectors = (
        ProcessDiscovery(lambda docker_id: docker_id == "4567-batch", lambda: found),
    )
    fakes.run()
    assert len(ages_ns["4567-batch"]) == 21
    assert max(ages_ns["4567-batch"]) // seconds(1) == max_age


def test_two_batches_of_one_name_have_records_of_their_own(tmp_path: Path) -> None:
    other = FakeContainer(
        task="4567",
        runs=((1.0, 20.5),),
        exit_code=3,
        vcpu=1,
        memory_mib=lambda at: 200 if at < 10 else 300,
    )
    fakes = FakeInstance(BATCH, other, folder=tmp_path, expected_seconds=9.0)
    fakes.collectors = (CountingCollector(),)
    lines = [(target.stream, json.loads(line)) for target, line in fakes.run().streams.lines]
    first, second = records = [line["record"] for _, line in lines if line["type"] == "task.report"]
    names = ("durationMs", "cpuSeconds", "maxMemoryUsedMB")
    assert [
        (
            one["taskId"],
            one["container"]["name"],
            one["status"],
            *(one["metrics"][name] for name in names),
        )
        for one in records
    ] == [
        ("0123", "batch", "success", 10_400, 5.2, 100),
        ("4567", "batch", "failure", 19_500, 19.5, 300),
    ]
    assert {*first["series"]["memoryUsedMB"]} - {None} == {100.0}
    assert {200.0, 300.0} <= {*second["series"]["memoryUsedMB"]}
    warnings = [["0123-batch: 12 samples"], ["4567-batch: 21 samples"]]
    assert [one["monitor"]["warnings"] for one in records] == warnings
    notices = [
        (stream, line["record"]["taskId"])
        for stream, line in lines
        if line["type"] == "task.notice"
    ]
    assert sorted(notices) == [("ecs/batch/0123", "0123"), ("ecs/batch/4567", "4567")]
    assert not fakes.output.lines


def test_a_hundred_tasks_cost_one_read_of_their_files_each_and_no_request(tmp_path: Path) -> None:
    boxes = [FakeContainer(task=f"{number}", runs=((1.0, None),)) for number in range(100)]
    fakes = FakeInstance(*boxes, folder=tmp_path, until=31)
    fakes.run()
    reads = [group.reads for group in fakes.groups.opened if not group.is_task]
    assert len(reads) == len(fakes.asked) == 100
    assert len(fakes.docker.inspected) <= 200
    assert set(reads) == {31}  # one is for the checkpoint at the monitor's end


def test_checkpoints_keep_their_period(tmp_path: Path) -> None:
    fakes = FakeInstance(FakeContainer(runs=((2.0, 62.4),)), folder=tmp_path, until=70)
    fakes.settings = replace(fakes.settings, checkpoint_seconds=15)
    times = [json.loads(line)["time"][17:22] for line in fakes.run().output.lines]
    assert times == ["38.00", "53.00", "08.00", "22.45"]  # a step is at the end


def test_a_batch_that_has_ended_is_not_overdue_while_its_restart_is_awaited(tmp_path: Path) -> None:
    fakes = FakeInstance(
        BATCH,
        FakeContainer(name="keeper", runs=((1.0, None),)),
        folder=tmp_path,
        until=60,
        container="batch",
    )
    fakes.settings = replace(fakes.settings, expected_seconds=12.0)
    fakes.policies = {"0123-batch"}
    fakes.run()
    assert [json.loads(line)["type"] for _, line in fakes.streams.lines] == ["task.report"]


def test_an_instance_without_tasks_reads_nothing(tmp_path: Path) -> None:
    fakes = FakeInstance(folder=tmp_path, until=1000).run()
    assert fakes.docker.inspected == []
    assert fakes.asked == []
    assert fakes.log.lines == []


def test_the_file_of_reported_batches_may_be_missing_torn_or_unwritable(tmp_path: Path) -> None:
    fakes = FakeInstance(BATCH, folder=tmp_path / "missing").run()
    assert len(fakes.records()) == 1
    (warning,) = fakes.log.events("warning")
    assert "cannot be written (FileNotFoundError)" in warning
    (tmp_path / "reported").write_bytes(b"another\n0123-batch\n\xff\xfe")
    again = FakeInstance(BATCH, folder=tmp_path, began=20).run()
    assert again.records() == {}
    for number in range(3000):
        again.reported.on_reported(f"{number}")
        again.reported.forget(f"{number}")
    assert len((tmp_path / "reported").read_text().split()) < 1100


@pytest.mark.parametrize(
    ("kills", "expected"),
    [
        (lambda _at: 44, False),  # killed by a program
        (lambda at: 44 + (at > 12.3), True),  # perhaps that of another task
        (lambda at: 44 if at < 12.3 else None, True),
    ],
)
def test_a_machine_without_new_kills_has_not_killed_the_batch(
    kills: Callable[[float], int | None], *, expected: bool, tmp_path: Path
) -> None:
    fakes = FakeInstance(changed(exit_code=137, peak_mib=940), folder=tmp_path)
    fakes.machine_kills = kills
    assert fakes.run().record()["likelyOutOfMemory"] is expected

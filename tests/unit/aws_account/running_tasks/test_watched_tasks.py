"""The tasks of a cluster as ECS lists them, log groups that are read again and again, and what
is shown of both.
"""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from profiler.aws_account.running_tasks.running_runs import (
    LINE_FILTER_PATTERN,
    MonitorLogFollower,
    RunningRuns,
)
from profiler.aws_account.running_tasks.watched_tasks import RunningTaskLister, WatchedTasks
from profiler.core.completeness import Completeness, Gap
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, format_ms
from profiler.record.notice_model import Notice, NoticeEvidence, NoticeLine, encode_notice_line
from profiler.record.record_model import NO_INTERVAL, AverageAndMaximum, Distribution, Interval
from profiler.runs.past_runs.log_group_runs import MissingLogGroupError
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.run_source import RunFilter
from tests.fakes import START_NS, FakeClock
from tests.run_sources import ListedRuns, checkpoint_at, ended, text
from tests.runs import report
from tests.sidecars import awslogs
from tests.watched_runs import GROUP, MISSING, FakeLogs, watched_tasks


def test_the_first_read_is_ten_minutes_and_later_ones_are_what_is_new() -> None:
    logs, clock = FakeLogs(), FakeClock()
    watched = watched_tasks(logs, clock)
    start_ms = START_NS // NS_PER_MS
    logs.put(START_NS - 20 * NS_PER_SECOND, text(checkpoint_at(START_NS)))
    for _ in range(3):
        assert watched.read_new_data() == ()
        clock.advance(15)
    assert [one["startTime"] - start_ms for one in logs.requests] == [-600_000, -140_000, -140_000]
    assert {one["filterPattern"] for one in logs.requests} == {LINE_FILTER_PATTERN}
    assert len(watched.runs_now()) == 1
    clock.advance(3600)
    watched.read_new_data()
    assert logs.requests[-1]["startTime"] == clock.wall_ns() // NS_PER_MS - 600_000
    assert watched.runs_now() == ()


def test_a_group_that_cannot_be_read_is_a_sentence_and_the_time_goes_on() -> None:
    logs, clock = FakeLogs(), FakeClock()
    watched = watched_tasks(logs, clock, MISSING, GROUP)
    logs.put(START_NS, text(checkpoint_at(START_NS)))
    (problem,) = watched.read_new_data()
    assert problem.startswith(f"{MISSING} cannot be read")
    clock.advance(7)
    assert [one.elapsed_ms for one in watched.runs_now()] == [607_000]
    assert len(logs.requests) == 2


def test_a_missing_group_is_a_sentence_that_is_made_once() -> None:
    made: list[str] = []

    def told() -> TaskProfilerError:
        made.append(GROUP)
        return TaskProfilerError("There is no log group. Did you mean /ecs/jobs?")

    def read_pages(**parameters: Any) -> Any:
        raise MissingLogGroupError(f"{parameters['logGroupName']} cannot be read", told)

    follower = MonitorLogFollower(read_pages, FakeClock())
    for _ in range(2):
        (problem,) = follower.read_new_lines((GROUP,), RunningRuns().add_line)
        assert problem == "There is no log group. Did you mean /ecs/jobs?"
    assert made == [GROUP]


def test_the_families_that_may_be_meant_are_read_once_and_only_if_a_name_found_nothing() -> None:
    logs = FakeLogs()
    reads: list[str] = []

    def family_names() -> frozenset[str]:
        reads.append("all")
        return frozenset({"nightly-etl"})

    watched = watched_tasks(logs, FakeClock())
    watched.family_names = family_names
    watched.read_new_data()
    assert watched.has_unread_similar is False, "all runs were asked for"
    watched.collected = RunningRuns(RunFilter(run="nightly-elt"))
    watched.read_new_data()
    assert watched.has_unread_similar is True
    watched.read_similar()
    watched.read_new_data()
    assert watched.has_unread_similar is False
    assert watched.similar == "Did you mean nightly-etl?"
    logs.put(START_NS, text(checkpoint_at(START_NS, family="nightly-elt")))
    watched.read_new_data()
    assert watched.similar == "", "it was right"
    assert reads == ["all"]


def test_the_largest_share_of_the_usual_duration_is_first() -> None:
    """The largest share of the usual duration is first and what has ended before it."""
    logs = FakeLogs()
    past = [report(n, metrics={"duration_ms": 600_000}) for n in range(3)]
    past += [report(n, family="long", metrics={"duration_ms": 6_000_000}) for n in range(3)]
    watched = watched_tasks(
        logs, FakeClock(), past=lambda: ListedRuns(PastRun(report=one) for one in past)
    )
    lines = [
        checkpoint_at(START_NS, 5, task_id="half"),
        checkpoint_at(START_NS, 60, task_id="new", family="new"),
        checkpoint_at(START_NS, 20, task_id="fifth", family="long"),
        checkpoint_at(START_NS, 20, task_id="double"),
    ]
    for line in lines:
        logs.put(START_NS, text(line))
    watched.read_new_data()
    assert watched.has_unread_usual is True
    assert watched.read_usual() == ()
    assert watched.has_unread_usual is False
    shown = [
        (one.run.report.record.task_id, one.share_of_usual_duration) for one in watched.runs_now()
    ]
    assert shown == [("double", 2.0), ("half", 0.5), ("fifth", 0.2), ("new", None)]
    logs.put(START_NS, text(ended(lines[0])))
    watched.read_new_data()
    assert [one.run.report.record.task_id for one in watched.runs_now()] == [
        "half",
        "double",
        "fifth",
        "new",
    ]


SIZE_MB = 2048


class PartialList(ListedRuns):
    """A source that did not give everything."""

    @property
    def completeness(self) -> Completeness:
        return Completeness((Gap(place="the list", reason="A shard is lost."),))


def memory_line(minutes: float, used_mb: float, family: str = "nightly") -> str:
    """A checkpoint after so many minutes."""
    interval = Interval(memory_used_mb=Distribution(avg=used_mb, max=used_mb))
    line = checkpoint_at(
        START_NS,
        age_seconds=600 - 60 * minutes,
        task_id=family,
        family=family,
        interval=interval,
    )
    return text(line)


def forecast_line(family: str, used_mb: float) -> str:
    evidence = NoticeEvidence(used_mb=used_mb, size_mb=SIZE_MB, minutes_left=6)
    notice = Notice(kind="memory", message="By the slope.", evidence=evidence)
    record = checkpoint_at(START_NS, 1, task_id=family, family=family, interval=NO_INTERVAL).record
    line = NoticeLine(time=format_ms(START_NS), notice=notice, record=record)
    return encode_notice_line(line).decode()


def shown_notices(watched: WatchedTasks) -> dict[str, list[str | None]]:
    return {
        one.run.report.record.task_id: [notice.message for notice in one.run.notices]
        for one in watched.runs_now()
    }


@pytest.mark.parametrize("reading", ["whole", "part"])
def test_memory_is_news_above_what_the_family_reached_and_a_forecast_without_it(
    reading: str,
) -> None:
    logs = FakeLogs()
    past = [report(n, peak_mb=1300 + n) for n in range(20)]
    kind = PartialList if reading == "part" else ListedRuns
    source = kind(PastRun(report=one) for one in past)
    watched = watched_tasks(logs, FakeClock(), past=lambda: source)
    lines = [
        memory_line(8, 1600),
        memory_line(8, 1400, family="new"),
        forecast_line("new", 1400),
        forecast_line("nightly", 1300),
    ]
    for line in lines:
        logs.put(START_NS, line)
    watched.read_new_data()
    forecast = ["By the slope."]
    assert shown_notices(watched) == {"nightly": forecast, "new": forecast}, "nothing is read yet"
    watched.read_usual()
    known = [
        "The run's memory is at 78 % of 2 GB, above everything that 20 earlier runs reached (64 %)."
    ]
    expected = {"nightly": forecast if reading == "part" else known, "new": forecast}
    assert shown_notices(watched) == expected
    logs.put(START_NS, memory_line(9, 900))
    watched.read_new_data()
    assert shown_notices(watched) == expected, "it was news"


def test_a_forecast_below_what_the_family_reached_is_not_shown() -> None:
    logs = FakeLogs()
    past = [report(n, peak_mb=1800) for n in range(5)]
    watched = watched_tasks(
        logs, FakeClock(), past=lambda: ListedRuns(PastRun(report=one) for one in past)
    )
    for line in (memory_line(8, 1830), forecast_line("nightly", 1830)):
        logs.put(START_NS, line)
    watched.read_new_data()
    watched.read_usual()
    assert shown_notices(watched) == {"nightly": []}


def test_an_older_monitors_forecast_stays_beside_peaks_without_mapped_files() -> None:
    logs = FakeLogs()
    apart = {"memory_mapped_file_mb": AverageAndMaximum(avg=500, max=900)}
    past = [report(n, peak_mb=300, metrics=apart) for n in range(5)]
    watched = watched_tasks(
        logs, FakeClock(), past=lambda: ListedRuns(PastRun(report=one) for one in past)
    )
    for line in (memory_line(8, 1830), forecast_line("nightly", 1830)):
        logs.put(START_NS, line)
    watched.read_new_data()
    watched.read_usual()
    assert shown_notices(watched) == {"nightly": ["By the slope."]}


def test_a_clock_that_is_ahead_misses_nothing() -> None:
    logs, clock, aws_ns = FakeLogs(), FakeClock(), START_NS
    clock.advance(300)
    watched = watched_tasks(logs, clock)
    for minute in range(20):
        at_ns = aws_ns + minute * 60 * NS_PER_SECOND
        line = checkpoint_at(at_ns, minute + 1, age_seconds=0)
        logs.put(at_ns, text(line))
        watched.read_new_data()
        assert watched.runs_now()[0].run.report.time == line.time
        clock.advance(60)


PREFIX = "arn:aws:ecs:eu-west-1:111122223333:"
IMAGE = "111122223333.dkr.ecr.eu-west-1.amazonaws.com/task-profiler:1"


def container(name: str, group: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "etl:1", "logConfiguration": awslogs(group), **more}


MONITOR = {**container("task-monitor", "/ecs/monitors"), "image": IMAGE}
BATCH = container("batch", "/ecs/jobs")
DEFINITIONS = {
    "nightly": [BATCH, MONITOR],
    "own-group": [
        BATCH,
        {**MONITOR, "environment": [{"name": "TASK_PROFILER_LOG_GROUP", "value": "/ecs/reports"}]},
    ],
    "several": [BATCH, container("second", "/ecs/second"), MONITOR],
    "plain": [BATCH],
    "wrapped": [container("batch", "/ecs/wrapped", command=["task-profiler", "run", "--", "etl"])],
    "foreign": [BATCH, {**MONITOR, "image": "other/agent:1"}],
    "splunked": [{**BATCH, "logConfiguration": {"logDriver": "splunk"}}],
    "instance-monitor": [
        {
            **MONITOR,
            "command": ["monitor"],
            "environment": [{"name": "TASK_PROFILER_SCOPE", "value": "instance"}],
        }
    ],
}


class FakeEcs:
    """Plays the operations of ECS that are used."""

    def __init__(self, *families: str) -> None:
        self.tasks = {f"{PREFIX}task/jobs/id-{family}": self.task(family) for family in families}
        self.described, self.refused = list[str](), 0
        self.asked_for_services, self.refuses_services = 0, False
        self.daemon = "instance-monitor"

    def describe_services(self, **_: Any) -> Any:
        name = f"{PREFIX}task-definition/{self.daemon}:1"
        return {"services": [{"status": "ACTIVE", "taskDefinition": name}]}

    def task(self, family: str, **more: Any) -> dict[str, Any]:
        return {
            "taskArn": f"{PREFIX}task/jobs/id-{family}",
            "taskDefinitionArn": f"{PREFIX}task-definition/{family}:7",
            "clusterArn": f"{PREFIX}cluster/jobs",
            "group": f"family:{family}",
            "lastStatus": "RUNNING",
            "startedAt": datetime(2025, 11, 20, 0, 50, tzinfo=UTC),
            "cpu": "512",
            "memory": "1024",
            "containers": [{"name": "batch"}],
            **more,
        }

    def end(self, family: str, exit_code: int | None, **more: Any) -> None:
        arn = f"{PREFIX}task/jobs/id-{family}"
        containers = [{"name": "batch", **({} if exit_code is None else {"exitCode": exit_code})}]
        self.tasks[arn] = self.task(
            family, **{"lastStatus": "STOPPED", "containers": containers, **more}
        )

    def get_paginator(self, name: str) -> Any:
        if name == "list_services":
            self.asked_for_services += 1
            if self.refuses_services:
                details = {"Error": {"Code": "AccessDeniedException", "Message": "no"}}
                raise ClientError(details, "ListServices")
            return SimpleNamespace(paginate=lambda **_: [{"serviceArns": ["monitor"]}])
        assert name == "list_tasks"
        running = [arn for arn, task in self.tasks.items() if task["lastStatus"] != "STOPPED"]
        return SimpleNamespace(paginate=lambda **_: [{"taskArns": [arn]} for arn in running])

    def describe_tasks(self, *, cluster: str, tasks: list[str]) -> Any:
        assert cluster == "jobs"
        assert len(tasks) <= 100
        return {"tasks": [self.tasks[arn] for arn in tasks if arn in self.tasks]}

    def describe_task_definition(self, *, taskDefinition: str) -> Any:
        self.described.append(taskDefinition)
        if self.refused:
            self.refused -= 1
            details = {"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}
            raise ClientError(details, "DescribeTaskDefinition")
        family = taskDefinition.rpartition("/")[2].partition(":")[0]
        return {"taskDefinition": {"containerDefinitions": DEFINITIONS.get(family, [BATCH])}}


def tasks_of(ecs: FakeEcs, *, with_services: bool = False) -> RunningTaskLister:
    return RunningTaskLister(lambda _service: ecs, "jobs", with_services=with_services)


def test_a_task_has_what_ecs_knows() -> None:
    ecs = FakeEcs("nightly")
    tasks = tasks_of(ecs)
    for _ in range(2):
        (report,) = tasks.read_running_tasks(START_NS)
    record = report.record
    assert record.task_id == "id-nightly"
    assert record.family == "nightly"
    assert record.revision == "7"
    assert record.cluster == "jobs"
    assert record.region == "eu-west-1"
    assert record.account_id == "111122223333"
    assert record.status == "running"
    assert record.started_at == "2025-11-20T00:50:00.000Z"
    assert record.container.name == "batch"
    assert record.metrics.vcpu_size == 0.5
    assert record.metrics.memory_size_mb == 1024
    assert len(ecs.described) == 1, "a revision never changes"


@pytest.mark.parametrize(
    ("family", "groups"),
    [
        ("nightly", ("/ecs/jobs", "/ecs/monitors")),
        ("own-group", ("/ecs/jobs", "/ecs/monitors", "/ecs/reports")),
        ("several", ("/ecs/jobs", "/ecs/monitors", "/ecs/second")),
        ("plain", ()),
        ("wrapped", ("/ecs/wrapped",)),
        ("foreign", ()),
    ],
)
def test_the_log_groups_are_those_into_which_the_profiler_writes(
    family: str, groups: tuple[str, ...]
) -> None:
    tasks = tasks_of(FakeEcs(family))
    assert len(tasks.read_running_tasks(START_NS)) == 1
    assert tasks.groups == groups


@pytest.mark.parametrize(
    ("launch_type", "families", "groups"),
    [
        ("EC2", ("plain",), ("/ecs/jobs", "/ecs/monitors")),
        ("EC2", ("splunked",), ("/ecs/monitors",)),
        ("EC2", ("wrapped", "plain"), ("/ecs/jobs", "/ecs/monitors", "/ecs/wrapped")),
        ("EC2", ("wrapped",), ("/ecs/wrapped",)),
        ("FARGATE", ("plain",), ()),
    ],
)
def test_the_groups_of_an_instance_monitor_are_read_for_tasks_on_ec2_without_a_monitor(
    launch_type: str, families: tuple[str, ...], groups: tuple[str, ...]
) -> None:
    ecs = FakeEcs(*families)
    for listed in ecs.tasks.values():
        listed["launchType"] = launch_type
    tasks = tasks_of(ecs)
    for _ in range(2):
        tasks.read_running_tasks(START_NS)
        assert tasks.groups == groups
    assert ecs.asked_for_services == ("/ecs/monitors" in groups), "once"
    ecs.daemon = "plain"
    without = tasks_of(ecs)
    without.read_running_tasks(START_NS)
    assert set(without.groups) == {"/ecs/wrapped"} & set(groups)


def test_without_the_right_to_find_an_instance_monitor_it_is_said() -> None:
    ecs = FakeEcs("plain")
    (listed,) = ecs.tasks.values()
    listed["launchType"] = "EC2"
    ecs.refuses_services = True
    tasks = tasks_of(ecs)
    for _ in range(2):
        tasks.read_running_tasks(START_NS)
        assert tasks.groups == ()
        (problem,) = tasks.problems
        assert "It is unknown whether an instance monitor writes about these tasks" in problem
        assert "ListServices" in problem
    assert ecs.asked_for_services == 1


@pytest.mark.parametrize(
    ("exit_code", "more", "status"),
    [
        (0, {"stopCode": "EssentialContainerExited"}, "success"),
        (None, {"stopCode": "TaskFailedToStart"}, "failure"),
        (143, {"stopCode": "SpotInterruption"}, "stopped"),
        (None, {}, "unknown"),
    ],
)
def test_a_task_that_has_ended_is_described_once_more(
    exit_code: int | None, more: dict[str, str], status: str
) -> None:
    ecs = FakeEcs("nightly", "plain")
    tasks = tasks_of(ecs)
    tasks.read_running_tasks(START_NS)
    ecs.end("nightly", exit_code, **more)
    found = {one.record.family: one.record for one in tasks.read_running_tasks(START_NS)}
    assert found["nightly"].status == status
    assert found["nightly"].exit_code == exit_code
    assert [one.record.family for one in tasks.read_running_tasks(START_NS)] == ["plain"]


def test_a_definition_that_was_not_read_is_read_again() -> None:
    """A definition that was not read is read again and the problem is named meanwhile."""
    ecs = FakeEcs("nightly", "nightly-load")
    ecs.refused = 2
    tasks = tasks_of(ecs)
    assert [one.record.container.name for one in tasks.read_running_tasks(START_NS)] == ["", ""]
    (problem,) = tasks.problems
    assert problem.startswith(
        "Task definitions of running tasks cannot be read: AWS returned ThrottlingException"
    )
    assert [one.record.container.name for one in tasks.read_running_tasks(START_NS)] == [
        "batch",
        "batch",
    ]
    assert tasks.problems == ()
    assert tasks.groups == ("/ecs/jobs", "/ecs/monitors")


def test_a_task_that_has_not_started_has_no_time() -> None:
    """A task that has not started has no time and those of services are left out unless asked for."""
    ecs = FakeEcs("nightly")
    (arn,) = ecs.tasks
    ecs.tasks[arn] = {**ecs.task("nightly", lastStatus="PENDING", cpu="x"), "startedAt": None}
    (report,) = tasks_of(ecs).read_running_tasks(START_NS)
    assert report.record.status == "running"
    assert report.record.started_at is None
    assert report.record.metrics.vcpu_size is None
    ecs.tasks[arn] = ecs.task("nightly", group="service:api")
    assert tasks_of(ecs).read_running_tasks(START_NS) == ()
    assert len(tasks_of(ecs, with_services=True).read_running_tasks(START_NS)) == 1

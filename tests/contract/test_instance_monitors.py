"""Clusters with an instance monitor on moto: doctor, setup and add-monitor count its tasks on
EC2 as monitored.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.aws_account.instance_monitors import InstanceMonitorReader
from profiler.core.timestamps import NS_PER_MS, format_ms
from profiler.record.record_model import Container, Report, encode
from tests.aws_proxy import AwsProxy, ProxiedAccount
from tests.run_sources import checkpoint_at
from tests.runs import report
from tests.sidecars import ACCOUNT, IMAGE, awslogs, run_instance_monitor
from tests.task_events import task
from tools.moto_server import fake_aws, start_by_schedule

BATCH: dict[str, Any] = {
    "name": "batch",
    "image": "etl:26",
    "memory": 256,
    "logConfiguration": awslogs(),
}
SECOND = {**BATCH, "name": "second"}
MONITOR = {"name": "task-monitor", "image": IMAGE, "command": ["monitor"], "memory": 64}
AWSVPC = {"networkMode": "awsvpc", "cpu": "256", "memory": "512"}
FARGATE = {**AWSVPC, "requiresCompatibilities": ["FARGATE"]}
# The state of a family's monitor, its containers and other fields.
FAMILIES: dict[str, tuple[str, list[dict[str, Any]], dict[str, Any]]] = {
    "plain": ("instance", [BATCH], {}),
    "ec2": ("instance", [BATCH], {**AWSVPC, "requiresCompatibilities": ["EC2"]}),
    "split": ("instance", [BATCH, SECOND], {}),
    "own": ("outdated", [BATCH, MONITOR], {}),
    "fargate": ("missing", [BATCH], FARGATE),
    "either": ("missing", [BATCH], AWSVPC),
    "elsewhere": ("instance", [BATCH], {}),
}
STATES = {family: state for family, (state, _, _) in FAMILIES.items()}


class Account(ProxiedAccount):
    """A cluster with families of each kind, all started by schedules; one is started in another
    cluster, too.
    """

    def describe(self, *words: str) -> dict[str, dict[str, Any]]:
        done = self.command(*words, "--json")
        assert "It is unknown" not in done.stderr
        return {one["family"]: one for one in map(json.loads, done.stdout.splitlines())}

    def problems(self) -> list[str]:
        return [
            one["text"]
            for one in self.describe("doctor", "--cluster", "jobs")["plain"].get("findings", ())
        ]


@pytest.fixture
def account() -> Iterator[Account]:
    with fake_aws() as aws:
        made = Account(
            aws, AwsProxy(aws.url, answers={"DescribeAccountPolicies": {"accountPolicies": []}})
        )
        for family, (_, containers, more) in FAMILIES.items():
            given = {
                "taskRoleArn": f"arn:aws:iam::{ACCOUNT}:role/jobs",
                "containerDefinitions": containers,
                **more,
            }
            made.ecs.register_task_definition(family=family, **given)
            start_by_schedule(made.scheduler, family)
        made.ecs.create_cluster(clusterName="jobs-2")
        start_by_schedule(made.scheduler, "other", "elsewhere", "jobs-2")
        made.iam.create_role(RoleName="jobs", AssumeRolePolicyDocument="{}")
        aws.create_log_group(str(awslogs()["options"]["awslogs-group"]))
        yield made
        made.proxy.close()


def test_its_families_are_monitored_and_need_no_permission_and_the_setup_counts_them(
    account: Account,
) -> None:
    assert account.problems() != []
    run_instance_monitor(account.ecs)
    found = account.describe("doctor", "--cluster", "jobs")
    assert {family: one["monitor"] for family, one in found.items()} == STATES
    plain = found["plain"]
    assert plain["logGroup"] == awslogs()["options"]["awslogs-group"]
    assert "permission" not in plain
    assert account.problems() == ["There is no report of the last 8 days."]
    done = account.command("setup", "--cluster", "jobs", "--json")
    step = next(
        one for one in map(json.loads, done.stdout.splitlines()) if one["name"] == "monitors"
    )
    assert step["text"].startswith(
        "4 of 7 schedules and rules start a task with a current monitor."
    )


@pytest.mark.slow
def test_no_monitor_is_added_to_them_unless_they_are_named(account: Account) -> None:
    run_instance_monitor(account.ecs)
    words = ("taskdef", "add-monitor", "--cluster", "jobs")
    actions = {family: one["action"] for family, one in account.describe(*words).items()}
    on_instance = [family for family, state in STATES.items() if state == "instance"]
    assert sorted(
        family for family, action in actions.items() if action == "on instance"
    ) == sorted(on_instance)
    assert actions["own"] == "update monitor"
    assert actions["fargate"] == "add monitor"
    assert account.command(*words, "--register").returncode == 0
    revisions = {
        family: account.ecs.list_task_definitions(familyPrefix=family) for family in FAMILIES
    }
    added = {family for family, one in revisions.items() if len(one["taskDefinitionArns"]) > 1}
    assert added == {"own", "fargate", "either"}
    assert (
        account.describe("taskdef", "add-monitor", "--family", "plain")["plain"]["action"]
        == "add monitor"
    )
    removed = account.describe("taskdef", "remove-monitor", "--cluster", "jobs")
    assert removed["own"]["action"] == "remove monitor"


@pytest.mark.slow
def test_a_family_of_two_clusters_is_monitored_if_both_have_a_monitor(account: Account) -> None:
    run_instance_monitor(account.ecs)
    words = ("taskdef", "add-monitor", "--scheduled")
    assert account.describe(*words, "--cluster", "jobs")["elsewhere"]["action"] == "on instance"
    both = (*words, "--cluster", "jobs", "--cluster", "jobs-2")
    assert account.describe(*both)["elsewhere"]["action"] == "add monitor"
    assert account.describe(*both)["plain"]["action"] == "on instance"
    account.ecs.create_cluster(clusterName="jobs-2")
    run_instance_monitor(account.ecs, "jobs-2")
    assert account.describe(*both)["elsewhere"]["action"] == "on instance"


@pytest.mark.parametrize(
    ("families", "scope", "is_reported"),
    [
        ("", "instance", True),
        ("a-*, nightly", " Instance", True),
        ("a-*", "instance", False),
        ("", "task", False),
    ],
)
def test_a_stopped_task_on_ec2_is_its_if_it_reports_the_family(
    families: str, scope: str, *, is_reported: bool, account: Account
) -> None:
    run_instance_monitor(account.ecs, families=families, scope=scope)
    on_ec2, monitors = task(launchType="EC2"), InstanceMonitorReader(account.ecs, pytest.fail)
    assert monitors.is_task_reported(on_ec2) is is_reported
    others = [
        replace(on_ec2, group="service:api"),
        *(replace(on_ec2, cluster=name) for name in ("jobs-2", None)),
    ]
    assert not any(map(monitors.is_task_reported, (task(launchType="FARGATE"), *others)))


def test_a_replica_and_a_deleted_service_are_none_and_an_error_is_not_remembered(
    account: Account,
) -> None:
    on_ec2 = task(launchType="EC2")
    run_instance_monitor(account.ecs)
    said: list[str] = []
    proxied = replace(account.aws, url=account.proxy.url)
    monitors = InstanceMonitorReader(proxied.client("ecs"), said.append)
    account.proxy.refused = {"ListServices"}
    assert not monitors.is_task_reported(on_ec2)
    needed = "ecs:ListServices, ecs:DescribeServices and ecs:DescribeTaskDefinition"
    assert all(text in said[0] for text in ("the cluster jobs has an instance monitor", needed))
    account.proxy.refused = set()
    assert monitors.is_task_reported(on_ec2)
    account.ecs.delete_service(cluster="jobs", service="instance-monitor", force=True)
    assert monitors.is_task_reported(on_ec2), "a cluster is read once"
    definition = "task-profiler-instance-monitor"
    account.ecs.create_service(
        cluster="jobs", serviceName="replica", taskDefinition=definition, desiredCount=1
    )
    assert not InstanceMonitorReader(account.ecs, pytest.fail).is_task_reported(on_ec2)


def put_reports(account: Account, family: str, stream: str, count: int = 30, **size: Any) -> None:
    """Reports of a family's tasks in a stream of the instance monitor's log group."""
    logs = account.aws.client("logs")
    now_ms = time.time_ns() // NS_PER_MS
    texts: list[dict[str, Any]] = []
    for number in range(count):
        ended_ms = now_ms - number * 3_600_000
        made = report(
            family=family,
            task_id=f"{abs(hash(family)) % 999:08x}{number:024x}",
            cluster="jobs",
            launch_type="EC2",
            container=Container(name="batch"),
            started_at=format_ms((ended_ms - 600_000) * NS_PER_MS),
            finished_at=format_ms(ended_ms * NS_PER_MS),
            **size,
        )
        line = encode(replace(made, time=format_ms(ended_ms * NS_PER_MS))).decode()
        texts.append({"timestamp": ended_ms, "message": line})
    logs.create_log_stream(logGroupName=MONITORS, logStreamName=stream)
    events = sorted(texts, key=lambda event: event["timestamp"])
    logs.put_log_events(logGroupName=MONITORS, logStreamName=stream, logEvents=events)


MONITORS = "/ecs/instance-monitor"
INSTANCE_STREAM = f"instance/task-monitor/{'ab' * 16}"
SPLUNK = {**BATCH, "logConfiguration": {"logDriver": "splunk"}}


@pytest.mark.slow
def test_readers_of_log_groups_read_the_instance_monitors_group(account: Account) -> None:
    """Reports of batches with another log driver, without a search cluster."""
    account.aws.create_log_group(MONITORS)
    account.ecs.register_task_definition(family="splunked", containerDefinitions=[SPLUNK])
    put_reports(account, "splunked", INSTANCE_STREAM)
    words = ("--from", f"logs:{MONITORS}", "--json")
    without = account.command("history", *words)
    assert without.returncode == 1
    assert "30 reports not of their log stream's task" in without.stderr
    run_instance_monitor(account.ecs)
    listed = account.command("history", *words, "--last", "100")
    assert len(listed.stdout.splitlines()) == 30
    assert "unconfirmed" not in listed.stderr
    (advice,) = map(json.loads, account.command("recommend", *words).stdout.splitlines())
    assert (advice["family"], advice["runs"]) == ("splunked", 30)


def test_the_last_checkpoint_of_a_drained_instance_is_the_run(account: Account) -> None:
    """Once, also if it was written twice. Where another monitor follows, its report is the run."""
    account.aws.create_log_group(MONITORS)
    account.ecs.register_task_definition(family="splunked", containerDefinitions=[SPLUNK])
    run_instance_monitor(account.ecs)
    account.aws.create_log_stream(MONITORS, INSTANCE_STREAM)
    now_ns = time.time_ns()
    of_task: dict[str, Any] = {
        "task_id": "ef" * 16,
        "family": "splunked",
        "cluster": "jobs",
        "launch_type": "EC2",
    }
    container = Container(name="batch")

    def put(*reports: Report) -> None:
        events = [
            {"timestamp": (one.time_ns or 0) // NS_PER_MS, "message": encode(one).decode()}
            for one in reports
        ]
        account.aws.client("logs").put_log_events(
            logGroupName=MONITORS, logStreamName=INSTANCE_STREAM, logEvents=events
        )

    def found() -> list[tuple[Any, ...]]:
        done = account.command("history", "--from", f"logs:{MONITORS}", "--json")
        records = [json.loads(line)["record"] for line in done.stdout.splitlines()]
        return [(one["status"], one["metrics"]["maxMemoryUsedMB"]) for one in records]

    ages_seconds = (1_860, 1_800)
    checkpoints = [
        checkpoint_at(now_ns, 60, age_seconds=age, container=container, **of_task)
        for age in ages_seconds
    ]
    put(*checkpoints)
    assert found() == [("running", checkpoints[-1].record.metrics.max_memory_used_mb)]
    ended = report(0, container=container, status="success", **of_task)
    times = {
        "started_at": checkpoints[-1].record.started_at,
        "finished_at": format_ms(now_ns - 600 * 1_000_000_000),
    }
    record = replace(ended.record, **times)
    put(replace(ended, time=times["finished_at"], record=record))
    assert found() == [("success", ended.record.metrics.max_memory_used_mb)]


def test_watch_reads_the_instance_monitors_group(account: Account) -> None:
    account.aws.create_log_group(MONITORS)
    account.aws.create_log_stream(MONITORS, INSTANCE_STREAM)
    now_ns = time.time_ns()
    running = checkpoint_at(now_ns, task_id="ef" * 16, family="splunked", cluster="jobs")
    account.aws.client("logs").put_log_events(
        logGroupName=MONITORS,
        logStreamName=INSTANCE_STREAM,
        logEvents=[{"timestamp": now_ns // NS_PER_MS, "message": encode(running).decode()}],
    )
    words = ("watch", "--json", "--from", f"logs:{MONITORS}")
    assert account.command(*words).stdout == ""
    run_instance_monitor(account.ecs)
    (line,) = account.command(*words).stdout.splitlines()
    assert json.loads(line)["family"] == "splunked"


@pytest.mark.parametrize(
    ("family", "stream", "left_out"),
    [
        ("plain", INSTANCE_STREAM, "30 unconfirmed runs left out"),
        ("splunked", f"ecs/batch/{'cd' * 16}", "30 reports not of their log stream's task"),
        ("splunked", f"other/task-monitor/{'cd' * 16}", "30 reports not of their log stream's"),
        ("splunked", "cd" * 32, "30 unconfirmed runs left out"),
    ],
)
def test_no_task_speaks_for_others_in_the_instance_monitors_group(
    account: Account, family: str, stream: str, left_out: str
) -> None:
    """Every task definition can name the group. A family with awslogs has its reports elsewhere."""
    account.aws.create_log_group(MONITORS)
    account.ecs.register_task_definition(family="splunked", containerDefinitions=[SPLUNK])
    run_instance_monitor(account.ecs)
    put_reports(account, family, stream)
    done = account.command("recommend", "--from", f"logs:{MONITORS}")
    assert done.returncode == 1
    assert left_out in " ".join(done.stderr.split())

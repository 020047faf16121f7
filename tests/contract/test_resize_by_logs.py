"""``taskdef resize --register`` by the lines of log groups: they count if ECS's word about their tasks
agrees, and if their group reaches back as far as the window.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.aws_proxy import AwsProxy
from tests.resize_account import BATCH, KILLED, MONITOR, STOPPED_GROUP, Account, logs_to
from tools.moto_server import fake_aws

# Of each test, `make test` runs one case: the cases differ by a policy, an answer or a moment.
pytestmark = pytest.mark.diagonal(1)

WRITERS = "Whoever may register a task definition in this account"


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    """An account with two families, each in a log group of its own."""
    with fake_aws() as aws:
        made = Account(aws, tmp_path)
        made.logging_to("/ecs/control", "control")
        made.logging_to("/ecs/payroll", "payroll")
        yield made


def assert_only_control(account: Account, reason: str, *words: str) -> None:
    """Only the control is registered; the other family is left alone for this reason."""
    rows = account.resize_by_logs(*words)
    assert account.newest("control", "payroll") == [2, 1]
    assert reason in rows["payroll"]["reason"]


@pytest.mark.parametrize(
    ("group", "prefix", "options"),
    [
        ("team/a.b-c_d#e/f", "ecs", {}),
        ("/ecs/control/more", "ecs", {}),
        ("/ecs/odd", "a/b.c", {}),
        ("/ecs/odd", "ecs", {"awslogs-create-group": "true", "mode": "non-blocking"}),
        ("/ecs/odd", "ecs", {"awslogs-region": None}),
    ],
)
def test_an_odd_place_of_a_familys_lines_is_its_own(
    account: Account, group: str, prefix: str, options: dict[str, str | None]
) -> None:
    """Another family in the same group, or in one whose name begins alike, is resized by its own
    lines, and one that has none stays.
    """
    logs = logs_to(group, prefix)
    given = {**logs["logConfiguration"]["options"], **options}
    known = {name: value for name, value in given.items() if value is not None}
    configured = {"logConfiguration": {"logDriver": "awslogs", "options": known}}
    for name in ("odd", "silent"):
        account.family(name, containerDefinitions=[{**BATCH, **configured}, {**MONITOR, **logs}])
    account.runs("odd", 25, cluster="jobs")
    account.put_reports(group, prefix)
    account.resize_by_logs()
    assert account.newest("odd", "control", "payroll", "silent") == [2, 2, 2, 1]


# How far back the log groups reach.


def keep(account: Account, group: str, days: int) -> None:
    account.aws.client("logs").put_retention_policy(logGroupName=group, retentionInDays=days)


def test_a_log_group_that_keeps_fewer_days_than_the_window_registers_nothing(
    account: Account,
) -> None:
    keep(account, "/ecs/control", 60)
    keep(account, "/ecs/payroll", 14)
    assert_only_control(account, "the log group /ecs/payroll keeps 14 days, the window has 35")
    rows = account.resize_by_logs("--days", "14")
    assert rows["payroll"]["action"] == "resize"


def test_a_log_group_that_is_younger_than_the_window_registers_nothing(account: Account) -> None:
    account.age_group("/ecs/control", days=36)
    account.age_group("/ecs/payroll", days=20)
    assert_only_control(account, "the log group /ecs/payroll is 20 days old, the window has 35")


def test_the_functions_log_group_has_to_reach_back_as_far(account: Account) -> None:
    account.age_group(STOPPED_GROUP, days=14.5)
    rows = account.resize_by_logs()
    reason = f"the log group {STOPPED_GROUP} is 14 days old, the window has 35"
    assert [row["reason"] for row in rows.values()] == [reason, reason]
    assert [row["to"]["memoryMB"] for row in rows.values()] == [512, 512]
    assert account.newest("control", "payroll") == [1, 1]
    account.resize_by_logs("--days", "14")
    assert account.newest("control", "payroll") == [2, 2]


@pytest.mark.slow
def test_a_file_is_not_written_by_a_part_of_the_window(account: Account, tmp_path: Path) -> None:
    file = tmp_path / "payroll.json"
    containers = [{**one, **logs_to("/ecs/payroll")} for one in (BATCH, MONITOR)]
    definition = {
        "family": "payroll",
        "cpu": "1024",
        "memory": "2048",
        "containerDefinitions": containers,
    }
    file.write_text(json.dumps(definition))
    keep(account, "/ecs/payroll", 14)
    words = ("taskdef", "resize", "--from", "logs:/ecs/payroll", "--apply", str(file))
    done = account.command(*words)
    assert done.returncode == 0, done.stderr
    assert json.loads(file.read_text())["memory"] == "2048"
    keep(account, "/ecs/payroll", 60)
    done = account.command(*words)
    assert json.loads(file.read_text())["memory"] == "512", done.stdout


READERS = [("history", "--last", "500"), ("recommend",), ("show", "payroll"), ("report", "-o", "-")]
FROM_PAYROLL = ("--from", "logs:/ecs/payroll")


@pytest.mark.parametrize("words", READERS)
def test_every_reader_says_that_a_log_group_keeps_less_than_its_window(
    account: Account, words: tuple[str, ...]
) -> None:
    def said(*more: str) -> str:
        done = account.command(*words, *FROM_PAYROLL, *more)
        assert done.returncode == 0, done.stderr
        return done.stderr

    keep(account, "/ecs/payroll", 60)
    assert "the window has" not in said("--since", "35d")
    keep(account, "/ecs/payroll", 14)
    is_default = said()
    assert is_default.count("The log group /ecs/payroll keeps 14 days, the window has 30.") == 1
    assert "--since TIME" not in is_default, "an earlier one would not help"
    assert said("--since", "20d").count("keeps 14 days, the window has 20.") == 1
    assert "the window has" not in said("--since", "10d")


def test_of_several_log_groups_each_one_that_is_too_short_is_named(account: Account) -> None:
    account.age_group("/ecs/payroll", days=20)
    done = account.command("history", "--from", "logs:/ecs/*", "--last", "500")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the window has") == 1
    assert "The log group /ecs/payroll is 20 days old, the window has 30." in done.stderr
    assert "only the last 30 days were read" in done.stderr, "the other group may have more"


def test_without_the_right_it_is_said_once_that_the_window_may_be_short(account: Account) -> None:
    keep(account, "/ecs/payroll", 14)
    with AwsProxy(account.aws.url) as proxy:
        account.url = proxy.url
        proxy.refused = {"DescribeLogGroups"}
        done = account.command("recommend", *FROM_PAYROLL)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("DescribeLogGroups") == 1
    assert "It is unknown how far back /ecs/payroll can be read. The log groups" in done.stderr
    assert "allow logs:DescribeLogGroups" in done.stderr


# ECS's word.


def test_without_the_stack_nothing_is_registered_unless_the_lines_are_believed(
    account: Account,
) -> None:
    account.aws.client("cloudformation").delete_stack(StackName="task-profiler")
    words = ("taskdef", "resize", "--from", "logs:/ecs/*")
    plan = account.command(*words)
    assert plan.returncode == 0, plan.stderr
    assert "--register would refuse this plan. There is no stack 'task-profiler'" in plan.stderr
    refused = account.command(*words, "--register")
    assert refused.returncode == 1
    assert "Nothing is changed by log groups alone. There is no stack" in refused.stderr
    assert f"--believe-logs takes the lines as they are. {WRITERS}" in refused.stderr
    assert account.newest("control", "payroll") == [1, 1]
    done = account.command(*words, "--register", "--believe-logs")
    assert done.returncode == 0, done.stderr
    assert f"nothing confirms the lines of the log groups. {WRITERS}" in done.stderr
    assert account.newest("control", "payroll") == [2, 2]


def test_another_stack_is_named(account: Account) -> None:
    words = ("taskdef", "resize", "--from", "logs:/ecs/*", "--register", "--stack", "jobs")
    refused = account.command(*words)
    assert refused.returncode == 1
    assert "There is no stack 'jobs' in this account and Region" in refused.stderr


def test_another_familys_tasks_in_a_familys_own_group_change_nothing(account: Account) -> None:
    """The definition of thumbs names payroll's group, prefix and container as its own."""
    account.runs("payroll", 25, peak_mb=1500)
    account.put_reports("/ecs/payroll")
    account.runs("payroll", 25, peak_mb=20)
    account.runs("payroll", 1, **KILLED)
    account.put_reports("/ecs/payroll", ended_as="thumbs")
    rows = account.resize_by_logs()
    assert rows["control"]["to"] == {"vcpu": 0.25, "memoryMB": 512}
    assert rows["payroll"]["to"] == {"vcpu": 0.25, "memoryMB": 2048}
    assert rows["payroll"]["evidence"]["unconfirmed"] == 26
    assert "task_stopped knows no such task" in rows["payroll"]["notes"][-1]


@pytest.mark.parametrize(
    "stream",
    ["ecs/batch/0123456789abcdef0123456789abcdef", "2026/11/26/[$LATEST]a/batch/0123456789abcdef"],
)
def test_a_line_of_a_task_in_the_functions_group_is_not_ecss_word(
    account: Account, stream: str
) -> None:
    account.moved_logs("forged", "/ecs/forged")
    account.runs("forged", 25)
    forged = [made.record for made in account.reports]
    account.put_reports("/ecs/forged", ended_as="thumbs")
    account.aws.create_log_stream(STOPPED_GROUP, stream)
    for record in forged:
        account.put_ended(record, stream)
    rows = account.resize_by_logs()
    assert account.newest("control", "forged") == [2, 1]
    assert rows["forged"]["reason"] == "no run of revision 1 is known yet"


@pytest.mark.parametrize(
    ("honest", "forged"),
    [
        ('"maxMemoryUsedMB":400', '"maxMemoryUsedMB":20'),
        ('"likelyOutOfMemory":false', '"likelyOutOfMemory":true'),
    ],
    ids=["less", "a kill"],
)
def test_reports_that_contradict_ecss_word_leave_the_family_alone(
    account: Account, honest: str, forged: str
) -> None:
    """Our own policy allows a task to write into the streams of others in the same place."""
    logs = account.aws.client("logs")
    events: list[dict[str, Any]] = logs.filter_log_events(logGroupName="/ecs/payroll")["events"]
    line = events[-1]["message"].replace(honest, forged)
    assert line != events[-1]["message"]
    logs.put_log_events(
        logGroupName="/ecs/payroll",
        logStreamName=events[-1]["logStreamName"],
        logEvents=[{"timestamp": events[-1]["timestamp"] + 1000, "message": line}],
    )
    assert_only_control(account, "a report does not say what task_stopped has read")


def test_a_task_without_a_line_of_the_function_does_not_count(account: Account) -> None:
    account.moved_logs("few", "/ecs/few")
    account.runs("few", 25)
    account.put_reports("/ecs/few", ended_as="other")
    account.runs("few", 5)
    account.put_reports("/ecs/few")
    rows = account.resize_by_logs()
    assert rows["few"]["reason"] == "5 of 20 runs seen"
    assert account.newest("control") == [2]


# A part of the rights.


@pytest.mark.parametrize(
    ("operation", "right"),
    [
        ("FilterLogEvents", "logs:FilterLogEvents"),
        ("DescribeLogGroups", "logs:DescribeLogGroups"),
        ("DescribeStacks", "cloudformation:DescribeStacks"),
        ("DescribeStackResources", "cloudformation:DescribeStackResources"),
        ("DescribeTaskDefinition", "ecs:DescribeTaskDefinition"),
        ("ListTaskDefinitions", "ecs:ListTaskDefinitions"),
        ("ListTaskDefinitionFamilies", "ecs:ListTaskDefinitionFamilies"),
        ("ListClusters", "ecs:ListClusters"),
        ("ListServices", "ecs:ListServices"),
        ("GetResources", "tag:GetResources"),
        ("ListEventBuses", "events:ListEventBuses"),
        ("ListRules", "events:ListRules"),
        ("GET /schedules", "scheduler:ListSchedules"),
    ],
)
def test_without_a_right_to_read_nothing_is_registered_and_the_right_is_named(
    account: Account, operation: str, right: str
) -> None:
    with AwsProxy(account.aws.url) as proxy:
        account.url = proxy.url
        proxy.refused = {operation}
        words = ("taskdef", "resize", "--register", "--json", "control")
        done = account.command(*words)
        assert done.returncode == 1, done.stdout
        assert right in done.stderr
        assert account.newest("control") == [1]
        proxy.refused = set()
        assert account.command(*words).returncode == 0
    assert account.newest("control") == [2]

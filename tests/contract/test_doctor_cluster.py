"""``task-profiler doctor --cluster``: the families of a cluster on moto, before and after a
rollout.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.core.timestamps import format_ms
from tests.aws_proxy import AwsProxy, ProxiedAccount
from tests.run_sources import put_in_own_streams
from tests.runs import lines, report
from tests.sidecars import ACCOUNT, IMAGE, REGION, awslogs
from tools.moto_server import FakeAws, fake_aws, start_by_schedule

FORWARDER = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:task-profiler-forward-logs"
STREAM = f"arn:aws:kinesis:{REGION}:{ACCOUNT}:stream/reports"
FAMILIES = ("apart", "done", "lost", "plain", "split", "wrapped")
NS_PER_HOUR = 3600 * 10**9


def batch(group: str, *command: str) -> dict[str, Any]:
    logs = awslogs(group)
    return {
        "name": "batch",
        "image": "etl:26",
        "memory": 256,
        "command": [*command],
        "logConfiguration": logs,
    }


class Account(ProxiedAccount):
    """A cluster with one family of each kind, all started by schedules."""

    def __init__(self, aws: FakeAws) -> None:
        accounts: dict[str, Any] = {"accountPolicies": []}
        super().__init__(aws, AwsProxy(aws.url, answers={"DescribeAccountPolicies": accounts}))
        self.logs = aws.client("logs")
        self.iam.create_role(RoleName="jobs", AssumeRolePolicyDocument="{}")
        for family in FAMILIES:
            self.register(family)
            aws.create_log_group(f"/ecs/{family}")
            start_by_schedule(self.scheduler, family)

    def register(self, family: str) -> None:
        words = ("task-profiler", "run", "--", "etl") if family == "wrapped" else ("etl",)
        role = f"arn:aws:iam::{ACCOUNT}:role/{'gone' if family == 'lost' else 'jobs'}"
        containers = [batch(f"/ecs/{family}", *words)]
        if family == "split":
            containers.append({**batch("/ecs/split"), "name": "second"})
        self.ecs.register_task_definition(
            family=family, taskRoleArn=role, containerDefinitions=containers
        )

    def roll_out(self, glob: str) -> None:
        words = ("--family", glob, "--image", IMAGE, "--attach-policy", "--register")
        done = self.command("taskdef", "add-monitor", *words)
        assert done.returncode in (0, 1), done.stderr

    def doctor(self, *words: str) -> tuple[int, dict[str, Any]]:
        done = self.command("doctor", "--cluster", "jobs", "--json", *words)
        return done.returncode, {
            one["family"]: one for one in map(json.loads, done.stdout.splitlines())
        }

    def report(self, family: str, group: str = "", prefix: str = "ecs") -> str:
        """Put the report of a run of this hour into its group, or another one. Returns its time as
        the doctor prints it.
        """
        now_ns, given = time.time_ns(), report(0, family=family)
        started_at = format_ms(now_ns - NS_PER_HOUR)
        written = format_ms(now_ns)
        record = replace(
            given.record,
            task_id=f"{now_ns:032x}",
            account_id=ACCOUNT,
            region=REGION,
            started_at=started_at,
            finished_at=written,
        )
        (line,) = lines([replace(given, record=record, time=written)]).splitlines()
        put_in_own_streams(self.logs, group or f"/ecs/{family}", line.decode(), prefix=prefix)
        return started_at


@pytest.fixture
def account() -> Iterator[Account]:
    with fake_aws() as aws:
        made = Account(aws)
        yield made
        made.proxy.close()


def problems(health: dict[str, Any]) -> list[str]:
    return [one["text"] for one in health.get("findings", ()) if one["level"] == "problem"]


def test_the_doctor_and_the_setup_know_whether_container_insights_is_on(account: Account) -> None:
    for setting, sentence in (
        ("disabled", "Container Insights is off for jobs."),
        (
            "enhanced",
            "Container Insights is on: task-profiler recommend --from insights:jobs --region",
        ),
    ):
        settings = [{"name": "containerInsights", "value": setting}]
        account.proxy.answers["DescribeClusters"] = {
            "clusters": [{"clusterName": "jobs", "settings": settings}]
        }
        for words in (("doctor", "--cluster", "jobs"), ("setup", "--cluster", "jobs")):
            paragraph = account.command(*words).stdout.rpartition("\n\n")[2]
            assert " ".join(paragraph.split()).startswith(sentence)
            assert ("0.30 USD" in paragraph) is (setting == "disabled")


def test_the_setup_of_a_cluster_that_does_not_exist_is_an_error(account: Account) -> None:
    done = account.command("setup", "--cluster", "jobs", "--cluster", "jbos")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "There is no ECS cluster jbos in us-east-1" in done.stderr
    assert done.stderr.endswith("Did you mean jobs?\n")


def test_the_setup_of_a_deleted_cluster_is_an_error(account: Account) -> None:
    gone = {"clusterName": "jobs", "status": "INACTIVE"}
    account.proxy.answers["DescribeClusters"] = {"clusters": [gone]}
    assert account.command("setup", "--cluster", "jobs").returncode == 1


def test_the_setup_goes_on_without_the_right_to_describe_clusters(account: Account) -> None:
    account.proxy.refused = {"DescribeClusters"}
    done = account.command("setup", "--cluster", "jobs")
    assert done.returncode == 0
    assert "1 image" in done.stdout


def test_each_family_has_what_is_wrong_and_what_to_do(account: Account) -> None:
    for family in ("done", "apart", "lost"):
        account.roll_out(family)
    account.ecs.register_task_definition(
        family="apart",
        taskRoleArn=f"arn:aws:iam::{ACCOUNT}:role/jobs",
        containerDefinitions=[
            batch("/ecs/new"),
            {"name": "task-monitor", "image": IMAGE, "memory": 64},
        ],
    )
    account.aws.client("kinesis").create_stream(StreamName="reports", ShardCount=1)
    account.logs.put_subscription_filter(
        logGroupName="/ecs/done",
        filterName="f",
        filterPattern='{ $.type = "task.*" }',
        destinationArn=STREAM,
    )
    last = account.report("done")
    code, found = account.doctor()
    assert code == 1
    states = ("outdated", "current", "current", "missing", "impossible", "wrapper")
    assert {family: one["monitor"] for family, one in found.items()} == dict(
        zip(FAMILIES, states, strict=True)
    )
    assert found["done"] == {
        "family": "done",
        "monitor": "current",
        "role": "jobs",
        "permission": "allowed",
        "logGroup": "/ecs/done",
        "logGroupExists": True,
        "forwardedTo": ["reports"],
        "lastReport": last,
    }
    assert problems(found["apart"]) == [
        "The monitor differs from a newly added one.",
        "The task role jobs does not allow logs:PutLogEvents for the report.",
        "The log group /ecs/new does not exist, so ECS starts no task.",
    ]
    assert problems(found["lost"]) == [
        "The task definition has a task role that does not exist (gone), so ECS starts no task.",
        "No subscription of the log group /ecs/lost forwards reports.",
    ]
    assert problems(found["plain"])[0] == "There is no monitor, so the runs have no report."
    assert "Several containers could be the batch (batch, second)" in problems(found["split"])[0]
    assert problems(found["wrapped"]) == [
        "No subscription of the log group /ecs/wrapped forwards reports."
    ]

    table = account.command("doctor", "--cluster", "jobs")
    assert table.returncode == 1
    advice = "Add it: task-profiler taskdef add-monitor"
    assert f"- plain: There is no monitor, so the runs have no report. {advice}" in table.stdout
    assert "6 families: 5 with a problem." in table.stderr


def test_a_cluster_after_the_rollout_has_no_problem(account: Account) -> None:
    for family in ("lost", "split"):
        account.aws.client("scheduler").delete_schedule(Name=family)
    account.roll_out("*")
    everywhere = {"DestinationArn": FORWARDER, "FilterPattern": ""}
    excluded = 'LogGroupName NOT IN ["/ecs/plain"]'
    account.proxy.answers["DescribeAccountPolicies"] = {
        "accountPolicies": [
            {"policyDocument": json.dumps(everywhere), "selectionCriteria": excluded}
        ]
    }
    account.report("done")
    code, found = account.doctor()
    assert code == 1
    assert set(found) == {"apart", "done", "plain", "wrapped"}
    assert [family for family, one in found.items() if problems(one)] == ["plain"]

    def of_class(asked: dict[str, str]) -> dict[str, Any]:
        group_class = "DELIVERY" if asked["logGroupNamePrefix"] == "/ecs/done" else "STANDARD"
        return {
            "logGroups": [
                {"logGroupName": asked["logGroupNamePrefix"], "logGroupClass": group_class}
            ]
        }

    account.proxy.answers["DescribeLogGroups"] = of_class
    rare = account.doctor()[1]["done"]
    assert "lastReport" not in rare
    assert "forwardedTo" not in rare
    assert rare["logGroupClass"] == "DELIVERY"
    (problem,) = problems(rare)
    assert problem.startswith(
        "The log group /ecs/done has the class DELIVERY, so CloudWatch Logs does not forward"
    )
    del account.proxy.answers["DescribeLogGroups"]

    account.proxy.answers["DescribeAccountPolicies"] = {"accountPolicies": []}
    account.proxy.operations.clear()
    code, found = account.doctor()
    assert code == 0  # nothing is forwarded, and nothing has to be
    assert [one["text"] for one in found["plain"]["findings"]] == [
        "There is no report of the last 8 days."
    ]
    calls = Counter(account.proxy.operations)
    assert calls["DescribeTaskDefinition"] == calls["DescribeSubscriptionFilters"] == 4
    assert (
        calls["FilterLogEvents"] == 1 + 3 * 3
    )  # only groups without a report are read back to the last eight days
    # Of IAM: four to read the shared role, and a simulation for the stream of each family.
    assert calls["POST /"] == 4 + 4


@pytest.mark.parametrize("refused", [{"DescribeAccountPolicies"}, {"DescribeSubscriptionFilters"}])
def test_without_the_right_to_read_subscriptions_the_log_group_is_read(
    account: Account, refused: set[str]
) -> None:
    account.roll_out("done")
    account.report("done")
    account.proxy.refused = refused
    found = account.doctor()[1]["done"]
    assert "lastReport" in found
    texts = [finding["text"] for finding in found.get("findings", ())]
    assert "There is no report of the last 8 days." not in texts


@pytest.mark.slow
def test_a_report_that_another_family_wrote_does_not_hide_that_there_is_none(
    account: Account,
) -> None:
    """The stream is a task's, but not where the definition of the family sends its lines."""
    account.roll_out("done")
    account.roll_out("plain")
    account.report("done", "/ecs/plain")
    account.report("done", prefix="others")
    assert "lastReport" not in account.doctor()[1]["done"]
    reported_at = account.report("done")
    account.report("done", prefix="others")
    assert account.doctor()[1]["done"]["lastReport"] == reported_at


@pytest.mark.slow
def test_a_policy_of_another_name_is_enough(
    account: Account,
) -> None:
    """A policy of another name is enough and what may not be read is unknown."""
    account.roll_out("done")
    account.iam.delete_role_policy(RoleName="jobs", PolicyName="task-profiler")
    assert problems(account.doctor()[1]["done"]) == [
        "The task role jobs does not allow logs:PutLogEvents for the report."
    ]
    statement = {"Effect": "Allow", "Action": ["logs:Put*"], "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    arn = account.iam.create_policy(PolicyName="logs", PolicyDocument=document)["Policy"]["Arn"]
    account.iam.attach_role_policy(RoleName="jobs", PolicyArn=arn)
    assert account.doctor()[1]["done"]["permission"] == "allowed"

    account.aws.client("kinesis").create_stream(StreamName="reports", ShardCount=1)
    account.logs.put_subscription_filter(
        logGroupName="/ecs/wrapped", filterName="f", filterPattern="", destinationArn=STREAM
    )
    account.report("done")
    account.proxy.refused = {"DescribeAccountPolicies"}
    _, found = account.doctor()
    assert (
        problems(found["done"]) == problems(found["wrapped"]) == []
    )  # one for the account may forward it
    assert found["wrapped"]["forwardedTo"] == ["reports"]

    account.proxy.refused = {"DescribeSubscriptionFilters"}
    done = account.command("doctor", "--cluster", "jobs", "--json")
    found = {one["family"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert found["done"]["logGroupExists"]
    assert problems(found["done"]) == []
    assert "The subscriptions of log groups could not be read: AWS refused" in done.stderr

    account.ecs.create_cluster(clusterName="empty")
    done = account.command("doctor", "--cluster", "empty")
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_conditions_of_policies_are_unknown_rather_than_refused(account: Account) -> None:
    account.roll_out("done")
    account.iam.delete_role_policy(RoleName="jobs", PolicyName="task-profiler")
    put = {"Action": "logs:PutLogEvents", "Resource": "*"}
    condition = {"Condition": {"StringEquals": {"aws:RequestedRegion": REGION}}}
    found = []
    for statements in (
        [{"Effect": "Allow", **put, **condition}],
        [{"Effect": "Allow", **put}, {"Effect": "Deny", **put, **condition}],
        [{"Effect": "Allow", **put, **condition}, {"Effect": "Deny", **put}],
        [{"Effect": "Allow", **put}, {"Effect": "Allow", **put, **condition}],
        [{"Effect": "Deny", **put, **condition}],
        [{"Effect": "Allow", **put, "Resource": "arn:aws:logs:*:*:*:${aws:PrincipalTag/team}/*"}],
        [
            {"Effect": "Allow", **put},
            {"Effect": "Deny", **put, "Resource": "arn:aws:logs:*:*:*/batch/0*"},
        ],
        [
            {"Effect": "Allow", **put},
            {"Effect": "Deny", **put, "Resource": "arn:aws:logs:*:*:*/other/*"},
        ],
    ):
        document = json.dumps({"Version": "2012-10-17", "Statement": statements})
        account.iam.put_role_policy(RoleName="jobs", PolicyName="logs", PolicyDocument=document)
        done = account.command("doctor", "--cluster", "jobs", "--json")
        families = {one["family"]: one for one in map(json.loads, done.stdout.splitlines())}
        sentence = (
            "The policies of the role jobs have conditions or variables, which are not evaluated, "
            "or a Deny for a part of the log streams."
        )
        found.append((families["done"]["permission"], sentence in done.stderr))
    assert found == [
        ("unknown", True),
        ("unknown", True),
        ("denied by policy", False),
        ("allowed", False),
        ("denied", False),
        ("unknown", True),
        ("unknown", True),
        ("allowed", False),
    ]


IMAGES = {"Action": ["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]}
PULL = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Action": "ecr:GetAuthorizationToken", "Resource": "*"},
        {"Effect": "Allow", **IMAGES, "Resource": f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository/*"},
    ],
}


@pytest.mark.slow
def test_an_execution_role_that_may_not_pull_the_monitors_image_is_a_problem(
    account: Account,
) -> None:
    account.roll_out("done")
    done = account.ecs.describe_task_definition(taskDefinition="done")["taskDefinition"]
    account.ecs.register_task_definition(
        family="done",
        taskRoleArn=done["taskRoleArn"],
        executionRoleArn=f"arn:aws:iam::{ACCOUNT}:role/service/start",
        containerDefinitions=done["containerDefinitions"],
    )
    refused = f"The execution role start does not allow the pull of the monitor's image ({IMAGE})."
    found = []
    for change in (
        lambda: None,
        lambda: account.iam.create_role(
            RoleName="start", Path="/service/", AssumeRolePolicyDocument="{}"
        ),
        lambda: account.iam.put_role_policy(
            RoleName="start", PolicyName="pull", PolicyDocument=json.dumps(PULL)
        ),
    ):
        change()
        _, families = account.doctor()
        of_family = account.command("doctor", "done", "--json").stdout.splitlines()
        (role,) = [
            one["text"] for one in map(json.loads, of_family) if one["topic"] == "execution role"
        ]
        (planned,) = map(
            json.loads,
            account.command("taskdef", "add-monitor", "done", "--json").stdout.splitlines(),
        )
        notes = [note.startswith(role) for note in planned["notes"]]
        found.append(
            (
                role,
                [text for text in problems(families["done"]) if "execution role" in text],
                any(notes),
            )
        )
    gone = "The execution role start does not exist, so ECS starts no task."
    allowed = "The policies of the execution role start allow the pull of the monitor's image."
    assert found == [(gone, [gone], True), (refused, [refused], True), (allowed, [], False)]


@pytest.mark.parametrize(
    ("repository_policy", "refused", "left_alone"),
    [
        (None, set(), True),
        ("ecr:BatchGetImage", set(), False),
        (None, {"GetRepositoryPolicy"}, False),
        ("ecr:BatchGetImage", {"GetRole"}, False),
    ],
)
def test_a_family_whose_role_may_not_pull_the_image_is_left_alone(
    account: Account, repository_policy: str | None, refused: set[str], *, left_alone: bool
) -> None:
    """Its tasks would not start. A policy of the repository may allow the pull instead, also where
    it is unknown whether a boundary limits the role.
    """
    account.iam.create_role(RoleName="start", AssumeRolePolicyDocument="{}")
    token = {"Effect": "Allow", "Action": "ecr:GetAuthorizationToken", "Resource": "*"}
    account.iam.put_role_policy(
        RoleName="start",
        PolicyName="pull",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [token]}),
    )
    if repository_policy is not None:
        ecr = account.aws.client("ecr")
        allow = {"Effect": "Allow", "Principal": "*", "Action": [repository_policy]}
        ecr.set_repository_policy(
            repositoryName="task-profiler",
            policyText=json.dumps({"Version": "2012-10-17", "Statement": [allow]}),
        )
    account.proxy.refused = refused
    for family in ("bare", "bare-2"):
        account.ecs.register_task_definition(
            family=family,
            executionRoleArn=f"arn:aws:iam::{ACCOUNT}:role/start",
            containerDefinitions=[{"name": "batch", "image": "etl:26", "memory": 256}],
        )
    done = account.command("taskdef", "add-monitor", "bare", "bare-2", "--register")
    assert done.returncode == (1 if left_alone else 0), done.stderr
    arns = account.ecs.list_task_definitions(familyPrefix="bare")["taskDefinitionArns"]
    assert len(arns) == (1 if left_alone else 2)
    assert (
        "bare, bare-2: It is left alone. The execution role start does" in done.stderr
    ) == left_alone
    groups = account.aws.client("logs").describe_log_groups(logGroupNamePrefix="/ecs/bare")
    assert bool(groups["logGroups"]) != left_alone, "nothing is made for it"
    is_unread = "GetRepositoryPolicy" in refused
    assert ("the repository task-profiler could not be read" in done.stderr) == is_unread


def test_a_family_that_is_nearly_right_gets_a_suggestion(account: Account) -> None:
    account.register("nightly")
    done = account.command("doctor", "nighly")
    assert done.returncode == 1
    assert "Did you mean nightly?" in done.stderr
    account.proxy.refused = {"ListTaskDefinitionFamilies"}
    done = account.command("doctor", "nighly")
    assert done.returncode == 1
    assert "There is no task definition 'nighly'" in done.stderr
    assert "Did you mean" not in done.stderr

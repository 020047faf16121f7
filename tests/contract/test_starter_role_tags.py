"""The first tag of a family whose tags a schedule, a rule or a state propagates to its tasks: ECS
asks the role of what starts them for ``ecs:TagResource`` from then on.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.aws_proxy import AwsProxy
from tests.resize_account import ACCOUNT, BATCH, CLUSTER, DEFINITIONS, Account
from tests.role_policies import starter_role
from tools.moto_server import fake_aws

# Of each test, `make test` runs one case: the cases differ by a policy, an answer or a moment.
pytestmark = pytest.mark.diagonal(1)

TASKS = f"arn:aws:ecs:us-east-1:{ACCOUNT}:task"
BY_RUN = {"StringEquals": {"ecs:CreateAction": ["RunTask"]}}
OURS = "task-profiler:resized-from"
ONLY = "ForAllValues:StringEquals"
SAID = f"ecs:TagResource for {OURS}: allow ecs:TagResource on {TASKS}/jobs/*"


def tags(*resources: str, condition: Any = None, **more: Any) -> dict[str, Any]:
    """A statement that lets tasks get tags."""
    conditions = {} if condition is None else {"Condition": condition}
    action = {"Effect": "Allow", "Action": "ecs:TagResource", "Resource": [*resources]}
    return {**action, **conditions, **more}


def outside(*regions: str) -> dict[str, Any]:
    """The statement with which many accounts deny what is done in other Regions."""
    condition = {"StringNotEquals": {"aws:RequestedRegion": [*regions]}}
    return {"Effect": "Deny", "NotAction": "iam:*", "Resource": "*", "Condition": condition}


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    """Two families that need a quarter of their size."""
    with fake_aws() as aws:
        made = Account(aws, tmp_path)
        made.oversized("control", "nightly")
        yield made


def propagating(account: Account, kind: str, definition: str = "nightly", **own: Any) -> str:
    """What starts the family with its tags; the name of its role."""
    own = {"PropagateTags": "TASK_DEFINITION", **own}
    parameters = {"TaskDefinitionArn": f"{DEFINITIONS}/{definition}", **own}
    if kind == "universal":
        account.universal_schedule(
            "night", {"TaskDefinition": definition, "Cluster": "jobs", **own}
        )
        return "schedules"
    if kind == "state":
        account.state_machine("night", {"TaskDefinition": definition, "Cluster": CLUSTER, **own})
        return "machines"
    if kind == "rule":
        account.rule("night", definition, EcsParameters=parameters)
        return "rules"
    role = f"arn:aws:iam::{ACCOUNT}:role/schedules"
    account.aws.client("scheduler").create_schedule(
        Name="night",
        ScheduleExpression="cron(0 3 * * ? *)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": CLUSTER, "RoleArn": role, "EcsParameters": parameters},
    )
    return "schedules"


def allow(account: Account, role: str, *statements: dict[str, Any]) -> None:
    """A role that starts each revision, and may do this beside it."""
    iam = account.aws.client("iam")
    starter_role(iam, role, f"{DEFINITIONS}/*")
    document = json.dumps({"Version": "2012-10-17", "Statement": [*statements]})
    if statements:
        iam.put_role_policy(RoleName=role, PolicyName="tags", PolicyDocument=document)


@pytest.mark.parametrize("kind", ["schedule", "rule", "universal", "state"])
@pytest.mark.parametrize("may_tag", [False, True])
def test_an_untagged_family_gets_no_tag_that_its_starters_may_not_give(
    account: Account, kind: str, *, may_tag: bool
) -> None:
    """The plan says it as the act does."""
    role = propagating(account, kind)
    allow(account, role, *([tags(f"{TASKS}/jobs/*")] if may_tag else ()))
    for words in ((), ("--register",)):
        rows, _ = account.rows(*words)
        assert rows["control"]["action"] == "resize"
        reason = rows["nightly"]["reason"]
        assert (rows["nightly"]["action"] == "resize") is may_tag
        assert (SAID in reason) is not may_tag
        assert ("its new tag would keep the" in reason) is not may_tag
    assert account.newest("control", "nightly") == [2, 1 + may_tag]


@pytest.mark.parametrize(
    ("statements", "is_changed"),
    [
        # The role of the console and of AWS's own policy, CDK's, and Terraform's.
        ((tags("*", condition=BY_RUN),), True),
        ((tags("arn:aws:ecs:us-east-1:*:task/jobs/*"),), True),
        ((tags("*"),), True),
        ((tags("*", Action="*"),), True),
        ((tags("*", Action=["ecs:Tag*", "ecs:RunTask"]),), True),
        # Of other actions, clusters and resources.
        ((), False),
        ((tags("*", condition={"StringEquals": {"ecs:CreateAction": "CreateCluster"}}),), False),
        ((tags(f"{TASKS}/other/*"),), False),
        ((tags(f"arn:aws:ecs:us-east-1:{ACCOUNT}:task-definition/*"),), False),
        ((tags("*", Action="ecs:UntagResource"),), False),
        # By the tags' keys and values.
        ((tags("*", condition={ONLY: {"aws:TagKeys": ["team", "cost"]}}),), False),
        ((tags("*", condition={ONLY: {"aws:TagKeys": ["team", OURS]}}),), True),
        ((tags("*", condition={"ForAllValues:StringLike": {"aws:TagKeys": "task-*"}}),), True),
        ((tags("*", condition={"ForAnyValue:StringEquals": {"aws:TagKeys": "team"}}),), False),
        ((tags("*", condition={"StringEquals": {"aws:RequestTag/team": "etl"}}),), False),
        ((tags("*", condition={"Null": {"aws:RequestTag/team": "true"}}),), True),
        ((tags("*", condition={"StringEqualsIfExists": {"aws:RequestTag/team": "etl"}}),), True),
        # A condition whose value nobody knows here proves nothing.
        ((tags("*", condition={"StringEquals": {"aws:PrincipalTag/team": "etl"}}),), False),
        ((tags("*", condition={"ArnEquals": {"ecs:cluster": CLUSTER}}),), False),
        ((tags("*"), tags("*", Effect="Deny")), False),
        (
            (
                tags("*"),
                tags("*", Effect="Deny", condition={"StringNotLike": {"aws:TagKeys": "team*"}}),
            ),
            False,
        ),
        ((tags("*"), tags(f"{TASKS}/other/*", Effect="Deny")), True),
        # What is known of each request: where it is made, and whose role makes it.
        ((tags("*", condition={"StringEquals": {"aws:PrincipalAccount": ACCOUNT}}),), True),
        ((tags("*", condition={"StringEquals": {"aws:PrincipalAccount": "9" * 12}}),), False),
        ((tags("*"), outside("us-east-1", "eu-west-1")), True),
        ((tags("*"), outside("eu-west-1")), False),
    ],
)
def test_the_right_to_tag_is_read_as_its_author_means_it(
    account: Account, statements: tuple[dict[str, Any], ...], *, is_changed: bool
) -> None:
    allow(account, propagating(account, "schedule"), *statements)
    rows, _ = account.rows("--register")
    assert account.newest("control", "nightly") == [2, 1 + is_changed], rows["nightly"]["reason"]


@pytest.mark.parametrize(
    ("of_definition", "own", "statements", "is_changed"),
    [
        # Its tasks have tags: their role has the right, whatever its policies say.
        (["team"], (), (), True),
        ([], ["team"], (), True),
        (["team"], (), (tags("*", condition={"Bool": {"aws:ViaAWSService": "true"}}),), True),
        # … but for these tags alone.
        (["team"], (), (tags("*", condition={ONLY: {"aws:TagKeys": ["team"]}}),), False),
        ([], ["team"], (tags("*", condition={ONLY: {"aws:TagKeys": ["team"]}}),), False),
        (["team"], (), (tags("*", condition={ONLY: {"aws:TagKeys": ["team", OURS]}}),), True),
        # AWS's own are not propagated.
        (["aws:cloudformation:x"], (), (), False),
    ],
)
def test_tags_that_tasks_have_prove_the_right_to_them(
    account: Account,
    of_definition: list[str],
    own: list[str],
    statements: tuple[dict[str, Any], ...],
    *,
    is_changed: bool,
) -> None:
    role = propagating(account, "rule", Tags=[{"Key": key, "Value": "x"} for key in own])
    allow(account, role, *statements)
    given = [{"key": key, "value": "x"} for key in of_definition]
    account.ecs.tag_resource(resourceArn=f"{DEFINITIONS}/nightly:1", tags=given)
    rows, _ = account.rows("--register")
    assert account.newest("control", "nightly") == [2, 1 + is_changed], rows["nightly"]["reason"]


@pytest.mark.parametrize(
    ("condition", "is_changed"),
    [
        ({ONLY: {"aws:TagKeys": ["team"]}}, False),
        ({ONLY: {"aws:TagKeys": ["team", OURS]}}, True),
        ({"Null": {"aws:TagKeys": "true"}}, False),
        ({"Bool": {"aws:ViaAWSService": "false"}}, True),
        ({"ArnEquals": {"ecs:cluster": CLUSTER}}, True),
    ],
)
def test_a_condition_of_the_start_itself_on_tags_counts(
    account: Account, condition: Any, *, is_changed: bool
) -> None:
    role = propagating(account, "schedule")
    account.aws.client("iam").create_role(RoleName=role, AssumeRolePolicyDocument="{}")
    run = {"Effect": "Allow", "Action": "ecs:RunTask", "Resource": "*", "Condition": condition}
    document = json.dumps({"Version": "2012-10-17", "Statement": [run, tags("*")]})
    iam = account.aws.client("iam")
    iam.put_role_policy(RoleName=role, PolicyName="run", PolicyDocument=document)
    rows, _ = account.rows("--register")
    assert account.newest("control", "nightly") == [2, 1 + is_changed], rows["nightly"]["reason"]
    said = f"does not allow ecs:RunTask for {OURS}"
    assert (said in rows["nightly"]["reason"]) is not is_changed


@pytest.mark.parametrize(
    ("own", "more"),
    [
        ({"PropagateTags": "NONE"}, {}),
        ({"EnableECSManagedTags": True, "PropagateTags": "NONE"}, {}),
        ({}, {"State": "DISABLED"}),
    ],
)
def test_what_gives_no_tag_is_not_asked(
    account: Account, own: dict[str, Any], more: dict[str, str]
) -> None:
    propagating(account, "schedule", **own)
    allow(account, "schedules")
    scheduler = account.aws.client("scheduler")
    present = scheduler.get_schedule(Name="night")
    names = ("Name", "ScheduleExpression", "FlexibleTimeWindow", "Target")
    scheduler.update_schedule(**{name: present[name] for name in names} | more)
    account.rows("--register")
    assert account.newest("control", "nightly") == [2, 2]


def test_managed_tags_prove_no_right_to_others(account: Account) -> None:
    allow(account, propagating(account, "schedule", EnableECSManagedTags=True))
    rows, _ = account.rows("--register")
    assert account.newest("control", "nightly") == [2, 1]
    assert SAID in rows["nightly"]["reason"]


@pytest.mark.parametrize(("pattern", "is_changed"), [("ecs:RunTask", False), ("ecs:*", True)])
def test_a_permissions_boundary_counts(account: Account, pattern: str, *, is_changed: bool) -> None:
    role = propagating(account, "schedule")
    allow(account, role, tags("*"))
    bound(account, role, {"Effect": "Allow", "Action": pattern, "Resource": "*"})
    rows, _ = account.rows("--register")
    assert account.newest("control", "nightly") == [2, 1 + is_changed]
    assert (SAID in rows["nightly"]["reason"]) is not is_changed


@pytest.mark.parametrize("call", ["ListRolePolicies", "GetRole"])
def test_a_role_that_cannot_be_read_proves_no_right_to_tag(account: Account, call: str) -> None:
    allow(account, propagating(account, "schedule"), tags("*"))
    with AwsProxy(account.aws.url) as proxy:

        def refuse(_operation: str, body: bytes) -> None:
            proxy.refused = {"POST /"} if f"Action={call}&".encode() in body else set()

        proxy.before = refuse
        account.url = proxy.url
        done = account.resize("--register")
    assert account.newest("control", "nightly") == [2, 1]
    said = " ".join((done.stdout + done.stderr).split())
    assert "It is unknown whether schedules may give their tasks a new tag: its role" in said
    assert re.search(rf"allow (.*, )?iam:{call}\b", said)


@pytest.mark.parametrize(("tasks", "is_changed"), [("*", True), ("*/*", True), ("jobs/*", False)])
def test_a_cluster_of_an_execution_s_input_is_any(
    account: Account, tasks: str, *, is_changed: bool
) -> None:
    """The role may be allowed to tag in the very cluster that the input names."""
    state = {"TaskDefinition": "nightly", "Cluster.$": "$.cluster"}
    account.state_machine("night", state | {"PropagateTags": "TASK_DEFINITION"})
    allow(account, "machines", tags(f"{TASKS}/{tasks}"))
    rows, _ = account.rows("--register")
    assert account.newest("control", "nightly") == [2, 1 + is_changed]
    reason = rows["nightly"]["reason"]
    said = f"may not allow ecs:TagResource for {OURS}: allow ecs:TagResource on {TASKS}/*/*"
    assert (said in reason) is not is_changed


@pytest.mark.parametrize(("denied", "is_changed"), [("task/prod/*", False), ("task-set/*", True)])
def test_a_cluster_of_an_execution_s_input_may_be_a_denied_one(
    account: Account, denied: str, *, is_changed: bool
) -> None:
    state = {"TaskDefinition": "nightly", "Cluster.$": "$.cluster"}
    account.state_machine("night", state | {"PropagateTags": "TASK_DEFINITION"})
    resource = f"{TASKS.removesuffix('task')}{denied}"
    allow(account, "machines", tags("*"), tags(resource, Effect="Deny"))
    account.rows("--register")
    assert account.newest("control", "nightly") == [2, 1 + is_changed]


def test_the_role_of_many_schedules_is_read_once(account: Account) -> None:
    """IAM allows an account few calls a second."""
    allow(account, propagating(account, "schedule"), tags("*"))
    parameters = {"PropagateTags": "TASK_DEFINITION"}
    for definition in ("nightly", "control"):
        role = f"arn:aws:iam::{ACCOUNT}:role/schedules"
        parameters["TaskDefinitionArn"] = f"{DEFINITIONS}/{definition}"
        account.rule(f"of-{definition}", definition, RoleArn=role, EcsParameters=parameters)
    with AwsProxy(account.aws.url) as proxy:
        account.url = proxy.url
        rows, _ = account.rows()
        bodies = [body for _, body in proxy.bodies if b"Action=GetRole&" in body]
    assert {rows[family]["action"] for family in ("control", "nightly")} == {"resize"}
    assert len(bodies) == 1


@pytest.mark.parametrize("may_tag", [False, True])
def test_a_pinned_schedule_is_not_moved_to_a_tag_that_it_may_not_give(
    account: Account, *, may_tag: bool
) -> None:
    """Nothing else starts the family: its new revision harms nobody."""
    role = propagating(account, "schedule", "nightly:1")
    allow(account, role, *([tags("*")] if may_tag else ()))
    done = account.resize("--register", "--update-schedules")
    assert done.returncode == 0, done.stderr
    assert account.newest("control", "nightly") == [2, 2]
    assert account.started_by_schedule("night") == f"nightly:{1 + may_tag}"
    assert ("schedule night skipped: it gives its tasks" in done.stdout) is not may_tag


@pytest.mark.parametrize("may_tag", [False, True])
def test_a_schedule_that_is_moved_later_is_asked_as_well(
    account: Account, *, may_tag: bool
) -> None:
    """Its family got the tag in an earlier call, which left the schedule where it was."""
    role = propagating(account, "schedule", "nightly:1")
    allow(account, role, *([tags("*")] if may_tag else ()))
    assert account.resize("--register").returncode == 0
    done = account.resize("nightly", "--register", "--update-schedules")
    assert done.returncode == 0, done.stderr
    assert account.newest("control", "nightly") == [2, 2]
    assert account.started_by_schedule("night") == f"nightly:{1 + may_tag}"


def test_a_monitor_asks_for_no_right_to_tag(account: Account) -> None:
    account.family("plain", containerDefinitions=[BATCH])
    allow(account, propagating(account, "schedule", "plain"))
    words = ("add-monitor", "plain", "--image", "team/task-profiler:1", "--register")
    done = account.command("taskdef", *words)
    assert done.returncode == 0, done.stderr
    assert account.newest("plain") == [2]


def bound(account: Account, role: str, statement: dict[str, Any]) -> None:
    """Give a role a permissions boundary."""
    iam = account.aws.client("iam")
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    made = iam.create_policy(PolicyName="boundary", PolicyDocument=document)["Policy"]
    iam.put_role_permissions_boundary(RoleName=role, PermissionsBoundary=made["Arn"])

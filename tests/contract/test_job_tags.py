"""The first tag of a job definition whose tags go to its jobs' tasks (``propagateTags``): ECS asks
the service role of the compute environment, with which AWS Batch starts them, for
``ecs:TagResource`` from then on.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.aws_proxy import AwsProxy
from tests.batch_jobs import ACCOUNT, REGION
from tests.fake_batch import FakeBatch
from tests.job_account import JobAccount
from tools.moto_server import fake_aws

# Of each test, `make test` runs one case: the cases differ by a policy, an answer or a moment.
pytestmark = pytest.mark.diagonal(1)

TASKS = f"arn:aws:ecs:{REGION}:{ACCOUNT}:task"
CLUSTER = "AWSBatch-own-0a1b2c3d-1111-2222-3333-444455556666"
SERVICE_ROLE = f"arn:aws:iam::{ACCOUNT}:role/service-role/batch-own"
LINKED_ROLE = (
    f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/batch.amazonaws.com/AWSServiceRoleForBatch"
)
OURS = "task-profiler:resized-from"
SAID = (
    f"the service role batch-own of the queue nightly does not allow ecs:TagResource for {OURS}: "
    f"allow ecs:TagResource on {TASKS}/{CLUSTER}/*"
)
ONLY = "ForAllValues:StringEquals"


def tags(resource: str, condition: Any = None, **more: Any) -> dict[str, Any]:
    """A statement that lets tasks get tags."""
    conditions = {} if condition is None else {"Condition": condition}
    action = {"Effect": "Allow", "Action": "ecs:TagResource", "Resource": resource}
    return {**action, **conditions, **more}


@pytest.fixture
def account(tmp_path: Path) -> Iterator[JobAccount]:
    """A queue with one environment, and a definition that stays untagged beside those of a test."""
    with fake_aws() as aws, FakeBatch() as batch:
        made = JobAccount(aws, batch, tmp_path)
        batch.add_environment("own", serviceRole=SERVICE_ROLE)
        batch.add_queue("nightly", "own")
        made.oversized("control")
        yield made


def nightly(account: JobAccount, **more: Any) -> None:
    """A definition whose jobs need a quarter of their size."""
    account.batch.define("nightly", **{"propagateTags": True, **more})
    account.runs("nightly", 25)


def allow(account: JobAccount, *statements: dict[str, Any]) -> None:
    """The service role, which may start tasks, and this beside it."""
    iam = account.aws.client("iam")
    run = {"Effect": "Allow", "Action": ["ecs:RunTask", "ecs:List*"], "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [run, *statements]})
    iam.create_role(Path="/service-role/", RoleName="batch-own", AssumeRolePolicyDocument="{}")
    iam.put_role_policy(RoleName="batch-own", PolicyName="own", PolicyDocument=document)


def registered(account: JobAccount) -> list[int]:
    """The newest revisions of the control and of the definition."""
    return [int(account.newest(name)["revision"]) for name in ("control", "nightly")]


@pytest.mark.parametrize("kind", ["schedule", "rule", "state"])
@pytest.mark.parametrize("may_tag", [False, True])
def test_an_untagged_definition_gets_no_tag_that_batch_may_not_give(
    account: JobAccount, kind: str, *, may_tag: bool
) -> None:
    """The plan says it as the act does."""
    nightly(account)
    starters = {
        "schedule": account.schedule,
        "rule": account.rule,
        "state": account.state_machine,
    }
    starters[kind]("night", "nightly")
    allow(account, *([tags(f"{TASKS}/AWSBatch-*")] if may_tag else ()))
    for words in ((), ("--register",)):
        rows, _ = account.rows(*words)
        assert rows["control"]["action"] == "resize"
        assert (rows["nightly"]["action"] == "resize") is may_tag, rows["nightly"]
        assert (SAID in rows["nightly"]["reason"]) is not may_tag
    assert registered(account) == [2, 1 + may_tag]


@pytest.mark.parametrize(
    ("statement", "is_changed"),
    [
        # AWS's own policy for such roles names the clusters that AWS Batch makes today.
        (tags("arn:aws:ecs:*:*:task/*_Batch_*"), False),
        (tags("arn:aws:ecs:*:*:task/AWSBatch-own-*"), True),
        (tags("*", {"StringEquals": {"ecs:CreateAction": "RunTask"}}), True),
        (tags("*", {"StringEquals": {"ecs:CreateAction": "CreateCluster"}}), False),
        (tags(f"{TASKS}/AWSBatch-other-*"), False),
        (tags("*", {ONLY: {"aws:TagKeys": ["team"]}}), False),
        (tags("*", Effect="Deny"), False),
    ],
)
def test_the_right_to_tag_is_that_of_the_environment_s_tasks(
    account: JobAccount, statement: dict[str, Any], *, is_changed: bool
) -> None:
    nightly(account)
    account.schedule("night", "nightly")
    allow(account, statement)
    rows, _ = account.rows("--register")
    assert registered(account) == [2, 1 + is_changed], rows["nightly"]["reason"]


@pytest.mark.parametrize(
    ("definition", "submission"),
    [
        ({"propagateTags": False}, {}),
        ({"propagateTags": True}, {"PropagateTags": False}),
        # Its tasks have tags: the role has the right, whatever its policies say.
        ({"tags": {"team": "etl"}}, {}),
        ({}, {"Tags": {"team": "etl"}}),
    ],
)
def test_what_gives_no_first_tag_is_left_as_it_is(
    account: JobAccount, definition: dict[str, Any], submission: dict[str, Any]
) -> None:
    nightly(account, **definition)
    account.schedule("night", "nightly", **submission)
    allow(account)
    account.rows("--register")
    assert registered(account) == [2, 2]


@pytest.mark.parametrize(
    ("definition", "submission"),
    [
        ({"propagateTags": False}, {"PropagateTags": True}),
        ({"tags": {"aws:cloudformation:stack-id": "x"}}, {}),
        ({"tags": {"team": "etl"}}, {}),
        ({}, {"Tags": {"team": "etl"}}),
    ],
)
def test_a_tag_beside_those_that_a_role_may_give_is_refused(
    account: JobAccount, definition: dict[str, Any], submission: dict[str, Any]
) -> None:
    nightly(account, **definition)
    account.schedule("night", "nightly", **submission)
    allow(account, tags("*", {ONLY: {"aws:TagKeys": ["team"]}}))
    rows, _ = account.rows("--register")
    assert registered(account) == [2, 1]
    assert SAID in rows["nightly"]["reason"]


@pytest.mark.parametrize(
    ("environment", "is_changed"),
    [
        ({"serviceRole": LINKED_ROLE}, True),
        ({"serviceRole": SERVICE_ROLE, "state": "DISABLED"}, True),
        ({"serviceRole": SERVICE_ROLE, "containerOrchestrationType": "EKS"}, True),
        ({"serviceRole": SERVICE_ROLE}, False),
    ],
)
def test_each_environment_counts_in_which_a_job_may_be_placed(
    account: JobAccount, environment: dict[str, Any], *, is_changed: bool
) -> None:
    """The second one of the queue; the first has the role that AWS keeps."""
    account.batch.add_environment("linked", serviceRole=LINKED_ROLE)
    account.batch.add_environment("own", **environment)
    if environment.get("containerOrchestrationType") == "EKS":
        del account.batch.environments["own"]["ecsClusterArn"]
    account.batch.add_queue("nightly", "linked", "own")
    nightly(account)
    account.schedule("night", "nightly")
    allow(account)
    rows, _ = account.rows("--register")
    assert registered(account) == [2, 1 + is_changed], rows["nightly"]["reason"]


def test_environments_that_cannot_be_read_prove_no_right_to_tag(account: JobAccount) -> None:
    nightly(account)
    account.schedule("night", "nightly")
    allow(account, tags("*"))
    account.batch.refused.add("DescribeComputeEnvironments")
    done = account.resize("--register")
    assert registered(account) == [2, 1]
    said = " ".join((done.stdout + done.stderr).split())
    assert "The environments of the queue nightly could not be read" in said


@pytest.mark.parametrize("call", ["ListRolePolicies", "GetRole"])
def test_a_role_that_cannot_be_read_proves_no_right_to_tag(account: JobAccount, call: str) -> None:
    nightly(account)
    account.schedule("night", "nightly")
    allow(account, tags("*"))
    with AwsProxy(account.aws.url) as proxy:

        def refuse(_operation: str, body: bytes) -> None:
            is_of_service = f"Action={call}&".encode() in body and b"RoleName=batch-own" in body
            proxy.refused = {"POST /"} if is_of_service else set()

        proxy.before = refuse
        account.url = proxy.url
        done = account.resize("--register")
    assert registered(account) == [2, 1]
    said = " ".join((done.stdout + done.stderr).split())
    assert "It is unknown whether AWS Batch may give jobs a new tag: its role batch-own" in said

"""What the policies of a starter's role say about one revision, as their authors write them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from profiler.aws_account.policy_verdicts import PolicyQuestion, statement_effects
from profiler.aws_account.report_prerequisites import ReportPathReader
from tools.moto_server import FakeAws, fake_aws

DEFINITIONS = "arn:aws:ecs:us-east-1:123456789012:task-definition"
PRESENT, NEW = f"{DEFINITIONS}/nightly:9", f"{DEFINITIONS}/nightly:10"
CLUSTER = {"Condition": {"ArnLike": {"ecs:cluster": "arn:aws:ecs:*:*:cluster/jobs"}}}
ANY = {"Effect": "Allow", "Action": "*", "Resource": "*"}


def run(*resources: str, **more: Any) -> dict[str, Any]:
    """A statement that allows these task definitions."""
    return {"Effect": "Allow", "Action": "ecs:RunTask", "Resource": [*resources], **more}


def deny(**more: Any) -> dict[str, Any]:
    return {"Effect": "Deny", "Action": "ecs:RunTask", **more}


@pytest.fixture(scope="module")
def aws() -> Iterator[FakeAws]:
    with fake_aws() as made:
        yield made


@pytest.mark.parametrize(
    ("statements", "present", "new"),
    [
        # CDK's targets for EventBridge and Scheduler, and Terraform's reference to the resource.
        ([run(PRESENT)], "yes", "no"),
        # The console's, which names all revisions beside the family.
        (
            [run(f"{DEFINITIONS}/nightly:*", f"{DEFINITIONS}/nightly", **CLUSTER)],
            "unknown",
            "unknown",
        ),
        ([run("arn:aws:ecs:*:123456789012:task-definition/nightly:*")], "yes", "yes"),
        # A family alone names no revision.
        ([run(f"{DEFINITIONS}/nightly")], "no", "no"),
        # One digit, and two.
        ([run(f"{DEFINITIONS}/nightly:?")], "yes", "no"),
        ([run(f"{DEFINITIONS}/nightly:1?")], "no", "yes"),
        ([run(f"{DEFINITIONS}/night*")], "yes", "yes"),
        ([run(PRESENT, Action="ECS:runtask")], "yes", "no"),
        ([run(PRESENT, Action=["ecs:DescribeTasks", "ecs:Run*"])], "yes", "no"),
        ([run(PRESENT, Action=["ecs:DescribeTasks"])], "no", "no"),
        # A statement without a list, a resource without one.
        (run(PRESENT) | {"Resource": PRESENT}, "yes", "no"),
        ([{"Effect": "Allow", "NotAction": "iam:*", "Resource": PRESENT}], "yes", "no"),
        ([{"Effect": "Allow", "NotAction": "ecs:*", "Resource": "*"}], "no", "no"),
        ([{"Effect": "Allow", "Action": "ecs:*", "NotResource": NEW}], "yes", "no"),
        (
            [{"Effect": "Allow", "Action": "ecs:*", "NotResource": f"{DEFINITIONS}/other:*"}],
            "yes",
            "yes",
        ),
        ([ANY, deny(Resource=NEW)], "yes", "no"),
        ([ANY, deny(NotResource=PRESENT)], "yes", "no"),
        ([ANY, deny(NotResource=f"{DEFINITIONS}/nightly:*")], "yes", "yes"),
        ([ANY, deny(Resource="*", **CLUSTER)], "unknown", "unknown"),
        ([ANY, deny(Resource=f"{DEFINITIONS}/${{aws:PrincipalTag/family}}:10")], "yes", "unknown"),
        ([run(f"{DEFINITIONS}/${{aws:PrincipalTag/family}}:*")], "unknown", "unknown"),
        ([run(f"{DEFINITIONS}/${{aws:PrincipalTag/family}}:9")], "unknown", "no"),
        # Two statements of which the conditional one has the new revision, too.
        ([run(PRESENT), run(f"{DEFINITIONS}/nightly:*", **CLUSTER)], "yes", "unknown"),
        # The families of other names, accounts, Regions and partitions.
        ([run(f"{DEFINITIONS}/nightly-old:*", f"{DEFINITIONS}/my-nightly:*")], "no", "no"),
        ([run("arn:aws:ecs:us-east-1:999999999999:task-definition/nightly:*")], "no", "no"),
        ([run("arn:aws:ecs:eu-west-1:123456789012:task-definition/nightly:*")], "no", "no"),
        ([run("arn:aws-cn:ecs:us-east-1:123456789012:task-definition/nightly:*")], "no", "no"),
    ],
)
def test_a_policy_allows_what_its_author_means(
    aws: FakeAws, statements: Any, present: str, new: str
) -> None:
    iam = aws.client("iam")
    role = new_role(aws)
    iam.put_role_policy(RoleName=role, PolicyName="run", PolicyDocument=document(statements))
    assert allowed(aws, role) == [present, new]


@pytest.mark.parametrize("is_newer", [False, True])
def test_the_version_of_a_managed_policy_counts_that_is_its_default(
    aws: FakeAws, *, is_newer: bool
) -> None:
    iam = aws.client("iam")
    role = new_role(aws)
    made = iam.create_policy(PolicyName=role, PolicyDocument=document([run(PRESENT)]))
    arn = made["Policy"]["Arn"]
    iam.create_policy_version(PolicyArn=arn, PolicyDocument=document([ANY]), SetAsDefault=is_newer)
    iam.attach_role_policy(RoleName=role, PolicyArn=arn)
    assert allowed(aws, role) == ["yes", "yes" if is_newer else "no"]


def document(statements: Any) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def new_role(aws: FakeAws) -> str:
    """The name of a role as the console makes it, with a path."""
    iam = aws.client("iam")
    name = f"role-{len(iam.list_roles(MaxItems=1000)['Roles'])}"
    iam.create_role(Path="/service-role/", RoleName=name, AssumeRolePolicyDocument="{}")
    return name


def allowed(aws: FakeAws, role: str) -> list[str]:
    paths = ReportPathReader(aws.client)
    (policies,) = paths.policies_that_must_allow(role, with_boundary=True)
    words = {"allowed": "yes", "unknown": "unknown", "denied": "no", "denied by policy": "no"}
    return [
        words[
            statement_effects(
                policies, PolicyQuestion(action="ecs:RunTask", resource=revision)
            ).verdict
        ]
        for revision in (PRESENT, NEW)
    ]

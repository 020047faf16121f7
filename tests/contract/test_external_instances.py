"""``taskdef add-monitor`` of definitions for external instances, which have no role of their own
for images and logs.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.resize_account import ACCOUNT, BATCH, Account
from tools.moto_server import fake_aws, push_image

SPLUNK = {"logConfiguration": {"logDriver": "splunk", "options": {}}}
PULL = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "ecr:*", "Resource": "*"}],
}
PUBLIC = "public.ecr.aws/team/task-profiler:1"


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    with fake_aws() as aws:
        push_image(aws)
        yield Account(aws, tmp_path)


@pytest.mark.parametrize(
    ("compatibilities", "batch", "image", "lack"),
    [
        (["EXTERNAL"], BATCH, "", "an external instance pulls no image from Amazon ECR ("),
        (
            ["EXTERNAL"],
            {**BATCH, **SPLUNK},
            PUBLIC,
            "an external instance writes no log by awslogs",
        ),
        (["EXTERNAL"], BATCH, PUBLIC, None),  # as its batch does
        (["EC2"], {**BATCH, **SPLUNK}, "", None),  # by the role of the instance
        (["EC2", "EXTERNAL"], BATCH, "", None),  # perhaps on EC2
    ],
)
def test_a_monitor_that_an_external_instance_cannot_start_is_not_registered(
    account: Account,
    compatibilities: list[str],
    batch: dict[str, Any],
    image: str,
    lack: str | None,
) -> None:
    """The control gets a role."""
    given: dict[str, Any] = {
        "containerDefinitions": [batch],
        "requiresCompatibilities": compatibilities,
    }
    account.family("nightly", **given)
    words = ("taskdef", "add-monitor", "nightly", *(["--image", image] if image else []))
    done = account.command(*words, "--register")
    said = " ".join(f"{done.stdout} {done.stderr}".split())
    if lack is None:
        assert (done.returncode, account.newest("nightly")) == (0, [2]), said
        return
    assert (done.returncode, account.newest("nightly")) == (1, [1])
    assert f"The definition has no executionRoleArn, without which {lack}" in said
    role = f"arn:aws:iam::{ACCOUNT}:role/execution"
    account.family("nightly", executionRoleArn=role, **given)
    account.aws.client("iam").create_role(RoleName="execution", AssumeRolePolicyDocument="{}")
    account.aws.client("iam").put_role_policy(
        RoleName="execution", PolicyName="pull", PolicyDocument=json.dumps(PULL)
    )
    done = account.command(*words, "--register")
    assert (done.returncode, account.newest("nightly")) == (0, [3]), done.stdout

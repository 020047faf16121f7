"""Roles of schedules."""

import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qs

from profiler.core.aws_clients import AwsClient


def starter_role(
    iam: AwsClient, name: str, *resources: str, action: str = "ecs:RunTask", **more: Any
) -> str:
    """A role that may start these revisions, by an attached policy; it has an inline one, too."""
    role = iam.create_role(Path="/team/", RoleName=name, AssumeRolePolicyDocument="{}")["Role"]
    start = {"Effect": "Allow", "Action": action, "Resource": [*resources], **more}
    other = {"Effect": "Allow", "Action": "iam:PassRole", "Resource": "*"}
    made = iam.create_policy(PolicyName=name, PolicyDocument=_document(start))
    iam.attach_role_policy(RoleName=name, PolicyArn=made["Policy"]["Arn"])
    iam.put_role_policy(RoleName=name, PolicyName="pass", PolicyDocument=_document(other))
    return str(role["Arn"])


def _document(statement: Mapping[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def iam_actions(bodies: Iterable[tuple[str, bytes]]) -> set[str]:
    """The actions of IAM of the requests that a proxy has passed on, which are forms."""
    return {
        f"iam:{parse_qs(body.decode())['Action'][0]}"
        for _, body in bodies
        if b"Version=2010-05-08" in body
    }

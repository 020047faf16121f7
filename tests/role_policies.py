"""The inline policies of a role that ``add-monitor --attach-policy`` has made."""

from collections.abc import Mapping
from typing import Any

from profiler.core.aws_clients import AwsClient


def our_policies(iam: AwsClient, role: str) -> Mapping[str, Any]:
    """The documents by their names."""
    names = iam.list_role_policies(RoleName=role)["PolicyNames"]
    return {
        name: iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
        for name in names
        if name.startswith("task-profiler")
    }


def take_our_policies(iam: AwsClient, role: str) -> None:
    """Let somebody delete them; there is one at least."""
    names = list(our_policies(iam, role))
    assert names
    for name in names:
        iam.delete_role_policy(RoleName=role, PolicyName=name)


def allowed_streams(iam: AwsClient, role: str) -> list[str]:
    """The log streams of our statements."""
    return sorted(
        resource
        for document in our_policies(iam, role).values()
        for statement in document["Statement"]
        if statement["Action"] == "logs:PutLogEvents"
        for resource in statement["Resource"]
    )


def allowed_groups(iam: AwsClient, role: str) -> list[str]:
    streams = allowed_streams(iam, role)
    return sorted(one.split(":log-group:")[1].split(":")[0] for one in streams)

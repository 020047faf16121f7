"""Attaches to task roles the policy that lets the monitor write the report."""

import json
from collections.abc import Mapping

from profiler.aws_account.aws_errors import aws_errors
from profiler.core.aws_clients import AwsClient
from profiler.task_definitions.permissions import POLICY_NAME, merged_policy, read_policy


def attach_policy(iam: AwsClient, role: str, streams: frozenset[str]) -> bool:
    """Allow PutLogEvents for these log streams. Returns False if the role allows them already."""
    with aws_errors(f"The policy of the role {role!r} was not changed"):
        existing = _existing_policy(iam, role)
        merged = merged_policy(existing, streams)
        if merged == existing:
            return False
        iam.put_role_policy(RoleName=role, PolicyName=POLICY_NAME, PolicyDocument=json.dumps(merged))
    return True


def _existing_policy(iam: AwsClient, role: str) -> Mapping[str, object] | None:
    try:
        return read_policy(iam.get_role_policy(RoleName=role, PolicyName=POLICY_NAME)["PolicyDocument"])
    except iam.exceptions.NoSuchEntityException:
        return None

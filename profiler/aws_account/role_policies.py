"""Plans and attaches the policy that lets the monitors of a task role write their reports."""

import json
from collections.abc import Iterator, Mapping

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.core.aws_clients import AwsClient
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping
from profiler.task_definitions.permissions import (
    MAX_INLINE_CHARACTERS,
    POLICY_NAME,
    characters,
    log_groups_of,
    merged_policy,
)

_MAX_NAMED = 5


class RolePolicy(Struct, frozen=True, kw_only=True):
    """The planned inline policy ``task-profiler`` of a role.

    ``document`` None: the role allows all streams already. ``note`` lists the prefixes that replace log streams.
    """

    role: str
    document: Mapping[str, object] | None = None
    note: str | None = None


def plan_policy(open_client: OpenClient, role: str, streams: frozenset[str]) -> RolePolicy:
    """The policy that allows these streams, too. The role is read, and does not change. Raises TaskProfilerError."""
    iam = open_client("iam")
    with aws_errors(f"The policy of the role {role!r} was not changed", "iam:GetRolePolicy and iam:ListRolePolicies"):
        existing = inline_policy(iam, role, POLICY_NAME)
        planned = planned_policy(role, streams, existing)
        if planned.document is None:
            return planned
        others = sum(characters(document) for document in inline_policies(iam, role, without=POLICY_NAME))
    return planned_policy(role, streams, existing, other_characters=others)


def attach_policy(open_client: OpenClient, policy: RolePolicy) -> bool:
    """Write the policy. Returns False if nothing changes. Raises TaskProfilerError."""
    if policy.document is None:
        return False
    with aws_errors(f"The policy of the role {policy.role!r} was not changed", "iam:PutRolePolicy"):
        open_client("iam").put_role_policy(
            RoleName=policy.role, PolicyName=POLICY_NAME, PolicyDocument=json.dumps(policy.document)
        )
    return True


def inline_policies(iam: AwsClient, role: str, *, without: str | None = None) -> Iterator[Mapping[str, object]]:
    """The documents of a role's inline policies. Raises boto3's errors, also if the role does not exist."""
    for page in iam.get_paginator("list_role_policies").paginate(RoleName=role):
        for name in page["PolicyNames"]:
            document = None if name == without else inline_policy(iam, role, name)
            if document is not None:
                yield document


def inline_policy(iam: AwsClient, role: str, name: str) -> Mapping[str, object] | None:
    """The document of a role's inline policy; None if there is none."""
    try:
        return mapping(iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"])
    except iam.exceptions.NoSuchEntityException:
        return None


def planned_policy(
    role: str, streams: frozenset[str], existing: Mapping[str, object] | None = None, *, other_characters: int = 0
) -> RolePolicy:
    """The policy of a role. Raises TaskProfilerError if IAM would not accept it."""
    try:
        merged = merged_policy(existing, streams, other_characters=other_characters)
    except TaskProfilerError as error:
        raise TaskProfilerError(f"The policy of the role {role!r} was not changed. {error}") from error
    if merged.document is existing:
        return RolePolicy(role=role)
    if not merged.prefixes:
        return RolePolicy(role=role, document=merged.document)
    named = log_groups_of(merged.prefixes)
    more = f" and {len(named) - _MAX_NAMED} more" if len(named) > _MAX_NAMED else ""
    note = (
        f"The role {role} would need a policy of {merged.exact_characters:,} characters, and IAM allows "
        f"{MAX_INLINE_CHARACTERS:,} in a role's inline policies, so the policy gets prefixes of log groups: "
        f"{', '.join(named[:_MAX_NAMED])}{more}."
    )
    return RolePolicy(role=role, document=merged.document, note=note)

"""The policy with which task roles let the monitor put the report: prints it, and attaches it to roles."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from profiler.cli.taskdef.ecs import translate_errors
from profiler.cli.taskdef.plan import PlannedFamily
from profiler.core.errors import TaskProfilerError
from profiler.taskdef.permissions import POLICY_NAME, merged_policy, policy, read_policy

_MISSING = "NoSuchEntity"


def print_policy(planned: Sequence[PlannedFamily]) -> None:
    """Print the policy that all planned families need. Raises TaskProfilerError if they need none."""
    streams = frozenset[str]().union(*(one.change.streams for one in planned if one.change is not None))
    if not streams:
        raise TaskProfilerError(
            "No selected family needs a permission, because no report is put into a batch's log stream: look at "
            "the plan."
        )
    click.echo(json.dumps(policy(streams), indent=2))


def attach_policy(iam: Any, role: str, streams: frozenset[str]) -> bool:  # noqa: ANN401  as in ecs.py
    """Allow the put into these log streams. Returns False if the role allows it already. Raises TaskProfilerError."""
    with translate_errors(f"the policy of the role {role!r} was not changed"):
        existing = _existing_policy(iam, role)
        merged = merged_policy(existing, streams)
        if merged == existing:
            return False
        iam.put_role_policy(RoleName=role, PolicyName=POLICY_NAME, PolicyDocument=json.dumps(merged))
    return True


def _existing_policy(iam: Any, role: str) -> Mapping[str, object] | None:  # noqa: ANN401  as above
    try:
        return read_policy(iam.get_role_policy(RoleName=role, PolicyName=POLICY_NAME)["PolicyDocument"])
    except iam.exceptions.ClientError as error:
        if error.response["Error"]["Code"] != _MISSING:
            raise
        return None

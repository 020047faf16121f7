"""What the report of a task needs in AWS: the permission of its role, its log group, and a subscription of it."""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache, cached_property
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.core.ecs_terms import arn_part
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping, mappings
from profiler.task_definitions.permissions import POLICY_NAME, is_allowed, read_policy

Permission = Literal["allowed", "denied", "no role", "unknown"]
_Policies: TypeAlias = tuple[Mapping[str, object], ...]
_PUT = "logs:PutLogEvents"
_REPORTS = "task."


class LogGroupState(Struct, frozen=True, kw_only=True):
    """Whether a log group exists, and the names of what its reports are forwarded to. ``exists`` None: unknown."""

    exists: bool | None
    forwarded_to: tuple[str, ...] = ()


class ReportPaths:
    """Reads roles, log groups and subscriptions, each once. What cannot be read is unknown, with one sentence.

    Args:
        open_client: Makes boto3's client of a service.

    Attributes:
        log_group: (name) The state of a log group: one call.
        problems: Sentences about what could not be read.
    """

    def __init__(self, open_client: OpenClient) -> None:
        self._open = open_client
        self._own_policy = cache(self._read_own_policy)
        self._policies_of = cache(self._read_policies)
        self._managed_policy = cache(self._read_managed_policy)
        self.log_group = cache(self._read_log_group)
        self.problems: set[str] = set()

    def permission(self, role: str, streams: frozenset[str]) -> Permission:
        """Whether the policies of a role allow the report. Boundaries, and policies of the organization, do not count.

        One call for a role with the policy of add-monitor; several for another.
        """
        try:
            with aws_errors("The task roles could not be read"):
                for read in (self._own_policy, self._policies_of):
                    documents = read(role)
                    if documents is None:
                        return "no role"
                    if _allows(documents, streams):
                        return "allowed"
                return "denied"
        except TaskProfilerError as error:
            self.problems.add(str(error))
            return "unknown"

    def _read_log_group(self, name: str) -> LogGroupState:
        logs = self._open("logs")
        found: list[Mapping[str, Any]] = []
        try:
            with aws_errors("The subscriptions of log groups could not be read"):
                try:
                    for page in logs.get_paginator("describe_subscription_filters").paginate(logGroupName=name):
                        found += page["subscriptionFilters"]
                except logs.exceptions.ResourceNotFoundException:
                    return LogGroupState(exists=False)
        except TaskProfilerError as error:
            self.problems.add(str(error))
            return LogGroupState(exists=None)
        forwarded = [_name(one["destinationArn"]) for one in found if _passes(one.get("filterPattern"))]
        forwarded += [
            _name(str(document.get("DestinationArn")))
            for document, excluded in self._of_account
            if f'"{name}"' not in excluded and _passes(document.get("FilterPattern"))
        ]
        return LogGroupState(exists=True, forwarded_to=tuple(dict.fromkeys(forwarded)))

    @cached_property
    def _of_account(self) -> tuple[tuple[Mapping[str, object], str], ...]:
        """The account-wide subscriptions, each with the criteria that exclude log groups."""
        try:
            with aws_errors("The account-wide subscriptions could not be read"):
                response = self._open("logs").describe_account_policies(policyType="SUBSCRIPTION_FILTER_POLICY")
        except TaskProfilerError as error:
            self.problems.add(str(error))
            return ()
        policies = response.get("accountPolicies", ())
        return tuple((mapping(json.loads(one["policyDocument"])), one.get("selectionCriteria", "")) for one in policies)

    def _read_own_policy(self, role: str) -> _Policies:
        iam = self._open("iam")
        try:
            return (read_policy(iam.get_role_policy(RoleName=role, PolicyName=POLICY_NAME)["PolicyDocument"]),)
        except iam.exceptions.NoSuchEntityException:
            return ()

    def _read_policies(self, role: str) -> _Policies | None:
        """All policies of a role; None if there is no such role."""
        iam = self._open("iam")
        documents: list[Mapping[str, object]] = []
        try:
            for page in iam.get_paginator("list_role_policies").paginate(RoleName=role):
                for name in page["PolicyNames"]:
                    inline = iam.get_role_policy(RoleName=role, PolicyName=name)
                    documents.append(read_policy(inline["PolicyDocument"]))
            for page in iam.get_paginator("list_attached_role_policies").paginate(RoleName=role):
                documents += [self._managed_policy(one["PolicyArn"]) for one in page["AttachedPolicies"]]
        except iam.exceptions.NoSuchEntityException:
            return None
        return tuple(documents)

    def _read_managed_policy(self, arn: str) -> Mapping[str, object]:
        iam = self._open("iam")
        version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
        return read_policy(iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"])


def _allows(documents: _Policies, streams: frozenset[str]) -> bool:
    """Whether statements without a condition allow the put into all streams, and none without a condition denies it."""
    statements = [one for document in documents for one in _listed(document.get("Statement")) if isinstance(one, dict)]
    puts = [one for one in mappings(statements) if "Condition" not in one and _is_put(one)]
    allowed = [str(arn) for one in puts if one.get("Effect") == "Allow" for arn in _listed(one.get("Resource"))]
    denied = [str(arn) for one in puts if one.get("Effect") == "Deny" for arn in _listed(one.get("Resource"))]
    return all(is_allowed(stream, allowed) and not is_allowed(stream, denied) for stream in streams)


def _is_put(statement: Mapping[str, object]) -> bool:
    return any(fnmatchcase(_PUT.lower(), str(action).lower()) for action in _listed(statement.get("Action")))


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else [value]


def _passes(pattern: object) -> bool:
    """Whether a filter pattern passes reports on: all lines, or those of the monitor."""
    return not pattern or _REPORTS in str(pattern)


def _name(arn: str) -> str:
    """The name of a function, a data stream or a destination."""
    resource = arn_part(arn, 5) or arn
    return resource.replace("/", ":").rpartition(":")[2]

"""Whether a stack of CloudFormation owns a task definition, a job definition, a schedule, a rule or
a role.

CloudFormation tags definitions only since 2026, and schedules never, so it is asked. An id of a
stack's resource is the ARN of a definition, the name of a schedule or a role, and the name of a
rule, which has ``BUS|`` before it on another bus than the default one.
https://docs.aws.amazon.com/AWSCloudFormation/latest/APIReference/API_DescribeStackResources.html
https://docs.aws.amazon.com/AWSCloudFormation/latest/APIReference/API_ListStackResources.html

DescribeStackResources answers about one id a call, and ListStackResources about one stack, so an
account of many families and few stacks is listed once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

from msgspec import Struct

from profiler.aws_account.aws_errors import (
    OpenClient,
    answer_unless,
    aws_errors,
    noted_errors,
)
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.core.aws_error_codes import error_code
from profiler.core.optional_math import first_of, known

DESCRIBE_RIGHT = "cloudformation:DescribeStackResources"
_LIST_RIGHTS = "cloudformation:ListStacks and cloudformation:ListStackResources"
_DEFINITION_TYPE = "AWS::ECS::TaskDefinition"
JOB_DEFINITION_TYPE = "AWS::Batch::JobDefinition"
_ROLE_TYPE = "AWS::IAM::Role"
_TARGET_TYPES = {"schedule": "AWS::Scheduler::Schedule", "rule": "AWS::Events::Rule"}
# A resource in one of these states no longer belongs to its stack.
_GONE = frozenset({"DELETE_COMPLETE", "DELETE_SKIPPED"})
# An answer has so many resources of a stack at most.
_MAX_RESOURCES = 100
# A stack in one of these states has no resources (any more, or yet).
_EMPTY = frozenset({"DELETE_COMPLETE", "REVIEW_IN_PROGRESS"})
_FIRST_LISTING = 10  # questions, before which the stacks are not listed

# What to do about a role that a stack owns; with the command that prints the statement.
ROLE_REMEDY = (
    "Add the statement that {} prints to its template: CloudFormation cannot delete a role that "
    "has another policy."
)

# A resource's physical id and its type.
_Resource: TypeAlias = tuple[str, str]


class CloudFormationOwner(Struct, frozen=True, kw_only=True):
    """A stack that owns a resource, or may own it, as ``sentence`` says."""

    stack: str
    sentence: str


class CloudFormationOwners:
    """Asks CloudFormation who owns a resource. Methods raise TaskProfilerError with its reason.

    It asks about one resource after the other, until it has made as many calls as it takes to list
    the resources of all stacks, and then lists them, if it may. Just before an act, it asks about
    what the act changes.
    """

    def __init__(self, open_client: OpenClient, *, definition_type: str = _DEFINITION_TYPE) -> None:
        self._open_client = open_client
        self._definition_type = definition_type
        self._known: dict[_Resource, CloudFormationOwner | None] = {}
        self._listed: Mapping[_Resource, str] | None = None  # their stacks
        self._may_list = True
        self._is_act = False
        self._asked = 0
        self._lists_after = _FIRST_LISTING  # so many questions

    def forget_answers(self) -> None:
        """Ask again who owns what, before an act: a stack may have imported it since the plan."""
        self._known.clear()
        if not self._is_act:
            self._is_act = True
            self._listed = None
            self._asked = 0
            self._lists_after = _FIRST_LISTING

    def stack_of_definition(self, revision_arns: Iterable[str]) -> str | None:
        """The name of the stack that owns one of the revisions, of which the first is changed; None
        if no stack does.
        """
        owners = (
            self._find_owner(arn, self._definition_type, is_changed=place == 0)
            for place, arn in enumerate(revision_arns)
        )
        return known(attrgetter("stack"), first_of(owners))

    def why_stack_owns_target(self, target: ScheduledTarget) -> str | None:
        """Why a stack owns a schedule or a rule, or may own it, in words; None if no stack does."""
        name = target.name
        if target.kind == "rule" and target.group != "default":
            name = f"{target.group}|{target.name}"
        owner = self._find_owner(name, _TARGET_TYPES[target.kind], is_changed=True)
        return known(attrgetter("sentence"), owner)

    def why_stack_owns_role(self, name: str) -> str | None:
        """Why a stack owns a role, or may own it, in words; None if no stack of this Region does.

        CloudFormation deletes no role that has a policy of somebody else's.
        """
        owner = self._find_owner(name, _ROLE_TYPE, is_changed=True)
        return known(attrgetter("sentence"), owner)

    def _find_owner(
        self, physical_id: str, resource_type: str, *, is_changed: bool
    ) -> CloudFormationOwner | None:
        key = (physical_id, resource_type)
        if key not in self._known:
            if not (is_changed and self._is_act):
                self._list_if_cheaper()
                if self._listed is not None:
                    return known(_owner_of_stack, self._listed.get(key))
                self._asked += 1
            resources = self._stack_resources_with(physical_id)
            self._known[key] = _owner_among_resources(resources, physical_id, resource_type)
        return self._known[key]

    def _list_if_cheaper(self) -> None:
        """List the resources of all stacks, if this takes no more calls than were made."""
        if self._listed is not None or not self._may_list or self._asked < self._lists_after:
            return
        self._lists_after = 2 * self._asked

        def may_not(_sentence: str) -> None:
            self._may_list = False

        with noted_errors(may_not, "The stacks could not be listed", _LIST_RIGHTS):
            stacks = self._list_stacks(self._asked)
            if stacks is not None:
                self._listed = dict(self._resources_of(stacks))

    def _list_stacks(self, most_calls: int) -> Mapping[str, str] | None:
        """The names of the stacks by their ids; None if to list them and their resources takes more
        calls. Raises boto3's errors.
        """
        names: dict[str, str] = {}
        pages = self._open_client("cloudformation").get_paginator("list_stacks").paginate()
        for calls, page in enumerate(pages, 1):
            for stack in page["StackSummaries"]:
                if stack["StackStatus"] not in _EMPTY:
                    names[str(stack["StackId"])] = str(stack["StackName"])
            if calls + len(names) > most_calls:
                return None
        return names

    def _resources_of(self, stacks: Mapping[str, str]) -> Iterator[tuple[_Resource, str]]:
        """The resources of the stacks, each with the name of its stack. Raises boto3's errors."""
        pages_of = self._open_client("cloudformation").get_paginator("list_stack_resources")
        for stack_id, name in stacks.items():
            for page in pages_of.paginate(StackName=stack_id):
                for resource in page["StackResourceSummaries"]:
                    if resource["ResourceStatus"] not in _GONE:
                        physical_id = str(resource.get("PhysicalResourceId"))
                        yield (physical_id, str(resource["ResourceType"])), name

    def _stack_resources_with(self, physical_id: str) -> Sequence[Mapping[str, Any]]:
        """The resources of the stack that has one with this id; none if no stack has."""
        cloudformation = self._open_client("cloudformation")
        what = f"CloudFormation could not be asked who owns {physical_id}, so it is not changed"
        with aws_errors(what, DESCRIBE_RIGHT):
            answer = answer_unless(
                _is_of_no_stack,
                cloudformation.describe_stack_resources,
                PhysicalResourceId=physical_id,
            )
        resources: Sequence[Mapping[str, Any]] = (answer or {}).get("StackResources", ())
        return resources


def _is_of_no_stack(error: Exception) -> bool:
    return error_code(error) == "ValidationError" and str(error).endswith("does not exist")


def _owner_among_resources(
    resources: Sequence[Mapping[str, Any]], physical_id: str, resource_type: str
) -> CloudFormationOwner | None:
    """The owner of the id; None: nobody.

    CloudFormation answers for one resource of several with the same id, and lists a part of a large
    stack: what it does not prove to be free counts as owned.
    """
    present = [resource for resource in resources if resource.get("ResourceStatus") not in _GONE]
    same_id = [
        resource for resource in present if resource.get("PhysicalResourceId") == physical_id
    ]
    of_type = [resource for resource in same_id if resource.get("ResourceType") == resource_type]
    if of_type:
        return _owner_of_stack(str(of_type[0]["StackName"]))
    if same_id:
        stack = str(same_id[0]["StackName"])
        return CloudFormationOwner(
            stack=stack,
            sentence=(
                f"CloudFormation answers only for the {same_id[0]['ResourceType']} of the same "
                f"name in the stack {stack}, so its owner is not known"
            ),
        )
    if len(resources) >= _MAX_RESOURCES and present:
        stack = str(present[0]["StackName"])
        return CloudFormationOwner(
            stack=stack, sentence=f"the stack {stack} of CloudFormation seems to own it"
        )
    return None


def _owner_of_stack(stack: str) -> CloudFormationOwner:
    return CloudFormationOwner(stack=stack, sentence=f"the stack {stack} of CloudFormation owns it")

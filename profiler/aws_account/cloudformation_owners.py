"""Whether a stack of CloudFormation owns a task definition, a job definition, a schedule or a rule.

CloudFormation tags definitions only since 2026, and schedules never, so it is asked. An id of a
stack's resource is the ARN of a definition, the name of a schedule, and the name of a rule, which
has ``BUS|`` before it on another bus than the default one.
https://docs.aws.amazon.com/AWSCloudFormation/latest/APIReference/API_DescribeStackResources.html
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient, answer_unless, aws_errors
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.core.aws_clients import error_code
from profiler.core.optional_math import first_of, known

DESCRIBE_RIGHT = "cloudformation:DescribeStackResources"
_DEFINITION_TYPE = "AWS::ECS::TaskDefinition"
JOB_DEFINITION_TYPE = "AWS::Batch::JobDefinition"
_TARGET_TYPES = {"schedule": "AWS::Scheduler::Schedule", "rule": "AWS::Events::Rule"}
# A resource in one of these states no longer belongs to its stack.
_GONE = frozenset({"DELETE_COMPLETE", "DELETE_SKIPPED"})
# An answer has so many resources of a stack at most.
_MAX_RESOURCES = 100


class CloudFormationOwner(Struct, frozen=True, kw_only=True):
    """A stack that owns a resource, or may own it, as ``sentence`` says."""

    stack: str
    sentence: str


class CloudFormationOwners:
    """Asks CloudFormation who owns a resource. Methods raise TaskProfilerError with its reason."""

    def __init__(self, open_client: OpenClient, *, definition_type: str = _DEFINITION_TYPE) -> None:
        self._open_client = open_client
        self._definition_type = definition_type
        self._known: dict[tuple[str, str], CloudFormationOwner | None] = {}

    def ask_again(self) -> None:
        """Ask again who owns what: a stack may have imported it since the plan."""
        self._known.clear()

    def of_definition(self, revision_arns: Iterable[str]) -> str | None:
        """The name of the stack that owns one of the revisions; None if no stack does."""
        owners = (self._owner(arn, self._definition_type) for arn in revision_arns)
        return known(attrgetter("stack"), first_of(owners))

    def of_target(self, target: ScheduledTarget) -> str | None:
        """Why a stack owns a schedule or a rule, or may own it, in words; None if no stack does."""
        name = target.name
        if target.kind == "rule" and target.group != "default":
            name = f"{target.group}|{target.name}"
        owner = self._owner(name, _TARGET_TYPES[target.kind])
        return known(attrgetter("sentence"), owner)

    def _owner(self, physical_id: str, resource_type: str) -> CloudFormationOwner | None:
        key = (physical_id, resource_type)
        if key not in self._known:
            resources = self._resources(physical_id)
            self._known[key] = _owner_among(resources, physical_id, resource_type)
        return self._known[key]

    def _resources(self, physical_id: str) -> Sequence[Mapping[str, Any]]:
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


def _owner_among(
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
        stack = str(of_type[0]["StackName"])
        return CloudFormationOwner(
            stack=stack, sentence=f"the stack {stack} of CloudFormation owns it"
        )
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

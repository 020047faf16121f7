"""Who owns a definition, where the listing of the stacks breaks off."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError

from profiler.aws_account.cloudformation_owners import CloudFormationOwners
from profiler.core.errors import TaskProfilerError

DEFINITIONS = "arn:aws:ecs:eu-west-1:123456789012:task-definition"
TYPE = "AWS::ECS::TaskDefinition"
FREE = [f"{DEFINITIONS}/free-{number}:1" for number in range(20)]
OWNED = f"{DEFINITIONS}/owned:1"
LATER = f"{DEFINITIONS}/later:1"


class Stacks:
    """CloudFormation with three stacks, of which the last two own a definition each; ``failing``
    are stacks, or ``list`` or ``describe``, whose calls end with an error.
    """

    def __init__(self, **failing: str) -> None:
        self._failing = failing
        self._owned: dict[str, list[str]] = {"empty": [], "jobs": [OWNED], "nested": [LATER]}
        self.asked: list[str] = []

    def get_paginator(self, operation: str) -> "Pages":
        return Pages(self, operation)

    def list_stacks(self) -> Iterator[Mapping[str, Any]]:
        for name in self._owned:
            yield {
                "StackSummaries": [
                    {"StackId": name, "StackName": name, "StackStatus": "UPDATE_IN_PROGRESS"}
                ]
            }
            self._fail("list")

    def list_stack_resources(self, stack: str) -> Iterator[Mapping[str, Any]]:
        yield {"StackResourceSummaries": []}
        self._fail(stack)
        for arn in self._owned[stack]:
            yield {"StackResourceSummaries": [_resource(stack, arn)]}

    def describe_stack_resources(self, *, PhysicalResourceId: str) -> Mapping[str, Any]:
        self.asked.append(PhysicalResourceId)
        self._fail("describe")
        for stack, arns in self._owned.items():
            if PhysicalResourceId in arns:
                return {"StackResources": [_resource(stack, arn) for arn in arns]}
        raise _error("ValidationError", f"Stack for {PhysicalResourceId} does not exist")

    def _fail(self, place: str) -> None:
        if place in self._failing:
            raise _error(self._failing[place], "no")


class Pages:
    def __init__(self, stacks: Stacks, operation: str) -> None:
        self._stacks = stacks
        self._operation = operation

    def paginate(self, **selection: str) -> Iterator[Mapping[str, Any]]:
        if self._operation == "list_stacks":
            return self._stacks.list_stacks()
        return self._stacks.list_stack_resources(selection["StackName"])


def _resource(stack: str, arn: str) -> Mapping[str, str]:
    return {
        "PhysicalResourceId": arn,
        "ResourceType": TYPE,
        "ResourceStatus": "CREATE_COMPLETE",
        "StackName": stack,
    }


def _error(code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "Call")


def found(stacks: Stacks) -> list[str | None]:
    owners = CloudFormationOwners(lambda _service: stacks)
    assert [owners.stack_of_definition([arn]) for arn in FREE] == [None] * len(FREE)
    return [owners.stack_of_definition([arn]) for arn in (OWNED, LATER)]


@pytest.mark.parametrize(
    ("failing", "is_listed"),
    [
        ({}, True),
        ({"list": "Throttling"}, False),
        ({"jobs": "Throttling"}, False),
        ({"nested": "AccessDenied"}, False),
        ({"nested": "ValidationError"}, False),  # gone for longer than CloudFormation remembers
    ],
)
def test_a_listing_that_breaks_off_proves_nothing(
    failing: Mapping[str, str], *, is_listed: bool
) -> None:
    stacks = Stacks(**failing)
    assert found(stacks) == ["jobs", "nested"]
    assert (OWNED not in stacks.asked) == is_listed


def test_without_the_right_to_ask_nothing_is_free() -> None:
    owners = CloudFormationOwners(lambda _service: Stacks(describe="AccessDenied"))
    with pytest.raises(TaskProfilerError, match="cloudformation:DescribeStackResources"):
        owners.stack_of_definition(FREE)

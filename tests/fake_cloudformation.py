"""Plays CloudFormation's change sets and events for one stack, as moto does not: states, pages,
failures.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partialmethod
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError, WaiterError
from botocore.session import Session
from botocore.validate import ParamValidator

STACK_ID = "arn:aws:cloudformation:eu-west-1:123456789012:stack/tp/1"
CHANGE_SET = "arn:aws:cloudformation:eu-west-1:123456789012:changeSet/one/1"
STACK_TYPE = "AWS::CloudFormation::Stack"
_PARAMETERS = ("CodeBucket", "CodeKey", "ElasticsearchUrl", "TaskStopped")  # some of them


@cache
def _service_model() -> Any:
    return Session().get_service_model("cloudformation")


@dataclass
class FakeCloudFormation:
    """One stack (None: there is none). As CloudFormation does, it lists parameters of the template
    that have no value, too.

    Each call is checked against its shape in botocore, and kept by name.

    ``happens`` has the events that are new at each reading after the change began: status,
    resource, type, reason.
    """

    stack: dict[str, Any] | None = None
    change_set_pages: list[dict[str, Any]] = field(
        default_factory=lambda: [{"Status": "CREATE_COMPLETE", "Changes": []}]
    )
    happens: list[list[tuple[str, ...]]] = field(default_factory=list)
    other_stacks: list[dict[str, Any]] = field(default_factory=list)
    called: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    meta: Any = field(
        default_factory=lambda: SimpleNamespace(endpoint_url="https://cloudformation.example.com")
    )
    _events: list[dict[str, Any]] = field(default_factory=list)
    _is_changing: bool = False

    def __call__(self, service: str) -> Any:
        assert service == "cloudformation"
        return self

    def calls(self, name: str) -> list[dict[str, Any]]:
        return [arguments for called, arguments in self.called if called == name]

    def _call(self, operation: str, arguments: dict[str, Any]) -> None:
        report = ParamValidator().validate(
            arguments, _service_model().operation_model(operation).input_shape
        )
        assert not report.has_errors(), report.generate_report()
        self.called.append((operation, arguments))

    def describe_stacks(self, **arguments: Any) -> dict[str, Any]:
        self._call("DescribeStacks", arguments)
        if self.stack is None:
            message = f"Stack with id {arguments['StackName']} does not exist"
            raise ClientError(
                {"Error": {"Code": "ValidationError", "Message": message}}, "DescribeStacks"
            )
        listed = [*self.stack.get("Parameters", ())]
        names = {parameter["ParameterKey"] for parameter in listed}
        for name in _PARAMETERS:
            if name not in names:
                listed.append({"ParameterKey": name, "ParameterValue": ""})
        stack = {"StackName": "tp", "StackId": STACK_ID, **self.stack, "Parameters": listed}
        return {"Stacks": [stack]}

    def create_change_set(self, **arguments: Any) -> dict[str, str]:
        self._call("CreateChangeSet", arguments)
        return {"Id": CHANGE_SET, "StackId": STACK_ID}

    def get_waiter(self, name: str) -> Any:
        """It fails, as for a change set that has failed or is not there yet."""
        assert name == "change_set_create_complete"

        def wait(**_: Any) -> None:
            if self.change_set_pages[0]["Status"] != "CREATE_COMPLETE":
                raise WaiterError(name, "failed", {})

        return SimpleNamespace(wait=wait)

    def _change_set(self, **arguments: Any) -> list[dict[str, Any]]:
        self._call("DescribeChangeSet", arguments)
        return self.change_set_pages

    def delete_change_set(self, **arguments: Any) -> None:
        self._call("DeleteChangeSet", arguments)

    def execute_change_set(self, operation: str = "ExecuteChangeSet", **arguments: Any) -> None:
        self._call(operation, arguments)
        self._is_changing = True

    delete_stack = partialmethod(execute_change_set, "DeleteStack")

    def get_paginator(self, name: str) -> Any:
        if name == "describe_stack_events":
            return self
        if name == "describe_stacks":
            return SimpleNamespace(paginate=self._all_stacks)
        pages = self._deleted_stacks if name == "list_stacks" else self._change_set
        return SimpleNamespace(paginate=pages)

    def _all_stacks(self, **arguments: Any) -> list[dict[str, Any]]:
        """This one and the others, on two pages."""
        self._call("DescribeStacks", arguments)
        own = [{"StackName": "tp", **self.stack}] if self.stack else []
        return [{"Stacks": own}, {"Stacks": self.other_stacks}]

    def _deleted_stacks(self, **arguments: Any) -> list[dict[str, Any]]:
        """None, on an empty page and another one."""
        self._call("ListStacks", arguments)
        return [{"StackSummaries": []}, {"StackSummaries": []}]

    def paginate(self, **arguments: Any) -> Iterator[dict[str, Any]]:
        """Three events a page, the newest first."""
        self._call("DescribeStackEvents", arguments)
        if self._is_changing and self.happens:
            self.add_events(self.happens.pop(0))
        for start in range(0, max(len(self._events), 1), 3):
            yield {"StackEvents": self._events[start : start + 3]}

    def add_events(self, events: Sequence[tuple[str, ...]]) -> None:
        for status, resource, *rest in events:
            kind, reason = (*rest, "", "")[:2]
            event = {
                "EventId": str(len(self._events)),
                "StackId": STACK_ID,
                "ResourceStatus": status,
                "LogicalResourceId": resource,
                "PhysicalResourceId": STACK_ID if kind == STACK_TYPE else f"physical-{resource}",
                "ResourceType": kind or "AWS::SQS::Queue",
                **({"ResourceStatusReason": reason} if reason else {}),
            }
            self._events.insert(0, event)


def of_stack(status: str) -> tuple[str, ...]:
    return status, "tp", STACK_TYPE

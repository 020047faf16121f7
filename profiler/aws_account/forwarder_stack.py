"""The state of the forwarder's stack in CloudFormation, and what each state permits."""

import re
from collections.abc import Iterator, Mapping
from operator import itemgetter
from shlex import quote
from typing import Any, Final, Literal

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient, answer_unless, aws_errors
from profiler.aws_account.registered_definitions import read_items
from profiler.core.commands_to_copy import aws_command_line, command_line
from profiler.core.ecs_terms import arn_region
from profiler.core.errors import TaskProfilerError
from profiler.core.index_names import DEFAULT_PREFIX
from profiler.core.optional_math import known
from profiler.core.text import first_names, split_names

FORWARDER_STACK = "task-profiler"
CODE_PREFIX = "task-profiler/forwarder-"
Phase = Literal["absent", "ready", "in progress", "failed"]

_CODE_KEY = re.compile(rf"{CODE_PREFIX}(.+)-[0-9a-f]+\.zip")
_READY = frozenset(
    {
        "CREATE_COMPLETE",
        "UPDATE_COMPLETE",
        "UPDATE_ROLLBACK_COMPLETE",
        "IMPORT_COMPLETE",
        "IMPORT_ROLLBACK_COMPLETE",
    }
)
# Parameters of the template, which CloudFormation lists whatever their values are.
_OWN_PARAMETERS = frozenset({"CodeBucket", "CodeKey", "ElasticsearchUrl", "TaskStopped"})
# A change set that was never applied leaves a stack without resources in REVIEW_IN_PROGRESS, which
# can be deleted.
_EMPTY = "REVIEW_IN_PROGRESS"
_ABSENT = frozenset({_EMPTY, "DELETE_COMPLETE"})
# CloudFormation's name of a stack that a StackSet makes; DescribeStacks says nothing else about it.
_STACK_SET = re.compile(r"StackSet-(.+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class StackOwner(Struct, frozen=True, kw_only=True):
    """What a stack is changed with, in words: ``what`` it is, and ``where`` to change it."""

    what: str = ""
    where: str = ""
    repair: str = ""


NO_OWNER: Final = StackOwner()


class ForwarderStack(Struct, frozen=True, kw_only=True):
    """A stack, or its absence: ``status`` is CloudFormation's, or None.

    ``is_foreign``: it was not made of the forwarder's template. ``outer_name`` is the stack that a
    nested one is a part of; None: it is not nested.
    """

    name: str
    status: str | None = None
    reason: str | None = None
    stack_id: str | None = None  # None: there is nothing to delete
    version: str | None = None  # None: ``setup stack`` has not uploaded the code
    parameters: Mapping[str, str] = {}
    tags: Mapping[str, str] = {}
    outputs: Mapping[str, str] = {}
    is_foreign: bool = False
    outer_name: str | None = None

    @property
    def possible_action(self) -> Phase:
        """The possible action: create the stack, update it, wait, or repair it."""
        if not self.status or self.status in _ABSENT:
            return "absent"
        if self.status in _READY:
            return "ready"
        if self.status.endswith("_IN_PROGRESS"):
            return "in progress"
        return "failed"

    @property
    def is_owned(self) -> bool:
        """Whether the stack is changed with something else alone."""
        return self.owner != NO_OWNER

    @property
    def owner(self) -> StackOwner:
        """What the stack is changed with; NO_OWNER: it is changed by itself."""
        if self.outer_name is not None:
            return StackOwner(
                what=f"a part of the stack {self.outer_name}",
                where=f"in the template of the stack {self.outer_name}",
                repair=f"repair the stack {self.outer_name}, of which it is a part",
            )
        instance = _STACK_SET.fullmatch(self.name)
        if not instance:
            return NO_OWNER
        stack_set = f"the StackSet {instance[1]}"
        where = f"with {stack_set}, in the account that administers it"
        return StackOwner(
            what=f"by its name an instance of {stack_set}", where=where, repair=f"repair it {where}"
        )

    @property
    def name_options(self) -> tuple[str, ...]:
        """The options with which a command of ``setup`` is about this stack."""
        return () if self.name == FORWARDER_STACK else ("--name", self.name)

    @property
    def region(self) -> str | None:
        return arn_region(self.stack_id)

    @property
    def name_and_region(self) -> str:
        return f"{self.name} in {self.region}" if self.region else self.name


def read_forwarder(open_client: OpenClient, name: str) -> ForwarderStack:
    """Read the state.

    ``name`` may be the stack's ARN, which also finds a deleted stack. Raises TaskProfilerError.
    """
    cloudformation = open_client("cloudformation")
    with aws_errors(f"The stack {name!r} cannot be read", "cloudformation:DescribeStacks"):
        answer = answer_unless(
            lambda error: "does not exist" in str(error),
            cloudformation.describe_stacks,
            StackName=name,
        )
    stack: Mapping[str, Any] = answer["Stacks"][0] if answer else {}
    status = stack.get("StackStatus")
    if status == _EMPTY:
        return ForwarderStack(name=name, status=status, stack_id=stack["StackId"])
    if not status or status in _ABSENT:
        return ForwarderStack(name=name, status=status)
    return _forwarder_stack(stack)


def read_last_deleted_stack(open_client: OpenClient, name: str) -> ForwarderStack | None:
    """The last deleted stack of this name, for the 90 days in which CloudFormation lists it; None
    without one. Raises TaskProfilerError.
    """
    cloudformation = open_client("cloudformation")
    with aws_errors("The deleted stacks cannot be listed", "cloudformation:ListStacks"):
        pages = cloudformation.get_paginator("list_stacks").paginate(
            StackStatusFilter=["DELETE_COMPLETE"]
        )
        listed = [stack for page in pages for stack in page["StackSummaries"]]
    deleted = [stack for stack in listed if stack["StackName"] == name]
    if not deleted:
        return None
    last = max(deleted, key=itemgetter("DeletionTime"))
    with aws_errors(f"The deleted stack {name!r} cannot be read", "cloudformation:DescribeStacks"):
        (stack,) = cloudformation.describe_stacks(StackName=last["StackId"])["Stacks"]
    return _forwarder_stack(stack)


def _forwarder_stack(stack: Mapping[str, Any]) -> ForwarderStack:
    parameters: dict[str, str] = {}
    for parameter in stack.get("Parameters", ()):
        parameters[parameter["ParameterKey"]] = parameter.get("ParameterValue", "")
    code = _CODE_KEY.fullmatch(parameters.get("CodeKey", ""))
    return ForwarderStack(
        name=stack["StackName"],
        status=stack["StackStatus"],
        reason=stack.get("StackStatusReason"),
        stack_id=stack["StackId"],
        version=code and code[1],
        parameters=parameters,
        tags={tag["Key"]: tag["Value"] for tag in stack.get("Tags", ())},
        outputs={item["OutputKey"]: item["OutputValue"] for item in stack.get("Outputs", ())},
        is_foreign=not _OWN_PARAMETERS.issubset(parameters),
        outer_name=known(_stack_name, stack.get("RootId") or stack.get("ParentId")),
    )


def _stack_name(arn: str) -> str:
    return arn.partition(":stack/")[2].partition("/")[0] or arn


def other_forwarders(open_client: OpenClient, name: str) -> tuple[ForwarderStack, ...]:
    """The forwarder's stacks of another name in this account and Region, also nested ones. Raises
    TaskProfilerError.
    """
    with aws_errors("The stacks cannot be listed", "cloudformation:DescribeStacks"):
        listed = [*read_items(open_client("cloudformation"), "describe_stacks", "Stacks")]
    stacks = [_forwarder_stack(stack) for stack in listed if stack["StackName"] != name]
    return tuple(
        stack for stack in stacks if not stack.is_foreign and stack.possible_action != "absent"
    )


def known_other_forwarders(open_client: OpenClient, name: str) -> tuple[ForwarderStack, ...]:
    """As above; none without the right to list stacks."""
    try:
        return other_forwarders(open_client, name)
    except TaskProfilerError:
        return ()


def read_existing_stack(open_client: OpenClient, name: str) -> ForwarderStack:
    """The state of a stack that is deployed. Raises TaskProfilerError if there is none."""
    state = read_forwarder(open_client, name)
    if state.possible_action == "absent":
        others = [stack.name for stack in known_other_forwarders(open_client, name)]
        such_as = f", such as {first_names(others)}," if others else ","
        raise TaskProfilerError(
            f"There is no stack {name!r} in this account and Region: give the name of another "
            f"one{such_as} or deploy it with {command_line('setup', 'stack')}."
        )
    return state


def read_named_or_default_stack(open_client: OpenClient, name: str | None) -> ForwarderStack:
    """The state of the stack with this name; None: of the one with the usual name, which may be
    absent. Raises TaskProfilerError.
    """
    if name:
        return read_existing_stack(open_client, name)
    return read_forwarder(open_client, FORWARDER_STACK)


def export_lines(parameters: Mapping[str, str]) -> Iterator[str]:
    """The line of a shell after which all commands read past runs from a stack's cluster or log
    groups, if any.
    """
    url = parameters.get("ElasticsearchUrl", "")
    prefix = parameters.get("IndexPrefix", DEFAULT_PREFIX)
    sources = [f"logs:{name}" for name in split_names(parameters.get("LogGroups", ""))]
    if url and prefix == DEFAULT_PREFIX:
        sources = [url]
    elif url:
        sources = [f"{url.rstrip('/')}/{prefix}"]
    if sources:
        yield f"export TASK_PROFILER_FROM={quote(' '.join(sources))}"


def task_stopped_log_group(stack: str) -> str:
    """The log group of task_stopped of a stack, with this name in the template."""
    return f"/aws/lambda/{stack}-task-stopped"


def monitor_log_group(stack: str) -> str:
    """The log group of the instance monitor of a stack, with this name in the template."""
    return f"/ecs/{stack}-instance-monitor"


def foreign_sentence(state: ForwarderStack) -> str:
    """That a stack is another program's, whose resources an update or a deletion would delete."""
    return (
        f"The stack {state.name} is not the forwarder's, because it does not have the parameters "
        "of its template: give another name with --name."
    )


def check_is_own_stack(state: ForwarderStack) -> None:
    """Raise TaskProfilerError for a stack that is another program's, a part of another stack or an
    instance of a StackSet. CloudFormation would change or delete it; then the outer stack could not
    be updated, and the StackSet's next operation would fail or undo the change.
    """
    if state.is_foreign:
        raise TaskProfilerError(foreign_sentence(state))
    if state.is_owned:
        raise TaskProfilerError(
            f"The stack {state.name} is {state.owner.what}, and is neither changed nor deleted "
            f"without it: do that {state.owner.where}, or give another name with --name."
        )


def change_obstacle(state: ForwarderStack) -> str | None:
    """Why the stack can be neither created nor updated now, and what to do; None if it can."""
    if state.is_foreign:
        return foreign_sentence(state)
    if state.possible_action == "in progress":
        return (
            f"CloudFormation is changing the stack {state.name} ({state.status}): wait, and run "
            "the command again."
        )
    if state.possible_action != "failed":
        return None
    if state.is_owned:
        return f"The stack {state.name} cannot be updated ({state.status}): {state.owner.repair}."
    if state.status in ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED"):
        words = ("setup", "stack", "--name", state.name, "--delete")
        delete = command_line(*words, region=state.region)
        return (
            f"The stack {state.name} is incomplete and cannot be updated ({state.status}): delete "
            f"it ({delete}), and run the command again."
        )
    command = "rollback-stack" if state.status == "UPDATE_FAILED" else "continue-update-rollback"
    repair = aws_command_line(
        "cloudformation", command, "--stack-name", state.name, region=state.region
    )
    return (
        f"The last update of the stack {state.name} failed and is not undone ({state.status}): "
        f"run {repair}, and run the command again."
    )

"""Change sets of a CloudFormation stack: created, applied, and followed to the end event by
event.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

from msgspec import Struct, convert, field
from msgspec.structs import replace

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.forwarder_stack import (
    ForwarderStack,
    change_obstacle,
    read_forwarder,
)
from profiler.core.aws_error_codes import cause_code
from profiler.core.aws_lost_answers import has_surely_changed_nothing
from profiler.core.clock import Clock
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_SECOND

_POLL_SECONDS = 3.0
_FIVE_MINUTES = {"Delay": 3, "MaxAttempts": 100}
_NO_CHANGES = ("didn't contain changes", "No updates are to be performed")
_MAX_REASONS = 3
# Of a change set that another change of the stack has overtaken, or that somebody has deleted.
_STALE = frozenset({"InvalidChangeSetStatus", "ChangeSetNotFound"})


class StillRunningError(TaskProfilerError):
    """CloudFormation goes on, or may do so: what it does, or has done, is not known."""


class HalfDeletedError(TaskProfilerError):
    """CloudFormation has deleted a part of the stack, which can only be deleted now."""


class ResourceChange(Struct, frozen=True):
    """The change of a resource in a change set."""

    action: str
    resource: str
    type: str
    replacement: str | None = None  # True, False or Conditional; None if not modified


class ChangeSet(Struct, frozen=True, kw_only=True):
    """A change set that can be applied."""

    arn: str
    stack_id: str
    is_new: bool  # it creates the stack
    changes: tuple[ResourceChange, ...] = ()


class CloudFormationEvent(Struct, frozen=True):
    """An event of CloudFormation, such as ``CREATE_COMPLETE`` of a resource."""

    status: str = field(name="ResourceStatus")
    resource: str = field(name="LogicalResourceId")
    type: str = field(name="ResourceType")
    physical_id: str = field(name="PhysicalResourceId", default="")
    reason: str = field(name="ResourceStatusReason", default="")


class StackChanger(Struct):
    """Changes one stack.

    Methods raise TaskProfilerError. ``on_event`` gets the events that end work on a resource.
    """

    name: str
    open_client: OpenClient
    clock: Clock
    on_event: Callable[[CloudFormationEvent], None]
    _seen: set[str] = set()

    def create_change_set(
        self,
        template_url: str,
        parameters: Sequence[Mapping[str, object]],
        tags: Mapping[str, str],
        *,
        is_new: bool,
    ) -> ChangeSet | None:
        """Create a change set; None if nothing would change. ``tags`` are all of the stack."""
        cloudformation = self.open_client("cloudformation")
        name = f"task-profiler-{self.clock.wall_ns() // NS_PER_SECOND}"
        with (
            _raise_possible_effect(f"may have made the change set {name}"),
            aws_errors(
                f"The stack {self.name} cannot be changed", "cloudformation:CreateChangeSet"
            ),
        ):
            created = cloudformation.create_change_set(
                StackName=self.name,
                ChangeSetName=name,
                ClientToken=str(uuid4()),  # boto3 repeats a call without an answer
                ChangeSetType="CREATE" if is_new else "UPDATE",
                TemplateURL=template_url,
                Parameters=parameters,
                Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
                Capabilities=["CAPABILITY_IAM"],
                Description="task-profiler setup stack",
            )
        change_set = ChangeSet(arn=created["Id"], stack_id=created["StackId"], is_new=is_new)
        with self.discarded_on_error(change_set):
            changes = self._read_changes(change_set.arn)
        if changes is None:
            self.discard_change_set(change_set)
            return None
        return replace(change_set, changes=changes)

    @contextmanager
    def discarded_on_error(self, change_set: ChangeSet) -> Iterator[None]:
        """Discard a change set if something ends before it is applied, also Ctrl-C; if that fails,
        the first error says it, too.
        """
        try:
            yield
        except TaskProfilerError as error:
            try:
                self.discard_change_set(change_set)
            except TaskProfilerError as left:
                raise TaskProfilerError(f"{error} {left}") from error.__cause__
            raise
        except BaseException:
            self.discard_change_set(change_set)
            raise

    def _read_changes(self, arn: str) -> tuple[ResourceChange, ...] | None:
        """Wait for the change set, and read it; None if it is empty."""
        from botocore.exceptions import WaiterError  # slow to import

        cloudformation = self.open_client("cloudformation")
        with aws_errors(
            f"The stack {self.name} cannot be changed", "cloudformation:DescribeChangeSet"
        ):
            with suppress(WaiterError):  # the change set contains the reason
                waiter = cloudformation.get_waiter("change_set_create_complete")
                waiter.wait(ChangeSetName=arn, WaiterConfig=_FIVE_MINUTES)
            pages = [
                *cloudformation.get_paginator("describe_change_set").paginate(ChangeSetName=arn)
            ]
        status = pages[0]["Status"]
        reason = pages[0].get("StatusReason", "").rstrip(".")
        if any(text in reason for text in _NO_CHANGES):
            return None
        if status != "CREATE_COMPLETE":
            raise TaskProfilerError(
                f"CloudFormation rejects the change of the stack {self.name}: {reason or status}."
            )
        names = ("Action", "LogicalResourceId", "ResourceType", "Replacement")
        changes = []
        for page in pages:
            for change in page.get("Changes", ()):
                changes.append(ResourceChange(*map(change["ResourceChange"].get, names)))
        return tuple(changes)

    def discard_change_set(self, change_set: ChangeSet) -> None:
        """Delete a change set that is not applied, and the empty stack that it made, unless
        another one was applied.
        """
        cloudformation = self.open_client("cloudformation")
        with aws_errors(
            f"The stack {self.name} keeps a change set", "cloudformation:DeleteChangeSet"
        ):
            cloudformation.delete_change_set(ChangeSetName=change_set.arn)
        if (
            change_set.is_new
            and read_forwarder(self.open_client, change_set.stack_id).status == "REVIEW_IN_PROGRESS"
        ):
            with aws_errors(f"The stack {self.name} is left empty", "cloudformation:DeleteStack"):
                cloudformation.delete_stack(StackName=change_set.stack_id)

    def apply_change_set(self, change_set: ChangeSet) -> ForwarderStack:
        """Apply the change set of a stack whose earlier events were read, and wait for the end.

        Raises TaskProfilerError with the causes if CloudFormation undid it.
        """
        self._execute_or_discard(change_set)
        end, failed, _ = self._wait_for_end(change_set.stack_id)
        try:
            state = read_forwarder(self.open_client, change_set.stack_id)
        except TaskProfilerError as error:
            raise StillRunningError(
                f"{error} The change has ended ({end}): run the command again, which does the rest."
            ) from error.__cause__
        if end not in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
            problem = change_obstacle(state) or (
                f"The stack {self.name} could not be updated, and its previous version is active: "
                "remove the cause, and run the command again."
            )
            raise TaskProfilerError(f"{problem.rstrip('.')}; cause: {_root_causes_text(failed)}.")
        return state

    def _execute_or_discard(self, change_set: ChangeSet) -> None:
        """Begin to apply the change set, or discard it if CloudFormation refuses that."""
        try:
            with (
                _raise_possible_effect("may have begun the change"),
                aws_errors(
                    f"The stack {self.name} cannot be changed", "cloudformation:ExecuteChangeSet"
                ),
            ):
                # Without a token, boto3's repetition of a call without an answer is refused: the
                # first one has begun the change.
                self.open_client("cloudformation").execute_change_set(
                    ChangeSetName=change_set.arn, ClientRequestToken=str(uuid4())
                )
        except StillRunningError:
            raise
        except TaskProfilerError as error:
            refusal = error
            if cause_code(error) in _STALE:
                refusal = self._overtaken_error("changed")
            with self.discarded_on_error(change_set):
                raise refusal from error.__cause__

    def check_planned_state(self, planned: ForwarderStack, verb: str) -> None:
        """Raise TaskProfilerError if somebody has changed the stack since it was read for the plan,
        whose filters are those of the earlier parameters; ``verb`` is what is not done.

        CloudFormation itself refuses a change set that is older than the last change.
        """
        if read_forwarder(self.open_client, planned.name).parameters != planned.parameters:
            raise self._overtaken_error(verb)

    def _overtaken_error(self, verb: str) -> TaskProfilerError:
        return TaskProfilerError(
            f"The stack {self.name} is not {verb}, because somebody has changed it since this "
            "change was planned: run the command again."
        )

    def read_earlier(self, stack_id: str) -> None:
        """Read the events until now. Without the right to it, no change can be followed."""
        self._new_events(stack_id)

    def kept_resource_events(self, stack_id: str) -> tuple[CloudFormationEvent, ...]:
        """The events of the resources that stay of a deleted stack."""
        return _skipped_deletion_events(self._new_events(stack_id))

    def delete_stack(self, stack_id: str) -> tuple[CloudFormationEvent, ...]:
        """Delete the stack, whose earlier events were read. Returns the events of the resources
        that stay.
        """
        what = f"The stack {self.name} cannot be deleted"
        with (
            _raise_possible_effect("may have begun to delete it"),
            aws_errors(what, "cloudformation:DeleteStack"),
        ):
            self.open_client("cloudformation").delete_stack(StackName=stack_id)
        with _raise_still_running():
            state = read_forwarder(self.open_client, stack_id)
        if state.status == "DELETE_COMPLETE":  # perhaps by somebody else, before the earlier events
            ended = [event for event in self._further_events(stack_id) if _is_end_of_step(event)]
            for event in ended:
                self.on_event(event)
            return _skipped_deletion_events(ended)
        end, failed, kept = self._wait_for_end(stack_id)
        if end != "DELETE_COMPLETE":
            raise HalfDeletedError(
                f"The stack {self.name} could not be deleted ({end}): {_root_causes_text(failed)}. "
                "It forwards nothing now: remove the cause, and delete it again."
            )
        return kept

    def _wait_for_end(
        self, stack_id: str
    ) -> tuple[str, list[CloudFormationEvent], tuple[CloudFormationEvent, ...]]:
        """Wait for the end.

        Returns the stack's last status, the failed events, and the events of resources that stay.

        They are read from events, because the stack's own state may be the one before the change
        for a moment.
        """
        failed: list[CloudFormationEvent] = []
        kept: list[CloudFormationEvent] = []
        while True:  # a function in a VPC takes up to 40 minutes to delete
            for event in self._further_events(stack_id):
                if not _is_end_of_step(event):
                    continue
                self.on_event(event)
                if event.type == "AWS::CloudFormation::Stack" and event.physical_id == stack_id:
                    return event.status, failed, tuple(kept)
                if event.status.endswith("_FAILED"):
                    failed.append(event)
                kept += _skipped_deletion_events((event,))
            self.clock.sleep(_POLL_SECONDS)

    def _further_events(self, stack_id: str) -> list[CloudFormationEvent]:
        """The new events of a change that has begun."""
        with _raise_still_running():
            return self._new_events(stack_id)

    def _new_events(self, stack_id: str) -> list[CloudFormationEvent]:
        """The events that were not returned before, oldest first."""
        new: list[Mapping[str, Any]] = []
        with aws_errors(
            f"The stack {self.name} cannot be followed", "cloudformation:DescribeStackEvents"
        ):
            paginator = self.open_client("cloudformation").get_paginator("describe_stack_events")
            for page in paginator.paginate(StackName=stack_id):
                unseen = [
                    event for event in page["StackEvents"] if event["EventId"] not in self._seen
                ]
                new += unseen
                if len(unseen) < len(page["StackEvents"]):  # the newest come first
                    break
        self._seen.update(event["EventId"] for event in new)
        events = convert(new[::-1], list[CloudFormationEvent])
        return [replace(event, reason=" ".join(event.reason.split())) for event in events]


def _skipped_deletion_events(
    events: Iterable[CloudFormationEvent],
) -> tuple[CloudFormationEvent, ...]:
    return tuple(event for event in events if event.status == "DELETE_SKIPPED")


def _is_end_of_step(event: CloudFormationEvent) -> bool:
    return event.status.endswith(("_COMPLETE", "_FAILED", "_SKIPPED"))


@contextmanager
def _raise_still_running() -> Iterator[None]:
    """Say that CloudFormation goes on, if a change that has begun cannot be followed."""
    try:
        yield
    except TaskProfilerError as error:
        raise StillRunningError(
            f"{error} CloudFormation goes on: run the command again later, which says the result "
            "and does the rest."
        ) from error.__cause__


@contextmanager
def _raise_possible_effect(effect: str) -> Iterator[None]:
    """Say what CloudFormation may have done, if a call had no answer, or failed there: raises
    GoesOnError.
    """
    try:
        yield
    except TaskProfilerError as error:
        if has_surely_changed_nothing(error.__cause__):
            raise
        raise StillRunningError(
            f"{error} CloudFormation {effect}: run the command again later."
        ) from error.__cause__


def _root_causes_text(failed: Sequence[CloudFormationEvent]) -> str:
    """The reasons that are not the consequence of another one."""
    causes = [event for event in failed if "cancelled" not in event.reason][:_MAX_REASONS]
    return (
        "; ".join(f"{event.resource}: {event.reason.rstrip('.')}" for event in causes)
        or "its events have no reason"
    )

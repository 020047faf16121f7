"""The subscription filters that deliver the lines of log groups to a stack, and their changes.

The command makes them itself, because a stack has room for a few hundred resources only, and one
filter that AWS refuses would undo the whole deployment. All filters have one name, which the alarms
select. A filter is the stack's if it has this name and delivers to the stack's function or data
stream. No other filter is changed or deleted. Lines that are delivered twice do no harm.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct

from profiler.aws_account.aws_errors import (
    OpenClient,
    answer_unless,
    aws_errors,
    noted_errors,
)
from profiler.aws_account.clusters_and_log_groups import (
    STANDARD,
    list_log_groups,
    log_group_class,
    similar_log_groups_sentence,
    subscription_filters,
)
from profiler.aws_account.forwarder_stack import ForwarderStack, monitor_log_group
from profiler.aws_account.registered_definitions import glob_prefix
from profiler.core.aws_error_codes import ACCESS_DENIED, error_code
from profiler.core.clock import Clock
from profiler.core.commands_to_copy import aws_command_line
from profiler.core.ecs_terms import arn_account, arn_part, arn_region
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.optional_math import known_members
from profiler.core.text import split_names

MAX_NAMES = 20  # of the template's parameter LogGroups
# Of a log group: five, and two where AWS has not yet raised the quota, or for older accounts.
# https://github.com/aws-cloudformation/cfn-lint/pull/4688
MAX_FILTERS = 5
OLD_MAX_FILTERS = 2
_REPORTS = '{ $.type = "task.*" }'
_NOTICES = '{ $.type = "task.notice" }'
_LAMBDA_GROUPS = "/aws/lambda/"  # a function that gets its own lines would invoke itself endlessly
# "Could not execute the lambda function" or "Could not deliver test message to specified Kinesis
# stream": also for seconds after the permission or the role was made.
_NOT_READY = "Could not "
_WAIT_SECONDS = 5.0
_MAX_WAITS = 6  # of all groups together
_READ = "logs:DescribeSubscriptionFilters"
_GROUP_NAME = re.compile(r"[.\-_/#A-Za-z0-9*?\[\]!]{1,512}", re.ASCII)
_ADVICE = "use a pattern NAME*, or --all-log-groups"


class FilterDelivery(Struct, frozen=True, kw_only=True):
    """What the filters of a stack deliver, and where to."""

    pattern: str
    destination_arn: str | None = None  # None: the stack has no function yet
    role_arn: str | None = None  # with which CloudWatch Logs writes to a data stream


def delivery_of_stack_values(values: Mapping[str, str], state: ForwarderStack) -> FilterDelivery:
    """The delivery of a stack with these parameters, as in the template's own subscription."""
    pattern = _NOTICES
    if values["ElasticsearchUrl"]:
        pattern = _REPORTS
        if values["ForwardLogLines"] == "true":
            pattern = ""
    if values["ElasticsearchUrl"] and values["Ingestion"] == "stream":
        return FilterDelivery(
            pattern=pattern,
            destination_arn=state.outputs.get("ReportStreamArn"),
            role_arn=state.outputs.get("ReportStreamRoleArn"),
        )
    if state.possible_action == "absent" or state.stack_id is None:
        return FilterDelivery(pattern=pattern)
    prefix, _, _ = state.stack_id.partition(":cloudformation:")
    place = f"{arn_region(state.stack_id)}:{arn_account(state.stack_id)}"
    function_arn = f"{prefix}:lambda:{place}:function:{state.name}-forward-logs"
    return FilterDelivery(pattern=pattern, destination_arn=function_arn)


class GroupSelection(Struct, frozen=True, kw_only=True):
    """The log groups of names and patterns that can be subscribed.

    ``named`` are those that have a name of their own in the list. ``left_out`` are sentences.
    """

    groups: tuple[str, ...] = ()
    named: frozenset[str] = frozenset()
    left_out: tuple[str, ...] = ()


class FilterPlan(Struct, frozen=True, kw_only=True):
    """The changes of the filters: ``put`` makes or corrects, ``delete`` removes.

    ``refused`` are sentences about groups that should be subscribed and cannot. ``unread`` are
    groups that lose the filter, if they have one, which could not be read. ``seen`` are the
    stack's own filters that the plan was made from, by group; empty: the group had none.
    """

    name: str = ""
    groups: tuple[str, ...] = ()  # all that are subscribed afterwards
    put: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    seen: Mapping[str, Mapping[str, Any]] = {}


class GroupFilters(Struct, frozen=True):
    """The filters of one stack. ``note`` gets a sentence about what cannot be read."""

    stack: str
    open_client: OpenClient
    note: Callable[[str], object]

    @property
    def filter_name(self) -> str:
        return f"{self.stack}-groups"

    def select_groups(self, names: Iterable[str], *, are_given: bool) -> GroupSelection:
        """The log groups of names and patterns.

        ``are_given``: by the user, now. Then a name or pattern without a fitting group raises
        TaskProfilerError. Otherwise it is left out, so that a deleted group stops no update.
        """
        classes: dict[str, str] = {}
        named: set[str] = set()
        missing: list[str] = []
        for name in names:
            listed = self._classes_of_groups(name)
            if not listed and are_given and glob_prefix(name) != name:
                raise TaskProfilerError(
                    f"No log group matches {name!r}: check the name, --region and --profile."
                )
            if not listed:
                missing.append(name)
            if glob_prefix(name) == name:
                named.add(name)
            classes |= listed
        unfit = [f"{name} (missing)" for name in missing]
        groups = []
        others = []
        for name, group_class in classes.items():
            if group_class == STANDARD:
                groups.append(name)
                continue
            others.append(f"{name} ({group_class})")
            if name in named or not are_given:
                unfit.append(f"{name} ({group_class})")
        if unfit and are_given:
            raise TaskProfilerError(
                "Only log groups that exist and have the class Standard can be subscribed, unlike "
                f"{', '.join(unfit)}: create them, leave them out, or check --log-group and "
                f"--region.{similar_log_groups_sentence(self.open_client, missing)}"
            )
        left_out = sorted({*unfit, *others})
        return GroupSelection(
            groups=tuple(groups),
            named=frozenset(named),
            left_out=tuple(f"{text} cannot be subscribed and is left out" for text in left_out),
        )

    def _classes_of_groups(self, name: str) -> dict[str, str]:
        """The classes of the groups with this name, or that match this pattern.

        No pattern selects the groups of functions, and that of the instance monitor, which the
        template subscribes.
        """
        prefix = glob_prefix(name)
        if prefix == name:
            group_class: str | None = STANDARD
            with noted_errors(
                self.note, f"Whether {name} can be subscribed is unknown", "logs:DescribeLogGroups"
            ):
                group_class = log_group_class(self.open_client, name)
            return known_members({name: group_class})
        classes = {}
        for group in list_log_groups(self.open_client, prefix):
            group_name = str(group["logGroupName"])
            is_of_function = group_name.startswith(_LAMBDA_GROUPS)
            if not is_of_function and fnmatchcase(group_name, name):
                classes[group_name] = str(group.get("logGroupClass", STANDARD))
        classes.pop(monitor_log_group(self.stack), None)
        return classes

    def plan_filters(
        self, wanted: GroupSelection, before: Iterable[str], delivery: FilterDelivery | None
    ) -> FilterPlan:
        """Compare the filters with what is wanted.

        ``before`` are the names and patterns of the last deployment, whose other groups lose the
        stack's filter. Without a delivery, all do. Raises TaskProfilerError if a group with a name
        of its own in the list has no free filter.
        """
        groups = wanted.groups if delivery is not None else ()
        others = [
            group
            for group in self.select_groups(before, are_given=False).groups
            if group not in wanted.groups or delivery is None
        ]
        filters = self._read_filters((*groups, *others))
        put: list[str] = []
        refused: list[str] = []
        for group in groups:
            problem = self._why_filter_impossible(group, filters.get(group, ()))
            if problem and group in wanted.named:
                raise TaskProfilerError(problem)
            if problem:
                refused.append(problem)
            elif delivery is not None and not self._is_current(filters.get(group, ()), delivery):
                self._note_old_limit(group, filters.get(group, ()))
                put.append(group)
        gone = [group for group in others if self._own_filter(filters.get(group, ()))]
        return FilterPlan(
            name=self.filter_name,
            groups=groups,
            put=tuple(put),
            delete=tuple(gone),
            left_out=wanted.left_out,
            refused=tuple(refused),
            unread=tuple(group for group in others if group not in filters),
            seen={group: self._own_filter(present) for group, present in filters.items()},
        )

    def plan_deletion(self, state: ForwarderStack) -> FilterPlan:
        """The filters of a stack that is to be deleted. Raises TaskProfilerError."""
        names: tuple[str, ...] = ()
        if state.parameters.get("Subscribe") != "account":
            names = split_names(state.parameters.get("LogGroups", ""))
        return self.plan_filters(GroupSelection(), names, None)

    def _read_filters(self, groups: Iterable[str]) -> dict[str, list[Mapping[str, Any]]]:
        """The filters of each group, up to the first error: an unread group has none."""
        filters: dict[str, list[Mapping[str, Any]]] = {}
        with noted_errors(
            self.note, "The subscription filters of the log groups are unknown", _READ
        ):
            for group in groups:
                filters[group] = subscription_filters(self.open_client("logs"), group)
        return filters

    def _own_filter(self, filters: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
        """The stack's own filter, by its name and its destination; empty without one."""
        for present in filters:
            if present["filterName"] == self.filter_name and self._is_of_stack(present):
                return present
        return {}

    def _is_of_stack(self, present: Mapping[str, Any]) -> bool:
        destination = arn_part(str(present.get("destinationArn")), 5) or ""
        return destination == f"function:{self.stack}-forward-logs" or destination.startswith(
            f"stream/{self.stack}-ReportStream-"
        )

    def _is_current(self, filters: Iterable[Mapping[str, Any]], delivery: FilterDelivery) -> bool:
        own = self._own_filter(filters)
        return bool(own) and delivery == _delivery_by(own)

    def _why_filter_impossible(
        self, group: str, filters: Sequence[Mapping[str, Any]]
    ) -> str | None:
        """Why the filter cannot be put into a group, with what to do; None if it can."""
        if self._own_filter(filters):
            return None
        is_taken = any(present["filterName"] == self.filter_name for present in filters)
        if is_taken or len(filters) >= MAX_FILTERS:
            return (
                f"The subscription filter {self.filter_name} cannot be added to {group}, "
                f"because AWS "
                f"allows {MAX_FILTERS} filters for each log group, with different names: delete "
                "one, or leave the group out."
            )
        return None

    def _note_old_limit(self, group: str, filters: Sequence[Mapping[str, Any]]) -> None:
        """Say that AWS may refuse a further filter."""
        if len(filters) >= OLD_MAX_FILTERS and not self._own_filter(filters):
            self.note(
                f"{group} has {len(filters)} subscription filters already: AWS refuses another one "
                f"where it has not yet raised its limit of {OLD_MAX_FILTERS}."
            )

    def carry_out(
        self,
        plan: FilterPlan,
        delivery: FilterDelivery | None,
        clock: Clock,
        on_step: Callable[[str], object],
    ) -> tuple[str, ...]:
        """Put and delete the filters, group by group. Returns a sentence about each failure.

        The filters of a group are read again just before, because PutSubscriptionFilter replaces,
        and DeleteSubscriptionFilter removes, whatever has the name.
        """
        failures: list[str] = [*plan.refused]
        waits_seconds = iter([_WAIT_SECONDS] * _MAX_WAITS)
        for group in plan.put:
            try:
                self._put_filter(group, delivery, plan, clock, waits_seconds)
                on_step(f"subscribed {group}")
            except TaskProfilerError as error:
                failures.append(str(error))
        for group in plan.delete:
            try:
                on_step(self._delete_filter(group))
            except TaskProfilerError as error:
                failures.append(str(error))
        return tuple(failures)

    def _put_filter(
        self,
        group: str,
        delivery: FilterDelivery | None,
        plan: FilterPlan,
        clock: Clock,
        waits_seconds: Iterator[float],
    ) -> None:
        """Put the filter, unless it is there, or somebody has put another one since the plan.
        Waits while IAM does not know a new stack's roles and permissions yet.

        Raises TaskProfilerError.
        """
        if delivery is None or delivery.destination_arn is None:
            raise TaskProfilerError(
                f"{group} is not subscribed, because the stack {self.stack} has no output with the "
                "destination: update the stack."
            )
        arguments = {
            "logGroupName": group,
            "filterName": self.filter_name,
            "filterPattern": delivery.pattern,
            "destinationArn": delivery.destination_arn,
        }
        arguments |= known_members({"roleArn": delivery.role_arn})
        logs = self.open_client("logs")
        if self._has_filter(group, delivery, plan):
            return
        permissions = "logs:PutSubscriptionFilter, and iam:PassRole for a data stream"
        with aws_errors(f"{group} is not subscribed", permissions):
            while True:
                try:
                    logs.put_subscription_filter(**arguments)
                except logs.exceptions.InvalidParameterException as error:
                    wait_seconds = next(waits_seconds, None)
                    if _NOT_READY not in str(error) or wait_seconds is None:
                        raise
                    clock.sleep(wait_seconds)
                except logs.exceptions.LimitExceededException as error:
                    raise TaskProfilerError(
                        f"{group} is not subscribed, because AWS allows it no further subscription "
                        f"filter: delete one ({_show_filters_command(group)}), and run the command "
                        "again."
                    ) from error
                else:
                    return

    def _has_filter(self, group: str, delivery: FilterDelivery, plan: FilterPlan) -> bool:
        """Whether the group has the filter now. Raises TaskProfilerError if it cannot be put any
        more.
        """
        logs = self.open_client("logs")
        with aws_errors(f"{group} is not subscribed", _READ):
            if group in plan.seen:
                present = subscription_filters(logs, group)
            else:  # the plan says that they are unknown
                found = answer_unless(_is_denied, subscription_filters, logs=logs, group=group)
                present = found or []
        if self._is_current(present, delivery):
            return True
        problem = self._why_filter_impossible(group, present)
        own = self._own_filter(present)
        if own and _delivery_by(own) != _delivery_by(plan.seen.get(group, own)):
            problem = (
                f"{group} is not subscribed, because somebody has changed its subscription filter "
                f"{self.filter_name} since the plan: run the command again."
            )
        if problem:
            raise TaskProfilerError(problem)
        return False

    def _delete_filter(self, group: str) -> str:
        """Delete the stack's own filter. Returns what was done. Raises TaskProfilerError."""
        logs = self.open_client("logs")
        gone = f"{group} has no subscription filter {self.filter_name} any more"
        with aws_errors(
            f"The subscription filter {self.filter_name} of {group} stays "
            f"({removal_command(group, self.filter_name)} deletes it)",
            f"logs:DeleteSubscriptionFilter and {_READ}",
        ):
            try:
                present = subscription_filters(logs, group)
                if self._own_filter(present):
                    logs.delete_subscription_filter(logGroupName=group, filterName=self.filter_name)
                    return f"deleted the subscription filter of {group}"
            except logs.exceptions.ResourceNotFoundException:
                return gone  # the group, or another run deleted the filter
        if any(other["filterName"] == self.filter_name for other in present):
            return (
                f"left the subscription filter {self.filter_name} of {group}, which delivers to "
                f"somebody "
                "else now"
            )
        return gone


def _is_denied(error: Exception) -> bool:
    return error_code(error) in ACCESS_DENIED


def _delivery_by(own: Mapping[str, Any]) -> FilterDelivery:
    """What a filter delivers, and where to; of an empty one, nothing to nowhere."""
    return FilterDelivery(
        pattern=own.get("filterPattern") or "",
        destination_arn=own.get("destinationArn"),
        role_arn=own.get("roleArn") or None,
    )


def removal_command(group: str, name: str) -> str:
    """The command of AWS that deletes a subscription filter."""
    words = ("--log-group-name", group, "--filter-name", name)
    return aws_command_line("logs", "delete-subscription-filter", *words)


def check_group_names(names: Iterable[str]) -> None:
    """Raise UsageError for what is no log group's name or pattern, such as an ARN."""
    for name in names:
        if not _GROUP_NAME.fullmatch(name):
            raise UsageError(
                f"--log-group {name!r} is not the name of a log group of this account: use its "
                "name, without an ARN, or a pattern with * ? []. docs/forwarder.md describes other "
                "accounts."
            )


def log_groups_parameter(names: Sequence[str], groups: Sequence[str]) -> str:
    """The value of the parameter ``LogGroups``: the groups, or, if they are many, the names and
    prefixes that select them, by which the functions get their rights.

    Raises UsageError if there is no such value.
    """
    if len(groups) <= MAX_NAMES:
        return ",".join(groups)
    for name in names:
        prefix = glob_prefix(name)
        is_prefix = prefix in (name, name.removesuffix("*"))
        if not (prefix and is_prefix):
            raise UsageError(
                f"--log-group selects {len(groups)} log groups, and more than {MAX_NAMES} are "
                f"selected only by the beginning of their names, unlike {name!r}: {_ADVICE}."
            )
    if len(names) > MAX_NAMES:
        raise UsageError(
            f"--log-group names {len(names)} log groups, and a stack has room for {MAX_NAMES} "
            f"names: {_ADVICE}."
        )
    return ",".join(dict.fromkeys(names))


def _show_filters_command(group: str) -> str:
    """The command that shows the subscription filters of a log group."""
    return aws_command_line("logs", "describe-subscription-filters", "--log-group-name", group)

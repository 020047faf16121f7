"""The states of Step Functions that start ECS tasks or submit jobs of AWS Batch, or execute other
state machines, as far as their definitions say what they start: what an execution computes is
unknown.

https://docs.aws.amazon.com/step-functions/latest/dg/connect-ecs.html
https://docs.aws.amazon.com/step-functions/latest/dg/connect-stepfunctions.html
https://docs.aws.amazon.com/step-functions/latest/dg/connect-batch.html
https://docs.aws.amazon.com/step-functions/latest/dg/concepts-cd-aliasing-versioning.html
https://docs.aws.amazon.com/step-functions/latest/dg/transforming-data.html
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import cache
from itertools import chain, islice
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.aws_errors import (
    OpenClient,
    answer_unless,
    note_only_first,
    noted_errors,
)
from profiler.aws_account.registered_definitions import read_items
from profiler.aws_account.scheduled_targets import TIME_LIMIT, UNKNOWN_VALUE, ScheduledTarget
from profiler.aws_account.started_tasks import moment_ns
from profiler.aws_account.target_contents import (
    execution_target,
    is_machine_version,
    job_of_request,
    machine_arn_without_version,
    machine_name_of_arn,
    task_of_request,
)
from profiler.core.aws_clients import AwsClient
from profiler.core.aws_error_codes import error_code
from profiler.core.ecs_terms import arn_account, arn_region
from profiler.core.json_fields import (
    count_or_none,
    mapping_or_empty,
    text_or_none,
    with_capitalized_names,
)
from profiler.core.json_levels import within_levels
from profiler.core.optional_math import first_known, known_members, known_values, max_known
from profiler.core.text import on_one_line

READ_STATE_MACHINES = "states:ListStateMachines and states:DescribeStateMachine"
READ_ALIASES = "states:ListStateMachineAliases and states:DescribeStateMachineAlias"
# AWS lets an account call DescribeStateMachine 200 times at once, and then 20 times a second.
_MAX_MACHINES = 200
# … and ListStateMachineAliases 100 times, which a plan and an act share, and then once a second.
_MAX_ALIAS_LISTS = 50
_CONCURRENT_READERS = 4
_UNREAD = "It is unknown what state machines of Step Functions start"
_UNREAD_ALIASES = "It is unknown what aliases of state machines start"
_TOO_MANY = (
    f"Only {_MAX_MACHINES} state machines of Step Functions were read, so what others start is "
    "unknown."
)
_TOO_MANY_ALIASES = (
    f"Aliases of only {_MAX_ALIAS_LISTS} state machines of Step Functions were read, so which "
    "versions the aliases of others start is unknown."
)
_RUN_TASK = "ecs:runTask"
_SUBMIT_JOB = "batch:submitJob"
_EXECUTE = "states:startExecution"
_EXECUTE_BY_SDK = "aws-sdk:sfn:startExecution"
_EXECUTE_AND_WAIT = "aws-sdk:sfn:startSyncExecution"
_ACTIONS = (_RUN_TASK, _SUBMIT_JOB, _EXECUTE, _EXECUTE_BY_SDK, _EXECUTE_AND_WAIT)
# The optimized integrations, with their patterns, and the AWS SDK's.
_STARTS = re.compile(
    rf"arn:[^:]+:states:::(?:(?:aws-sdk:)?({_RUN_TASK}|{_SUBMIT_JOB})"
    rf"|({_EXECUTE}|{_EXECUTE_BY_SDK}|{_EXECUTE_AND_WAIT}))"
    r"(?:\.sync(?::2)?|\.waitForTaskToken)?"
)
_WAITS = (".sync", ".sync:2", ".waitForTaskToken", _EXECUTE_AND_WAIT)
_DELETING = "DELETING"  # no execution starts, and those that run end before their next state
_GONE = frozenset({"StateMachineDoesNotExist", "StateMachineDeleting", "ResourceNotFound"})
_JSONATA = re.compile(r"(?s)\s*\{%.*%\}\s*")
_PATH = ".$"  # the end of a field's name whose value JSONPath computes

_Key: TypeAlias = tuple[str, datetime]  # a machine's ARN and creation


class _Machine(Struct, frozen=True):
    """What a state machine starts, and sentences about what could not be read; None: a part that
    could not be read, or that is not there.
    """

    latest: tuple[ScheduledTarget, ...] | None = None  # by its definition
    aliased: tuple[ScheduledTarget, ...] | None = None  # beside that, by its aliases' versions
    problems: tuple[tuple[str, str], ...] = ()  # each with what it is about

    def completed_by_earlier(self, before: "_Machine") -> "_Machine":
        """The machine; what could not be read is as it was before."""
        return replace(
            self,
            latest=first_known(self.latest, before.latest),
            aliased=first_known(self.aliased, before.aliased),
        )

    @property
    def starting_states(self) -> tuple[ScheduledTarget, ...]:
        return (*(self.latest or ()), *(self.aliased or ()))

    @property
    def starts_nothing(self) -> bool:
        return self.latest == () and not self.aliased

    @property
    def is_known(self) -> bool:
        return self.latest is not None and self.aliased is not None


class StartedMachine(Struct, frozen=True, kw_only=True):
    """The states that start tasks or submit jobs, of what a schedule starts. Step Functions lists
    no executions of a machine of the type Express, and none of an earlier one of the same name.
    """

    states: tuple[ScheduledTarget, ...]
    is_express: bool
    created_ns: int | None = None  # of versions, the newest
    nested: tuple[str, ...] = ()  # the ARNs of what its states execute


class StateMachineReader:
    """Reads the state machines of an account. ``on_problem`` gets a sentence about what could not
    be read, once. ``are_all_known``: whether the last call of ``starting_states`` could read all.
    ``versions``: the ARNs of those that schedules and rules start by their numbers.
    """

    def __init__(
        self,
        open_client: OpenClient,
        on_problem: Callable[[str], object],
        versions: Callable[[], Iterable[str]] = lambda: (),
    ) -> None:
        self._open = open_client
        self._versions = versions
        self._on_problem = cache(on_problem)
        self._on_unread = {what: note_only_first(on_problem) for what in (_UNREAD, _UNREAD_ALIASES)}
        self._known: dict[_Key, _Machine] = {}  # as they were described last
        self.are_all_known = False

    def starting_states(self) -> tuple[ScheduledTarget, ...]:
        """The states that start tasks or submit jobs of definitions that they name, also those of
        the versions to which aliases route executions.

        Again, a machine without such a state is not described once more, and what cannot be read is
        as it was.
        """
        self.are_all_known = False
        with noted_errors(self._on_unread[_UNREAD], _UNREAD, READ_STATE_MACHINES):
            client = self._open("stepfunctions")
            machines = read_items(client, "list_state_machines", "stateMachines")
            keys = [
                (str(machine["stateMachineArn"]), machine["creationDate"])
                for machine in islice(machines, _MAX_MACHINES)
            ]
            are_all_listed = next(machines, None) is None
            if not are_all_listed:
                self._on_problem(_TOO_MANY)
            before = {key: self._known.get(key, _Machine()) for key in keys}
            numbered: dict[str, set[str]] = {}
            for version_arn in self._versions():
                numbered.setdefault(machine_arn_without_version(version_arn), set()).add(
                    version_arn
                )
            asked = [key for key in keys if not before[key].starts_nothing or key[0] in numbered]
            with ThreadPoolExecutor(_CONCURRENT_READERS, "state-machine") as pool:
                described = pool.map(lambda key: _describe_machine(client, key[0]), asked)
                read = before | dict(zip(asked, described, strict=True))
                listed = self._whose_aliases_are_read({key: read[key] for key in asked})
                aliased = pool.map(
                    lambda key: _machine_with_aliases(
                        client, key[0], read[key], numbered.get(key[0], frozenset())
                    ),
                    listed,
                )
                read |= dict(zip(listed, aliased, strict=True))
            self._known = {key: one.completed_by_earlier(before[key]) for key, one in read.items()}
            self.are_all_known = are_all_listed and all(one.is_known for one in read.values())
            for what, sentence in chain.from_iterable(one.problems for one in read.values()):
                self._on_unread[what](sentence)
        return tuple(state for state in self._all_states() if state.machine_arn is None)

    def outer_states(self, names: Collection[str]) -> tuple[ScheduledTarget, ...]:
        """The states that start executions of the state machines of these names, also through
        other state machines, as ``starting_states`` has read them.
        """
        found: list[ScheduledTarget] = []
        nested = [state for state in self._all_states() if state.machine_arn is not None]
        inner = set(names)
        while True:
            outer = [
                state for state in nested if machine_name_of_arn(state.machine_arn or "") in inner
            ]
            if len(outer) == len(found):
                return tuple(found)
            found = outer
            inner |= {state.machine_name for state in outer}

    def _all_states(self) -> Iterator[ScheduledTarget]:
        return chain.from_iterable(one.starting_states for one in self._known.values())

    def _whose_aliases_are_read(self, described: Mapping[_Key, _Machine]) -> list[_Key]:
        """The keys of machines whose aliases are listed: first those whose definition starts
        something.
        """
        unknown = [
            key
            for key, machine in described.items()
            if machine.latest is not None and machine.aliased is None
        ]
        if len(unknown) > _MAX_ALIAS_LISTS:
            self._on_problem(_TOO_MANY_ALIASES)
        return sorted(unknown, key=lambda key: not described[key].latest)[:_MAX_ALIAS_LISTS]


def _describe_machine(client: AwsClient, arn: str) -> _Machine:
    """A state machine, without its aliases unless it is gone."""
    problems: list[tuple[str, str]] = []
    with noted_errors(lambda said: problems.append((_UNREAD, said)), _UNREAD, READ_STATE_MACHINES):
        described = answer_unless(_is_gone, client.describe_state_machine, stateMachineArn=arn)
        if described is None or described.get("status") == _DELETING:
            return _Machine(latest=(), aliased=())
        return _Machine(latest=tuple(_targets_of_description(arn, described)))
    return _Machine(problems=tuple(problems))


def _machine_with_aliases(
    client: AwsClient, arn: str, machine: _Machine, numbered: Collection[str]
) -> _Machine:
    """A described state machine with the versions of its aliases, and those that are started by
    their numbers.
    """
    problems: list[tuple[str, str]] = []
    with noted_errors(
        lambda said: problems.append((_UNREAD_ALIASES, said)), _UNREAD_ALIASES, READ_ALIASES
    ):
        versions = {*numbered, *_versions_of_aliases(client, arn)}
        return replace(
            machine, aliased=tuple(_states_of_versions(client, arn, versions, machine.latest or ()))
        )
    return replace(machine, problems=tuple(problems))


def _versions_of_aliases(client: AwsClient, arn: str) -> Iterator[str]:
    """The versions to which a machine's aliases route executions. Raises boto3's errors."""
    # A page has 100 aliases, and AWS allows no more.
    listed = answer_unless(_is_gone, client.list_state_machine_aliases, stateMachineArn=arn) or {}
    for alias in listed.get("stateMachineAliases", ()):
        yield from _versions_of_alias(client, alias["stateMachineAliasArn"])


def _versions_of_alias(client: AwsClient, alias_arn: str) -> Iterator[str]:
    described = answer_unless(
        _is_gone, client.describe_state_machine_alias, stateMachineAliasArn=alias_arn
    )
    for route in (described or {}).get("routingConfiguration", ()):
        if route["weight"]:
            yield str(route["stateMachineVersionArn"])


def _states_of_versions(
    client: AwsClient,
    arn: str,
    versions: Collection[str],
    latest: tuple[ScheduledTarget, ...],
) -> Iterator[ScheduledTarget]:
    """The states of a machine's versions, but for those that are in its definition as they are.
    Raises boto3's errors.
    """
    for version_arn in sorted(versions):
        described = answer_unless(
            _is_gone, client.describe_state_machine, stateMachineArn=version_arn
        )
        for target in _targets_of_description(arn, described or {}):
            if target not in latest:
                number = version_arn.rpartition(":")[2]
                yield replace(target, group=f"{target.group}, version {number}")


def read_started_machine(client: AwsClient, started_arn: str) -> StartedMachine | None:
    """What a schedule starts with this ARN of a state machine, a version or an alias; None if there
    is none. Raises boto3's errors.
    """
    arn = machine_arn_without_version(started_arn)
    is_alias = started_arn != arn and not is_machine_version(started_arn)
    named = sorted(_versions_of_alias(client, started_arn)) if is_alias else [started_arn]
    states: list[ScheduledTarget] = []
    is_express = False
    is_there = False
    created_ns: int | None = None
    nested: list[str] = []
    for one in named:
        described = answer_unless(_is_gone, client.describe_state_machine, stateMachineArn=one)
        if described is not None and described.get("status") != _DELETING:
            is_there = True
            is_express |= described.get("type") == "EXPRESS"
            created_ns = max_known(created_ns, moment_ns(described.get("creationDate")))
            for target in _targets_of_description(arn, described):
                if target.machine_arn is None:
                    states.append(target)
                else:
                    nested.append(target.machine_arn)
    if not is_there:
        return None
    return StartedMachine(
        states=tuple(states), is_express=is_express, created_ns=created_ns, nested=tuple(nested)
    )


def _is_gone(error: Exception) -> bool:
    """Whether a machine or a version was deleted after it was listed."""
    return error_code(error) in _GONE


def _targets_of_description(arn: str, described: Mapping[str, Any]) -> Iterator[ScheduledTarget]:
    """Those of a described machine or version."""
    return targets_of_machine(
        arn, described.get("definition"), text_or_none(described.get("roleArn"))
    )


def targets_of_machine(
    arn: str, definition: object, role_arn: str | None = None
) -> Iterator[ScheduledTarget]:
    """The states of a state machine that start tasks or submit jobs of definitions that they name,
    or executions of state machines, in the account and the Region of the machine.
    """
    source = text_or_none(definition) or ""
    role = known_members({"RoleArn": role_arn})
    if not any(action in source for action in _ACTIONS):
        return
    try:
        machine = json.loads(within_levels(source))
    except ValueError:
        return
    for name, action, state in _starting_states(machine):
        given = state.get("Arguments", state.get("Parameters"))
        request = mapping_or_empty(with_capitalized_names(_with_marks_for_computed(given)))
        if action == _RUN_TASK:
            started = task_of_request(request)
        elif action == _SUBMIT_JOB:
            started = {**job_of_request(request, arn), "request": request}
        else:
            started = execution_target(text_or_none(request.get("StateMachineArn")) or "")
        named = started["definition_arn"] or started.get("machine_arn", "")
        is_elsewhere = "Credentials" in state or (
            named.startswith("arn:") and _account_and_region(named) != _account_and_region(arn)
        )
        if named and UNKNOWN_VALUE not in named and not is_elsewhere:
            yield ScheduledTarget(
                kind="state",
                name=on_one_line(name),
                group=arn.rpartition(":")[2],
                content={**_state_time_limit(machine, state), **role},
                **started,
            )


def _state_time_limit(
    machine: Mapping[str, object], state: Mapping[str, object]
) -> Mapping[str, float]:
    """The shortest time in seconds after which Step Functions ends a state that waits for what it
    has started, or the execution around it; empty without any.
    """
    waits = (text_or_none(state.get("Resource")) or "").endswith(_WAITS)
    limits_seconds = [machine.get("TimeoutSeconds"), state.get("TimeoutSeconds") if waits else None]
    known_seconds = known_values(map(count_or_none, limits_seconds))
    return {TIME_LIMIT: min(known_seconds)} if waits and known_seconds else {}


def _account_and_region(arn: str) -> tuple[str | None, str | None]:
    return arn_account(arn), arn_region(arn)


def _starting_states(
    value: Any,  # noqa: ANN401  JSON
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The names of the states that run a task of ECS, submit a job or start an execution, what they
    call, and the states; also in branches of Parallel and in items of Map.
    """
    if isinstance(value, list):
        for item in value:
            yield from _starting_states(item)
    if not isinstance(value, dict):
        return
    for name, state in mapping_or_empty(value.get("States")).items():
        starts = _STARTS.fullmatch(text_or_none(mapping_or_empty(state).get("Resource")) or "")
        if starts:
            yield name, starts[1] or starts[2], mapping_or_empty(state)
    for item in value.values():
        yield from _starting_states(item)


def _with_marks_for_computed(value: Any) -> Any:  # noqa: ANN401  JSON
    """The value with a mark in place of what an execution computes."""
    if isinstance(value, dict):
        return {
            name.removesuffix(_PATH): (
                UNKNOWN_VALUE if name.endswith(_PATH) else _with_marks_for_computed(item)
            )
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_with_marks_for_computed(item) for item in value]
    is_computed = isinstance(value, str) and _JSONATA.fullmatch(value)
    return UNKNOWN_VALUE if is_computed else value

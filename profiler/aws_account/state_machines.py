"""The states of Step Functions that start ECS tasks, as far as their definitions say what they
start: a value that an execution computes is unknown.

https://docs.aws.amazon.com/step-functions/latest/dg/connect-ecs.html
https://docs.aws.amazon.com/step-functions/latest/dg/transforming-data.html
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import cache
from itertools import chain, islice
from typing import Any

from profiler.aws_account.aws_errors import (
    OpenClient,
    answer_unless,
    first_only,
    noted_errors,
)
from profiler.aws_account.registered_definitions import read_items
from profiler.aws_account.scheduled_targets import UNKNOWN_VALUE, ScheduledTarget, run_by_request
from profiler.core.aws_clients import error_code
from profiler.core.ecs_terms import arn_account, arn_region
from profiler.core.json_fields import capitalized, mapping, text
from profiler.core.json_levels import within_levels
from profiler.core.text import on_one_line

READ_STATE_MACHINES = "states:ListStateMachines and states:DescribeStateMachine"
# AWS lets an account call DescribeStateMachine 200 times at once, and then 20 times a second.
_MAX_MACHINES = 200
_UNREAD = "It is unknown what state machines of Step Functions start"
_TOO_MANY = (
    f"Only {_MAX_MACHINES} state machines of Step Functions were read, so what others start is "
    "unknown."
)
# RunTask of the optimized integration, with its patterns, and of the AWS SDK's.
_RUN_TASK = re.compile(
    r"arn:[^:]+:states:::(?:aws-sdk:)?ecs:runTask(?:\.sync(?::2)?|\.waitForTaskToken)?"
)
_ECS = ":ecs:runTask"
_DELETING = "DELETING"  # no execution starts, and those that run end before their next state
_JSONATA = re.compile(r"(?s)\s*\{%.*%\}\s*")
_PATH = ".$"  # the end of a field's name whose value JSONPath computes


class StateMachines:
    """Reads the state machines of an account. ``on_problem`` gets a sentence about what could not
    be read, once.
    """

    def __init__(self, open_client: OpenClient, on_problem: Callable[[str], object]) -> None:
        self._open = open_client
        self._on_problem = cache(on_problem)
        self._on_unread = first_only(on_problem)
        # By ARN and creation, as they were described last.
        self._known: dict[tuple[str, datetime], tuple[ScheduledTarget, ...]] = {}

    def targets(self) -> tuple[ScheduledTarget, ...]:
        """The states that start tasks of definitions that they name.

        Again, a machine without such a state is not described once more, and what cannot be read is
        as it was.
        """
        present: list[tuple[str, datetime]] = []
        with noted_errors(self._on_unread, _UNREAD, READ_STATE_MACHINES):
            client = self._open("stepfunctions")
            machines = read_items(client, "list_state_machines", "stateMachines")
            for machine in islice(machines, _MAX_MACHINES):
                arn = machine["stateMachineArn"]
                key = arn, machine["creationDate"]
                present.append(key)
                if self._known.get(key) == ():
                    continue
                with noted_errors(self._on_unread, _UNREAD, READ_STATE_MACHINES):
                    call = client.describe_state_machine
                    described = answer_unless(_is_gone, call, stateMachineArn=arn) or {}
                    self._known[key] = ()
                    if described.get("status") != _DELETING:
                        definition = described.get("definition")
                        self._known[key] = tuple(targets_of_machine(arn, definition))
            if next(machines, None) is not None:
                self._on_problem(_TOO_MANY)
            self._known = {key: self._known[key] for key in present if key in self._known}
        return tuple(chain.from_iterable(self._known.values()))


def _is_gone(error: Exception) -> bool:
    """Whether a machine was deleted after it was listed."""
    return error_code(error) == "StateMachineDoesNotExist"


def targets_of_machine(arn: str, definition: object) -> Iterator[ScheduledTarget]:
    """The states of a state machine that start tasks of definitions that they name, in the account
    and the Region of the machine.
    """
    source = text(definition) or ""
    if _ECS not in source:
        return
    try:
        machine = json.loads(within_levels(source))
    except ValueError:
        return
    for name, state in _task_states(machine):
        given = state.get("Arguments", state.get("Parameters"))
        request = mapping(capitalized(_without_computed(given)))
        started = run_by_request(request)
        named = started["definition_arn"]
        is_elsewhere = "Credentials" in state or (
            named.startswith("arn:") and _place(named) != _place(arn)
        )
        if named and UNKNOWN_VALUE not in named and not is_elsewhere:
            yield ScheduledTarget(
                kind="state",
                name=on_one_line(name),
                group=arn.rpartition(":")[2],
                content={},
                **started,
            )


def _place(arn: str) -> tuple[str | None, str | None]:
    return arn_account(arn), arn_region(arn)


def _task_states(value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:  # noqa: ANN401  JSON
    """The states that run a task of ECS, also in branches of Parallel and in items of Map."""
    if isinstance(value, list):
        for item in value:
            yield from _task_states(item)
    if not isinstance(value, dict):
        return
    for name, state in mapping(value.get("States")).items():
        resource = text(mapping(state).get("Resource")) or ""
        if _RUN_TASK.fullmatch(resource):
            yield name, mapping(state)
    for item in value.values():
        yield from _task_states(item)


def _without_computed(value: Any) -> Any:  # noqa: ANN401  JSON
    """The value with a mark in place of what an execution computes."""
    if isinstance(value, dict):
        return {
            name.removesuffix(_PATH): (
                UNKNOWN_VALUE if name.endswith(_PATH) else _without_computed(item)
            )
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_without_computed(item) for item in value]
    is_computed = isinstance(value, str) and _JSONATA.fullmatch(value)
    return UNKNOWN_VALUE if is_computed else value

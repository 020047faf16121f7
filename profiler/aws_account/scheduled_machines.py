"""Schedules and rules that start state machines of Step Functions whose states, or those of state
machines that they execute, start ECS tasks or submit jobs, and their executions.

https://docs.aws.amazon.com/step-functions/latest/apireference/API_ListExecutions.html
"""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.aws_errors import OpenClient, aws_errors, note_only_first
from profiler.aws_account.scheduled_targets import ScheduledTarget, schedule_of
from profiler.aws_account.started_tasks import moment_ns
from profiler.aws_account.state_machines import StartedMachine, read_started_machine
from profiler.aws_account.target_contents import machine_name_of_arn
from profiler.core.aws_clients import AwsClient
from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import known
from profiler.core.timestamps import NS_PER_DAY, NS_PER_HOUR, NS_PER_MINUTE
from profiler.schedules.schedule_model import EXECUTION, ReadTasks, Schedule, StartedTask

# Step Functions keeps an execution for 90 days after its end; the rest is for the time that
# reading takes.
_KEPT_NS = 90 * NS_PER_DAY - NS_PER_MINUTE
_MAX_NESTED = 20  # state machines that one starts, also through others
_MAX_PAGES = 5  # of 1,000 executions of a machine
_READ = "states:DescribeStateMachine and states:DescribeStateMachineAlias"
_UNREAD = "It is unknown whether all schedules of state machines start tasks or jobs"
EXPRESS = "Its state machine is of the type Express, whose executions Step Functions does not list."


class MachineSchedule(Struct, frozen=True, kw_only=True):
    """A schedule or a rule that starts a state machine, and the machine's states that start tasks
    or submit jobs. Without a state, the machine does not exist any more.
    """

    schedule: Schedule
    states: tuple[ScheduledTarget, ...]
    is_express: bool = False

    @property
    def is_gone(self) -> bool:
        return not self.states


def read_machine_schedules(
    open_client: OpenClient,
    targets: Iterable[ScheduledTarget],
    on_problem: Callable[[str], object],
    *,
    now_ns: int = 0,
    idle: dict[str, int] | None = None,
    may_continue: Callable[[], bool] = lambda: True,
) -> tuple[MachineSchedule, ...]:
    """The schedules and rules, of those that start state machines, whose machine starts tasks or
    jobs of definitions that it names, or does not exist any more.

    ``idle`` keeps since when machines, by their ARNs, are known to start nothing: they are not read
    again for an hour. ``may_continue``: whether there is time to read another machine.
    """
    note = note_only_first(on_problem)
    idle = {} if idle is None else idle
    machines = _MachineReader(open_client, may_continue)
    read: dict[str, StartedMachine | None] = {
        arn: StartedMachine(states=(), is_express=False)
        for arn, since_ns in idle.items()
        if now_ns - since_ns < NS_PER_HOUR
    }
    schedules = []
    for target in targets:
        arn = target.machine_arn or ""
        if arn not in read:
            try:
                read[arn] = machines.machine_with_nested(arn, note)
            except TaskProfilerError as error:
                note(str(error))
        if arn not in read:
            continue
        started = read[arn]
        states = () if started is None else started.states
        if started is not None and not states:
            if now_ns - idle.get(arn, 0) >= NS_PER_HOUR:
                idle[arn] = now_ns
        else:
            idle.pop(arn, None)
        if started is None or states:
            families = sorted({state.family for state in states})
            schedules.append(
                MachineSchedule(
                    schedule=replace(
                        schedule_of(target),
                        definition_arn=", ".join(families),
                        machine_created_ns=known(attrgetter("created_ns"), started),
                    ),
                    states=states,
                    is_express=started is not None and started.is_express,
                )
            )
    return tuple(schedules)


class _MachineReader:
    """Reads what state machines start, each once: many may execute the same one."""

    def __init__(self, open_client: OpenClient, may_continue: Callable[[], bool]) -> None:
        self._open = open_client
        self._may_continue = may_continue
        self._known: dict[str, StartedMachine | TaskProfilerError | None] = {}

    def machine_with_nested(
        self, started_arn: str, note: Callable[[str], object]
    ) -> StartedMachine | None:
        """What a schedule starts with this ARN, with the states of the state machines that it
        executes. ``note`` gets a sentence about those that are not read. Raises TaskProfilerError,
        also if no other one has a state.
        """
        started = self._read_machine_once(started_arn)
        if started is None:
            return None
        states = [*started.states]
        waiting = [*started.nested]
        seen = {started_arn}
        unread: list[str] = []
        while waiting:
            arn = waiting.pop(0)
            if arn in seen:
                continue
            if len(seen) > _MAX_NESTED:
                name = machine_name_of_arn(started_arn)
                unread.append(f"{_UNREAD}: {name} executes more than {_MAX_NESTED} others.")
                break
            seen.add(arn)
            try:
                inner = self._read_machine_once(arn)
            except TaskProfilerError as error:
                unread.append(str(error))
                continue
            if inner is not None:
                states += [state for state in inner.states if state not in states]
                waiting += inner.nested
        for sentence in unread[:1]:
            if not states:
                raise TaskProfilerError(sentence)
            note(sentence)
        return replace(started, states=tuple(states), nested=())

    def _read_machine_once(self, arn: str) -> StartedMachine | None:
        """What a machine starts itself. Raises TaskProfilerError, again for a machine that could
        not be read.
        """
        if arn not in self._known:
            self._known[arn] = self._read_machine_or_error(arn)
        found = self._known[arn]
        if isinstance(found, TaskProfilerError):
            raise found
        return found

    def _read_machine_or_error(self, arn: str) -> StartedMachine | TaskProfilerError | None:
        if not self._may_continue():
            return TaskProfilerError(f"{_UNREAD}: the invocation ran out of time.")
        try:
            with aws_errors(_UNREAD, _READ):
                return read_started_machine(self._open("stepfunctions"), arn)
        except TaskProfilerError as error:
            return error


def read_executions(
    open_client: OpenClient, schedules: Iterable[Schedule], now_ns: int, since_ns: int
) -> dict[str, ReadTasks]:
    """The executions of these schedules' state machines that began since ``since_ns``, by the ARN
    of the machine. A machine that cannot be read has a problem instead.
    """
    created_ns: dict[str, int] = {}
    for schedule in schedules:
        arn = schedule.cluster_arn
        created_ns[arn] = max(created_ns.get(arn, 0), schedule.machine_created_ns or 0)
    executions = {}
    for arn in sorted(created_ns):
        name = arn.rpartition(":")[2]
        what = f"The executions of the state machine {name} could not be listed"
        try:
            with aws_errors(what, "states:ListExecutions"):
                client = open_client("stepfunctions")
                found = _read_machine_executions(client, arn, now_ns, since_ns)
                known_since_ns = max(found.known_since_ns, created_ns[arn])
                executions[arn] = replace(found, known_since_ns=known_since_ns)
        except TaskProfilerError as error:
            executions[arn] = ReadTasks(problem=str(error))
    return executions


def _read_machine_executions(client: AwsClient, arn: str, now_ns: int, since_ns: int) -> ReadTasks:
    """Raises boto3's errors."""
    tasks: list[StartedTask] = []
    known_since_ns = max(since_ns, now_ns - _KEPT_NS)
    oldest_ns = now_ns
    pages = client.get_paginator("list_executions").paginate(stateMachineArn=arn)
    for number, page in enumerate(pages, 1):  # the newest come first
        for execution in page["executions"]:
            started_ns = moment_ns(execution["startDate"]) or 0
            # AWS does not say which of its times places a redriven one.
            if not execution.get("redriveDate"):
                oldest_ns = min(oldest_ns, started_ns)
            if started_ns >= known_since_ns:
                tasks.append(_started_execution(execution, started_ns))
        if oldest_ns < known_since_ns:
            break
        if number == _MAX_PAGES and page.get("nextToken"):
            known_since_ns = oldest_ns
            break
    return ReadTasks(tasks=tuple(tasks), read_ns=now_ns, known_since_ns=known_since_ns)


def _started_execution(execution: Mapping[str, Any], started_ns: int) -> StartedTask:
    return StartedTask(
        arn=f"execution/{execution['name']}",
        family="",
        started_by=EXECUTION,
        created_ns=started_ns,
        started_ns=started_ns,
        stopped_ns=moment_ns(execution.get("stopDate")),
    )

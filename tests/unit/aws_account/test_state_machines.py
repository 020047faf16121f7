"""States of Step Functions that start ECS tasks: what their definitions say, and what not."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from profiler.aws_account.scheduled_targets import may_start_target
from profiler.aws_account.state_machines import StateMachineReader, targets_of_machine
from profiler.aws_account.target_overrides import (
    job_size_overrides,
    size_overrides,
    submitted_timeout_ms,
    why_target_is_refused,
)
from tests.cases import each_case
from tests.step_functions import RUN_TASK, machine, running

ARN = "arn:aws:ecs:us-east-1:123456789012:task-definition/nightly:1"
MACHINE = "arn:aws:states:us-east-1:123456789012:stateMachine:m"
ON_FARGATE: Mapping[str, object] = {
    "cpu": "256",
    "memory": "512",
    "requiresCompatibilities": ["FARGATE"],
    "containerDefinitions": [{"name": "batch"}, {"name": "log"}],
}
NIGHTLY = {"TaskDefinition": "nightly", "Cluster": "jobs"}
UNREAD = "It is unknown what state machines of Step Functions start: AWS refused "


def found(definition: object) -> list[tuple[str, str]]:
    given = definition if isinstance(definition, str) else json.dumps(definition)
    return [(one.title, one.definition_arn) for one in targets_of_machine(MACHINE, given)]


@each_case(
    "resource",
    [
        RUN_TASK,
        "arn:aws:states:::ecs:runTask",
        "arn:aws:states:::ecs:runTask.waitForTaskToken",
        "arn:aws:states:::aws-sdk:ecs:runTask",
        "arn:aws-cn:states:::aws-sdk:ecs:runTask.waitForTaskToken",
    ],
)
@each_case("inside", ["alone", "branch", "items", "iterator"])
def test_a_state_that_runs_a_task_is_found_wherever_it_is(resource: str, inside: str) -> None:
    part = machine(running(NIGHTLY, resource))
    outer: Mapping[str, Any] = {
        "branch": {"Type": "Parallel", "Branches": [machine({"Type": "Pass"}), part]},
        "items": {"Type": "Map", "ItemProcessor": part},
        "iterator": {"Type": "Map", "Iterator": part},
    }
    whole = part if inside == "alone" else {"States": {"Outer": outer[inside]}}
    assert found(whole) == [("state 'Run' of the state machine m", "nightly")]
    with_arn = json.loads(json.dumps(whole).replace('"nightly"', f'"{ARN}"'))
    assert found(with_arn) == [("state 'Run' of the state machine m", ARN)]


@each_case(
    "definition",
    [
        machine(running({"TaskDefinition.$": "$.definition"})),
        machine(running({"TaskDefinition": "{% $states.input.definition %}"}, field="Arguments")),
        machine(running("{% $states.input %}", field="Arguments")),
        machine({"Type": "Task", "Resource": RUN_TASK, "End": True}),
        machine(running(NIGHTLY, "arn:aws:states:::ecs:runTaskSet")),
        machine(running(NIGHTLY, "arn:aws:states:::ecs:stopTask")),
        machine({"Type": "Pass", "Result": running(NIGHTLY)["Parameters"], "Comment": RUN_TASK}),
        f"not JSON {RUN_TASK}",
        f'["{RUN_TASK}"]',
        f'{{"States": ["{RUN_TASK}"]}}',
        machine({**running(NIGHTLY), "Credentials": {"RoleArn": "arn:aws:iam::1:role/other"}}),
        machine(running({"TaskDefinition": ARN.replace("123456789012", "999999999999")})),
        machine(running({"TaskDefinition": ARN.replace("us-east-1", "eu-west-1")})),
        "[" * 200 + f'"{RUN_TASK}"' + "]" * 200,
        "",
    ],
)
def test_what_an_execution_decides_and_what_is_no_task_starts_no_known_family(
    definition: object,
) -> None:
    assert found(definition) == []


def of_batch(**fields: object) -> dict[str, object]:
    return {"ContainerOverrides": [{"Name": "batch", **fields}]}


@each_case(
    ("overrides", "refusal"),
    [
        ({"ContainerOverrides": [{"Name": "btch"}]}, "overrides the container btch, which the"),
        ({"Memory": "8192"}, "makes it 0.25 vCPU, 8 GB, which Fargate does not have"),
        (of_batch(Memory=1024), "gives containers more than the task's 0.25 vCPU, 512 MB"),
        ({"Memory": "1024", "Cpu": "512"}, None),
        (of_batch(Command=["<etl>"]), None),
    ],
)
@each_case("field", ["Parameters", "Arguments"])
def test_a_states_overrides_are_judged_as_a_schedules_input(
    overrides: dict[str, object], refusal: str | None, field: str
) -> None:
    request = {**NIGHTLY, "LaunchType": "FARGATE", "Overrides": overrides}
    (target,) = targets_of_machine(MACHINE, json.dumps(machine(running(request, field=field))))
    why = why_target_is_refused(target, ON_FARGATE)
    assert why is None if refusal is None else refusal in str(why)
    assert size_overrides(target).unknown == ""
    assert may_start_target(target, 0)


@each_case(
    ("overrides", "is_unknown"),
    [
        ({"Memory.$": "$.memory"}, True),
        ({"Memory": "{% $states.input.memory %}"}, True),
        ({"ContainerOverrides.$": "$.containers"}, True),
        (of_batch(**{"Memory.$": "$.memory"}), True),
        ("{% $states.input.overrides %}", True),
        ({"ContainerOverrides": [{"Name.$": "$.name", "Memory": 100}]}, True),
        # A computed name of a container, and a computed command, say nothing of sizes.
        ({"ContainerOverrides": [{"Name.$": "$.name"}]}, False),
        (of_batch(**{"Command.$": "$.commands"}), False),
        (of_batch(Command="{% $states.input.commands %}"), False),
    ],
)
def test_a_size_that_an_execution_computes_is_unknown(
    overrides: object,
    is_unknown: bool,  # noqa: FBT001
) -> None:
    request = {**NIGHTLY, "Overrides": overrides}
    (target,) = targets_of_machine(MACHINE, json.dumps(machine(running(request))))
    assert bool(size_overrides(target).unknown) is is_unknown
    assert why_target_is_refused(target, ON_FARGATE) is None


@each_case(
    "resource",
    [
        "arn:aws:states:::batch:submitJob.sync",
        "arn:aws:states:::batch:submitJob",
        "arn:aws:states:::aws-sdk:batch:submitJob",
        "arn:aws-us-gov:states:::aws-sdk:batch:submitJob.waitForTaskToken",
    ],
)
@each_case("field", ["Parameters", "Arguments"])
def test_a_state_that_submits_a_job_is_found(resource: str, field: str) -> None:
    request = {"JobDefinition": "nightly:3", "JobName": "night", "JobQueue": "spot"}
    definition = json.dumps(machine(running(request, resource, field)))
    (target,) = targets_of_machine(MACHINE, definition)
    assert target.is_of_job
    assert target.family == "nightly"
    assert target.pinned_revision == "nightly:3"
    assert target.cluster_arn == "arn:aws:batch:us-east-1:123456789012:job-queue/spot"
    elsewhere = json.dumps(machine(running({**request, "JobDefinition": ""}, resource, field)))
    assert not [*targets_of_machine(MACHINE, elsewhere)]


@each_case(
    ("overrides", "memory_mb", "is_unknown"),
    [
        ({"ResourceRequirements": [{"Type": "MEMORY", "Value": "1800"}]}, 1800, False),
        ({"Memory": 1800}, 1800, False),
        ({"Command": ["<etl>"]}, None, False),
        ({"Command.$": "$.command"}, None, False),
        ({"Memory.$": "$.memory"}, None, True),
        ({"ResourceRequirements": [{"Type": "MEMORY", "Value.$": "$.memory"}]}, None, True),
        ({"ResourceRequirements.$": "$.sizes"}, None, True),
        ("{% $states.input.overrides %}", None, True),
    ],
)
def test_what_a_state_gives_to_a_job_is_read_as_a_schedules(
    overrides: object,
    memory_mb: int | None,
    is_unknown: bool,  # noqa: FBT001
) -> None:
    request = {"JobDefinition": "nightly", "ContainerOverrides": overrides, "JobName": "night"}
    definition = json.dumps(machine(running(request, "arn:aws:states:::batch:submitJob.sync")))
    (target,) = targets_of_machine(MACHINE, definition)
    found = job_size_overrides(target)
    assert bool(found.unknown) is is_unknown
    assert found.task.get("memory") == (None if memory_mb is None else str(memory_mb))


@pytest.mark.parametrize(
    ("timeout", "expected_ms"),
    [({"AttemptDurationSeconds": 900}, 900_000), ({"AttemptDurationSeconds.$": "$.s"}, None)],
)
def test_a_states_timeout_of_a_job_is_known_unless_it_is_computed(
    timeout: object, expected_ms: int | None
) -> None:
    request = {"JobDefinition": "nightly", "Timeout": timeout}
    definition = json.dumps(machine(running(request, "arn:aws:states:::batch:submitJob")))
    (target,) = targets_of_machine(MACHINE, definition)
    assert submitted_timeout_ms(target) == expected_ms


class FakeStates:
    """Step Functions' client, with machines in one page each."""

    def __init__(self, machines: Mapping[str, Mapping[str, Any]]) -> None:
        self.machines = dict(machines)  # and versions, such as ``etl:2``
        self.routes: dict[str, dict[str, int]] = {}  # of an alias, such as ``etl:live``, in percent
        self.alias_lists = 0
        self.refused: set[str] = set()
        self.deleted: set[str] = set()  # since they were listed
        self.deleting: set[str] = set()
        self.described: list[str] = []

    def get_paginator(self, operation: str) -> "FakeStates":
        assert operation == "list_state_machines"
        return self

    def paginate(self) -> Any:
        self._check("ListStateMachines")
        for name in self.machines:
            if ":" in name:
                continue
            one = {"stateMachineArn": f"arn:{name}", "name": name, "creationDate": _MADE}
            yield {"stateMachines": []}
            yield {"stateMachines": [one]}

    def describe_state_machine(self, *, stateMachineArn: str) -> dict[str, str]:
        name = stateMachineArn.removeprefix("arn:")
        self._check(name)
        if name in self.deleted:
            error = {"Error": {"Code": "StateMachineDoesNotExist", "Message": f"not: arn:{name}"}}
            raise ClientError(error, "DescribeStateMachine")
        self.described.append(name)
        status = "DELETING" if name in self.deleting else "ACTIVE"
        return {"definition": json.dumps(self.machines[name]), "status": status}

    def list_state_machine_aliases(self, *, stateMachineArn: str) -> dict[str, Any]:
        name = stateMachineArn.removeprefix("arn:")
        self.alias_lists += 1
        self._check("ListStateMachineAliases")
        aliases = [alias for alias in self.routes if alias.startswith(f"{name}:")]
        return {
            "stateMachineAliases": [{"stateMachineAliasArn": f"arn:{alias}"} for alias in aliases]
        }

    def describe_state_machine_alias(self, *, stateMachineAliasArn: str) -> dict[str, Any]:
        routes = self.routes[stateMachineAliasArn.removeprefix("arn:")]
        return {
            "routingConfiguration": [
                {"stateMachineVersionArn": f"arn:{version}", "weight": weight}
                for version, weight in routes.items()
            ]
        }

    def _check(self, what: str) -> None:
        if what in self.refused:
            message = f"not authorized to do it on resource: arn:{what}"
            error = {"Error": {"Code": "AccessDeniedException", "Message": message}}
            raise ClientError(error, what)


_MADE = datetime(2026, 11, 1, tzinfo=UTC)


def test_a_machine_without_tasks_is_described_once_and_a_changed_one_is_read_again() -> None:
    aws = FakeStates({"etl": machine(running(NIGHTLY)), "other": machine({"Type": "Pass"})})
    said: list[str] = []
    machines = StateMachineReader(lambda _service: aws, said.append)
    assert [one.definition_arn for one in machines.starting_states()] == ["nightly"]
    aws.machines["etl"] = machine(running({"TaskDefinition": "weekly"}))
    aws.machines["newer"] = machine(running(NIGHTLY))
    assert [one.definition_arn for one in machines.starting_states()] == ["weekly", "nightly"]
    assert sorted(aws.described) == ["etl", "etl", "newer", "other"]
    assert machines.are_all_known
    assert said == []


def test_the_versions_of_aliases_count_beside_the_definition() -> None:
    """A version to which no alias routes executions, and a state that is as in the definition, do
    not.
    """
    weekly = machine(running({"TaskDefinition": "weekly"}))
    aws = FakeStates(
        {
            "etl": machine(running(NIGHTLY)),
            "etl:1": weekly,
            "etl:2": machine(running(NIGHTLY)),
            "etl:3": machine(running({"TaskDefinition": "unused"})),
            "edited": machine({"Type": "Pass"}),
            "edited:7": weekly,
        }
    )
    aws.routes = {"etl:live": {"etl:1": 10, "etl:2": 90, "etl:3": 0}, "edited:a": {"edited:7": 100}}
    aws.routes["etl:same"] = {"etl:1": 100}
    said: list[str] = []
    machines = StateMachineReader(lambda _service: aws, said.append)
    starts = [("etl", "nightly"), ("etl, version 1", "weekly"), ("edited, version 7", "weekly")]
    assert [(one.group, one.definition_arn) for one in machines.starting_states()] == starts
    assert said == []
    aws.refused = {"ListStateMachineAliases"}
    assert [(one.group, one.definition_arn) for one in machines.starting_states()] == starts
    (sentence,) = said
    assert sentence.startswith("It is unknown what aliases of state machines start: AWS refused ")
    assert sentence.endswith(
        "allow states:ListStateMachineAliases and states:DescribeStateMachineAlias."
    )
    others = StateMachineReader(lambda _service: aws, said.append)
    assert [one.group for one in others.starting_states()] == ["etl"]
    assert not machines.are_all_known
    assert not others.are_all_known


def test_what_may_not_be_read_is_said_once_and_hides_nothing_else() -> None:
    aws = FakeStates({"etl": machine(running(NIGHTLY)), "secret": {}, "hidden": {}})
    aws.refused = {"secret", "hidden"}
    said: list[str] = []
    machines = StateMachineReader(lambda _service: aws, said.append)
    assert [len(machines.starting_states()) for _ in range(2)] == [1, 1]
    assert not machines.are_all_known
    (sentence,) = said
    assert sentence.startswith(UNREAD)
    assert sentence.endswith("allow states:ListStateMachines and states:DescribeStateMachine.")
    aws.refused = {"ListStateMachines"}
    assert StateMachineReader(lambda _service: aws, said.append).starting_states() == ()


@pytest.mark.parametrize("refused", ["ListStateMachines", "etl"])
def test_what_cannot_be_read_again_is_as_it_was(refused: str) -> None:
    """An act must not take a size because what overrides it is not returned any more."""
    aws = FakeStates({"etl": machine(running(NIGHTLY)), "other": machine(running(NIGHTLY))})
    machines = StateMachineReader(lambda _service: aws, lambda _sentence: None)
    before = machines.starting_states()
    aws.refused = {refused}
    assert machines.starting_states() == before
    assert not machines.are_all_known
    aws.refused = set()
    del aws.machines["etl"]
    assert [one.group for one in machines.starting_states()] == ["other"]


def test_a_machine_that_is_deleted_after_it_was_listed_starts_nothing_and_is_no_problem() -> None:
    aws = FakeStates({name: machine(running(NIGHTLY)) for name in ("etl", "old", "older")})
    said: list[str] = []
    machines = StateMachineReader(lambda _service: aws, said.append)
    aws.deleting = {"older"}
    assert [one.group for one in machines.starting_states()] == ["etl", "old"]
    aws.deleted = {"old"}
    assert [one.group for one in machines.starting_states()] == ["etl"]
    assert said == []


def test_of_very_many_machines_a_part_is_read_and_that_is_said() -> None:
    aws = FakeStates({f"m{number}": machine({"Type": "Pass"}) for number in range(201)})
    said: list[str] = []
    machines = StateMachineReader(lambda _service: aws, said.append)
    machines.starting_states()
    assert not machines.are_all_known
    assert len(aws.described) == 200
    assert [sentence.partition(" of Step")[0] for sentence in said] == [
        "Only 200 state machines",
        "Aliases of only 50 state machines",
    ]


def test_aliases_are_read_first_of_machines_that_start_something() -> None:
    """AWS lets an account list aliases 100 times at once, and then once a second."""
    passes = {f"a{number}": machine({"Type": "Pass"}) for number in range(60)}
    aws = FakeStates(
        passes
        | {
            "etl": machine(running(NIGHTLY)),
            "etl:1": machine(running({"TaskDefinition": "weekly"})),
        }
    )
    aws.routes = {"etl:live": {"etl:1": 100}}
    machines = StateMachineReader(lambda _service: aws, lambda _sentence: None)
    for lists in (50, 51):
        assert [one.group for one in machines.starting_states()] == ["etl", "etl, version 1"]
        assert aws.alias_lists == lists

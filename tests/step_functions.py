"""State machines of Step Functions whose states call RunTask of ECS or SubmitJob of AWS Batch."""

import json
from collections.abc import Mapping
from typing import Any

from profiler.core.aws_clients import AwsClient

RUN_TASK = "arn:aws:states:::ecs:runTask.sync"
SUBMIT_JOB = "arn:aws:states:::batch:submitJob.sync"
EXECUTE = "arn:aws:states:::states:startExecution.sync:2"


def running(
    request: object, resource: str = RUN_TASK, field: str = "Parameters"
) -> Mapping[str, object]:
    """A state that calls RunTask, or another ``resource``, with this request."""
    return {"Type": "Task", "Resource": resource, field: request, "End": True}


def executing(
    arn: str, resource: str = EXECUTE, field: str = "Parameters", **more: object
) -> Mapping[str, object]:
    """A state that executes the state machine of this ARN."""
    return {**running({"StateMachineArn": arn}, resource, field), **more}


def machine(state: Mapping[str, object], **more: object) -> dict[str, Any]:
    """A machine with one state, ``Run``."""
    return {"StartAt": "Run", "States": {"Run": state}, **more}


def make_machine(client: AwsClient, name: str, definition: Mapping[str, object]) -> None:
    client.create_state_machine(
        name=name,
        definition=json.dumps(definition),
        roleArn="arn:aws:iam::123456789012:role/machines",
    )


def change_machine(client: AwsClient, name: str, definition: Mapping[str, object]) -> None:
    """Let somebody change a machine."""
    client.update_state_machine(
        stateMachineArn=machine_arn(client, name), definition=json.dumps(definition)
    )


def publish(client: AwsClient, name: str, alias: str) -> None:
    """Let an alias of a machine, which may be a new one, start what the machine is at this
    moment.
    """
    arn = machine_arn(client, name)
    definition = client.describe_state_machine(stateMachineArn=arn)["definition"]
    published = client.update_state_machine(
        stateMachineArn=arn, definition=definition, publish=True
    )
    route = {"stateMachineVersionArn": published["stateMachineVersionArn"], "weight": 100}
    aliases = client.list_state_machine_aliases(stateMachineArn=arn)["stateMachineAliases"]
    if f"{arn}:{alias}" in [one["stateMachineAliasArn"] for one in aliases]:
        client.update_state_machine_alias(
            stateMachineAliasArn=f"{arn}:{alias}", routingConfiguration=[route]
        )
    else:
        client.create_state_machine_alias(name=alias, routingConfiguration=[route])


def machine_arn(client: AwsClient, name: str) -> str:
    (arn,) = [
        one["stateMachineArn"]
        for one in client.list_state_machines()["stateMachines"]
        if one["name"] == name
    ]
    return str(arn)

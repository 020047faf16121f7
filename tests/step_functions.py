"""State machines of Step Functions whose states call RunTask of ECS."""

import json
from collections.abc import Mapping
from typing import Any

from profiler.core.aws_clients import AwsClient

RUN_TASK = "arn:aws:states:::ecs:runTask.sync"


def running(
    request: object, resource: str = RUN_TASK, field: str = "Parameters"
) -> Mapping[str, object]:
    """A state that calls RunTask with this request."""
    return {"Type": "Task", "Resource": resource, field: request, "End": True}


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
    (arn,) = [
        one["stateMachineArn"]
        for one in client.list_state_machines()["stateMachines"]
        if one["name"] == name
    ]
    client.update_state_machine(stateMachineArn=arn, definition=json.dumps(definition))

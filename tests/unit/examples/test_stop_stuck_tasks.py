"""examples/stop_stuck_tasks.yaml: the rule's pattern, and the call that stops the task."""

from pathlib import Path
from typing import Any

import boto3
import msgspec
import pytest

from profiler.forwarder.notifications.event_details import run_notice_detail
from tests.cloudformation import REGION, MotoStack, create_stack, validate_arguments
from tests.lambda_environment import moto_account
from tests.shown_runs import stuck_notice

PATH = Path(__file__).parents[3] / "examples" / "stop_stuck_tasks.yaml"


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Any:
    with moto_account(monkeypatch, REGION):
        create_stack("stop", PATH, {"Cluster": "jobs", "Families": "nightly-etl,billing"})
        yield MotoStack("stop", PATH)


def event(kind: str = "stuck") -> dict[str, Any]:
    line = stuck_notice()
    line = msgspec.structs.replace(line, notice=msgspec.structs.replace(line.notice, kind=kind))
    detail = msgspec.to_builtins(run_notice_detail(line, kibana_url=None))
    return {"source": "task-profiler", "detail-type": "Task Run Notice", "detail": detail}


def matches(pattern: dict[str, Any], document: dict[str, Any]) -> bool:
    """EventBridge's rule for patterns of exact values."""
    return all(
        matches(wanted, document[name]) if isinstance(wanted, dict) else document[name] in wanted
        for name, wanted in pattern.items()
    )


def test_the_rule_selects_stuck_runs_of_the_families_alone(stack: MotoStack) -> None:
    pattern = stack.resources("AWS::Events::Rule")["StuckRule"]["EventPattern"]
    other = event()
    other["detail"]["family"] = "hourly-sync"
    assert [matches(pattern, one) for one in (event(), event("memory"), other)] == [
        True,
        False,
        False,
    ]


def test_the_state_machine_stops_the_task_of_the_event(stack: MotoStack) -> None:
    """Step Functions writes the names of arguments with a capital first letter."""
    (machine,) = stack.resources("AWS::StepFunctions::StateMachine").values()
    (state,) = machine["Definition"]["States"].values()
    assert state["Resource"] == "arn:aws:states:::aws-sdk:ecs:stopTask"
    detail = event()["detail"]
    arguments = {
        name.removesuffix(".$"): detail[value.removeprefix("$.detail.")]
        if name.endswith(".$")
        else value
        for name, value in state["Parameters"].items()
    }
    validate_arguments(
        "ecs", "StopTask", {name[0].lower() + name[1:]: value for name, value in arguments.items()}
    )
    assert arguments["Cluster"] == "jobs"
    assert arguments["Task"] == stuck_notice().record.task_id
    (statement,) = stack.statements("StopRole")
    assert statement["Action"] == "ecs:StopTask"
    assert statement["Resource"] == f"arn:aws:ecs:{REGION}:123456789012:task/jobs/*"
    assert (
        boto3.client("events").describe_rule(Name=stack.physical_id("StuckRule"))["State"]
        == "ENABLED"
    )

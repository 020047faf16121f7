"""The findings about a deployed forwarder: states of the stack, and parts that cannot be read."""

import pytest

from profiler.aws_account.deployed_forwarder import Activity, DeployedStack, FunctionState
from profiler.aws_account.doctor.deployment_checks import deployment_findings, stack_finding
from profiler.aws_account.doctor.findings import Level
from profiler.aws_account.stack_state import StackState
from profiler.core.errors import TaskProfilerError

OUTPUTS = {
    "ForwardLogsFunctionName": "tp-forward-logs",
    "TaskStoppedFunctionName": "tp-task-stopped",
    "FailedItemsQueueUrl": "https://sqs/1/tp-failed-items",
}


class FakeStack(DeployedStack):
    """A stack; the parts named in ``refused`` cannot be read."""

    def __init__(self, stack: StackState, refused: set[str] | None = None, state: FunctionState | None = None) -> None:
        self._stack = stack
        self._refused = refused or set()
        self._state = state or FunctionState(arn="arn:function", state="Active", last_update="Successful")

    def _check(self, part: str) -> None:
        if part in self._refused:
            raise TaskProfilerError(f"The {part} cannot be read: allow it.")

    def stack(self) -> StackState:
        self._check("stack")
        return self._stack

    def function(self, name: str) -> FunctionState:
        self._check("function")
        return self._state

    def activity(self, name: str) -> Activity:
        self._check("activity")
        return Activity(invocations=3, errors=0)

    def destinations_of_group(self, group: str) -> frozenset[str]:
        self._check("group")
        return frozenset({"arn:function"})

    def destinations_of_account(self) -> frozenset[str]:
        return frozenset()

    def mapping_states(self, function: str) -> tuple[str, ...]:
        return ("Disabled",)

    def rule_states(self, function_arn: str) -> dict[str, str]:
        return {"rule": "ENABLED"}

    def messages(self, queue_url: str) -> int:
        self._check("queue")
        return 0

    def active_alarms(self) -> tuple[str, ...]:
        self._check("alarms")
        return ()


def stack(parameters: dict[str, str] | None = None, outputs: dict[str, str] | None = None) -> StackState:
    groups = {"LogGroups": "/ecs/a,/ecs/b"}
    return StackState(
        name="tp",
        status="CREATE_COMPLETE",
        parameters=groups if parameters is None else parameters,
        outputs=OUTPUTS if outputs is None else outputs,
    )


@pytest.mark.parametrize(
    ("status", "level"),
    [
        ("CREATE_COMPLETE", "ok"),
        ("UPDATE_COMPLETE", "ok"),
        ("UPDATE_IN_PROGRESS", "note"),
        ("UPDATE_ROLLBACK_COMPLETE", "note"),
        ("ROLLBACK_COMPLETE", "problem"),
        ("CREATE_FAILED", "problem"),
        ("UPDATE_ROLLBACK_FAILED", "problem"),
        ("DELETE_FAILED", "problem"),
    ],
)
def test_the_state_of_the_stack_is_judged(status: str, level: Level) -> None:
    found = stack_finding(StackState(name="tp", status=status, reason="A reason."))
    assert (found.level, found.text) == (level, f"The stack tp is in state {status}: A reason.")
    assert (found.advice is None) == (level == "ok")


def test_a_working_stack_has_no_problem() -> None:
    found = list(deployment_findings(FakeStack(stack())))
    assert {one.level for one in found} == {"ok"}
    assert {one.topic for one in found} == {"stack", "forward_logs", "subscription", "task_stopped", "queues", "alarms"}


@pytest.mark.parametrize(
    ("refused", "topics"),
    [
        ("stack", ["stack"]),
        ("function", ["forward_logs", "task_stopped"]),
        ("activity", ["forward_logs", "task_stopped"]),
        ("group", ["subscription", "subscription"]),
        ("queue", ["queues"]),
        ("alarms", ["alarms"]),
    ],
)
def test_a_part_that_cannot_be_read_is_a_problem_and_the_others_are_checked(refused: str, topics: list[str]) -> None:
    found = list(deployment_findings(FakeStack(stack(), {refused})))
    failed = [one for one in found if one.level == "problem"]
    assert [one.topic for one in failed] == topics
    assert {one.text for one in failed} == {f"The {refused} cannot be read: allow it."}
    assert refused == "stack" or any(one.level == "ok" for one in found)


def test_a_stack_without_a_cluster_or_without_log_groups_is_noted() -> None:
    without = {name: value for name, value in OUTPUTS.items() if name == "FailedItemsQueueUrl"}
    levels = {one.topic: one.level for one in deployment_findings(FakeStack(stack(outputs=without)))}
    assert (levels["forward_logs"], levels["task_stopped"]) == ("note", "note")
    assert "watch_schedules" not in levels
    levels = {one.topic: one.level for one in deployment_findings(FakeStack(stack(parameters={})))}
    assert levels["subscription"] == "problem"
    of_notices = stack(parameters={"LogGroups": "/ecs/a", "ElasticsearchUrl": ""})
    (found, *_) = [one for one in deployment_findings(FakeStack(of_notices)) if one.topic == "forward_logs"]
    assert found.text == "The stack forwards only notifications of running tasks: ElasticsearchUrl is empty."


@pytest.mark.parametrize(("state", "invocations", "levels"), [("ENABLED", 3, "ok"), ("DISABLED", 0, "problem note")])
def test_the_watch_of_schedules_is_checked_if_there_is_one(state: str, invocations: int, levels: str) -> None:
    class Watching(FakeStack):
        def rule_states(self, function_arn: str) -> dict[str, str]:
            return {"rule": state}

        def activity(self, name: str) -> Activity:
            return Activity(invocations=invocations, errors=0)

    outputs = {"WatchSchedulesFunctionName": "tp-watch-schedules"}
    found = [one for one in deployment_findings(Watching(stack(outputs=outputs))) if one.topic == "watch_schedules"]
    assert {one.level for one in found} == {"ok", *levels.split()}
    assert all("rule" in (one.advice or "rule") for one in found)


def test_a_function_that_is_not_ready_and_a_disabled_mapping_are_problems() -> None:
    failed = FunctionState(arn="arn:function", state="Active", last_update="Failed", reason="No such key.")
    texts = [one.text for one in deployment_findings(FakeStack(stack(), state=failed)) if one.level == "problem"]
    assert texts[0] == "The last update of the function tp-forward-logs failed: No such key."
    with_stream = stack(outputs=OUTPUTS | {"ReportStreamArn": "arn:stream"})
    found = {one.topic: one for one in deployment_findings(FakeStack(with_stream))}
    assert "event source mapping: Disabled" in found["data stream"].text
    assert found["subscription"].level == "problem"

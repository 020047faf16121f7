"""``task-profiler setup proof`` under AWS's own agent: every row is ok, and each fault is a row that
ends with its remedy.
"""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.aws_proxy import AwsProxy
from tests.proof_account import functions_get_no_lines
from tests.real.control_plane import StartedTask
from tests.real.lab import GATEWAY, Lab
from tests.real.night import BeginNight
from tests.real.proof import ROLE, prepare, proving
from tools.waiting import wait_until

pytestmark = pytest.mark.real

_NO_IMAGE = "127.0.0.1:1/task-profiler:0"  # nothing listens there
_FAULT_SECONDS = 55.0  # its short tasks have long ended
_TASKS_OF_PROOFS = 9  # three proofs with three tasks each
_PULL_SECONDS = 120.0  # the agent tries for a minute
_Result = tuple[int, dict[str, Any], str]


class _RefusingLogs(AwsProxy):
    """CloudWatch Logs as the monitors see it."""

    host = GATEWAY


@pytest.fixture(scope="module")
def results(lab: Lab, begin_night: BeginNight) -> Mapping[str, _Result]:
    """All proofs at once, but the one of a stopped agent; the night begins beside them."""
    prepare(lab)
    proofs = {"whole": _whole, "faults": _faults, "image": _image, "capacity": _capacity}
    with functions_get_no_lines(), ThreadPoolExecutor() as pool:
        running = {name: pool.submit(proof, lab) for name, proof in proofs.items()}
        # The agent starts tasks in their order, when they have room: the night's wait for others.
        wait_until(lambda: _has_started_proofs(lab), "the tasks of the proofs")
        night = begin_night()
        found = {name: proof.result() for name, proof in running.items()}
    night.result()
    return {**found, "agent": _agent(lab)}


def _has_started_proofs(lab: Lab) -> bool:
    """Whether the agent has all tasks of the proofs that have capacity."""
    families = [task.family for task in list(lab.plane.tasks.values())]
    return families.count("task-profiler-proof") == _TASKS_OF_PROOFS


def _whole(lab: Lab) -> _Result:
    with proving(lab) as proof:
        return proof.run(180, "--from", lab.search.url)


def _faults(lab: Lab) -> _Result:
    """The filter and the policy are removed, no monitor may put its report, and the failed task's
    event ends in a dead-letter queue that has another message.
    """
    logs = lab.aws.client("logs")
    iam = lab.aws.client("iam")
    sqs = lab.aws.client("sqs")
    url = sqs.get_queue_url(QueueName="task-profiler-TaskStoppedDeadLetterQueue")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="{}")
    refusing = _RefusingLogs(lab.aws.url)
    refusing.refused = {"PutLogEvents"}

    def change(definition: dict[str, Any]) -> None:
        batch, monitor = definition["containerDefinitions"]
        monitor["environment"][-1]["value"] = refusing.url
        group = batch["logConfiguration"]["options"]["awslogs-group"]
        for one in logs.describe_subscription_filters(logGroupName=group)["subscriptionFilters"]:
            logs.delete_subscription_filter(logGroupName=group, filterName=one["filterName"])
        own = f"task-profiler-proof-{group.rpartition('-')[2]}"
        if own in iam.list_role_policies(RoleName=ROLE)["PolicyNames"]:
            iam.delete_role_policy(RoleName=ROLE, PolicyName=own)

    def delivers(task: StartedTask) -> bool:
        is_failure = task.definition["containerDefinitions"][0]["command"] == ["failure"]
        if is_failure:
            message = {"requestContext": {}, "requestPayload": task.stopped_event()}
            sqs.send_message(QueueUrl=url, MessageBody=json.dumps(message))
        return not is_failure

    try:
        with proving(lab, change, delivers) as proof:
            return proof.run(_FAULT_SECONDS)
    finally:
        refusing.close()


def _image(lab: Lab) -> _Result:
    with proving(lab) as proof:
        return proof.run(_PULL_SECONDS, "--image", _NO_IMAGE)


def _capacity(lab: Lab) -> _Result:
    with proving(lab, lambda _definition: False) as proof:
        return proof.run(_FAULT_SECONDS)


def _agent(lab: Lab) -> _Result:
    lab.agent.kill()
    try:
        with proving(lab, is_agent_away=True) as proof:
            return proof.run(3)
    finally:
        lab.agent.restart()


def _differing(result: _Result) -> dict[tuple[str, str], dict[str, Any]]:
    code, document, errors = result
    assert document, errors
    found = {
        (row["task"], row["check"]): row for row in document["rows"] if row["state"] == "differs"
    }
    assert code == bool(found)
    return found


def test_every_row_is_ok(results: Mapping[str, _Result]) -> None:
    assert _differing(results["whole"]) == {}


def test_a_report_that_may_not_be_put_is_in_the_monitors_stream(
    results: Mapping[str, _Result],
) -> None:
    row = _differing(results["faults"])["memory", "report"]
    assert row["seen"] == "the stream of task-monitor"
    assert "does not allow logs:PutLogEvents for the report" in row["remedy"]


def test_a_filter_that_was_removed_is_a_row(results: Mapping[str, _Result]) -> None:
    row = _differing(results["faults"])["all", "subscription"]
    assert row["remedy"].startswith("No subscription of the log group")


def test_an_event_in_the_dead_letter_queue_is_a_row(results: Mapping[str, _Result]) -> None:
    found = _differing(results["faults"])
    row = found["all", "TaskStoppedDeadLetterQueue"]
    assert row["seen"] == "1 message before this proof, 2 after it, some about its tasks"
    assert "task-profiler setup redrive" in row["remedy"]
    assert found["failure", "ECS's event"]["seen"] == "none"


@pytest.mark.parametrize(
    ("proof", "seen", "remedy"),
    [
        ("image", "it did not run (image)", "Run task-profiler setup image"),
        ("capacity", "it did not run (resources)", "Give the cluster capacity"),
        ("agent", "it did not run (resources)", "Give the cluster capacity"),
    ],
)
def test_tasks_that_did_not_run_are_rows(
    results: Mapping[str, _Result], proof: str, seen: str, remedy: str
) -> None:
    found = _differing(results[proof])
    assert set(found) == {(task, "task") for task in ("success", "failure", "memory")}
    for row in found.values():
        assert row["seen"] == seen
        assert row["remedy"].startswith(remedy)


@pytest.mark.usefixtures("results")
def test_nothing_is_left_behind(lab: Lab) -> None:
    prefix = "/ecs/task-profiler-proof-"
    groups = lab.aws.client("logs").describe_log_groups(logGroupNamePrefix=prefix)["logGroups"]
    assert groups == []
    assert lab.aws.client("iam").list_role_policies(RoleName=ROLE)["PolicyNames"] == []
    listed = lab.aws.client("ecs").list_task_definitions(familyPrefix="task-profiler-proof")
    assert listed["taskDefinitionArns"] == []
    proven = [one for one in lab.plane.tasks.values() if one.family == "task-profiler-proof"]
    assert all(task.has_stopped for task in proven)

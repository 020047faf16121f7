"""When a run is started again, with how much memory, and with which call: without AWS."""

import json
from typing import Any

import pytest
from botocore.session import get_session
from botocore.validate import ParamValidator
from hypothesis import given
from hypothesis import strategies as st

from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.forwarder.batch_report import ReportLine, identify_containers, judge
from profiler.forwarder.memory_retry import (
    RetryRefusedError,
    larger_memory,
    run_task_request,
    should_retry,
)
from profiler.forwarder.notices.announcements import EndedTask
from profiler.sizing.fargate import LEGAL_SIZES, Size
from tests.notices import report_line as read
from tests.unit.forwarder.test_task_event import container, definition, task
from tests.unit.forwarder.test_task_stopped import WITH_MONITOR, report
from tests.values import present

KILLED = "OutOfMemoryError: Container killed due to memory usage"
BATCH = {"name": "batch", "exitCode": 137, "reason": KILLED}
MAX_MB = 61_440


def report_line(evidence: str | None = "kernel-counter", kind: str = "task.report") -> ReportLine:
    return read(report(kind, outOfMemoryEvidence=evidence))


def ended(*, line: ReportLine | None = None, described: Any = WITH_MONITOR, **detail: Any) -> EndedTask:
    stopped = task(**{"containers": [BATCH], "cpu": "256", "memory": "512", **detail})
    outcome, found = judge(stopped, identify_containers(described, stopped))
    name = None if found is None else found.name
    return EndedTask(task=stopped, outcome=outcome, container=name, report_line=line)


def batch(exit_code: int | None, reason: str | None = None) -> list[dict[str, Any]]:
    return [{"name": "batch", "exitCode": exit_code, "reason": reason}]


MONITOR_KILLED = {"name": "task-monitor", "exitCode": 137, "reason": KILLED}


@pytest.mark.parametrize(
    ("run", "is_retried"),
    [
        (ended(), True),
        (ended(containers=batch(None, KILLED)), True),
        (ended(containers=batch(137), stoppedReason=KILLED), True),
        (ended(containers=batch(1), line=report_line()), True),
        (ended(containers=batch(137), line=report_line()), True),
        (ended(startedBy="events-rule/nightly"), True),
        # no proof
        (ended(containers=batch(137)), False),
        (ended(containers=batch(137), line=report_line("exit-137-at-limit")), False),
        (ended(containers=batch(137), line=report_line("a-later-word")), False),
        (ended(containers=batch(1), line=report_line(kind="task.checkpoint")), False),
        (ended(containers=[*batch(1), MONITOR_KILLED]), False),
        (ended(containers=[*batch(137), MONITOR_KILLED], stoppedReason=KILLED), False),
        # no failure
        (ended(containers=batch(0, KILLED)), False),
        (ended(containers=batch(0), line=report_line()), False),
        (ended(stopCode="UserInitiated"), False),
        # other starters
        (ended(startedBy=None), False),
        (ended(startedBy="airflow"), False),
        (ended(startedBy="task-profiler-retry/4dd5853f"), False),
    ],
)
def test_a_run_is_retried_only_with_proof_that_memory_ran_out(run: EndedTask, *, is_retried: bool) -> None:
    assert should_retry(run, ("*",)) is is_retried


def test_only_selected_families_are_retried() -> None:
    assert should_retry(ended(), ("other", "night*"))
    assert not should_retry(ended(), ("other",))
    assert not should_retry(ended(), ())


SIZES = st.sampled_from(LEGAL_SIZES)
PEAKS = st.none() | st.floats(1, 300_000)


def sized(size: Size, **detail: Any) -> Any:
    return task(cpu=str(round(size.vcpu * 1024)), memory=str(size.memory_mb), **detail)


@given(size=SIZES, peak_mb=PEAKS, limit_mb=st.none() | st.integers(4, 4096), maximum_mb=st.integers(512, 250_000))
def test_the_size_is_the_least_legal_one_that_is_enough(
    size: Size, peak_mb: float | None, limit_mb: int | None, maximum_mb: int
) -> None:
    described = definition(container("batch", memory=limit_mb), container("other", memory=100))
    needed = max(1.5 * size.memory_mb, 1.25 * (peak_mb or 0))
    try:
        chosen = larger_memory(sized(size), described, "batch", peak_mb, maximum_mb)
    except RetryRefusedError:
        # The others' limits can need a larger size.
        enough = [one for one in LEGAL_SIZES if one.vcpu >= size.vcpu and one.memory_mb >= needed]
        first = min(enough, default=Size(0, 1_000_000))
        assert first.memory_mb > maximum_mb or (
            limit_mb is not None and first.memory_mb < 1.5 * limit_mb + needed + 101
        )
        return
    assert Size(present(chosen.vcpu), chosen.new_mb) in LEGAL_SIZES
    assert needed <= chosen.new_mb <= maximum_mb
    assert chosen.old_mb == size.memory_mb < chosen.new_mb
    if limit_mb is None:
        assert chosen.limit_mb is None
        same = [one for one in LEGAL_SIZES if one.vcpu == size.vcpu and one.memory_mb >= needed]
        assert chosen.vcpu == size.vcpu or not same
        assert chosen.new_mb == min(
            one.memory_mb for one in LEGAL_SIZES if one.vcpu == chosen.vcpu and one.memory_mb >= needed
        )
    else:
        assert present(chosen.limit_mb) >= max(1.5 * limit_mb, 1.25 * (peak_mb or 0))
        assert present(chosen.limit_mb) + 100 <= chosen.new_mb


@pytest.mark.parametrize(
    ("detail", "described", "reason"),
    [
        ({"cpu": "8192", "memory": "61440"}, WITH_MONITOR, "it needs 96 GB, and RETRY_MAX_MEMORY_MB allows 60 GB"),
        ({"cpu": "32768", "memory": "249856"}, WITH_MONITOR, "Fargate has no size with 366 GB"),
        ({"cpu": "256"}, WITH_MONITOR, "the size of its task is unknown"),
        ({"launchType": "EC2", "cpu": "256", "memory": "512"}, WITH_MONITOR, "its batch container has no memory limit"),
        ({"launchType": "EC2"}, {**definition(container("batch", memory=512)), "memory": "1024"}, "the size of a task"),
    ],
)
def test_what_no_size_is_chosen_for(detail: dict[str, Any], described: Any, reason: str) -> None:
    with pytest.raises(RetryRefusedError, match=reason):
        larger_memory(task(**detail), described, "batch", None, MAX_MB)


@given(limit_mb=st.integers(4, 30_000), peak_mb=st.none() | st.floats(1, 30_000))
def test_on_ec2_only_the_limit_of_the_batch_grows(limit_mb: int, peak_mb: float | None) -> None:
    described = definition(container("batch", memory=9), container("other", memory=64))
    killed = task(launchType="EC2", memory="9999", containers=[{"name": "batch", "memory": str(limit_mb)}])
    chosen = larger_memory(killed, described, "batch", peak_mb, MAX_MB)
    least = max(1.5 * limit_mb, 1.25 * (peak_mb or 0))
    assert (chosen.old_mb, chosen.vcpu) == (limit_mb, None)
    assert chosen.new_mb == chosen.limit_mb
    assert least <= chosen.new_mb <= least + 128


def test_the_limit_in_an_override_counts_before_the_definition() -> None:
    killed = task(
        cpu="1024",
        memory="2048",
        containers=[{"name": "batch", "exitCode": 137}],
        overrides={"containerOverrides": [{"name": "batch", "memory": 1000}]},
    )
    chosen = larger_memory(killed, definition(container("batch", memory=500)), "batch", None, MAX_MB)
    assert chosen.limit_mb == 1500


# The request

CLUSTER = "arn:aws:ecs:us-west-2:111122223333:cluster/jobs"
FAMILY_ARN = "arn:aws:ecs:us-west-2:111122223333:task-definition/nightly"
NETWORK = {"awsvpcConfiguration": {"Subnets": ["subnet-1"], "SecurityGroups": ["sg-1"], "AssignPublicIp": "ENABLED"}}
EVERYTHING = {
    "TaskDefinitionArn": FAMILY_ARN,
    "TaskCount": 3,
    "NetworkConfiguration": NETWORK,
    "PlatformVersion": "1.4.0",
    "Group": "nights",
    "CapacityProviderStrategy": [{"capacityProvider": "FARGATE_SPOT", "weight": 1, "base": 0}],
    "EnableECSManagedTags": True,
    "EnableExecuteCommand": False,
    "PlacementConstraints": [{"type": "distinctInstance"}],
    "PlacementStrategy": [{"type": "spread", "field": "host"}],
    "PropagateTags": "TASK_DEFINITION",
    "ReferenceId": "ref",
    "Tags": [{"Key": "team", "Value": "a"}],
}


def target(parameters: Any = None, kind: Any = "schedule", **started: Any) -> ScheduledTarget:
    parameters = {"TaskDefinitionArn": FAMILY_ARN} if parameters is None else parameters
    content = {"Arn": CLUSTER, "EcsParameters": parameters, **started}
    return ScheduledTarget(
        kind=kind,
        name="nightly",
        group="default",
        cluster_arn=CLUSTER,
        definition_arn=FAMILY_ARN,
        content=content if kind == "rule" else {"Target": content},
    )


def request(one: ScheduledTarget, described: Any = WITH_MONITOR, **detail: Any) -> dict[str, Any]:
    killed = task(**{"cpu": "256", "memory": "512", **detail})
    memory = larger_memory(killed, described, "batch", None, MAX_MB)
    made = dict(run_task_request(one, killed, "batch", memory))
    shape = get_session().get_service_model("ecs").operation_model("RunTask").input_shape
    assert ParamValidator().validate(made, shape).generate_report() == ""
    return made


@pytest.mark.parametrize("kind", ["schedule", "rule"])
def test_everything_that_the_target_says_is_passed_on(kind: str) -> None:
    made = request(target(EVERYTHING, kind))
    assert made == {
        "cluster": CLUSTER,
        "taskDefinition": f"{FAMILY_ARN}:5",
        "count": 1,
        "startedBy": "task-profiler-retry/4dd5853f",
        "clientToken": "task-profiler-retry-4dd5853f44b341ee8281f38229bee377",
        "networkConfiguration": {
            "awsvpcConfiguration": {
                "subnets": ["subnet-1"],
                "securityGroups": ["sg-1"],
                "assignPublicIp": "ENABLED",
            }
        },
        "platformVersion": "1.4.0",
        "group": "nights",
        "capacityProviderStrategy": [{"capacityProvider": "FARGATE_SPOT", "weight": 1, "base": 0}],
        "enableECSManagedTags": True,
        "enableExecuteCommand": False,
        "placementConstraints": [{"type": "distinctInstance"}],
        "placementStrategy": [{"type": "spread", "field": "host"}],
        "propagateTags": "TASK_DEFINITION",
        "referenceId": "ref",
        "tags": [
            {"key": "team", "value": "a"},
            {"key": "task-profiler:retry-of", "value": "4dd5853f44b341ee8281f38229bee377"},
        ],
        "overrides": {"cpu": "256", "memory": "1024"},
    }


def test_every_field_of_a_target_is_known() -> None:
    for service in ("scheduler", "events"):
        members = get_session().get_service_model(service).shape_for("EcsParameters").members
        assert set(members) == {*EVERYTHING, "LaunchType"}


@pytest.mark.parametrize("tag", [{"key": "team", "value": "a"}, {"team": "a"}])
def test_both_forms_of_a_tag_of_scheduler(tag: dict[str, str]) -> None:
    made = request(target({"TaskDefinitionArn": FAMILY_ARN, "Tags": [tag]}))
    assert made["tags"][0] == {"key": "team", "value": "a"}


def test_the_whole_input_is_kept_but_for_the_size_and_the_limit() -> None:
    given_input = {
        "memory": "512",
        "taskRoleArn": "arn:aws:iam::111122223333:role/x",
        "containerOverrides": [
            {"name": "other", "command": ["y"]},
            {"name": "batch", "command": ["x"], "environment": [{"name": "A", "value": "1"}], "memory": 400},
        ],
    }
    described = definition(container("batch", memory=400), container("other"))
    made = request(target(Input=json.dumps(given_input)), described)
    assert made["overrides"] == {
        **given_input,
        "cpu": "256",
        "memory": "1024",
        "containerOverrides": [
            {"name": "other", "command": ["y"]},
            {"name": "batch", "command": ["x"], "environment": [{"name": "A", "value": "1"}], "memory": 600},
        ],
    }


def test_on_ec2_the_overrides_have_the_raised_limit_alone() -> None:
    described = definition(container("batch", memory=400))
    assert request(target(), described, launchType="EC2")["overrides"] == {
        "containerOverrides": [{"name": "batch", "memory": 640}]
    }


@pytest.mark.parametrize(
    "started",
    [
        {"Input": "[]"},
        {"Input": '{"containerOverrides":[{"name":"batch","command":["<aws.scheduler.scheduled-time>"]}]}'},
        {"InputPath": "$.detail"},
        {"InputTransformer": {"InputTemplate": "{}"}},
    ],
)
def test_an_unknown_input_is_refused(started: dict[str, Any]) -> None:
    with pytest.raises(RetryRefusedError, match="the input of its schedule is"):
        request(target(**started))
    with pytest.raises(RetryRefusedError, match="the size of a task on EC2"):
        request(target(Input='{"memory":"1024"}'), definition(container("batch", memory=400)), launchType="EC2")

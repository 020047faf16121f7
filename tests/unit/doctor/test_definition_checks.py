"""The findings about a task definition before its first run."""

from typing import Any

import pytest

from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.doctor.definition_checks import definition_findings, schedule_findings
from profiler.doctor.findings import Finding
from profiler.task_definitions.add_monitor import AddMonitorOptions, add_monitor
from tests.sidecars import definitions_with_sidecars

IMAGE = "team/task-profiler:1"
LOGS = {
    "logDriver": "awslogs",
    "options": {"awslogs-group": "/ecs/etl", "awslogs-region": "us-west-2", "awslogs-stream-prefix": "ecs"},
}
BATCH: dict[str, Any] = {"name": "etl", "image": "etl:26", "logConfiguration": LOGS}
ROLE = "arn:aws:iam::111122223333:role/jobs"


def definition(*containers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"family": "etl", "memory": "2048", "taskRoleArn": ROLE, "containerDefinitions": list(containers), **fields}


def with_monitor(given: dict[str, Any], **options: Any) -> Any:
    added = add_monitor(given, AddMonitorOptions(image=IMAGE, **options), default_image=IMAGE).definition
    return {**added, "containerDefinitions": [dict(one) for one in added["containerDefinitions"]]}  # type: ignore[attr-defined]


def findings(given: dict[str, Any]) -> list[Finding]:
    return list(definition_findings(given, "task-profiler taskdef add-monitor etl.json", default_image=IMAGE))


def problems(given: dict[str, Any]) -> list[Finding]:
    return [one for one in findings(given) if one.level == "problem"]


def test_what_add_monitor_made_has_no_problem() -> None:
    found = findings(with_monitor(definition(BATCH), shared_pids=True))
    assert [(one.topic, one.level) for one in found] == [
        ("monitor", "ok"),
        ("batch", "ok"),
        ("memory limit", "ok"),
        ("processes", "ok"),
        ("level", "note"),
        ("log stream", "ok"),
    ]
    assert found[-1].text == "The report goes to the batch's stream: /ecs/etl, stream ecs/etl/TASK_ID."


def test_stacks_have_level_2() -> None:
    found = {one.topic: one for one in findings(with_monitor(definition(BATCH), stacks="moments"))}
    assert (found["level"].level, found["call stacks"].text) == ("ok", "TASK_PROFILER_STACKS is moments.")
    assert problems(with_monitor(definition(BATCH), stacks="off")) == []


@pytest.mark.parametrize(
    ("changed", "level"),
    [
        ({"user": "65532"}, "level 1"),
        ({"linuxParameters": {"capabilities": {"drop": ["ALL"]}}}, "level 1"),
        ({"linuxParameters": {}, "privileged": True}, "level 2"),
        ({"linuxParameters": {"capabilities": {"add": ["ALL"]}}, "user": "root"}, "level 2"),
    ],
)
def test_stacks_without_their_rights_are_a_problem(changed: dict[str, Any], level: str) -> None:
    given = with_monitor(definition(BATCH), stacks="on")
    given["containerDefinitions"][1].update(changed)
    found = {one.topic: one for one in findings(given)}
    assert level in found["level"].text
    assert (found["call stacks"].level == "problem") is (level == "level 1")


def test_stacks_without_shared_process_ids_are_a_problem() -> None:
    given = with_monitor(definition(BATCH), stacks="on")
    del given["pidMode"]
    found = {one.topic: one for one in findings(given)}
    assert "no time breakdown" in found["level"].text
    assert found["call stacks"].level == "problem"


@pytest.mark.parametrize("kind", definitions_with_sidecars())
def test_a_task_with_a_sidecar_has_one_batch_and_no_problem(kind: str) -> None:
    given = with_monitor(definitions_with_sidecars()[kind], container="etl", region="us-east-1")
    assert problems(given) == []
    (batch,) = [one.text for one in findings(given) if one.topic == "batch"]
    assert batch == "The batch is the container etl."


@pytest.mark.parametrize(("image", "notes"), [(IMAGE, 1), (f"{IMAGE}-arm64", 0)])
@pytest.mark.parametrize("has_monitor", [True, False])
def test_arm64_is_noted_whether_or_not_a_monitor_is_there(image: str, notes: int, *, has_monitor: bool) -> None:
    arm = definition(BATCH, runtimePlatform={"cpuArchitecture": "ARM64"})
    given: Any = arm
    if has_monitor:
        given = add_monitor(arm, AddMonitorOptions(image=image), default_image="").definition
    found = list(definition_findings(given, "add", default_image=image))
    assert [one.level for one in found if "ARM64" in one.text] == ["note"] * notes


def pinned(given: dict[str, Any], revision: str = "etl:1") -> list[Finding]:
    arn = f"arn:aws:ecs:us-east-1:111122223333:task-definition/{revision}"
    rule = ScheduledTarget(kind="rule", name="nightly", group="default", cluster_arn="", definition_arn=arn, content={})
    return list(schedule_findings(with_monitor(definition(BATCH)), "etl:2", [(rule, given)], "task-profiler move"))


def test_a_schedule_that_starts_a_revision_without_the_monitor_is_a_problem() -> None:
    (found,) = pinned(definition(BATCH))
    assert (found.topic, found.level, found.advice) == ("schedules", "problem", "Move it: task-profiler move.")
    assert found.text == "The rule nightly is pinned to etl:1, which has no monitor, so its runs have no report."
    (other,) = pinned(definition({**BATCH, "image": "etl:25"}))
    assert other.level == "problem"
    assert other.advice == "Move it yourself, because etl:1 differs from etl:2 by more than the monitor."
    (foreign,) = pinned(definition(BATCH, {"name": "task-monitor", "image": "other:1"}))
    assert foreign.level == "problem"


def test_a_schedule_that_starts_a_revision_with_the_monitor_is_none() -> None:
    (same,) = pinned(with_monitor(definition(BATCH)), "etl:2")
    assert (same.level, same.text) == ("ok", "The rule nightly starts etl:2.")
    (older,) = pinned(with_monitor(definition({**BATCH, "image": "etl:25"})))
    assert (older.level, older.text) == ("note", "The rule nightly is pinned to etl:1, and does not start etl:2.")


@pytest.mark.parametrize("fields", [{"pidMode": "task"}, {}])
def test_hidden_processes_are_a_note(fields: dict[str, str]) -> None:
    found = {one.topic: one for one in findings(with_monitor(definition(BATCH, **fields)))}
    assert found["processes"].level == ("ok" if fields else "note")


def test_a_missing_monitor_is_a_problem_with_the_command_that_adds_it() -> None:
    (found,) = findings(definition(BATCH))
    assert (found.level, found.advice) == ("problem", "Add it: task-profiler taskdef add-monitor etl.json.")
    (refused,) = findings(definition(BATCH, runtimePlatform={"operatingSystemFamily": "WINDOWS_SERVER_2022_CORE"}))
    assert (refused.level, "WINDOWS" in refused.text) == ("problem", True)


def test_a_batch_that_is_wrapped_needs_no_monitor() -> None:
    (found,) = findings(definition({**BATCH, "entryPoint": ["task-profiler", "run", "--", "python", "etl.py"]}))
    assert (found.level, "etl" in found.text) == ("ok", True)


def test_another_programs_monitor_is_a_problem() -> None:
    (found,) = findings(definition(BATCH, {"name": "task-monitor", "image": "other:1"}))
    assert "is not Task Profiler's" in found.text


def test_an_old_monitor_is_noted_with_its_differences() -> None:
    given = with_monitor(definition(BATCH))
    given["containerDefinitions"][-1] |= {"essential": True}
    (found,) = [one for one in findings(given) if one.topic == "monitor"]
    assert found.level == "note"
    assert "essential changes from True to False" in found.text


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"taskRoleArn": ""}, "no taskRoleArn"),
        ({"networkMode": "none"}, "networkMode is none"),
    ],
)
def test_a_report_that_cannot_arrive_is_a_problem(changes: dict[str, Any], sentence: str) -> None:
    (found,) = problems({**with_monitor(definition(BATCH)), **changes})
    assert (found.topic, sentence in found.text) == ("log stream", True)


def test_a_stream_that_is_not_known_is_a_problem_and_an_own_stream_is_none() -> None:
    routed = {**BATCH, "logConfiguration": {"logDriver": "awsfirelens"}}
    given = with_monitor(definition(routed, taskRoleArn=""), region="us-west-2")
    assert problems(given) == []
    (own,) = [one for one in findings(given) if one.topic == "log stream"]
    assert own.text == "The report goes to the monitor's own stream: /ecs/etl, stream ecs/task-monitor/TASK_ID."
    given["taskRoleArn"] = ROLE
    given["containerDefinitions"][-1]["environment"] = []
    assert "its log stream is unknown" in problems(given)[0].text


def test_settings_and_the_name_of_the_batch_are_checked() -> None:
    given = with_monitor(definition(BATCH))
    given["containerDefinitions"][-1]["environment"] = [
        {"name": "TASK_PROFILER_INTERVAL_SECONDS", "value": "often"},
        {"name": "TASK_PROFILER_CONTAINER", "value": "other"},
    ]
    assert {one.topic for one in problems(given)} >= {"settings", "batch"}


@pytest.mark.parametrize(
    ("batch", "topic", "removed"),
    [
        ({"resourceRequirements": [{"type": "GPU", "value": "1"}]}, "GPUs", "environment"),
        ({"linuxParameters": {"devices": [{"hostPath": "/dev/neuron0"}]}}, "Neuron", "linuxParameters"),
    ],
)
def test_devices_that_the_monitor_cannot_see_are_a_problem(batch: dict[str, Any], topic: str, removed: str) -> None:
    given = with_monitor(definition({**BATCH, **batch}))
    assert [one.level for one in findings(given) if one.topic == topic] == ["ok"]
    del given["containerDefinitions"][-1][removed]
    assert [one.level for one in findings(given) if one.topic == topic] == ["problem"]

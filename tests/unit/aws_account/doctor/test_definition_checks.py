"""The findings about a task definition before its first run."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.aws_account.doctor.definition_checks import definition_findings, schedule_findings
from profiler.aws_account.doctor.findings import Finding
from profiler.aws_account.planned_family import DeadTarget, PlannedFamily
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.task_definitions.definition_json import TaskDefinitionDocument
from profiler.task_definitions.monitor_changes import AddMonitorOptions, add_monitor
from tests.cases import each_case
from tests.sidecars import INSTANCE_MONITOR, awslogs

IMAGE = "team/task-profiler:1"
LOGS = awslogs("/ecs/etl", region="us-west-2")
BATCH: dict[str, Any] = {"name": "etl", "image": "etl:26", "logConfiguration": LOGS}
ROLE = "arn:aws:iam::111122223333:role/jobs"


def definition(*containers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "family": "etl",
        "memory": "2048",
        "taskRoleArn": ROLE,
        "containerDefinitions": list(containers),
        **fields,
    }


def with_monitor(given: dict[str, Any], **options: Any) -> Any:
    added = add_monitor(given, AddMonitorOptions(image=IMAGE, **options)).definition
    return {**added, "containerDefinitions": [dict(one) for one in added["containerDefinitions"]]}  # type: ignore[attr-defined]


def findings(given: dict[str, Any]) -> list[Finding]:
    return list(
        definition_findings(
            given, "task-profiler taskdef add-monitor etl.json", default_image=IMAGE
        )
    )


def problems(given: dict[str, Any]) -> list[Finding]:
    return [one for one in findings(given) if one.level == "problem"]


def test_what_add_monitor_made_has_no_problem() -> None:
    assert problems(with_monitor(definition(BATCH), stacks="off")) == []
    assert (
        problems(with_monitor(definition(BATCH, taskRoleArn=""), report_stream="monitor")) == []
    )  # it needs no role
    found = findings(with_monitor(definition(BATCH), shared_pids=True))
    assert [one.topic for one in found] == [
        "monitor",
        "batch",
        "memory limit",
        "processes",
        "level",
        "log stream",
    ]
    assert [one.topic for one in found if one.level != "ok"] == ["level"]
    assert (
        found[-1].text == "The report goes to the batch's stream: /ecs/etl, stream ecs/etl/TASK_ID."
    )


def test_the_monitor_of_an_instance_needs_no_batch() -> None:
    (finding,) = findings(json.loads(INSTANCE_MONITOR.read_text()))
    assert finding.topic == "monitor"
    assert finding.level == "ok"
    assert "an EC2 instance" in finding.text


def changed(given: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The definition with other fields of its monitor."""
    *others, monitor = given["containerDefinitions"]
    return {**given, "containerDefinitions": [*others, {**monitor, **fields}]}


MONITORED = with_monitor(definition(BATCH))
ROUTED = with_monitor(
    definition({**BATCH, "logConfiguration": {"logDriver": "awsfirelens"}}), region="us-west-2"
)
OWN_STREAM = (
    "The report goes to the monitor's own stream: /ecs/etl, stream ecs/task-monitor/TASK_ID."
)
STACKS = with_monitor(definition(BATCH), stacks="on")
WINDOWS = {"runtimePlatform": {"operatingSystemFamily": "WINDOWS_SERVER_2022_CORE"}}
WRAPPED = {**BATCH, "entryPoint": ["task-profiler", "run", "--", "python", "etl.py"]}
SETTINGS = [
    {"name": "TASK_PROFILER_INTERVAL_SECONDS", "value": "often"},
    {"name": "TASK_PROFILER_CONTAINER", "value": "other"},
]


@each_case(
    ("given", "topic", "level", "words"),
    [
        (
            definition(BATCH),
            "monitor",
            "problem",
            "Add it: task-profiler taskdef add-monitor etl.json.",
        ),
        (definition(BATCH, **WINDOWS), "monitor", "problem", "WINDOWS"),
        (definition(WRAPPED), "monitor", "ok", "etl"),
        (
            definition(BATCH, {"name": "task-monitor", "image": "other:1"}),
            "monitor",
            "problem",
            "not Task Profiler's",
        ),
        (
            changed(MONITORED, essential=True),
            "monitor",
            "note",
            "essential changes from true to false",
        ),
        (MONITORED, "processes", "note", "not visible"),
        (with_monitor(definition(BATCH, pidMode="task")), "processes", "ok", "will be visible"),
        (ROUTED, "log stream", "ok", OWN_STREAM),
        (changed(ROUTED, environment=[]), "log stream", "problem", "its log stream is unknown"),
        ({**MONITORED, "taskRoleArn": ""}, "log stream", "problem", "no taskRoleArn"),
        ({**MONITORED, "networkMode": "none"}, "log stream", "problem", "networkMode is none"),
        (
            changed(MONITORED, environment=SETTINGS),
            "settings",
            "problem",
            "TASK_PROFILER_INTERVAL_SECONDS",
        ),
        (changed(MONITORED, environment=SETTINGS), "batch", "problem", "other"),
        (
            changed(MONITORED, image="task-profiler:1"),
            "monitor",
            "problem",
            "ECS looks for it in Docker Hub",
        ),
        (with_monitor(definition(BATCH), stacks="moments"), "level", "ok", "level 2"),
        (
            with_monitor(definition(BATCH), stacks="moments"),
            "call stacks",
            "ok",
            "TASK_PROFILER_STACKS is moments.",
        ),
        (changed(STACKS, user="65532"), "call stacks", "problem", "may not read"),
        (
            changed(STACKS, linuxParameters={"capabilities": {"drop": ["ALL"]}}),
            "level",
            "note",
            "level 1",
        ),
        ({**STACKS, "pidMode": None}, "level", "note", "no time breakdown"),
        ({**STACKS, "pidMode": None}, "call stacks", "problem", "may not read"),
    ],
)
def test_each_finding_has_its_level_and_says_what_to_change(
    given: dict[str, Any], topic: str, level: str, words: str
) -> None:
    found = [one for one in findings(given) if (one.topic, one.level) == (topic, level)]
    assert [one for one in found if words in f"{one.text} {one.advice}"]


@pytest.mark.parametrize(("image", "notes"), [(IMAGE, 1), (f"{IMAGE}-arm64", 0)])
@pytest.mark.parametrize("has_monitor", [True, False])
def test_arm64_is_noted_whether_or_not_a_monitor_is_there(
    image: str, notes: int, *, has_monitor: bool
) -> None:
    arm = definition(BATCH, runtimePlatform={"cpuArchitecture": "ARM64"})
    given = add_monitor(arm, AddMonitorOptions(image=image)).definition if has_monitor else arm
    found = list(definition_findings(given, "add", default_image=image))
    assert [one.level for one in found if "ARM64" in one.text] == ["note"] * notes


def rule(revision: str) -> ScheduledTarget:
    arn = f"arn:aws:ecs:us-east-1:111122223333:task-definition/{revision}"
    return ScheduledTarget(
        kind="rule", name="nightly", group="default", cluster_arn="", definition_arn=arn, content={}
    )


def of_schedules(target: ScheduledTarget, **planned: Any) -> Finding:
    """The finding about a rule of a family whose newest revision is the second."""
    arn = "arn:aws:ecs:us-east-1:111122223333:task-definition/etl:2"
    document = TaskDefinitionDocument(definition={}, arn=arn)
    family = PlannedFamily(family="etl", action="up to date", document=document, **planned)
    (found,) = schedule_findings(family, [target])
    assert found.topic == "schedules"
    return found


def test_a_schedule_that_starts_nothing_or_no_monitor_is_a_problem() -> None:
    older = rule("etl:1")
    unmonitored = of_schedules(older, pinned=(older,), unmonitored=(older,))
    assert unmonitored.level == "problem"
    move = "task-profiler taskdef add-monitor --family etl --register --update-schedules"
    assert unmonitored.advice == f"Move it: {move}; by hand if that skips it."
    assert unmonitored.text == "The rule nightly is pinned to etl:1, which has no monitor."
    dead = DeadTarget(target=older, sentence="It starts nothing.", is_movable=True)
    assert of_schedules(older, dead=(dead,)).advice == f"Move it: {move}."
    by_hand = DeadTarget(target=older, sentence="It starts nothing.", is_movable=False)
    assert of_schedules(older, dead=(by_hand,)).advice == "Set an active revision there."
    other = replace(older, content={**older.content, "Id": "other"})
    refused = DeadTarget(target=other, sentence="It starts nothing.", remedy="Change its input.")
    assert of_schedules(other, dead=(refused,)).advice == "Change its input."
    assert of_schedules(older, pinned=(older,), dead=(refused,)).level == "note"
    same = of_schedules(rule("etl:2"))
    assert same.level == "ok"
    assert same.text == "The rule nightly starts etl:2."
    monitored = of_schedules(older, pinned=(older,))
    assert monitored.level == "note"
    assert monitored.text == "The rule nightly is pinned to etl:1, and does not start etl:2."


@pytest.mark.parametrize(
    ("batch", "topic", "removed"),
    [
        ({"resourceRequirements": [{"type": "GPU", "value": "1"}]}, "GPUs", "environment"),
        # Of a GPU that MPS divides, there is no value.
        (
            {
                "resourceRequirements": [
                    {"type": "GPU", "sharingStrategy": {"nvidiaMps": {"maxMemoryMiB": 4096}}}
                ]
            },
            "GPUs",
            "environment",
        ),
        (
            {"linuxParameters": {"devices": [{"hostPath": "/dev/neuron0"}]}},
            "Neuron",
            "linuxParameters",
        ),
    ],
)
def test_devices_that_the_monitor_cannot_see_are_a_problem(
    batch: dict[str, Any], topic: str, removed: str
) -> None:
    given = with_monitor(definition({**BATCH, **batch}))
    assert [one.level for one in findings(given) if one.topic == topic] == ["ok"]
    del given["containerDefinitions"][-1][removed]
    assert [one.level for one in findings(given) if one.topic == topic] == ["problem"]

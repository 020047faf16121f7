"""ECS terms that the monitor, ``taskdef`` and the forwarder share: the log stream and the roles
of the containers.
"""

from collections.abc import Mapping
from contextlib import suppress
from itertools import permutations
from typing import Any, NamedTuple

import pytest

from profiler.core.container_roles import TaskContainer, container_roles
from profiler.core.ecs_terms import definition_in, family_of, revision_text, run_id_in
from profiler.core.errors import TaskProfilerError
from profiler.forwarder.report_finder import TaskContainers, identify_containers
from profiler.local_run.local_record import TaskPlacement, apply_placement
from profiler.monitor.report_destination import log_target
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata, select_batch
from profiler.record.record_model import Container, Record
from profiler.record.stopped_task import EventContainer, StoppedTask
from profiler.sinks import LogTarget
from profiler.task_definitions.containers import find_batch, find_monitor, read_containers
from tests.cases import each_case
from tests.fakes import task_settings
from tests.sidecars import INJECTED, ROUTER, SIDECARS, XRAY

ARN = "arn:aws:ecs:eu-west-1:111122223333:task/jobs/0123"
TASK = "9f70bacb30634e8fb82f83239391318f"
JOB = "4f6f1a1c-1b7e-4d7b-9a55-0a8c7a3f9d21"
GROUP = {"awslogs-group": "/ecs/jobs", "awslogs-region": "eu-west-1"}
STREAMS = [
    ({"awslogs-stream-prefix": "ecs"}, "ecs/batch/0123"),
    ({"awslogs-stream": "mine"}, "mine"),
    ({"awslogs-stream": "mine", "awslogs-stream-prefix": "ecs"}, "mine"),
]
ECR = "111122223333.dkr.ecr.us-west-2.amazonaws.com"
OWN = f"{ECR}/task-profiler:0.1.0"
BATCH = {"name": "etl", "image": f"{ECR}/etl:7", "logConfiguration": {"logDriver": "awslogs"}}
MONITOR = {"name": "task-monitor", "image": OWN, "command": ["monitor"], "essential": False}
FIRELENS = {"logConfiguration": {"logDriver": "awsfirelens"}}


@pytest.mark.parametrize(("options", "stream"), STREAMS)
def test_the_monitor_the_local_run_and_the_forwarder_find_the_same_stream(
    options: dict[str, str], stream: str
) -> None:
    options, expected = (
        GROUP | options,
        LogTarget(group="/ecs/jobs", stream=stream, region="eu-west-1"),
    )
    container = ContainerMetadata(name="batch", log_driver="awslogs", log_options=options)
    task = TaskMetadata(arn=ARN, containers=(container,))
    assert log_target(container, task, task_settings(), None) == expected
    local = Record(task_id="local", container=Container(name="etl"), status="success")
    placed = TaskPlacement(task=task, container=container)
    record = apply_placement(local, placed, is_named=False, started_ns=0, finished_ns=0)
    assert record.log_group == "/ecs/jobs"
    assert record.log_stream == stream
    logged = {"logDriver": "awslogs", "options": options}
    definition = {"containerDefinitions": [{"name": "batch", "logConfiguration": logged}]}
    assert identify_containers(definition, StoppedTask(arn=ARN)).batch_log == expected


class Seen(NamedTuple):
    """What each side makes of one task."""

    forwarder: TaskContainers
    forwarder_without_definition: TaskContainers
    monitor: tuple[str, ...]
    command: str | None


def see(*containers: Mapping[str, Any]) -> Seen:
    """The task definition does not list what AWS injects; the event and the endpoint do."""
    definition = {"containerDefinitions": [one for one in containers if one not in INJECTED]}
    in_event = (EventContainer(name=one["name"], image=one.get("image")) for one in containers)
    task = StoppedTask(arn="arn", containers=tuple(in_event))
    drivers = [one.get("logConfiguration", {}).get("logDriver") for one in containers]
    answered = (
        ContainerMetadata(name=one.name, image=one.image, log_driver=driver)
        for one, driver in zip(task.containers, drivers, strict=True)
    )
    endpoint = TaskMetadata(containers=tuple(answered))
    command = None
    with suppress(TaskProfilerError):
        command = find_batch(read_containers(definition), None).name
    monitor = select_batch(
        endpoint, requested=None, own=endpoint.container_or_name_only("task-monitor")
    ).names
    return Seen(
        identify_containers(definition, task), identify_containers(None, task), monitor, command
    )


@pytest.mark.parametrize("sidecar", SIDECARS.values(), ids=SIDECARS)
@pytest.mark.parametrize("order", [1, -1])
def test_a_sidecar_is_not_the_batch_if_it_is_not_essential(
    sidecar: dict[str, Any], order: int
) -> None:
    """A sidecar is not the batch if it is not essential else the batch is ambiguous."""
    both = {"etl", sidecar["name"]}
    seen = see(*(BATCH, {**sidecar, "essential": False})[::order], MONITOR, *INJECTED)
    assert seen.forwarder.batch == "etl"
    assert seen.forwarder.monitor == "task-monitor"
    assert seen.command == "etl"
    # Neither the event nor the endpoint has the field "essential".
    assert set(seen.forwarder_without_definition.candidates) == set(seen.monitor) == both

    seen = see(*(BATCH, sidecar)[::order], MONITOR, *INJECTED)
    assert seen.forwarder.batch is None
    assert seen.forwarder.monitor == "task-monitor"
    assert seen.command is None
    assert set(seen.forwarder.candidates) == set(seen.monitor) == both
    monitor = {**MONITOR, "environment": [{"name": "TASK_PROFILER_CONTAINER", "value": "etl"}]}
    assert see(sidecar, BATCH, monitor).forwarder.candidates == ("etl",)


@pytest.mark.parametrize("name", ["logs", "log_router", "Log-Router"])
def test_a_log_router_is_not_the_batch(name: str) -> None:
    seen = see({**ROUTER, "name": name}, BATCH | FIRELENS, MONITOR, *INJECTED)
    assert (
        seen.forwarder.candidates
        == seen.forwarder_without_definition.candidates
        == seen.monitor
        == ("etl",)
    )
    assert seen.command == "etl"


def test_the_order_has_no_meaning() -> None:
    containers = [
        TaskContainer(name=str(one["name"]), image=str(one.get("image")))
        for one in (BATCH, MONITOR, ROUTER, XRAY)
    ]
    for shuffled in permutations(containers):
        roles = container_roles(shuffled)
        assert roles.monitor == "task-monitor"
        assert set(roles.candidates) == {"etl", "xray-daemon"}


WORDS: dict[str, tuple[dict[str, Any], str]] = {
    "our image by default": ({"image": OWN}, "monitor"),
    "our image by its digest": (
        {"image": "task-profiler@sha256:59", "command": ["monitor"]},
        "monitor",
    ),
    "entry point and command": (
        {"entryPoint": ["task-profiler"], "command": ["monitor"]},
        "monitor",
    ),
    "a path": ({"command": ["/opt/bin/task-profiler", "monitor"]}, "monitor"),
    "a module": ({"entryPoint": ["python", "-m", "profiler"], "command": ["monitor"]}, "monitor"),
    "a shell": ({"command": ["sh", "-c", "exec task-profiler monitor"]}, "monitor"),
    "an ECR namespace": ({"image": f"{ECR}/task-profiler/nightly-etl:7"}, "batch"),
    "a registry of this name": ({"image": "task-profiler:5000/etl"}, "batch"),
    "a longer name": ({"image": "acme/task-profiler-demo:1"}, "batch"),
    "a name that ends alike": ({"image": "acme/my-task-profiler@sha256:59"}, "batch"),
    "the wrapper as entry point": (
        {"image": OWN, "entryPoint": ["task-profiler", "run", "--"]},
        "batch",
    ),
    "the wrapper in our image": ({"image": OWN, "command": ["run", "--", "monitor"]}, "batch"),
    "the wrapper in a shell": (
        {"image": OWN, "command": ["sh", "-c", "exec task-profiler run -- monitor"]},
        "batch",
    ),
    "the wrapper as a module": (
        {"image": OWN, "entryPoint": ["python", "-m", "profiler", "run", "--"]},
        "batch",
    ),
    "a program in our image": (
        {"image": OWN, "entryPoint": ["python"], "command": ["etl.py"]},
        "batch",
    ),
    "a word of the command": (
        {"command": ["etl", "--from", "my-task-profiler", "monitor"]},
        "batch",
    ),
}


@each_case(("container", "role"), WORDS.values(), ids=WORDS)
def test_commands_and_forwarder_know_the_monitor_by_the_same_words(
    container: dict[str, Any], role: str
) -> None:
    """With an essential container next to it, so that the image alone does not decide."""
    definition = {"containerDefinitions": [{"name": "one", **container}, BATCH]}
    found = identify_containers(definition, StoppedTask(arn="arn"))
    monitor = find_monitor(read_containers(definition))
    expected = "one" if role == "monitor" else None
    assert found.monitor == (None if monitor is None else monitor.name) == expected
    assert found.candidates == (("etl",) if role == "monitor" else ("one", "etl"))


@pytest.mark.parametrize(
    "text",
    [
        f"arn:aws:ecs:eu-west-1:111122223333:task/jobs/{TASK}",
        f"arn:aws-cn:ecs:cn-north-1:111122223333:task/{TASK}",
        f"https://eu-west-1.console.aws.amazon.com/ecs/v2/clusters/jobs/tasks/{TASK}",
        f"https://eu-west-1.console.aws.amazon.com/ecs/v2/clusters/jobs/tasks/{TASK}/logs?region=x",
    ],
)
def test_a_task_is_named_by_its_arn_or_its_page_in_the_console(text: str) -> None:
    assert run_id_in(text) == TASK


@each_case("job", [JOB, f"{JOB}:7", f"{JOB}#2"])
@each_case(
    "place",
    [
        "arn:aws:batch:eu-west-1:111122223333:job",
        "https://eu-west-1.console.aws.amazon.com/batch/home?region=eu-west-1#jobs/detail",
        "https://eu-west-1.console.aws.amazon.com/batch/v2/home?region=eu-west-1#jobs/ec2/detail",
        "https://console.aws.amazon.com/batch/home?region=eu-west-1#jobs/array-job",
    ],
)
def test_a_job_is_named_by_its_arn_or_its_page_in_the_console(place: str, job: str) -> None:
    assert run_id_in(f"{place}/{job}") == job


@pytest.mark.parametrize(
    "text",
    [
        "arn:aws:ecs:eu-west-1:111122223333:task-definition/nightly-etl:7",
        "https://eu-west-1.console.aws.amazon.com/ecs/v2/task-definitions/nightly-etl/7",
        "https://eu-west-1.console.aws.amazon.com/ecs/v2/task-definitions/nightly-etl/7/json?a=b",
    ],
)
def test_a_definition_is_named_by_its_arn_or_its_page_in_the_console(text: str) -> None:
    assert definition_in(text) == "nightly-etl:7"
    assert run_id_in(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "nightly-etl:7",
        "task-definition/nightly-etl:7",
        "arn:aws:batch:eu-west-1:111122223333:job-definition/nightly-etl:7",
    ],
)
def test_what_names_no_definition_stays(text: str) -> None:
    assert definition_in(text) == text


@pytest.mark.parametrize(
    "text",
    [
        TASK,
        f"{TASK[:8]}",
        f"{TASK}/batch",
        "nightly-etl",
        "task/jobs/nightly",
        "arn:aws:ecs:eu-west-1:111122223333:task-definition/nightly-etl:7",
        "https://search.example.com:9200",
    ],
)
def test_another_name_stays(text: str) -> None:
    assert run_id_in(text) == text


@pytest.mark.parametrize(
    ("definition", "parts"),
    [
        ("arn:aws:ecs:eu-west-1:111122223333:task-definition/etl:7", ("etl", "7")),
        ("arn:aws:batch:eu-west-1:111122223333:job-definition/etl:12", ("etl", "12")),
        ("arn:aws:batch:eu-west-1:111122223333:job-definition/etl", ("etl", "")),
        ("etl:7", ("etl", "7")),
        ("etl", ("etl", "")),
        ("", ("", "")),
    ],
)
def test_the_family_and_the_revision_of_a_definition(
    definition: str, parts: tuple[str, str]
) -> None:
    """An ARN, ``family:revision`` and a family alone say both; a part of an ARN is no revision."""
    assert (family_of(definition), revision_text(definition)) == parts

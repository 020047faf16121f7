"""Job definitions in the form of task definitions, and back."""

import json
from copy import deepcopy
from typing import Any

import pytest

from profiler.core.errors import TaskProfilerError
from profiler.record.record_model import TaskSize
from profiler.task_definitions.definition_difference import difference
from profiler.task_definitions.definition_json import TaskDefinitionDocument, read_document
from profiler.task_definitions.job_as_task_definition import (
    described_form,
    job_with_size,
    job_with_size_of,
    registered_form,
    repeated_kill_sentence,
    why_not_sized,
)
from profiler.task_definitions.size_changes import SeenMemory, definition_size
from tests.cases import each_case

ARN = "arn:aws:batch:us-west-2:111122223333:job-definition/nightly:3"


def requirements(vcpu: str, memory: str) -> list[dict[str, str]]:
    return [{"type": "VCPU", "value": vcpu}, {"type": "MEMORY", "value": memory}]


def job(**more: Any) -> dict[str, Any]:
    """A definition as DescribeJobDefinitions returns it."""
    container = {"image": "etl:26", "resourceRequirements": requirements("1", "2048")}
    given: dict[str, Any] = {
        "jobDefinitionName": "nightly",
        "jobDefinitionArn": ARN,
        "revision": 3,
        "status": "ACTIVE",
        "containerOrchestrationType": "ECS",
        "type": "container",
        "platformCapabilities": ["FARGATE"],
        "tags": {"team": "data", "aws:cloudformation:stack-name": "jobs"},
        "somethingNew": {"kept": True},
        **more,
    }
    if not any(name.endswith("Properties") for name in more):
        given["containerProperties"] = container
    return given


def document(**more: Any) -> TaskDefinitionDocument:
    return read_document(json.dumps(described_form(job(**more))).encode(), "nightly")


def on_instances(**container: Any) -> dict[str, Any]:
    return {
        "containerProperties": {"image": "x", **container},
        "platformCapabilities": ["EC2"],
    }


FORMS: dict[str, dict[str, Any]] = {
    "fargate": {},
    "members": on_instances(vcpus=4, memory=8192),
    "requirements": on_instances(resourceRequirements=requirements("4", "8192")),
    "unset members": on_instances(
        vcpus=0, memory=0, resourceRequirements=requirements("4", "8192")
    ),
    "containers": {
        "ecsProperties": {
            "taskProperties": [
                {
                    "taskRoleArn": "role",
                    "containers": [
                        {"name": "etl", "resourceRequirements": requirements("0.75", "1920")},
                        {
                            "name": "task-monitor",
                            "image": "team/task-profiler:1",
                            "resourceRequirements": requirements("0.25", "128"),
                        },
                    ],
                }
            ]
        }
    },
    # Of 1,024 units of CPU each has a part, and all have 1,023 whole ones together.
    "containers with fractions": {
        "ecsProperties": {
            "taskProperties": [
                {
                    "containers": [
                        {"name": "etl", "resourceRequirements": requirements("0.35", "1408")},
                        {
                            "name": "router",
                            "essential": False,
                            "resourceRequirements": requirements("0.35", "512"),
                        },
                        {
                            "name": "cache",
                            "essential": False,
                            "resourceRequirements": requirements("0.3", "128"),
                        },
                    ],
                }
            ]
        }
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_read_can_be_registered_as_it_was(form: str) -> None:
    given = job(**deepcopy(FORMS[form]))
    read = document(**deepcopy(FORMS[form]))
    own = ("jobDefinitionArn", "revision", "status", "containerOrchestrationType")
    expected = {name: value for name, value in given.items() if name not in own}
    expected["tags"] = {"team": "data"}
    if form == "unset members":
        for member in ("vcpus", "memory"):
            del expected["containerProperties"][member]
    assert registered_form(read.definition) == expected
    assert (read.arn, read.stack, read.is_active) == (ARN, "jobs", True)


@pytest.mark.parametrize("form", FORMS)
def test_another_size_changes_the_size_alone_in_the_form_that_it_has(form: str) -> None:
    read = document(**deepcopy(FORMS[form]))
    size = TaskSize(vcpu=2, memory_mb=4096)
    changed = job_with_size(read.definition, size, SeenMemory()).definition
    assert definition_size(changed) == size
    assert difference(read.definition, changed, part="size") == "size"
    before = json.dumps(registered_form(read.definition))
    after = json.dumps(registered_form(changed))
    assert before != after
    seen = SeenMemory(needs_mb={"etl": 100})
    back = job_with_size(changed, definition_size(read.definition), seen).definition
    assert registered_form(back) == registered_form(read.definition)
    as_then = job_with_size_of(changed, read.definition)
    assert as_then is not None
    assert registered_form(as_then.definition) == registered_form(read.definition)
    again = read_document(json.dumps(described_form(registered_form(changed))).encode(), "nightly")
    assert definition_size(again.definition) == size


def test_a_batch_gets_what_the_others_leave_and_never_too_little() -> None:
    read = document(**deepcopy(FORMS["containers"])).definition
    larger = job_with_size(read, TaskSize(vcpu=1, memory_mb=4096), SeenMemory())
    etl, monitor = registered_form(larger.definition)["ecsProperties"]["taskProperties"][0][
        "containers"
    ]
    assert etl["resourceRequirements"] == requirements("0.75", "3968")
    assert monitor["resourceRequirements"] == requirements("0.25", "128")
    seen = SeenMemory(needs_mb={"etl": 1000})
    for size in (TaskSize(vcpu=1, memory_mb=1024), TaskSize(vcpu=0.25, memory_mb=2048)):
        with pytest.raises(TaskProfilerError, match="too little would be left"):
            job_with_size(read, size, seen)


def test_the_shares_of_the_other_containers_stay_to_the_last_digit() -> None:
    read = document(**deepcopy(FORMS["containers with fractions"])).definition
    larger = registered_form(job_with_size(read, TaskSize(vcpu=2), SeenMemory()).definition)
    (task,) = larger["ecsProperties"]["taskProperties"]
    asked = [container["resourceRequirements"][0]["value"] for container in task["containers"]]
    assert asked == ["1.35", "0.35", "0.3"]


def test_a_size_that_cannot_be_read_stays_and_is_left_alone() -> None:
    odd = on_instances(resourceRequirements=requirements("four", "8192"))
    read = document(**odd).definition
    assert why_not_sized(read) == "its size is not known"
    assert registered_form(read)["containerProperties"] == odd["containerProperties"]
    with pytest.raises(TaskProfilerError, match="not known"):
        job_with_size(read, TaskSize(memory_mb=4096), SeenMemory())


def test_a_requirement_of_another_form_stays() -> None:
    odd = {"type": ["VCPU"], "value": "1"}
    job = document(**on_instances(resourceRequirements=[odd, *requirements("2", "4096")]))
    sized = job_with_size(job.definition, TaskSize(vcpu=1, memory_mb=2048), SeenMemory())
    container = registered_form(sized.definition)["containerProperties"]
    assert container["resourceRequirements"] == [odd, *requirements("1", "2048")]


def test_two_batches_are_left_alone() -> None:
    containers = [
        {"name": name, "resourceRequirements": requirements("0.5", "1024")} for name in ("a", "b")
    ]
    tasks = {"ecsProperties": {"taskProperties": [{"containers": containers}]}}
    reason = why_not_sized(document(**tasks).definition)
    assert reason == "which of its containers is the batch is not known (a, b)"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"eksProperties": {"podProperties": {}}}, "EKS"),
        ({"nodeProperties": {"numNodes": 2}, "type": "multinode"}, "several nodes"),
        ({"platformCapabilities": ["MANAGED_INSTANCES"]}, "nobody has tried its platform"),
        ({"jobDefinitionName": "nf-star"}, "--format nextflow"),
        ({"jobDefinitionName": "metaflow_1a2b"}, "--format metaflow"),
        ({"jobDefinitionName": "cromwell_ubuntu_1a2b"}, "--format cromwell"),
    ],
)
def test_whose_size_is_somebody_elses_is_said(more: dict[str, Any], reason: str) -> None:
    assert reason in (why_not_sized(document(**more).definition) or "")


EXIT = {"onReason": "outofmemoryerror*", "action": "exit"}


@each_case(
    ("attempts", "rules", "is_repeated"),
    [
        (3, [], True),
        (1, [], False),
        (3, [EXIT], False),
        (3, [{"onExitCode": "137", "action": "EXIT"}], False),
        (3, [{"onExitCode": "1", "action": "EXIT"}], True),
        (3, [{"onExitCode": "1*", "action": "RETRY"}, EXIT], True),
        (3, [{"onStatusReason": "Host EC2*", "action": "RETRY"}, EXIT], False),
        (3, [{"onStatusReason": "Essential*", "onReason": "Out*", "action": "EXIT"}], False),
    ],
)
def test_a_kill_that_batch_repeats_is_known_by_the_first_rule_that_matches(
    attempts: int, rules: list[dict[str, str]], *, is_repeated: bool
) -> None:
    retry = {"attempts": attempts, "evaluateOnExit": rules}
    assert (
        repeated_kill_sentence(document(retryStrategy=retry).definition) is not None
    ) is is_repeated

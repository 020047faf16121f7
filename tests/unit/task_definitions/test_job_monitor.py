"""The monitor in a job definition of AWS Batch: its share, the wrapper, what is refused, and that
removing it gives back what was there.
"""

import copy
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from botocore.session import Session
from botocore.validate import ParamValidator
from hypothesis import given
from hypothesis import strategies as st

import profiler
from profiler.aws_account.doctor.job_definition_checks import job_definition_findings
from profiler.core.errors import TaskProfilerError
from profiler.sizing.fargate_sizes import LEGAL_SIZES
from profiler.task_definitions.definition_json import ChangedDefinition, read_document
from profiler.task_definitions.definition_texts import (
    ChangedText,
    change_job_text,
    change_text,
    read_definitions,
    read_job,
)
from profiler.task_definitions.job_definitions import (
    JobDefinition,
    container_objects,
    read_job_definition,
    total_share,
)
from profiler.task_definitions.job_monitor import add_to_job, remove_from_job
from profiler.task_definitions.monitor_changes import AddMonitorOptions
from tests.cases import each_case
from tests.values import mutated

IMAGE = "registry.example.com/task-profiler:1"
ROLE = "arn:aws:iam::111122223333:role/nightly"
OWN_FILE = Path(profiler.__file__).parent.parent / "taskdef" / "aws-batch-job.json"
DEFINITION_ARN = "arn:aws:batch:eu-west-1:111122223333:job-definition/nightly:7"


def requirements(vcpu: str, memory: str) -> list[dict[str, str]]:
    return [{"type": "VCPU", "value": vcpu}, {"type": "MEMORY", "value": memory}]


def batch_container(vcpu: str = "1", memory: str = "2048", **fields: Any) -> dict[str, Any]:
    size = requirements(vcpu, memory)
    own = {"name": "default", "image": "etl:26", "command": ["python", "etl.py"]}
    return {**own, "resourceRequirements": size, **fields}


def ecs_job(*containers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    task = {"executionRoleArn": ROLE, "taskRoleArn": ROLE, "containers": list(containers)}
    return {
        "jobDefinitionName": "nightly",
        "type": "container",
        "platformCapabilities": ["FARGATE"],
        "ecsProperties": {"taskProperties": [task | fields.pop("task", {})]},
        **fields,
    }


def plain_job(**fields: Any) -> dict[str, Any]:
    own = {"image": "etl:26", "command": ["python", "etl.py"], **fields}
    size = {"resourceRequirements": requirements("1", "2048")}
    return {"jobDefinitionName": "nightly", "type": "container", "containerProperties": own | size}


def added(definition: dict[str, Any], *, wraps: bool = False, **options: Any) -> ChangedDefinition:
    job = read_job_definition(definition, "job.json")
    return add_to_job(job, AddMonitorOptions(**{"image": IMAGE, **options}), wraps=wraps)


def removed(definition: Any) -> ChangedDefinition:
    return remove_from_job(JobDefinition(definition=definition), IMAGE)


def shares(definition: Any) -> dict[str, tuple[str, str]]:
    found = {}
    for container in container_objects(definition):
        vcpu, memory = (str(one["value"]) for one in container["resourceRequirements"])  # type: ignore[attr-defined]
        found[str(container["name"])] = (vcpu, memory)
    return found


def problems(definition: Any) -> str:
    shape = Session().get_service_model("batch").operation_model("RegisterJobDefinition")
    report: str = ParamValidator().validate(definition, shape.input_shape).generate_report()
    return report


def test_the_monitor_takes_its_share_from_the_batch_and_both_changes_are_named() -> None:
    definition = ecs_job(batch_container("1", "2048"))
    before = copy.deepcopy(definition)
    changed = added(definition)
    assert definition == before
    assert shares(changed.definition) == {
        "default": ("0.75", "1920"),
        "task-monitor": ("0.25", "128"),
    }
    assert problems(changed.definition) == ""
    assert "from 1 vCPU, 2048 MiB to 0.75 vCPU, 1920 MiB" in changed.notes[0]
    assert "takes 0.25 vCPU, 128 MiB of it" in changed.notes[0]
    assert "must name the container ('default')" in changed.notes[1]
    _, monitor = container_objects(changed.definition)
    assert monitor["essential"] is False
    assert monitor["dependsOn"] == [{"containerName": "default", "condition": "START"}]
    assert "logConfiguration" not in monitor  # Batch's own, as the batch has


@each_case("size", LEGAL_SIZES, ids=str)
def test_the_sum_stays_the_size_of_fargate_that_it_was(size: Any) -> None:
    definition = ecs_job(batch_container(f"{size.vcpu:g}", f"{size.memory_mb:g}"))
    if size.vcpu < 0.5:
        with pytest.raises(TaskProfilerError, match="give the job the next size of Fargate"):
            added(definition)
        return
    total = total_share(container_objects(added(definition).definition))
    assert total == total_share(container_objects(definition))
    assert total is not None
    assert total.is_legal_on_fargate


def test_of_several_containers_only_the_batch_has_less() -> None:
    helper = batch_container("0.5", "1024", name="helper", essential=False)
    changed = added(ecs_job(batch_container("1.5", "3072"), helper))
    assert shares(changed.definition)["default"] == ("1.25", "2944")
    assert shares(changed.definition)["helper"] == ("0.5", "1024")


def test_repeating_the_command_changes_nothing() -> None:
    once = added(ecs_job(batch_container())).definition
    assert added(dict(once)).definition == once
    wrapped = added(plain_job(), wraps=True)
    assert added(dict(wrapped.definition), wraps=True).definition == wrapped.definition


def test_another_image_upgrades_the_monitor_and_keeps_its_share() -> None:
    once = dict(added(ecs_job(batch_container())).definition)
    again = added(once, image="registry.example.com/task-profiler:2")
    assert shares(again.definition) == shares(once)
    assert container_objects(again.definition)[1]["image"] == "registry.example.com/task-profiler:2"


def test_a_monitor_that_was_added_by_hand_gets_its_share() -> None:
    once = dict(added(ecs_job(batch_container())).definition)
    batch, monitor = container_objects(once)
    smaller = {**monitor, "resourceRequirements": requirements("0.5", "512")}
    larger = {**batch, "resourceRequirements": requirements("0.5", "1536")}
    by_hand = ecs_job(larger, smaller)
    assert shares(added(by_hand).definition) == shares(by_hand)
    assert shares(removed(by_hand).definition) == {"default": ("1", "2048")}


LOGS = {
    "logDriver": "awslogs",
    "options": {"awslogs-group": "/jobs", "awslogs-region": "eu-west-1"},
}


@each_case(
    "definition",
    [
        ecs_job(batch_container()),
        ecs_job(batch_container("16", "122880", logConfiguration=LOGS)),
        ecs_job(batch_container("0.5", "1024", logConfiguration={"logDriver": "splunk"})),
        ecs_job(batch_container("1.75", "3584"), batch_container("0.25", "512", name="b")),
        ecs_job(batch_container(), tags={"team": "data"}, retryStrategy={"attempts": 3}),
        ecs_job(batch_container(), task={"pidMode": "task"}, parameters={"day": "1"}),
    ],
)
@each_case("options", [{}, {"shared_pids": True}, {"log_group": "/own", "region": "eu-west-1"}])
def test_removing_it_gives_back_what_was_there(
    definition: dict[str, Any], options: dict[str, Any]
) -> None:
    changed = added(definition, container="default", **options)
    assert problems(changed.definition) == ""
    assert "dockerLabels" not in json.dumps(changed.definition)  # Batch has none
    assert removed(changed.definition).definition == definition
    assert removed(definition).definition == definition


@given(words=st.lists(st.text(min_size=1), min_size=1))
def test_the_wrapper_goes_before_any_command_and_off_again(words: list[str]) -> None:
    definition = plain_job(command=words)
    try:
        changed = added(definition, wraps=True)
    except TaskProfilerError:
        return
    if changed.definition != definition:
        command = changed.definition["containerProperties"]["command"]  # type: ignore[index]
        assert command[-len(words) :] == words
        assert removed(changed.definition).definition == definition


def test_our_own_file_is_what_the_command_writes() -> None:
    own = json.loads(OWN_FILE.read_text())
    bare = removed(own).definition
    assert bare["containerProperties"]["command"] == ["python", "etl.py"]  # type: ignore[index]
    assert added(dict(bare), wraps=True).definition == own
    assert added(own, wraps=True).definition == own


def test_a_job_whose_container_logs_elsewhere_has_its_report_in_batchs_own_group() -> None:
    changed = added(ecs_job(batch_container(logConfiguration={"logDriver": "splunk"})))
    monitor = container_objects(changed.definition)[1]
    group = {"name": "TASK_PROFILER_LOG_GROUP", "value": "/aws/batch/job"}
    assert group in monitor["environment"]  # type: ignore[operator]
    assert "logConfiguration" not in monitor
    assert not [note for note in changed.notes if "awslogs-region" in note or "Create" in note]


NODES = {"numNodes": 2, "mainNode": 0, "nodeRangeProperties": []}
WINDOWS = {"operatingSystemFamily": "WINDOWS_SERVER_2022_CORE"}


@each_case(
    ("definition", "options", "sentence"),
    [
        (plain_job(), {}, "--wrap puts task-profiler run before its command"),
        ({"type": "multinode", "nodeProperties": NODES}, {}, "for jobs of several nodes"),
        ({"eksProperties": {"podProperties": {}}}, {"wraps": True}, "for Amazon EKS"),
        ({"jobDefinitionName": "x"}, {}, "neither containerProperties nor ecsProperties"),
        ({"ecsProperties": {"taskProperties": []}}, {}, "one element that has containers"),
        (ecs_job(batch_container(), platformCapabilities=["EC2"]), {}, "at least one vCPU"),
        (ecs_job(batch_container(), platformCapabilities=[]), {}, "at least one vCPU"),
        (
            ecs_job(batch_container(), platformCapabilities=["MANAGED_INSTANCES"]),
            {},
            "On Managed Instances, it is not known how little .*: use --wrap",
        ),
        (ecs_job(batch_container("0.25", "512")), {}, "no share is left for the monitor"),
        (ecs_job(batch_container("1.25", "2176")), {}, "no size of Fargate"),
        (ecs_job(batch_container(resourceRequirements=[])), {}, "lacks VCPU or MEMORY"),
        (ecs_job(batch_container("one", "2048")), {}, "lacks VCPU or MEMORY"),
        (ecs_job(batch_container(name="")), {}, "has no name"),
        (ecs_job(batch_container(essential=False)), {}, "No essential container"),
        (ecs_job(batch_container()), {"container": "other"}, "cannot be the batch"),
        (ecs_job(batch_container(), batch_container(name="b")), {}, "choose one with --container"),
        (ecs_job(batch_container(), task={"runtimePlatform": WINDOWS}), {}, "WINDOWS_SERVER_2022"),
        (plain_job(runtimePlatform=WINDOWS), {"wraps": True}, "WINDOWS_SERVER_2022"),
        (ecs_job(batch_container()), {"stacks": "on"}, "SYS_PTRACE"),
        (plain_job(command=[]), {"wraps": True}, "has no command"),
        (ecs_job(batch_container(command=None)), {"wraps": True}, "has no command"),
        (ecs_job(batch_container(command=["x", 5])), {"wraps": True}, "has no command"),
        (ecs_job(batch_container(), None), {"wraps": True}, "one element that has containers"),  # type: ignore[arg-type]
        (plain_job() | {"jobDefinitionName": "nf-ubuntu"}, {"wraps": True}, "Nextflow registers"),
        (
            ecs_job(batch_container(command=["task-profiler", "run", "--", "x"])),
            {},
            "has task-profiler run already",
        ),
        (
            dict(added(ecs_job(batch_container())).definition),
            {"wraps": True},
            "has a monitor already",
        ),
    ],
)
def test_what_would_not_work_is_refused_with_the_reason(
    definition: dict[str, Any], options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(TaskProfilerError, match=sentence) as refused:
        added(definition, **options)
    assert "task definition" not in str(refused.value)


@pytest.mark.parametrize(
    "words",
    [
        ["sh", "-c", "task-profiler run -- python etl.py"],
        ["task-profiler", "run", "python", "etl.py"],
        ["python", "-c", "x", "-m", "profiler", "run", "--", "y"],
        ["env", "A=1", "task-profiler", "run", "--", "y"],
    ],
)
def test_a_wrapper_of_somebody_elses_form_is_left_to_its_author(words: list[str]) -> None:
    with pytest.raises(TaskProfilerError, match="remove it by hand"):
        removed(plain_job(command=words))


@pytest.mark.parametrize("start", [["task-profiler"], ["/venv/bin/python3.12", "-m", "profiler"]])
def test_other_ways_to_start_the_wrapper_are_removed_too(start: list[str]) -> None:
    changed = removed(plain_job(command=[*start, "run", "--label", "a=b", "--", "x", "--", "y"]))
    assert changed.definition == plain_job(command=["x", "--", "y"])


# Texts


def change(data: bytes, *, name: str = "job.json", wraps: bool = False) -> ChangedText:
    options = AddMonitorOptions(image=IMAGE)
    changed = change_job_text(data, name, lambda job: add_to_job(job, options, wraps=wraps))
    assert changed is not None
    return changed


def test_an_answer_of_batch_becomes_the_definition_in_it() -> None:
    own = {**plain_job(), "jobDefinitionArn": DEFINITION_ARN, "revision": 7, "status": "ACTIVE"}
    answer = {"jobDefinitions": [{**own, "containerOrchestrationType": "ECS", "tags": {}}]}
    after = json.loads(change(json.dumps(answer).encode(), wraps=True).after)
    assert problems(after) == ""
    assert "revision" not in after
    two = json.dumps({"jobDefinitions": [own, own]}).encode()
    with pytest.raises(TaskProfilerError, match="has 2 job definitions"):
        change(two)


def test_what_a_change_does_not_concern_keeps_its_form() -> None:
    text = json.dumps(ecs_job(batch_container()), indent=3)
    after = change(text.encode()).after.decode()
    lines = [line for line in text.splitlines() if line not in after.splitlines()]
    assert [line.strip() for line in lines] == ['"value": "1"', '"value": "2048"']


def test_yaml_keeps_its_comments() -> None:
    text = (
        b"jobDefinitionName: nightly # ours\ntype: container\ncontainerProperties:\n"
        b"  image: etl:26\n  # the night\n  command: [python, etl.py]\n"
    )
    changed = change(text, name="job.yaml", wraps=True)
    assert b"# ours" in changed.after
    assert b"# the night" in changed.after
    job = read_job(changed.after, "job.yaml")
    assert job is not None
    assert removed(job.definition).definition["containerProperties"] == {
        "image": "etl:26",
        "command": ["python", "etl.py"],
    }


@pytest.mark.parametrize(
    "text",
    [b'{"family": "x", "containerDefinitions": [{"name": "x"}]}', b'{"Resources": {}}', b"[]"],
)
def test_other_texts_are_no_job_definitions(text: bytes) -> None:
    assert read_job(text, "t.json") is None


def test_a_command_for_task_definitions_says_what_it_is() -> None:
    data = OWN_FILE.read_bytes()
    for read in (read_document, read_definitions):
        with pytest.raises(TaskProfilerError, match="is a job definition of AWS Batch"):
            read(data, "job.json")
    with pytest.raises(TaskProfilerError, match="is a job definition of AWS Batch"):
        read_definitions(b"jobDefinitionName: etl\ncontainerProperties: {image: etl}\n", "job.yaml")
    template = b"Resources:\n  Job:\n    Type: AWS::Batch::JobDefinition\n"
    with pytest.raises(TaskProfilerError, match="a JSON or YAML of their own"):
        change_text(template, "t.yaml", lambda *_: ChangedDefinition(definition={}))


@given(
    document=mutated(ecs_job(batch_container()), plain_job(), json.loads(OWN_FILE.read_text())),
    wraps=st.booleans(),
)
def test_a_document_of_any_form_is_changed_or_refused_in_words(document: Any, wraps: bool) -> None:  # noqa: FBT001
    data = json.dumps(document).encode()
    options = AddMonitorOptions(image=IMAGE)
    with suppress(TaskProfilerError):
        changed = change_job_text(
            data, "job.json", lambda job: add_to_job(job, options, wraps=wraps)
        )
        job = read_job(data, "job.json")
        if job is None or changed is None:
            assert job is None
            assert changed is None
            return
        list(job_definition_findings(job, "x"))
        after = read_job(changed.after, "job.json")
        assert after is not None
        remove_from_job(after, IMAGE)


# doctor FILE


def findings(definition: Any) -> list[tuple[str, str]]:
    job = JobDefinition(definition=definition)
    return [
        (finding.level, f"{finding.text} {finding.advice or ''}".strip())
        for finding in job_definition_findings(job, "add-monitor job.json")
    ]


def test_doctor_says_how_a_job_definition_gets_a_monitor() -> None:
    (first, *_, last) = findings(ecs_job(batch_container()))
    assert first == (
        "problem",
        "There is no monitor, so the jobs have no report. Add it: add-monitor job.json.",
    )
    assert last == ("ok", "A job asks for 1 vCPU, 2048 MiB, a size of Fargate.")
    (first, *_) = findings(plain_job())
    assert first[1].endswith("Add it: add-monitor job.json --wrap.")
    (only,) = findings({"eksProperties": {"podProperties": {}}})
    assert only[1].startswith("There is no monitor. The job definition is for Amazon EKS")
    (broken,) = findings({"ecsProperties": {"taskProperties": []}})
    assert broken[0] == "problem"


def test_doctor_knows_a_monitor_and_a_wrapper() -> None:
    changed = added(ecs_job(batch_container())).definition
    assert [level for level, _ in findings(changed)] == ["ok", "ok"]
    assert [level for level, _ in findings(json.loads(OWN_FILE.read_text()))] == ["ok", "ok"]
    no_role = copy.deepcopy(dict(changed))
    del no_role["ecsProperties"]["taskProperties"][0]["taskRoleArn"]  # type: ignore[index]
    assert "no taskRoleArn" in findings(no_role)[1][1]
    odd_one = batch_container("1", "1024", name="odd", essential=False)
    *_, size = findings(ecs_job(*container_objects(changed), odd_one))  # type: ignore[arg-type]
    assert size[1].startswith("The containers ask for 2 vCPU, 3072 MiB together")

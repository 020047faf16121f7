"""The files in taskdef/: ECS's own shapes take them, the command would write them, the
documentation explains them.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from botocore.session import Session
from botocore.validate import ParamValidator

import profiler
from profiler.settings import read_settings
from profiler.task_definitions.monitor_changes import AddMonitorOptions, add_monitor
from tests.cases import each_case
from tests.cloudformation import listed

ROOT = Path(profiler.__file__).parent.parent
FOLDER = ROOT / "taskdef"
ALONE = "monitor-container.json"
JOB = "aws-batch-job.json"
MONITORED = ["ec2-gpu.json", "fargate-pid-mode.json", "fargate-scheduled.json", "neuron.json"]
ON_INSTANCE = "instance-monitor.json"
DEFINITIONS = [*MONITORED, ON_INSTANCE, "wrapper.json"]
POLICIES = sorted(path.name for path in (FOLDER / "iam").glob("*.json"))
# Actions for which AWS's service authorization reference names no type of resource.
WITHOUT_RESOURCE = {
    *(
        "ecr:GetAuthorizationToken",
        "cloudformation:DescribeStackResources",  # asked for whatever stack has a resource
        "cloudformation:ListStacks",
        "events:ListEventBuses",
        "events:ListRules",
        "scheduler:ListSchedules",
        "states:ListStateMachines",
        "tag:GetResources",
        "ec2:DescribeInstanceTypes",
    ),
    *(
        f"batch:{name}"
        for name in (
            "DescribeComputeEnvironments",
            "DescribeJobDefinitions",
            "DescribeJobQueues",
            "DescribeJobs",
            "ListJobs",
        )
    ),
    *(
        f"ecs:{name}"
        for name in (
            "DescribeTaskDefinition",
            "ListClusters",
            "ListServices",
            "ListTaskDefinitionFamilies",
            "ListTaskDefinitions",
        )
    ),
}
MAX_STOP_TIMEOUT_SECONDS = 120


def read(name: str) -> Any:
    return json.loads((FOLDER / name).read_text())


def problems(service: str, operation: str, parameters: dict[str, Any]) -> str:
    """What botocore finds wrong; like the command line, it refuses parameters that it does not
    know.
    """
    shape = Session().get_service_model(service).operation_model(operation).input_shape
    report: str = ParamValidator().validate(parameters, shape).generate_report()
    return report


def parts(definition: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    batch, monitor = definition["containerDefinitions"]
    return batch, monitor


def test_every_file_is_looked_at_here() -> None:
    assert {path.name for path in FOLDER.glob("*.json")} == {*DEFINITIONS, ALONE, JOB}
    assert read(ALONE) == parts(read("fargate-scheduled.json"))[1]
    task_policies = {"execution-role.json", "task-role.json"}
    operators = {"batch-jobs.json", "operator.json", "resize-jobs.json", "resize.json"}
    assert {*POLICIES} == task_policies | operators


def test_aws_knows_every_field_and_the_wrapper_runs_the_batch() -> None:
    for name in DEFINITIONS:
        assert problems("ecs", "RegisterTaskDefinition", read(name)) == "", name
        assert "Unknown parameter" in problems(
            "ecs", "RegisterTaskDefinition", {**read(name), "odd": 1}
        )
    assert problems("batch", "RegisterJobDefinition", read(JOB)) == ""
    (batch,) = read("wrapper.json")["containerDefinitions"]
    starts = ["python3", "-I", "-m", "profiler", "run"]
    assert batch["entryPoint"][:5] == starts
    assert batch["entryPoint"][-1] == "--"
    assert read(JOB)["containerProperties"]["command"][:5] == starts


@pytest.mark.parametrize("name", MONITORED)
def test_the_monitor_in_it_is_the_one_that_the_command_adds(
    name: str,
) -> None:
    """The monitor in it is the one that the command adds and has time to leave."""
    whole = read(name)
    batch, monitor = parts(whole)
    bare = {field: value for field, value in whole.items() if field != "pidMode"} | {
        "containerDefinitions": [batch]
    }
    options = AddMonitorOptions(image=monitor["image"], shared_pids="pidMode" in whole)
    added = add_monitor(bare, options)
    assert added.definition == whole
    assert added.notes == ()
    own_seconds = read_settings(
        {"ECS_CONTAINER_METADATA_URI_V4": "http://169.254.170.2/v4/1"}
    ).stop_seconds
    assert own_seconds < monitor["stopTimeout"] <= MAX_STOP_TIMEOUT_SECONDS
    assert batch["stopTimeout"] <= MAX_STOP_TIMEOUT_SECONDS


def test_the_instance_monitor_has_no_privilege_but_the_folders_that_it_reads() -> None:
    definition = read(ON_INSTANCE)
    (container,) = definition["containerDefinitions"]
    assert container["user"] == "0"
    assert container["readonlyRootFilesystem"] is True
    assert container["linuxParameters"] == {"capabilities": {"drop": ["ALL"]}}
    assert not {"privileged", "pidMode"} & {*container, *definition}
    folders = {one["containerPath"]: one.get("readOnly", False) for one in container["mountPoints"]}
    assert folders == {"/var/run": True, "/sys/fs/cgroup": True, "/var/lib/task-profiler": False}
    mounted = {one["sourceVolume"] for one in container["mountPoints"]}
    assert mounted == {one["name"] for one in definition["volumes"]}


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_names_its_actions_and_resources(name: str) -> None:
    policy = read(f"iam/{name}")
    assert policy["Version"] == "2012-10-17"
    for statement in policy["Statement"]:
        actions = listed(statement["Action"])
        assert statement["Effect"] == "Allow"
        assert not [action for action in actions if "*" in action]
        if "*" in listed(statement["Resource"]):
            assert set(actions) <= WITHOUT_RESOURCE


def test_the_policy_for_jobs_has_what_the_commands_name() -> None:
    """Every reading right that a command can miss, beside those of the sources of runs."""
    named: set[str] = set()
    for path in (ROOT / "profiler").rglob("*.py"):
        named |= set(re.findall(r"batch:(?:Describe|List|Get)[A-Za-z]+[a-z]", path.read_text()))
    policy = read("iam/batch-jobs.json")
    allowed = {action for one in policy["Statement"] for action in one["Action"]}
    assert named <= allowed
    assert not [action for action in allowed if re.search(":(?!Describe|List|Get|Filter)", action)]


@each_case("name", [*DEFINITIONS, ALONE, JOB, *(f"iam/{name}" for name in POLICIES)])
def test_placeholders_are_the_same_everywhere_and_the_documentation_explains_the_file(
    name: str,
) -> None:
    assert f"(../taskdef/{name})" in (ROOT / "docs" / "task-definitions.md").read_text()
    values = json.dumps(read(name)).split('"')
    places = {tuple(value.split(":")[3:5]) for value in values if value.startswith("arn:")}
    of_aws = ("", "aws")  # its managed policies
    assert places <= {("us-west-2", "111122223333"), ("", "111122223333"), of_aws}
    registries = {value.split("/")[0] for value in values if ".dkr.ecr." in value}
    assert registries <= {"111122223333.dkr.ecr.us-west-2.amazonaws.com"}


def test_the_documentation_explains_each_line_of_the_monitor() -> None:
    page = (ROOT / "docs" / "task-definitions.md").read_text()
    fields = {field for name in MONITORED for field in parts(read(name))[1]}
    assert {field for field in fields if f"`{field}" not in page} == set()

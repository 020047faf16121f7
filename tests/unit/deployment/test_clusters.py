"""taskdef/cluster-*.yaml as they stand: the linter, the parameters, what they share, and their documentation."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jmespath
import pytest
from botocore import xform_name
from botocore.session import Session

from tests.cloudformation import lint_template, read_template
from tests.cluster_stack import CLUSTERS, FOLDER

PAGE = (FOLDER.parent / "docs" / "how-to" / "clusters.md").read_text()
GPU, NEURON = CLUSTERS
MAX_BYTES = 51_200  # of a template that is not in S3; CloudFormation's quota
FREE_LISTS = {"BatchCommand", "TaskPolicyArns"}
# Where one template says something else than the other, and both have it.
DIFFERENT_PARAMETERS = {
    "Family": {"Default"},
    "BatchImage": {"Description"},
    "BatchCpuUnits": {"Default"},
    "BatchMemoryMB": {"Default"},
    "MonitorImage": {"Description"},
    "InstanceType": {"Default", "Description", "AllowedPattern", "AllowedValues", "ConstraintDescription"},
    "VolumeGB": {"Description"},
    "ImageId": {"Default", "Description"},
}

each_cluster = pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.stem)


def parameters(path: Path) -> dict[str, Any]:
    return dict(read_template(path)["Parameters"])


@each_cluster
def test_the_linter_finds_nothing(path: Path) -> None:
    assert lint_template(path.read_text()) == []


@each_cluster
def test_the_linter_finds_what_is_broken(path: Path) -> None:
    """One run for all: a run takes seconds."""
    text = path.read_text()
    mutations = (
        ("HttpTokens: required", "HttpTokens: needed", "E3030"),
        ("!GetAtt InstanceProfile.Arn", "!GetAtt InstanceProfil.Arn", "E1010"),
        ("ManagedTerminationProtection: ENABLED", "ManagedTerminationProtection: 1", "E3030"),
        ('FlexibleTimeWindow: {Mode: "OFF"}', 'FlexibleTimeWindow: {Mode: "NO"}', "E3030"),
        ("MinSize: ", "MinimalSize: ", "E3002"),
    )
    for sound, broken, _ in mutations:
        assert sound in text
        text = text.replace(sound, broken, 1)
    found = Counter(one.split()[0] for one in lint_template(text))
    assert found >= Counter(rule for _, _, rule in mutations)


@each_cluster
def test_it_can_be_deployed_without_s3(path: Path) -> None:
    assert path.stat().st_size <= MAX_BYTES


def test_every_template_is_looked_at_here() -> None:
    assert set(FOLDER.glob("*.yaml")) == set(CLUSTERS)


def test_the_templates_differ_only_in_what_the_devices_ask_for() -> None:
    """What is tested of one is then true of the other."""
    gpu, neuron = (read_template(path) for path in CLUSTERS)
    assert gpu["Conditions"] == neuron["Conditions"]
    assert gpu["Outputs"] == neuron["Outputs"]
    assert gpu["Resources"].keys() == neuron["Resources"].keys()
    different = {name for name in gpu["Resources"] if gpu["Resources"][name] != neuron["Resources"][name]}
    assert different == {"LaunchTemplate", "TaskDefinition"}
    mine, other = (one["Resources"]["LaunchTemplate"]["Properties"]["LaunchTemplateData"] for one in (gpu, neuron))
    assert {name for name in mine if mine[name] != other[name]} == {"UserData"}


# Parameters


@each_cluster
def test_every_parameter_is_described_bounded_and_in_one_group(path: Path) -> None:
    groups = read_template(path)["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    assert sorted(name for group in groups for name in group["Parameters"]) == sorted(parameters(path))
    for name, parameter in parameters(path).items():
        assert parameter["Description"].endswith("."), name
        bounds = {"AllowedValues", "AllowedPattern", "MinValue"}.intersection(parameter)
        checked_by_aws = parameter["Type"].startswith(("AWS::", "List<AWS::"))
        assert len(bounds) == (not checked_by_aws and name not in FREE_LISTS), name
        assert ("AllowedPattern" in parameter) == ("ConstraintDescription" in parameter), name


@each_cluster
def test_defaults_are_allowed(path: Path) -> None:
    for name, one in parameters(path).items():
        if "AllowedPattern" in one and "Default" in one:
            assert re.search(one["AllowedPattern"], one["Default"]), name


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("Family", ["nightly-etl", "a_1"], ["", "a b", "a/b", "a:1"]),
        (
            "BatchImage",
            ["python:3.13-slim", "111122223333.dkr.ecr.us-west-2.amazonaws.com/a/b:1", "r:5000/a@sha256:0f"],
            ["", "a b", "/a", "a/"],
        ),
        ("ScheduleExpression", ["rate(1 day)", "cron(0 3 * * ? *)", "at(2026-11-20T03:00:00)"], ["0 3 * * *", "daily"]),
        ("ScheduleTimezone", ["UTC", "Europe/Berlin", "Etc/GMT+1"], ["", "Europe / Berlin"]),
        (
            "InstanceType",
            [
                "g4dn.xlarge",
                "g5.12xlarge",
                "g6e.2xlarge",
                "gr6.4xlarge",
                "p4d.24xlarge",
                "p5.48xlarge",
                "p6-b200.48xlarge",
            ],
            ["m5.large", "g4ad.xlarge", "g5g.xlarge", "p6e-gb200.36xlarge", "g5", "p2.xlarge", "inf2.xlarge"],
        ),
    ],
)
def test_patterns_take_what_is_meant_and_nothing_else(name: str, good: list[str], bad: list[str]) -> None:
    pattern = parameters(GPU)[name]["AllowedPattern"]
    assert pattern.startswith("^")
    assert pattern.endswith("$")
    assert [value for value in good if not re.search(pattern, value)] == []
    assert [value for value in bad if re.search(pattern, value)] == []


def test_the_parameters_differ_only_in_what_is_listed() -> None:
    gpu, neuron = parameters(GPU), parameters(NEURON)
    assert set(gpu) - set(neuron) == {"BatchGpus"}
    assert set(neuron) - set(gpu) == set()
    for name, one in neuron.items():
        fields = {field for field in {*one, *gpu[name]} if one.get(field) != gpu[name].get(field)}
        assert fields == DIFFERENT_PARAMETERS.get(name, set()), name


# The documentation


def test_the_docs_have_every_parameter_with_its_defaults() -> None:
    rows = {
        name: (gpu, neuron) for name, gpu, neuron in re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|", PAGE, re.MULTILINE)
    }
    defaults = {name: tuple(shown(parameters(path).get(name)) for path in (GPU, NEURON)) for name in parameters(GPU)}
    assert {name: row for name, row in rows.items() if name in defaults} == defaults


def shown(parameter: dict[str, Any] | None) -> str:
    """A default as the table has it."""
    if parameter is None:
        return "none"
    if "Default" not in parameter:
        return "required"
    if parameter["Default"] == "":
        return "empty"
    value = str(parameter["Default"])
    return f"`{value}`"


def test_the_docs_name_every_output() -> None:
    assert [name for name in read_template(GPU)["Outputs"] if f"`{name}`" not in PAGE] == []


def test_links_within_the_page_lead_to_headings() -> None:
    headings = re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    linked = set(re.findall(r"\]\(#([^)]+)\)", PAGE))
    assert len(linked) >= 4
    assert linked - anchors == set()


def commands() -> Iterator[list[str]]:
    """Each call of the AWS CLI in the page's blocks, in words."""
    for block in re.findall(r"^ *```sh\n(.*?)^ *```", PAGE, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["aws"]:
                yield words[: words.index("|")] if "|" in words else words


# What the AWS CLI adds to the APIs, with the options that are used here.
OWN_COMMANDS = {
    ("cloudformation", "deploy"): {"stack-name", "template-file", "capabilities", "parameter-overrides"},
    ("cloudformation", "wait"): {"stack-name"},
    ("ecr", "get-login-password"): set[str](),
}


def problem_of(words: list[str]) -> str | None:
    """What the AWS CLI would not know of a command, or would miss."""
    _, service, operation, *rest = words
    given = {word.removeprefix("--") for word in rest if word.startswith("--")} - {"output"}
    if "query" in given:
        jmespath.compile(rest[rest.index("--query") + 1])
        given.remove("query")
    if (service, operation) in OWN_COMMANDS:
        wrong = given - OWN_COMMANDS[service, operation]
    else:
        model = Session().get_service_model(service)
        names = {xform_name(name, "-"): name for name in model.operation_names}
        if operation not in names:
            return f"{service} has no {operation}"
        shape = model.operation_model(names[operation]).input_shape
        known = {xform_name(name, "-") for name in shape.members} if shape else set()
        needed = {xform_name(name, "-") for name in shape.required_members} if shape else set()
        given = {name if name in known else name.removeprefix("no-") for name in given}
        wrong = given - known or needed - given
    return f"{service} {operation}: {sorted(wrong)}" if wrong else None


def test_a_wrong_command_would_be_noticed() -> None:
    assert problem_of(shlex.split("aws ecs list-tasks --cluster a --query taskArns")) is None
    assert problem_of(shlex.split("aws ecs list-task --cluster a")) is not None
    assert problem_of(shlex.split("aws ecs list-tasks --clusters a")) is not None
    assert problem_of(shlex.split("aws ecs describe-tasks --cluster a")) is not None
    assert problem_of(shlex.split("aws cloudformation deploy --stack a")) is not None
    with pytest.raises(jmespath.exceptions.ParseError):
        problem_of(shlex.split("aws ecs list-tasks --query 'taskArns[['"))


def test_the_cli_knows_every_command_of_the_page() -> None:
    found = list(commands())
    assert len(found) >= 12
    assert [problem for problem in map(problem_of, found) if problem] == []


def test_the_page_deploys_both_templates_with_what_they_require() -> None:
    deployed = {}
    for words in commands():
        if words[1:3] == ["cloudformation", "deploy"]:
            template = words[words.index("--template-file") + 1]
            overrides = words[words.index("--parameter-overrides") + 1 :]
            deployed[FOLDER.parent / template] = {one.split("=")[0] for one in overrides}
    assert set(deployed) == set(CLUSTERS)
    for path, given in deployed.items():
        assert (
            {name for name, one in parameters(path).items() if "Default" not in one} <= given <= set(parameters(path))
        )

"""taskdef/cluster-*.yaml as they stand: the linter, the parameters, what they share, and their documentation."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cloudformation import CLUSTERS, FOLDER, lint_template, read_template

PAGE = (FOLDER.parent / "docs" / "gpu.md").read_text()
GPU, NEURON = CLUSTERS
MAX_BYTES = 51_200  # of a template that is not in S3; CloudFormation's quota
FREE_LISTS = {"BatchCommand", "TaskPolicyArns"}

each_cluster = pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.stem)


def parameters(path: Path) -> dict[str, Any]:
    return dict(read_template(path)["Parameters"])


@each_cluster
def test_the_linter_finds_nothing(path: Path) -> None:
    assert lint_template(path.read_text()) == []


@each_cluster
def test_it_can_be_deployed_without_s3(path: Path) -> None:
    assert path.stat().st_size <= MAX_BYTES


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
            ["g4dn.xlarge", "g5.12xlarge", "g6e.2xlarge", "gr6.4xlarge", "p4d.xlarge", "p5.xlarge", "p6-b200.48xlarge"],
            ["m5.large", "g4ad.xlarge", "g5g.xlarge", "p6e-gb200.36xlarge", "g5", "p2.xlarge", "inf2.xlarge"],
        ),
    ],
)
def test_patterns_take_what_is_meant_and_nothing_else(name: str, good: list[str], bad: list[str]) -> None:
    pattern = parameters(GPU)[name]["AllowedPattern"]
    assert (pattern[0], pattern[-1]) == ("^", "$")
    assert [value for value in (*good, *bad) if re.search(pattern, value)] == good


# The documentation


def commands() -> Iterator[list[str]]:
    """Each call of the AWS CLI in the page's blocks, in words."""
    for block in re.findall(r"^ *```sh\n(.*?)^ *```", PAGE, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["aws"]:
                yield words[: words.index("|")] if "|" in words else words


def test_the_page_deploys_both_templates_with_what_they_require() -> None:
    deployed = {}
    for words in commands():
        if words[1:3] == ["cloudformation", "deploy"]:
            template = words[words.index("--template-file") + 1]
            overrides = words[words.index("--parameter-overrides") + 1 :]
            deployed[FOLDER.parent / template] = {one.split("=")[0] for one in overrides}
    assert set(deployed) == set(CLUSTERS)
    for path, given in deployed.items():
        required = {name for name, one in parameters(path).items() if "Default" not in one}
        assert required <= given <= set(parameters(path))

"""The TypeScript of the examples and of ``taskdef container``, compiled against the real AWS CDK.

``make iac`` installs the packages of npm.
"""

import os
import subprocess
from pathlib import Path

import pytest

import profiler
from profiler.task_definitions.container_snippets import ContainerRequest, container_text
from profiler.task_definitions.monitor_container import CallStacksAccess

EXTENSION = Path(profiler.__file__).parent.parent / "examples" / "task-monitor.ts"
PACKAGES = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    / "task-profiler"
    / "cdk-typescript"
)
HEAD = """\
import * as cdk from "aws-cdk-lib";
import * as ecs from "aws-cdk-lib/aws-ecs";
import * as logs from "aws-cdk-lib/aws-logs";
const taskDefinition = new ecs.FargateTaskDefinition(new cdk.Stack(), "Task");
"""


# Prints the errors of the synthesis of a task of 512 MiB whose batch has so much.
SYNTHESIS = """
const {{ TaskMonitor }} = require("./monitor.js");
const cdk = require("aws-cdk-lib");
const ecs = require("aws-cdk-lib/aws-ecs");
const logs = require("aws-cdk-lib/aws-logs");
const app = new cdk.App();
const stack = new cdk.Stack(app, "Jobs");
const definition = new ecs.{kind}(stack, "Task", {options});
const image = ecs.ContainerImage.fromRegistry("etl:26");
for (let number = 0; number < {containers}; number++) {{
  definition.addContainer("etl" + number, {{ image, memoryLimitMiB: {memory}, essential: number === 0 }});
}}
definition.addExtension(new TaskMonitor(image, new logs.LogGroup(stack, "Group"), "ecs"));
definition.node.defaultChild.addPropertyOverride({override});
try {{
  app.synth();
}} catch (error) {{
  console.log(String(error));
}}
"""
ON_WINDOWS = """{ placementConstraints: [
  ecs.PlacementConstraint.memberOf("attribute:ecs.os-type == windows")] }"""
WITHOUT_NETWORK = "{ networkMode: ecs.NetworkMode.NONE }"


def compile_typescript(folder: Path, text: str, *options: str) -> None:
    compiler = PACKAGES / "node_modules" / "typescript" / "bin" / "tsc"
    if not compiler.exists():
        pytest.skip("the CDK for TypeScript is not installed: run make iac")
    (folder / "monitor.ts").write_text(text)
    (folder / "node_modules").symlink_to(PACKAGES / "node_modules")
    words = [
        *(options or ("--noEmit",)),
        "--strict",
        "--skipLibCheck",
        "--target",
        "es2022",
        "--module",
        "commonjs",
        "monitor.ts",
    ]
    done = subprocess.run(
        ["node", compiler, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_extension_compiles(tmp_path: Path) -> None:
    compile_typescript(tmp_path, EXTENSION.read_text())


@pytest.mark.parametrize("stacks", [None, "on"])
def test_what_the_command_prints_compiles(stacks: CallStacksAccess | None, tmp_path: Path) -> None:
    request = ContainerRequest(image="team/task-profiler:1", log_group="/ecs/etl", stacks=stacks)
    compile_typescript(tmp_path, HEAD + container_text(request, "cdk"))


@pytest.mark.parametrize(
    ("kind", "options", "containers", "memory", "sentence"),
    [
        ("FargateTaskDefinition", "{}", 1, 256, ""),
        ("FargateTaskDefinition", "{}", 1, 512, "No memory is left for the monitor"),
        ("FargateTaskDefinition", "{}", 10, 16, "ECS allows 10 containers"),
        ("Ec2TaskDefinition", ON_WINDOWS, 1, 256, "does not work on Windows"),
        ("Ec2TaskDefinition", WITHOUT_NETWORK, 1, 256, "NetworkMode is none"),
    ],
)
def test_the_extension_refuses_what_the_command_refuses(
    kind: str, options: str, containers: int, memory: int, sentence: str, tmp_path: Path
) -> None:
    given = {"kind": kind, "options": options, "containers": containers, "memory": memory}
    check_synthesis(tmp_path, sentence, **given, override='"Family", "etl"')


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ('"Memory", "1024"', ""),
        ('"Memory", "256"', "No memory is left for the monitor"),
        ('"ContainerDefinitions", [{ Name: "etl0" }]', "has not one container task-monitor"),
    ],
)
def test_the_extension_reads_the_overrides(override: str, sentence: str, tmp_path: Path) -> None:
    given = {"kind": "FargateTaskDefinition", "options": "{}", "containers": 1, "memory": 256}
    check_synthesis(tmp_path, sentence, **given, override=override)


def check_synthesis(tmp_path: Path, sentence: str, **given: object) -> None:
    compile_typescript(tmp_path, EXTENSION.read_text(), "--outDir", ".")
    script = SYNTHESIS.format(**given)
    (tmp_path / "synthesis.js").write_text(script)
    done = subprocess.run(
        ["node", "synthesis.js"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert sentence in done.stdout
    assert bool(done.stdout) == bool(sentence)

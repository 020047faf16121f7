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


def compile_typescript(folder: Path, text: str) -> None:
    compiler = PACKAGES / "node_modules" / "typescript" / "bin" / "tsc"
    if not compiler.exists():
        pytest.skip("the CDK for TypeScript is not installed: run make iac")
    (folder / "monitor.ts").write_text(text)
    (folder / "node_modules").symlink_to(PACKAGES / "node_modules")
    words = [
        "--noEmit",
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

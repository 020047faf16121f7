"""The TypeScript of the documentation and of ``taskdef container``, compiled against the real AWS CDK.

``make iac`` installs the packages of npm.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

import profiler
from profiler.task_definitions.container_snippets import ContainerRequest, container_text
from profiler.task_definitions.containers import StacksAccess

PAGE = Path(profiler.__file__).parent.parent / "docs" / "how-to" / "infrastructure-as-code.md"
PACKAGES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "task-profiler" / "cdk-typescript"
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
    words = ["--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "--module", "commonjs", "monitor.ts"]
    done = subprocess.run(["node", compiler, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_extension_of_the_documentation_compiles(tmp_path: Path) -> None:
    (snippet,) = re.findall(r"```ts\n(.*?)```", PAGE.read_text(), re.DOTALL)
    compile_typescript(tmp_path, snippet)


@pytest.mark.parametrize("stacks", [None, "on"])
def test_what_the_command_prints_compiles(stacks: StacksAccess | None, tmp_path: Path) -> None:
    request = ContainerRequest(image="team/task-profiler:1", log_group="/ecs/etl", stacks=stacks)
    text = container_text(request, "cdk")
    compile_typescript(tmp_path, HEAD + text)

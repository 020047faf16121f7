"""The recipes of docs/from-advice-to-effect.md: definitions in code that read the file of
``taskdef resize --write-sizes``, by a real OpenTofu, CDK and jq (``make iac``).
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from profiler.task_definitions.sizes_file import SizesFile
from tests.documentation import ROOT, blocks

PAGE = Path("docs/from-advice-to-effect.md")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "task-profiler"
WRITTEN: dict[str, dict[str, Any]] = {
    "nightly-etl": {"cpu": 512, "memory": 2048, "containers": {"batch": {"memory": 1024}}},
    "orders": {"cpu": 256, "memory": 512},
    "payroll": {"cpu": 2048, "memory": 8192},
}
NEW = {family: (sizes["cpu"], sizes["memory"]) for family, sizes in WRITTEN.items()}
OLD = (1024, 4096)
# The provider of AWS needs a registry: a resource of Terraform's own takes the arguments.
_ARGUMENTS = re.compile(
    r'resource "aws_ecs_task_definition"( "\w+" \{\n(?:  for_each.*\n)?)((?:  .*\n)+)\}'
)
_MODULE = """\
variable "family" { type = string }
variable "cpu" { type = number }
variable "memory" { type = number }
output "size" { value = { family = var.family, cpu = var.cpu, memory = var.memory } }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file as it is written: with a reason, which may have any characters."""
    file = SizesFile()
    for family, sizes in WRITTEN.items():
        file = file.with_size(family, sizes, why='saves 50 %; ${file("/x")} "quoted"')
    (tmp_path / "sizes.json").write_bytes(file.file_content)
    return tmp_path


def recipe(language: str, mark: str) -> str:
    """The page's only block of the language that has the mark."""
    (found,) = (block.text for block in blocks(PAGE, language) if mark in block.text)
    return found


@pytest.fixture
def tofu() -> str:
    built = sorted((CACHE / "opentofu").glob("tofu-*"))
    found = shutil.which("tofu") or (str(built[-1]) if built else None)
    if found is None:
        pytest.skip("OpenTofu is not built: run make iac")
    return found


def planned(tofu: str, folder: Path) -> dict[str, tuple[int, int]]:
    """The sizes that ``tofu plan`` shows, by family."""
    for words in (("init", "-input=false"), ("plan", "-input=false", "-out=plan")):
        done = subprocess.run(
            [tofu, *words], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    shown = subprocess.run(
        [tofu, "show", "-json", "plan"], cwd=folder, capture_output=True, check=True
    )
    plan: dict[str, Any] = json.loads(shown.stdout)
    resources = [change["change"]["after"]["input"] for change in plan["resource_changes"]]
    resources.append(plan["output_changes"]["payroll"]["after"])
    return {size["family"]: (size["cpu"], size["memory"]) for size in resources}


def test_opentofu_plans_the_sizes_of_the_file_for_each_and_in_a_module(
    tofu: str, folder: Path
) -> None:
    text = _ARGUMENTS.sub(
        r'resource "terraform_data"\1  input = {\n\2  }\n}', recipe("hcl", "for_each")
    )
    assert "aws_" not in text
    (folder / "main.tf").write_text(f'{text}output "payroll" {{ value = module.payroll.size }}\n')
    (folder / "job").mkdir()
    (folder / "job" / "main.tf").write_text(_MODULE)
    assert planned(tofu, folder) == {**NEW, "invoices": OLD}
    (folder / "sizes.json").write_text("{}")
    assert planned(tofu, folder) == dict.fromkeys((*NEW, "invoices"), OLD)


def test_opentofu_reads_a_containers_limit(tofu: str, folder: Path) -> None:
    (limit,) = re.findall(r"`(try\(.*?containers.*?\))`", (ROOT / PAGE).read_text())
    (folder / "main.tf").write_text(
        'locals { sizes = jsondecode(file("sizes.json")) }\n'
        f'resource "terraform_data" "x" {{ input = {{ family = "x", cpu = 0, memory = {limit} }} }}\n'
        'output "payroll" { value = { family = "y", cpu = 0, memory = 0 } }\n'
    )
    assert planned(tofu, folder)["x"] == (0, 1024)
    (folder / "sizes.json").write_text("{}")
    assert planned(tofu, folder)["x"] == (0, 3072)


def test_the_cdk_synthesises_the_sizes_of_the_file(folder: Path) -> None:
    packages = CACHE / "cdk-typescript" / "node_modules"
    if not packages.exists():
        pytest.skip("the packages of npm are missing: run make iac")
    (folder / "node_modules").symlink_to(packages)
    (folder / "main.ts").write_text(
        "declare function require(name: string): any;\n"
        "declare const console: any;\n"
        'const { readFileSync } = require("fs");\n'
        'import * as cdk from "aws-cdk-lib";\n'
        'import * as ecs from "aws-cdk-lib/aws-ecs";\n'
        "const app = new cdk.App();\n"
        'const stack = new cdk.Stack(app, "Jobs");\n'
        f"{recipe('typescript', 'readFileSync')}"
        "console.log(JSON.stringify(stack.resolve((definition.node.defaultChild as "
        "ecs.CfnTaskDefinition)._toCloudFormation())));\n"
    )
    compiler = ["node_modules/.bin/tsc", "--strict", "--skipLibCheck", "--module", "commonjs"]
    more = ["--target", "es2022", "main.ts"]
    done = subprocess.run(
        [*compiler, *more], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout

    def properties() -> tuple[str, str]:
        ran = subprocess.run(
            ["node", "main.js"], cwd=folder, capture_output=True, text=True, check=True
        )
        (resource,) = json.loads(ran.stdout)["Resources"].values()
        return resource["Properties"]["Cpu"], resource["Properties"]["Memory"]

    assert properties() == ("512", "2048")
    (folder / "sizes.json").write_text("{}")
    assert properties() == ("1024", "4096")


def shell(folder: Path, script: str) -> str:
    if shutil.which("jq") is None:
        pytest.skip("jq is missing")
    done = subprocess.run(
        ["bash", "-ec", f"aws() {{ printf '%s\\n' \"$@\"; }}\n{script}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_cloudformation_gets_the_sizes_as_parameters(folder: Path) -> None:
    script = recipe("bash", "--parameter-overrides")
    assert shell(folder, script).splitlines()[-2:] == ["Cpu=512", "Memory=2048"]
    (folder / "sizes.json").write_text("{}")
    assert shell(folder, script).splitlines()[-1] == "--parameter-overrides"


def test_copilots_patches_replace_the_task_definitions_size(folder: Path) -> None:
    script = recipe("sh", "cfn.patches.yml")
    shell(folder, script)
    patches = json.loads((folder / "cfn.patches.yml").read_text())
    assert [(one["op"], one["path"].rpartition("/")[2], one["value"]) for one in patches] == [
        ("replace", "Cpu", 512),
        ("replace", "Memory", 2048),
    ]
    (folder / "sizes.json").write_text("{}")
    shell(folder, script)
    assert json.loads((folder / "cfn.patches.yml").read_text()) == []

"""terraform/monitor-container, applied by a real OpenTofu (``make iac`` builds it from its Go module)."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import profiler
from profiler.task_definitions.container_snippets import ContainerRequest, container_text, monitor_container
from tests.stack import template

ROOT = Path(profiler.__file__).parent.parent
MODULE = ROOT / "terraform" / "monitor-container"
PAGE = ROOT / "docs" / "how-to" / "infrastructure-as-code.md"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "task-profiler" / "opentofu"
IMAGE = "111122223333.dkr.ecr.us-west-2.amazonaws.com/task-profiler:0.1.0"


@pytest.fixture(scope="module")
def tofu() -> str:
    built = sorted(CACHE.glob("tofu-*"))
    found = shutil.which("tofu") or (str(built[-1]) if built else None)
    if found is None:
        pytest.skip("OpenTofu is not built: run make iac")
    return found


def applied(tofu: str, folder: Path, text: str) -> Any:
    """Apply a configuration and return the value of its output ``result``."""
    (folder / "main.tf").write_text(text)
    for words in (["init", "-input=false"], ["apply", "-auto-approve", "-input=false"]):
        done = subprocess.run([tofu, *words, "-no-color"], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    shown = subprocess.run([tofu, "output", "-json", "result"], cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(shown.stdout)


def test_the_module_is_the_container_of_the_command(tofu: str, tmp_path: Path) -> None:
    result = applied(
        tofu,
        tmp_path,
        f"""
module "monitor" {{
  source          = "{MODULE}"
  batch_container = "etl"
  image           = "{IMAGE}"
  log_group       = "/ecs/etl"
  region          = "us-west-2"
  settings        = {{ TASK_PROFILER_TAGS = "true" }}
}}
output "result" {{ value = jsonencode([module.monitor.container_definition]) }}
""",
    )
    request = ContainerRequest(image=IMAGE, container="etl", log_group="/ecs/etl", region="us-west-2")
    names_batch = {"name": "TASK_PROFILER_CONTAINER", "value": "etl"}
    assert monitor_container(request)["environment"] == [names_batch]
    expected = {
        **monitor_container(request),
        "environment": [names_batch, {"name": "TASK_PROFILER_TAGS", "value": "true"}],
    }
    assert json.loads(result) == [expected]


def test_what_the_command_prints_for_terraform_is_the_container(tofu: str, tmp_path: Path) -> None:
    request = ContainerRequest(image=IMAGE, container="et${l}", log_group="/ecs/%{x}", region="us-west-2")
    text = f'output "result" {{\n  value = jsonencode({container_text(request, "terraform")})\n}}\n'
    assert json.loads(applied(tofu, tmp_path, text)) == monitor_container(request)


def test_the_configurations_of_the_documentation_are_valid_and_formatted(tofu: str) -> None:
    """Only syntax and form: the provider of AWS is not in a package registry."""
    texts = re.findall(r"```hcl\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(texts) == 2
    for text in texts:
        done = subprocess.run(
            [tofu, "fmt", "-check", "-diff", "-"], input=text, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_stack_of_the_documentation_has_parameters_of_the_template() -> None:
    (block,) = re.findall(r"parameters = \{\n(.*?)\n  \}", PAGE.read_text(), re.DOTALL)
    given = dict(re.findall(r"^ +(\w+) += (.+)$", block, re.MULTILINE))
    parameters = template()["Parameters"]
    required = {name for name, one in parameters.items() if "Default" not in one}
    assert required <= set(given) <= set(parameters)
    assert json.loads(given["Subscribe"]) in parameters["Subscribe"]["AllowedValues"]

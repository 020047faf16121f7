"""The modules of taskdef/terraform, applied by a real OpenTofu (``make iac`` builds it from its
Go module).
"""

import json
import os
import re
import shutil
import subprocess
from operator import itemgetter
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

import profiler
from profiler.task_definitions.container_snippets import (
    ContainerRequest,
    container_text,
    monitor_container,
)
from tests.cloudformation import template
from tests.documentation import blocks, pages

ROOT = Path(profiler.__file__).parent.parent
MODULE = ROOT / "taskdef" / "terraform" / "monitor-containers"
ON_INSTANCE = MODULE.with_name("instance-monitor")
PAGE = ROOT / "docs" / "task-definitions.md"
CACHE = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "task-profiler" / "opentofu"
)
IMAGE = "111122223333.dkr.ecr.us-west-2.amazonaws.com/task-profiler:0.1.0"


@pytest.fixture(scope="module")
def tofu() -> str:
    built = sorted(CACHE.glob("tofu-*"))
    found = shutil.which("tofu") or (str(built[-1]) if built else None)
    if found is None:
        pytest.skip("OpenTofu is not built: run make iac")
    return found


def run(tofu: str, folder: Path, *words: str, given: str | None = None) -> CompletedProcess[str]:
    return subprocess.run(
        [tofu, *words], cwd=folder, input=given, capture_output=True, text=True, check=False
    )


def apply(tofu: str, folder: Path, text: str) -> CompletedProcess[str]:
    (folder / "main.tf").write_text(text)
    done = run(tofu, folder, "init", "-input=false", "-no-color")
    assert done.returncode == 0, done.stderr
    return run(tofu, folder, "apply", "-auto-approve", "-input=false", "-no-color")


def applied(tofu: str, folder: Path, text: str) -> Any:
    """Apply a configuration and return the value of its output ``result``."""
    done = apply(tofu, folder, text)
    assert done.returncode == 0, done.stderr
    return json.loads(run(tofu, folder, "output", "-json", "result").stdout)


def test_one_module_has_the_containers_of_all_tasks(tofu: str, tmp_path: Path) -> None:
    """The containers are those of the command; what a task sets counts before what all tasks
    have.
    """
    result = applied(
        tofu,
        tmp_path,
        f"""
locals {{ jobs = [for number in range(150) : format("job-%03d", number)] }}
module "monitor" {{
  source   = "{MODULE}"
  image    = "{IMAGE}"
  region   = "us-west-2"
  settings = {{ TASK_PROFILER_TAGS = "true" }}
  tasks = merge(
    {{ for job in local.jobs : job => {{ log_group = "/ecs/${{job}}" }} }},
    {{ etl = {{
      log_group = "/ecs/other", batch_container = "main", stream_prefix = "x", region = "eu-west-1", image = "own:1",
      report_stream = "monitor",
      settings = {{ TASK_PROFILER_TAGS = "false", TASK_PROFILER_EMF = "true" }}
    }} }},
  )
}}
output "result" {{ value = jsonencode(module.monitor.container_definitions) }}
""",
    )
    found = json.loads(result)
    assert len(found) == 151
    tags = {"name": "TASK_PROFILER_TAGS", "value": "true"}
    request = ContainerRequest(
        image=IMAGE, container="job-149", log_group="/ecs/job-149", region="us-west-2"
    )
    names_batch = {"name": "TASK_PROFILER_CONTAINER", "value": "job-149"}
    assert monitor_container(request)["environment"] == [names_batch]
    assert found["job-149"] == {**monitor_container(request), "environment": [names_batch, tags]}
    own = ContainerRequest(
        image="own:1",
        container="main",
        log_group="/ecs/other",
        region="eu-west-1",
        stream_prefix="x",
    )
    variables = {"CONTAINER": "main", "EMF": "true", "REPORT_STREAM": "monitor", "TAGS": "false"}
    environment = [
        {"name": f"TASK_PROFILER_{name}", "value": value} for name, value in variables.items()
    ]
    assert found["etl"] == {**monitor_container(own), "environment": environment}


def test_a_setting_with_a_wrong_name_is_refused(tofu: str, tmp_path: Path) -> None:
    text = f"""
module "monitor" {{
  source = "{MODULE}"
  image  = "{IMAGE}"
  tasks  = {{ etl = {{ log_group = "/ecs/etl", settings = {{ "task-tags" = "true" }} }} }}
}}
output "result" {{ value = module.monitor.container_definitions }}
"""
    done = apply(tofu, tmp_path, text)
    assert done.returncode == 1, done.stderr
    assert "upper-case environment variables" in done.stderr


@pytest.mark.parametrize(
    ("definition", "sentence"),
    [
        ('operating_system_family = "windows_server_2022_core"', "does not work on Windows"),
        ("containers = [for number in range(10) : {}]", "ECS allows 10 containers"),
        ("memory = 512, containers = [{ memory = 500 }]", "No memory is left for the monitor"),
        ("memory = 512, containers = [{ memoryReservation = 481 }]", "No memory is left"),
    ],
)
def test_the_module_refuses_what_the_command_refuses(
    definition: str, sentence: str, tofu: str, tmp_path: Path
) -> None:
    text = f"""
module "monitor" {{
  source = "{MODULE}"
  image  = "{IMAGE}"
  tasks  = {{ etl = {{ log_group = "/ecs/etl", definition = {{ {definition} }} }} }}
}}
output "result" {{ value = module.monitor.container_definitions }}
"""
    done = apply(tofu, tmp_path, text)
    assert done.returncode == 1, done.stderr
    assert sentence in " ".join(done.stderr.replace("│", " ").split())
    room = "memory = 512, containers = [{ memory = 480 }, { memoryReservation = null }]"
    done = apply(tofu, tmp_path, text.replace(definition, room))
    assert done.returncode == 0, done.stderr


def test_the_instance_monitor_is_the_definition_in_the_file(tofu: str, tmp_path: Path) -> None:
    result = applied(
        tofu,
        tmp_path,
        f"""
module "monitor" {{
  source     = "{ON_INSTANCE}"
  image      = "{IMAGE}"
  region     = "us-west-2"
  log_group  = "/ecs/instance-monitor"
  log_groups = ["/ecs/a", "/ecs/b"]
}}
output "result" {{ value = module.monitor }}
""",
    )
    wanted = json.loads((ROOT / "taskdef" / "instance-monitor.json").read_text())
    (container,), (expected,) = (
        json.loads(result["container_definitions"]),
        wanted["containerDefinitions"],
    )
    for field, key in (("environment", "name"), ("mountPoints", "sourceVolume")):
        assert sorted(container.pop(field), key=itemgetter(key)) == _complete(
            expected.pop(field), key
        )
    assert container == expected
    assert result["volumes"] == {
        one["name"]: one["host"]["sourcePath"] for one in wanted["volumes"]
    }
    template_role = template()["Resources"]["InstanceMonitorRole"]["Properties"]
    (mine,) = json.loads(result["policy"])["Statement"]
    (other,) = template_role["Policies"][0]["PolicyDocument"]["Statement"]
    assert mine["Sid"] == other["Sid"]
    assert mine["Action"] == other["Action"]
    assert mine["Resource"] == [
        f"arn:*:logs:*:*:log-group:{group}:*" for group in ("/ecs/a", "/ecs/b")
    ]
    (trust,) = json.loads(result["assume_role_policy"])["Statement"]
    assert (
        trust["Principal"] == template_role["AssumeRolePolicyDocument"]["Statement"][0]["Principal"]
    )


def _complete(items: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """The items in the module's order; a mount point is not read-only by default."""
    default = {"readOnly": False} if key == "sourceVolume" else {}
    return sorted(({**default, **one} for one in items), key=itemgetter(key))


def test_what_the_command_prints_for_terraform_is_the_container(tofu: str, tmp_path: Path) -> None:
    request = ContainerRequest(
        image=IMAGE, container="et${l}", log_group="/ecs/%{x}", region="us-west-2"
    )
    text = f'output "result" {{\n  value = jsonencode({container_text(request, "terraform")})\n}}\n'
    assert json.loads(applied(tofu, tmp_path, text)) == monitor_container(request)


def test_the_modules_and_the_configurations_of_the_documentation_are_formatted(tofu: str) -> None:
    """Of the latter only syntax and form: the provider of AWS is not in a package registry."""
    texts = [block.text for page in pages() for block in blocks(page, "hcl")]
    assert len(texts) == 4
    for text in (*texts, *(file.read_text() for file in MODULE.parent.rglob("*.tf"))):
        done = run(tofu, MODULE, "fmt", "-check", "-diff", "-", given=text)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_stack_of_the_documentation_has_parameters_of_the_template() -> None:
    (block,) = re.findall(r"parameters = \{\n(.*?)\n  \}", PAGE.read_text(), re.DOTALL)
    given = dict(re.findall(r"^ +(\w+) += (.+)$", block, re.MULTILINE))
    parameters = template()["Parameters"]
    required = {name for name, one in parameters.items() if "Default" not in one}
    assert required <= set(given) <= set(parameters)
    assert json.loads(given["Subscribe"]) in parameters["Subscribe"]["AllowedValues"]

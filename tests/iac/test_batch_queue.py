"""examples/batch_queue.tf and batch-queue.ts by a real OpenTofu and CDK (``make iac``): the queue's
instances have the user data that ``setup batch-instances`` prints.
"""

import base64
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from profiler.aws_account.setup.batch_instances import InstanceUserData, role_policy
from tests.cloudformation import lint_template
from tests.documentation import ROOT

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "task-profiler"
IMAGE = "111122223333.dkr.ecr.eu-west-1.amazonaws.com/task-profiler:0.1.0"
DOCUMENT = InstanceUserData(image=IMAGE, region="eu-west-1").user_data_document()
# The provider of AWS needs a registry: a resource of Terraform's own takes the arguments.
_RESOURCE = re.compile(r'resource "aws_(\w+)" "(\w+)" \{\n((?:(?:  .*)?\n)+?)\}')
_BLOCK = re.compile(r"^( +\w+) \{$", re.MULTILINE)
_REFERENCE = re.compile(r"\baws_(\w+)\.(\w+)\.(\w+)")


def test_opentofu_plans_the_queue_with_the_printed_files(tmp_path: Path) -> None:
    built = sorted((CACHE / "opentofu").glob("tofu-*"))
    tofu = shutil.which("tofu") or (str(built[-1]) if built else None)
    if tofu is None:
        pytest.skip("OpenTofu is not built: run make iac")
    text = (ROOT / "examples" / "batch_queue.tf").read_text()
    formatted = subprocess.run(
        [tofu, "fmt", "-"], input=text, capture_output=True, text=True, check=False
    )
    assert formatted.stdout == text, formatted.stderr

    def resource(found: re.Match[str]) -> str:
        arguments = _BLOCK.sub(r"\1 = {", found[3])
        return (
            f'resource "terraform_data" "{found[1]}_{found[2]}" {{\ninput = {{\n{arguments}}}\n}}'
        )

    plain = _REFERENCE.sub(r'"\1.\2.\3"', _RESOURCE.sub(resource, text))
    assert "aws_" not in plain
    (tmp_path / "main.tf").write_text(plain)
    (tmp_path / "user-data.txt").write_text(DOCUMENT)
    policy = role_policy(IMAGE, ["/aws/batch/job"], region="eu-west-1", partition="aws")
    (tmp_path / "role-policy.json").write_text(json.dumps(policy))
    given = ("-var", 'subnets=["subnet-1"]', "-var", 'security_groups=["sg-1"]')
    for words in (("init",), ("plan", "-out=plan", *given)):
        done = subprocess.run(
            [tofu, *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    shown = subprocess.run(
        [tofu, "show", "-json", "plan"], cwd=tmp_path, capture_output=True, check=True
    )
    planned = {
        one["name"]: one["change"]["after"]["input"]
        for one in json.loads(shown.stdout)["resource_changes"]
    }
    template = planned["launch_template_instance"]
    assert base64.b64decode(template["user_data"]).decode() == DOCUMENT
    assert json.loads(planned["iam_role_policy_monitor"]["policy"]) == policy
    resources = planned["batch_compute_environment_jobs"]["compute_resources"]
    assert resources["launch_template"]["launch_template_id"] == "launch_template.instance.id"


def test_the_cdk_synthesises_the_queue_with_the_printed_user_data(tmp_path: Path) -> None:
    packages = CACHE / "cdk-typescript" / "node_modules"
    if not packages.exists():
        pytest.skip("the packages of npm are missing: run make iac")
    (tmp_path / "node_modules").symlink_to(packages)
    (tmp_path / "queue.ts").write_text((ROOT / "examples" / "batch-queue.ts").read_text())
    (tmp_path / "user-data.txt").write_text(DOCUMENT)
    (tmp_path / "main.js").write_text(
        'const cdk = require("aws-cdk-lib"), ec2 = require("aws-cdk-lib/aws-ec2");\n'
        'const { MonitoredQueue } = require("./queue.js");\n'
        'const stack = new cdk.Stack(new cdk.App({ outdir: "out" }), "Jobs");\n'
        'const vpc = new ec2.Vpc(stack, "Vpc");\n'
        'const text = require("fs").readFileSync("user-data.txt", "utf8");\n'
        'new MonitoredQueue(stack, "Queue", vpc, text);\n'
        "stack.node.root.synth();\n"
    )
    compiler = ["node_modules/.bin/tsc", "--strict", "--skipLibCheck", "--module", "commonjs"]
    for command in ([*compiler, "--target", "es2022", "queue.ts"], ["node", "main.js"]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    text = (tmp_path / "out" / "Jobs.template.json").read_text()
    assert [found for found in lint_template(text) if found.startswith("E")] == []
    resources: dict[str, Any] = json.loads(text)["Resources"]
    (template,) = [one for one in resources.values() if one["Type"] == "AWS::EC2::LaunchTemplate"]
    data = template["Properties"]["LaunchTemplateData"]["UserData"]
    assert data == {"Fn::Base64": DOCUMENT}
    (environment,) = [
        one for one in resources.values() if one["Type"] == "AWS::Batch::ComputeEnvironment"
    ]
    assert "LaunchTemplate" in environment["Properties"]["ComputeResources"]

"""Types docs/tutorial.md as a reader does: the wheel in a virtual environment instead of a
clone, and moto as AWS.

The AWS CLI, pip and ``task-profiler`` are real, Docker is played. ECS's agent is played at ``aws
ecs wait``: the batch's log stream gets what the installed monitor writes.
"""

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

from tests.documentation import ROOT, scripts
from tests.fake_docker import FakeDocker
from tests.sidecars import awslogs
from tools.moto_server import FakeAws, push_image, start_by_schedule
from tools.waiting import LIMIT_SECONDS

PAGE = Path("docs/tutorial.md")
CLUSTER = "jobs"
FAMILY = "nightly-etl"
_SEARCH_URL = "https://search.example.com:9200"


def typed() -> list[str]:
    """The blocks of the tutorial; the rest of the page is for later."""
    return scripts(PAGE, before="## One family at a time")


def build_wheel(folder: Path) -> Path:
    build = (
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
        str(folder),
    )
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


class TutorialReader:
    """A reader with an empty virtual environment who works in ``folder``.

    ``after_run`` is a command for the end of a task.
    """

    def __init__(
        self,
        aws: FakeAws,
        aws_cli: Path,
        folder: Path,
        wheel: Path,
        *,
        search_url: str,
        after_run: str,
    ) -> None:
        self.folder = folder
        self._search_url = search_url
        self._wheel = wheel
        venv.create(folder / "venv", with_pip=True, symlinks=True)
        programs = folder / "programs"
        programs.mkdir()
        self.docker = FakeDocker(
            folder / "docker",
            push=f"PYTHONPATH={ROOT} {sys.executable} -m tests.tutorial {aws.url}",
        )
        # moto does not know that a VPC has a default security group.
        groups = "/assignPublicIp=/securityGroups=[sg-default],assignPublicIp=}"
        real = f'{aws_cli}/aws "${{@{groups}"'
        self._script(
            programs / "aws", f'case "$1 $2" in "ecs wait") wait_for "$@";; *) {real};; esac'
        )
        agent = f"{sys.executable} -m tests.integration.ecs_agent"
        self._script(
            programs / "wait_for", f'export PYTHONPATH={ROOT}\n{agent} "$@" && {after_run}'
        )
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
        }
        self._environment |= aws.environment() | {
            # moto reads a template's URL as that of its own S3 only with this host, and with the
            # bucket in the path.
            "AWS_ENDPOINT_URL": aws.url.replace("127.0.0.1", "localhost"),
            "AWS_CONFIG_FILE": str(folder / "aws-config"),
            "PATH": os.pathsep.join(
                [str(programs), str(self.docker.programs), f"{folder}/venv/bin", os.environ["PATH"]]
            ),
            "HOME": str(folder),
            "MONITOR_PROGRAM": f"{folder}/venv/bin/task-profiler",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_COMPILE": "1",  # Python compiles what the commands import
            "AWS_MAX_ATTEMPTS": "1",  # what moto does not know, it will not know later
        }
        (folder / "aws-config").write_text("[default]\ns3 =\n  addressing_style = path\n")

    def type(self) -> subprocess.CompletedProcess[str]:
        text = "\n".join(f"echo '== {number}'\n{script}" for number, script in enumerate(typed()))
        text = re.sub(
            "^pipx install [^\n]+", f"pip install {self._wheel}", text, flags=re.MULTILINE
        )
        text = text.replace(_SEARCH_URL, self._search_url)
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )

    @staticmethod
    def _script(path: Path, text: str) -> None:
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)


def answers(output: str) -> list[str]:
    """What was printed after each block of the tutorial."""
    return re.split(r"^== \d+\n", output, flags=re.MULTILINE)[1:]


def register_families(aws: FakeAws, count: int) -> None:
    """An account's nightly tasks: each family has a schedule and a log group, and all share a
    role.
    """
    ecs, scheduler, logs = map(aws.client, ("ecs", "scheduler", "logs"))
    ecs.create_cluster(clusterName=CLUSTER)
    iam = aws.client("iam")
    role, execution_role = (
        iam.create_role(RoleName=name, AssumeRolePolicyDocument="{}")["Role"]["Arn"]
        for name in (CLUSTER, "execution")
    )
    # What AWS's AmazonECSTaskExecutionRolePolicy allows for images.
    actions = ["ecr:GetAuthorizationToken", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
    policy = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": actions, "Resource": "*"}],
    }
    iam.put_role_policy(RoleName="execution", PolicyName="pull", PolicyDocument=json.dumps(policy))
    for family in (FAMILY, *(f"job-{number:03}" for number in range(1, count))):
        group = f"/ecs/{family}"
        logs.create_log_group(logGroupName=group)
        batch = {
            "name": "batch",
            "image": "etl:1",
            "essential": True,
            "memory": 1920,
        }  # moto adds memories
        ecs.register_task_definition(
            family=family,
            taskRoleArn=role,
            executionRoleArn=execution_role,
            requiresCompatibilities=["FARGATE"],
            networkMode="awsvpc",
            cpu="512",
            memory="2048",
            containerDefinitions=[{**batch, "logConfiguration": awslogs(group, region=aws.region)}],
        )
        start_by_schedule(scheduler, family)


def monitored_families(aws: FakeAws) -> list[str]:
    """The families whose latest revision has a monitor."""
    ecs = aws.client("ecs")
    found = []
    for page in ecs.get_paginator("list_task_definition_families").paginate(status="ACTIVE"):
        for family in page["families"]:
            described = ecs.describe_task_definition(taskDefinition=family)["taskDefinition"]
            if "task-monitor" in [one["name"] for one in described["containerDefinitions"]]:
                found.append(family)
    return found


if __name__ == "__main__":
    push_image(FakeAws(url=sys.argv[1]))

"""The AWS commands of the documentation, given to the real AWS CLI; the tutorial, typed as it stands.

Every command is parsed and validated by the CLI up to the moment where the request would leave. The
tutorial is run as a whole, against moto. There, Docker is played, and so is ECS's agent: at each
``aws ecs wait`` the batch's and the monitor's log streams get what a real monitor and doctor wrote.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.aws import FakeAws, fake_aws
from tests.documentation import ROOT, commands_of, pages, scripts

SENDER = Path(__file__).parents[1] / "aws_cli_sent.py"
TUTORIAL = Path("docs/tutorial.md")
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


class AwsCli:
    """One process of the AWS CLI's interpreter, for all pages: it takes a second to start."""

    def __init__(self, python: Path) -> None:
        environment = {
            **CREDENTIALS,
            "AWS_DEFAULT_REGION": "us-west-2",
            "PATH": os.environ["PATH"],
            "COLUMNS": "200",
        }
        self.process = subprocess.Popen(
            [python, SENDER], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def said_of(self, commands: list[list[str]], folder: Path) -> list[str]:
        """What the AWS CLI has against each; empty is nothing."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"folder": str(folder), "commands": commands}) + "\n")
        self.process.stdin.flush()
        found: list[str] = json.loads(self.process.stdout.readline())
        return found


@pytest.fixture(scope="module")
def cli(aws_cli_python: Path) -> Iterator[AwsCli]:
    started = AwsCli(aws_cli_python)
    yield started
    started.process.communicate()


@pytest.mark.parametrize("page", pages(), ids=str)
def test_the_aws_cli_understands_every_command(page: Path, cli: AwsCli, tmp_path: Path) -> None:
    commands = [words for words in commands_of("aws", page, tmp_path) if words[0] != "configure"]  # sends nothing
    if commands:
        said = cli.said_of(commands, tmp_path)
        assert [(words, text) for words, text in zip(commands, said, strict=True) if text] == []


def test_what_the_aws_cli_does_not_understand_is_found(cli: AwsCli, tmp_path: Path) -> None:
    wrong = [
        "ecs run-task --task-definition x --lauch-type FARGATE",
        "ecs run-tasks",
        "logs put-retention-policy --log-group-name x --retention-in-days soon",
        "ecs run-task --task-definition x --network-configuration awsvpcConfiguration={subnet=[x]}",
        "iam create-role --role-name x --assume-role-policy-document file://missing.json",
        "logs create-log-group",
    ]
    said = cli.said_of([line.split() for line in wrong], tmp_path)
    assert all(said), said
    assert cli.said_of([["ecs", "list-clusters"]], tmp_path) == [""]


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAws]:
    monkeypatch.setenv("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")  # else AWS's own policies are not there
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # moto's server names its own gaps
        with fake_aws() as played:
            requests.post(f"{played.url}/moto-api/reset", timeout=60)  # what other tests of this process left in moto
            yield played


class TutorialReader:
    """Types the tutorial: real AWS CLI and task-profiler, played Docker and ``ecs wait``."""

    def __init__(self, aws: FakeAws, aws_cli: Path, folder: Path) -> None:
        self._aws = aws
        self.folder = folder
        for name in ("taskdef", "examples"):
            shutil.copytree(ROOT / name, folder / name)
        (folder / ".venv" / "bin").mkdir(parents=True)
        (folder / ".venv" / "bin" / "activate").touch()
        programs = folder / "programs"
        programs.mkdir()
        # moto does not know that a VPC has a default security group, and does not look at filter patterns.
        groups = "/assignPublicIp=/securityGroups=[sg-default],assignPublicIp=}"
        real = f'{aws_cli}/aws "${{@{groups}"'
        cases = f'"ecs wait") wait_for "$@";; "logs filter-log-events") {real} | grep \'"type":"task\\.\';; *) {real};;'
        self._script(programs / "aws", f'set -o pipefail; case "$1 $2" in {cases} esac')
        self._script(programs / "task-profiler", f'exec {sys.executable} -m profiler "$@"')
        self._script(programs / "python3", f'[ "$2" = venv ] || exec {sys.executable} "$@"')
        self._script(programs / "wait_for", f'exec {sys.executable} -m tests.integration.ecs_agent "$@"')
        for name in ("make", "docker", "pip", "sleep"):
            self._script(programs / name, f'echo "{name} $*" >> "{folder}/played"; [ -t 0 ] || cat > /dev/null')
        self._environment = {
            **aws.environment(),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT),
        }

    def type(self) -> subprocess.CompletedProcess[str]:
        text = "\n".join(f"echo '== {number}'\n{script}" for number, script in enumerate(scripts(TUTORIAL)))
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    @staticmethod
    def _script(path: Path, text: str) -> None:
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)


def answers(output: str) -> list[str]:
    """What was printed after each block of the tutorial."""
    return re.split(r"^== \d+\n", output, flags=re.MULTILINE)[1:]


def shipped_definition(registry: str, account: str, region: str) -> dict[str, Any]:
    """taskdef/fargate-scheduled.json for this account, with the batch of the tutorial."""
    text = (ROOT / "taskdef" / "fargate-scheduled.json").read_text()
    definition: dict[str, Any] = json.loads(text.replace("111122223333", account).replace("us-west-2", region))
    batch = definition["containerDefinitions"][0]
    batch.update(image=f"{registry}/nightly-etl:1", command=["--rows", "4000000"])
    return definition


def test_the_tutorial_can_be_typed_as_it_stands(aws: FakeAws, aws_cli: Path, tmp_path: Path) -> None:
    reader = TutorialReader(aws, aws_cli, tmp_path)
    done = reader.type()
    assert done.returncode == 0, done.stdout + done.stderr
    names, images, roles, batch, monitor, doctor, _why, run, page, clean = answers(done.stdout)

    account = names.split()[0]
    registry = f"{account}.dkr.ecr.us-east-1.amazonaws.com"
    assert images.split() == [f"{registry}/task-profiler", f"{registry}/nightly-etl"]
    played = (reader.folder / "played").read_text().splitlines()
    pushed = [line.split()[-1] for line in played if line.startswith("docker push")]
    assert pushed == [f"{registry}/task-profiler:0.1.0", f"{registry}/nightly-etl:1"]
    assert f"make image IMAGE={pushed[0]}" in played
    assert roles.split() == [f"arn:aws:iam::{account}:role/nightly-etl-{kind}" for kind in ("execution", "task")]
    assert batch.split()[1].endswith(":task-definition/nightly-etl:1")
    assert monitor.splitlines()[-1] == "registered nightly-etl:2"

    # What the command made of the batch's definition is what is shipped as a file.
    described = aws.client("ecs").describe_task_definition(taskDefinition="nightly-etl:2")["taskDefinition"]
    shipped = shipped_definition(registry, account, "us-east-1")
    for made, wanted in zip(described["containerDefinitions"], shipped["containerDefinitions"], strict=True):
        assert {name: made[name] for name in wanted} == wanted
    assert {name: described[name] for name in shipped if name != "containerDefinitions"} == {
        name: value for name, value in shipped.items() if name != "containerDefinitions"
    }

    assert re.match(r"ok +task metadata +Version 4 answers: task \S+ of nightly-etl:2 on FARGATE", doctor)
    assert "The monitor may write the report to /ecs/nightly-etl, stream ecs/batch/" in doctor
    assert "PROBLEM" not in doctor
    first, report = run.splitlines()
    assert first == "[  0.00 s] extracting 4,000,000 orders"
    assert json.loads(report)["record"]["family"] == "nightly-etl"
    assert re.match(r"build/tutorial/runs\.html: 1 run\b", page)
    assert (reader.folder / "build" / "tutorial" / "runs.html").stat().st_size > 1_000_000
    assert clean.split() == ["INACTIVE"] * 3 + ["task-profiler", "nightly-etl"]

    ecs, logs, iam = aws.client("ecs"), aws.client("logs"), aws.client("iam")
    (cluster,) = ecs.describe_clusters(clusters=["task-profiler-tutorial"])["clusters"]
    assert cluster["status"] == "INACTIVE"
    assert ecs.list_task_definitions()["taskDefinitionArns"] == []
    assert logs.describe_log_groups()["logGroups"] == []
    assert iam.list_roles()["Roles"] == []
    assert aws.client("ecr").describe_repositories()["repositories"] == []

"""The AWS commands of the documentation, given to the real AWS CLI; the tutorial, typed as it stands.

Every command is parsed and validated by the CLI up to the moment where the request would leave. The
tutorial is run as a whole, against moto. tests/search runs it with a real Elasticsearch.
"""

import json
import os
import re
import subprocess
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

import profiler
from tests.documentation import commands_of, pages
from tests.tutorial import TutorialReader, answers, build_wheel, monitored_families, register_families, typed
from tests.values import present
from tools.moto_server import FakeAws, fake_aws

SENDER = Path(__file__).parents[1] / "aws_cli_sent.py"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


SaidOf = Callable[[list[list[str]], Path], list[str]]


@pytest.fixture(scope="module")
def said_of(aws_cli_python: Path) -> Iterator[SaidOf]:
    """What the AWS CLI has against each command; empty is nothing. It takes a second to start: once for all pages."""
    environment = {**CREDENTIALS, "AWS_DEFAULT_REGION": "us-west-2", "PATH": os.environ["PATH"], "COLUMNS": "200"}
    words = [aws_cli_python, SENDER]
    with subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def ask(commands: list[list[str]], folder: Path) -> list[str]:
            question = json.dumps({"folder": str(folder), "commands": commands})
            print(question, file=present(process.stdin), flush=True)
            found: list[str] = json.loads(present(process.stdout).readline())
            return found

        yield ask
        process.communicate()


@pytest.mark.parametrize("page", pages(), ids=str)
def test_the_aws_cli_understands_every_command(page: Path, said_of: SaidOf, tmp_path: Path) -> None:
    commands = [words for words in commands_of("aws", page, tmp_path) if words[0] != "configure"]  # sends nothing
    if commands:
        said = said_of(commands, tmp_path)
        assert [(words, text) for words, text in zip(commands, said, strict=True) if text] == []


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAws]:
    monkeypatch.setenv("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")  # else AWS's own policies are not there
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # moto's server names its own gaps
        with fake_aws() as played:
            yield played


@pytest.mark.slow
def test_the_tutorial_can_be_typed_as_it_stands(aws: FakeAws, aws_cli: Path, tmp_path: Path) -> None:
    register_families(aws, 3)
    zip_file = tmp_path / "forwarder.zip"
    with zipfile.ZipFile(zip_file, "w") as archive:
        archive.writestr("handler.py", "")
    wheel = build_wheel(tmp_path / "wheel")
    dependencies = Path(requests.__file__).parents[1]
    reader = TutorialReader(
        aws, aws_cli, tmp_path, wheel, search_url=None, dependencies=dependencies, zip_file=zip_file
    )
    done = reader.type()
    assert done.returncode == 0, done.stdout + done.stderr
    install, image, stack, monitors, check, run, clean = answers(done.stdout)

    assert [line.split()[:4] for line in install.splitlines() if line[:1].isdigit()] == [
        ["1", "image", "not", "done"],
        ["2", "stack", "not", "done"],
        ["3", "monitors", "not", "done"],
        ["4", "check", "unknown", "It"],
    ]
    uri = f"123456789012.dkr.ecr.us-east-1.amazonaws.com/task-profiler:{profiler.__version__}"
    assert image == f"{uri}\n"
    assert f"push {uri}" in reader.docker.commands()
    (packed,) = (reader.docker.folder / "context").glob("*.whl")  # the installed code, in the image's build context
    assert code_of(packed) == code_of(wheel)
    assert stack.splitlines()[-1].endswith(f"is deployed: version {profiler.__version__}.")
    families = ["job-001", "job-002", "nightly-etl"]
    assert monitors.splitlines()[-3:] == [f"registered {family}:2" for family in families]
    assert [line.split()[:3] for line in check.splitlines()[1:4]] == [[one, "current", "allowed"] for one in families]
    assert run.startswith("● nightly-etl:2 succeeded")
    assert re.search(r"^runs\.html: 1 run\b", run, re.MULTILINE)
    assert "DELETE_COMPLETE  task-profiler" in clean
    assert monitored_families(aws) == []
    assert aws.client("ecr").describe_repositories()["repositories"] == []


def code_of(wheel: Path) -> dict[str, bytes]:
    """The files of the package, but for the report's page, which the image leaves out."""
    with zipfile.ZipFile(wheel) as opened:
        names = [name for name in opened.namelist() if ".dist-info/" not in name and "plotly" not in name]
        return {name: opened.read(name) for name in names}


def test_no_value_is_typed_twice_and_the_first_report_takes_five_commands() -> None:
    text = "".join(typed())
    for value in re.findall(r"^(?:export )?[A-Z_]+=([^\s$\"]{3,})", text, re.MULTILINE):
        assert text.count(value) == 1, value
    before = text[: text.index("aws ecs wait")]
    shows = ("setup --cluster", "doctor --cluster")
    ours = re.findall(r"^(?:pipx install|task-profiler .+)", before, re.MULTILINE)
    changes = [line for line in ours if not line.removeprefix("task-profiler ").startswith(shows)]
    assert len(changes) + len(re.findall(r"aws ecs run-task", before)) == 5

"""The AWS commands of the documentation, parsed and validated by the real AWS CLI; tests/search
types the tutorial.
"""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.documentation import commands_of, pages
from tests.tutorial import typed
from tests.values import present

SENDER = Path(__file__).parents[1] / "aws_cli_sent.py"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


SaidOf = Callable[[list[list[str]], Path], list[str]]


@pytest.fixture(scope="module")
def said_of(aws_cli_python: Path) -> Iterator[SaidOf]:
    """What the AWS CLI has against each command; empty is nothing.

    It takes a second to start: once for all pages.
    """
    environment = {
        **CREDENTIALS,
        "AWS_DEFAULT_REGION": "us-west-2",
        "PATH": os.environ["PATH"],
        "COLUMNS": "200",
    }
    words = [aws_cli_python, SENDER]
    with subprocess.Popen(
        words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def ask(commands: list[list[str]], folder: Path) -> list[str]:
            print(
                json.dumps({"folder": str(folder), "commands": commands}),
                file=present(process.stdin),
                flush=True,
            )
            found: list[str] = json.loads(present(process.stdout).readline())
            return found

        yield ask
        process.communicate()


@pytest.mark.parametrize("page", pages(), ids=str)
def test_the_aws_cli_understands_every_command(page: Path, said_of: SaidOf, tmp_path: Path) -> None:
    commands = [
        words for words in commands_of("aws", page, tmp_path) if words[0] != "configure"
    ]  # sends nothing
    if commands:
        assert [
            (words, text)
            for words, text in zip(commands, said_of(commands, tmp_path), strict=True)
            if text
        ] == []


def test_no_value_is_typed_twice_and_the_first_report_takes_five_commands() -> None:
    text = "".join(typed())
    for value in re.findall(r"^(?:export )?[A-Z_]+=([^\s$\"]{3,})", text, re.MULTILINE):
        assert text.count(value) == 1, value
    before = text[: text.index("aws ecs wait")]
    shows = ("setup --cluster", "doctor --cluster")
    ours = re.findall(r"^(?:pipx install|task-profiler .+)", before, re.MULTILINE)
    changes = [line for line in ours if not line.removeprefix("task-profiler ").startswith(shows)]
    assert len(changes) + len(re.findall(r"aws ecs run-task", before)) == 5

"""A folder and variables of its own for each test of a command, and what a command prints."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from profiler.cli.app import group


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, which has the history, too; no setting of ours or of GitHub
    Actions.
    """
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("TASK_PROFILER_", "GITHUB_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path


class Printed(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


Cli = Callable[..., Printed]


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Cli:
    """Runs a command, whose errors are exceptions."""

    def run(*words: str) -> Printed:
        code = group.main(words, standalone_mode=False)
        return Printed(code or 0, *capfd.readouterr())

    return run

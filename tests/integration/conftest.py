"""No test touches the history of the person who runs it. What several tests need of the AWS CLI."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.readable_code import copy_code
from tests.task_endpoint import GROUP, STREAM

# The first process of pytest-xdist reads this file and runs no test: moto would take three seconds of
# a CPU there, and in each other process one more than after botocore's caches have begun.
if TYPE_CHECKING:
    from tools.moto_server import FakeAws


def _installed(tmp_path_factory: pytest.TempPathFactory, name: str) -> Path:
    """The programs of a new AWS CLI from PyPI, which all processes of the test session share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "bin" / "aws").exists():
            venv = (sys.executable, "-m", "venv", "--without-pip", str(folder))
            subprocess.run(venv, check=True)
            pip = (sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"))
            options = ("--quiet", "--disable-pip-version-check", "--no-compile")
            subprocess.run((*pip, "install", *options, "awscli"), check=True)
    return folder / "bin"


@pytest.fixture(scope="session")
def aws_cli(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the machine's AWS CLI, else of a new one from PyPI."""
    found = shutil.which("aws")
    return _installed(tmp_path_factory, "aws-cli") if found is None else Path(found).parent


@pytest.fixture(scope="session")
def aws_cli_python(aws_cli: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that can import the AWS CLI. (Version 2 brings one that cannot be called.)"""
    for name in ("python", "python3"):
        python = aws_cli / name
        if (
            python.exists()
            and not subprocess.run([python, "-c", "import awscli"], check=False).returncode
        ):
            return python
    return _installed(tmp_path_factory, "importable-aws-cli") / "python"


@pytest.fixture(scope="session")
def code_for_all() -> Iterator[Path]:
    """A copy of the code in a folder that every user can read: see :mod:`tests.readable_code`."""
    with tempfile.TemporaryDirectory(prefix="task-profiler-test-", dir="/var/tmp") as folder:
        copy_code(Path(folder))
        yield Path(folder)


@pytest.fixture(scope="module")
def aws() -> "Iterator[FakeAws]":
    """A played AWS in which the batch of the played task logs."""
    from tools.moto_server import fake_aws  # noqa: PLC0415

    with fake_aws() as server:
        server.create_log_group(GROUP)
        server.create_log_stream(GROUP, STREAM)
        yield server


@pytest.fixture
def new_lines(aws: "FakeAws") -> Callable[[], list[dict[str, Any]]]:
    """Returns the lines that came into the batch's stream since the begin of the test."""
    before = len(aws.events(GROUP, STREAM))
    return lambda: [json.loads(event.message) for event in aws.events(GROUP, STREAM)[before:]]


@pytest.fixture(scope="session", autouse=True)
def _history_of_shared_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The runs of a fixture of a whole module are not in the history of whoever tests."""
    file = tmp_path_factory.mktemp("shared") / "history.sqlite3"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TASK_PROFILER_HISTORY", str(file))
        yield


@pytest.fixture(autouse=True)
def history_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands under test keep their history."""
    file = tmp_path / "data" / "history.sqlite3"
    monkeypatch.setenv("TASK_PROFILER_HISTORY", str(file))
    return file

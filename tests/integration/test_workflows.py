"""The steps of the example workflows, run by bash with a played ``gh``."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import profiler
from tests.resize_account import LOG_GROUP, Account
from tools.moto_server import fake_aws
from tools.waiting import LIMIT_SECONDS

ROOT = Path(profiler.__file__).parent.parent


def bash(
    script: str, folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub does."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


_WORKFLOW = YAML(typ="safe").load(ROOT / "examples" / "compare_pull_request.yml")
_STEPS = _WORKFLOW["jobs"]["compare"]["steps"]
_BASE_MB = 50
_RUNS = 5  # fewer are too few to compare


def _git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def _check_out(repository: Path, workspace: Path) -> None:
    """Do what both steps of actions/checkout do: the newest commit is the pull request, its
    parent the base.
    """
    for step in _STEPS:
        if "checkout" in step.get("uses", ""):
            revision = "HEAD~" if "base.sha" in step["with"].get("ref", "") else "HEAD"
            _git(
                repository,
                "worktree",
                "add",
                "--detach",
                str(workspace / step["with"]["path"]),
                revision,
            )


@pytest.mark.slow
@pytest.mark.parametrize(("new_mb", "exit_code"), [(_BASE_MB, 0), (1.2 * _BASE_MB, 3)])
def test_the_example_fails_a_pull_request_that_needs_more_memory(
    new_mb: float, exit_code: int, tmp_path: Path
) -> None:
    repository, workspace = tmp_path / "repository", tmp_path / "workspace"
    repository.mkdir()
    _git(repository, "init", "--quiet")
    for number, mb in enumerate((_BASE_MB, new_mb)):
        (repository / "job.py").write_text(f"rows = b'x' * int({mb} * 2**20)  # version {number}\n")
        _git(repository, "add", "job.py")
        _git(repository, "commit", "--message", "Change the job")
    _check_out(repository, workspace)
    summary = tmp_path / "summary.md"
    environment = {
        **{name: str(value) for name, value in _WORKFLOW["jobs"]["compare"]["env"].items()},
        "RUNS": str(_RUNS),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    steps = [step["run"] for step in _STEPS if "run" in step and step["name"] != "Install"]
    done = [bash(script, workspace, environment) for script in steps]
    assert [one.returncode for one in done] == [0, exit_code], [one.stderr for one in done]
    assert len((tmp_path / "reports.jsonl").read_text().splitlines()) == 2 * _RUNS
    assert ("::error" in done[1].stdout) is (exit_code == 3)
    assert "memory peak" in summary.read_text()


@pytest.mark.slow
def test_the_example_opens_a_pull_request_with_the_sizes(tmp_path: Path) -> None:
    workspace, origin = tmp_path / "workspace", tmp_path / "origin"
    _git(tmp_path, "init", "--bare", str(origin))
    _git(tmp_path, "clone", str(origin), str(workspace))
    (workspace / "sizes.json").write_text("{}\n")
    _git(workspace, "add", ".")
    _git(workspace, "commit", "--message", "Add the task")
    (tmp_path / "bin").mkdir()
    gh = tmp_path / "bin" / "gh"
    gh.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/gh\n')
    gh.chmod(0o755)
    environment = {
        "PATH": f"{gh.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    workflow = YAML(typ="safe").load(ROOT / "examples" / "resize_pull_request.yml")
    job = workflow["jobs"]["resize"]
    write, propose = (one["run"] for one in job["steps"][-2:])
    with fake_aws() as aws:
        account = Account(aws, tmp_path)
        account.oversized("nightly-etl")
        account.put_reports(LOG_GROUP)
        environment |= aws.environment() | job["env"]
        for _ in range(2):  # the second week, the pull request is still open
            for step in (write, propose):
                done = bash(step, workspace, environment)
                assert done.returncode == 0, done.stderr
            _git(workspace, "checkout", "-")
            _git(workspace, "branch", "--delete", "--force", "task-sizes")
    _git(workspace, "checkout", "origin/task-sizes")
    size = json.loads((workspace / "sizes.json").read_text())["nightly-etl"]
    assert (size["cpu"], size["memory"]) == (256, 512)
    assert (tmp_path / "gh").read_text().splitlines() == [
        "pr",
        "create",
        "--title",
        "Give the tasks the size that their runs need",
        "--body-file",
        str(tmp_path / "sizes.md"),
        "--head",
        "task-sizes",
    ]
    row = "| nightly-etl | resize | 1 vCPU, 2 GB | 0.25 vCPU, 512 MB |"
    assert row in (tmp_path / "sizes.md").read_text()
    assert row in (tmp_path / "summary.md").read_text()


@pytest.mark.parametrize("name", ["compare_pull_request", "resize_pull_request", "resize_weekly"])
def test_the_example_installs_from_the_repository(name: str) -> None:
    """It works before there is a release."""
    (job,) = YAML(typ="safe").load(ROOT / "examples" / f"{name}.yml")["jobs"].values()
    install = next(step["run"] for step in job["steps"] if step.get("name") == "Install")
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert install == f"pip install {urls['Repository']}/archive/main.tar.gz"

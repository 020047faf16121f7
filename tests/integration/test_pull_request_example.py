"""The steps of the example workflow, run by bash against two commits of a small job."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import profiler
from profiler.core.version import __version__

_ROOT = Path(profiler.__file__).parent.parent
_WORKFLOW = YAML(typ="safe").load(_ROOT / "examples" / "compare_pull_request.yml")
_STEPS = _WORKFLOW["jobs"]["compare"]["steps"]
_BASE_MB = 50
_RUNS = 5  # fewer are too few to compare


def _git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def _check_out(repository: Path, workspace: Path) -> None:
    """Do what both steps of actions/checkout do: the newest commit is the pull request, its parent the base."""
    for step in _STEPS:
        if "checkout" in step.get("uses", ""):
            revision = "HEAD~" if "base.sha" in step["with"].get("ref", "") else "HEAD"
            _git(repository, "worktree", "add", "--detach", str(workspace / step["with"]["path"]), revision)


@pytest.mark.parametrize(("new_mb", "exit_code"), [(_BASE_MB, 0), (1.2 * _BASE_MB, 3)])
def test_the_example_fails_a_pull_request_that_needs_more_memory(new_mb: float, exit_code: int, tmp_path: Path) -> None:
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
    done = [
        subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=workspace,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        for script in steps
    ]
    assert [one.returncode for one in done] == [0, exit_code], [one.stderr for one in done]
    assert len((tmp_path / "reports.jsonl").read_text().splitlines()) == 2 * _RUNS
    assert ("::error" in done[1].stdout) is (exit_code == 3)
    assert "memory peak" in summary.read_text()


def test_the_example_installs_this_version() -> None:
    install = next(step["run"] for step in _STEPS if step.get("name") == "Install")
    assert re.findall(r"v(\d+\.\d+\.\d+)/task_profiler-(\d+\.\d+\.\d+)-", install) == [(__version__, __version__)]

"""The steps of workflows, run by bash: of the release with a played Docker and GitHub, and of the example.

The step ``make release-check`` is not run here: it needs minutes and PyPI.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import profiler
from tests.fake_docker import FakeDocker
from tests.runs import lines, report
from tools.release import write_checksums

ROOT = Path(profiler.__file__).parent.parent
JOBS: dict[str, Any] = YAML(typ="safe").load(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
TAG = f"v{profiler.__version__}"
IMAGE = f"ghcr.io/task-profiler/task-profiler:{profiler.__version__}"


def bash(script: str, folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub does."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


class Runner:
    """GitHub's machine for one job. ``gh`` records what it is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.docker = FakeDocker(folder / "docker", platforms="linux/amd64, linux/arm64")
        gh = self.docker.programs / "gh"
        gh.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/gh\n')
        gh.chmod(0o755)
        self.github_env = folder / "environment"
        self.github_env.touch()

    def run(self, step: dict[str, Any], **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a step in the checkout unless the step names a folder."""
        set_before = dict(line.split("=", 1) for line in self.github_env.read_text().splitlines())
        folder = self.folder / step["working-directory"] if "working-directory" in step else ROOT
        variables = {
            "PATH": f"{self.docker.programs}{os.pathsep}{os.environ['PATH']}",
            "GITHUB_REF_NAME": TAG,
            "GITHUB_REPOSITORY": "Task-Profiler/task-profiler",
            "GITHUB_ENV": str(self.github_env),
        }
        return bash(step["run"], folder, variables | set_before | environment)


def steps(job: str) -> list[dict[str, Any]]:
    return [step for step in JOBS[job]["steps"] if "run" in step]


def test_a_tag_of_another_version_stops_the_release(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    compare, check = steps("build")
    assert runner.run(compare).returncode == 0
    assert runner.run(compare, GITHUB_REF_NAME="v99.0.0").returncode == 1
    assert check["run"] == "make release-check"


def test_the_image_is_pushed_for_both_platforms_and_started_on_each(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    build, start = steps("image")
    for step in (build, start):
        done = runner.run(step)
        assert done.returncode == 0, done.stderr
    built, *started = runner.docker.commands("version", "buildx version")
    assert built.startswith("buildx build --platform linux/amd64,linux/arm64 --push --sbom=true --provenance=true ")
    assert f"--tag {IMAGE} " in built
    assert [line.split()[5] for line in started] == ["linux/amd64", "linux/arm64"]
    assert all(line.endswith(f"--pull always {IMAGE} --version") for line in started)


def test_the_draft_has_the_files_whose_checksums_are_right(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    check, draft = steps("github")
    release = runner.folder / "release"
    release.mkdir()
    (release / "task_profiler.whl").write_bytes(b"wheel")
    write_checksums(release)
    assert runner.run(check).returncode == 0
    done = runner.run({**draft, "working-directory": "."})
    assert done.returncode == 0, done.stderr
    asked = (runner.folder / "gh").read_text().splitlines()
    files = ["release/SHA256SUMS", "release/task_profiler.whl"]
    assert asked[:6] == ["release", "create", TAG, *files, "--draft"]
    assert asked[-1].endswith(f"/blob/{TAG}/CHANGELOG.md")
    (release / "task_profiler.whl").write_bytes(b"another")
    assert runner.run(check).returncode == 1


def test_only_the_package_goes_to_the_package_index(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    (move,) = steps("pypi")
    (runner.folder / "release").mkdir()
    for name in ("a.whl", "a.tar.gz", "forwarder.zip", "SHA256SUMS"):
        (runner.folder / "release" / name).touch()
    assert runner.run({**move, "working-directory": "."}).returncode == 0
    assert sorted(path.name for path in (runner.folder / "dist").iterdir()) == ["a.tar.gz", "a.whl"]
    assert JOBS["pypi"]["if"] == "vars.PUBLISH_TO_PYPI == 'true'"


_WORKFLOW = YAML(typ="safe").load(ROOT / "examples" / "compare_pull_request.yml")
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
    done = [bash(script, workspace, environment) for script in steps]
    assert [one.returncode for one in done] == [0, exit_code], [one.stderr for one in done]
    assert len((tmp_path / "reports.jsonl").read_text().splitlines()) == 2 * _RUNS
    assert ("::error" in done[1].stdout) is (exit_code == 3)
    assert "memory peak" in summary.read_text()


def test_the_example_opens_a_pull_request_with_the_sizes(tmp_path: Path) -> None:
    workspace, origin = tmp_path / "workspace", tmp_path / "origin"
    _git(tmp_path, "init", "--bare", str(origin))
    _git(tmp_path, "clone", str(origin), str(workspace))
    definition = workspace / "nightly-etl.json"
    definition.write_text('{"family": "nightly-etl", "cpu": "1024", "memory": "2048", "containerDefinitions": [{}]}\n')
    _git(workspace, "add", ".")
    _git(workspace, "commit", "--message", "Add the task")
    runner = Runner(tmp_path)
    reports = tmp_path / "reports.jsonl"
    reports.write_bytes(lines(report(number, family="nightly-etl") for number in range(20)))
    path = f"{runner.docker.programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    workflow = YAML(typ="safe").load(ROOT / "examples" / "resize_pull_request.yml")
    write, propose = (
        {"run": one["run"], "working-directory": "workspace"} for one in workflow["jobs"]["resize"]["steps"][-2:]
    )
    for _ in range(2):  # the second week, the pull request is still open
        for step in (write, propose):
            done = runner.run(step, TASK_PROFILER_FROM=str(reports), PATH=path)
            assert done.returncode == 0, done.stderr
        _git(workspace, "checkout", "-")
        _git(workspace, "branch", "--delete", "--force", "task-sizes")
    _git(workspace, "checkout", "origin/task-sizes")
    assert '"cpu": "256", "memory": "512"' in definition.read_text()
    assert (tmp_path / "gh").read_text().split() == ["pr", "create", "--fill", "--head", "task-sizes"]


@pytest.mark.parametrize("name", ["compare_pull_request", "resize_pull_request", "resize_weekly"])
def test_the_example_installs_this_version(name: str) -> None:
    (job,) = YAML(typ="safe").load(ROOT / "examples" / f"{name}.yml")["jobs"].values()
    install = next(step["run"] for step in job["steps"] if step.get("name") == "Install")
    assert re.findall(r"v(\d+\.\d+\.\d+)/task_profiler-(\d+\.\d+\.\d+)-", install) == [(profiler.__version__,) * 2]

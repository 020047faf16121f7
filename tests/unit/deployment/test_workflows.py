"""The workflows and issue forms of GitHub, and the files of a release."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
EXAMPLES = sorted((ROOT / "examples").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
PYPI_PUBLISH = "pypa/gh-action-pypi-publish@release/v1"  # its maintainers' stable branch


def read(path: Path) -> Any:
    return YAML(typ="safe").load(path)


@pytest.fixture(params=[*WORKFLOWS, *EXAMPLES], ids=lambda path: path.stem)
def workflow(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = read(request.param)
    return found


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", ())]


def test_actionlint_has_no_complaint() -> None:
    version = re.search(r"^ACTIONLINT_VERSION := (\S+)$", MAKEFILE, re.MULTILINE)
    assert version
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "task-profiler"
    program = cache / f"actionlint-{version[1]}" / "actionlint"
    if not program.exists():
        pytest.skip("make actionlint builds the program with Go")
    done = subprocess.run(
        [program, "-no-color", *WORKFLOWS, *EXAMPLES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout + done.stderr == ""


def test_a_workflow_only_reads_by_actions_of_releases_and_checkout_keeps_no_token(
    workflow: dict[str, Any],
) -> None:
    assert workflow["permissions"] == {"contents": "read"}
    # A job that is another workflow has the limit there.
    assert all({"timeout-minutes", "uses"} & job.keys() for job in workflow["jobs"].values())
    actions = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert [
        name for name in actions if name != PYPI_PUBLISH and not re.fullmatch(r"[\w/-]+@v\d+", name)
    ] == []
    checkouts = [
        step for step in steps(workflow) if step.get("uses", "").startswith("actions/checkout@")
    ]
    assert checkouts or "resize" in workflow["jobs"]  # which needs no file
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_every_target_of_make_is_there(workflow: dict[str, Any]) -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", MAKEFILE, re.MULTILINE))
    commands = "\n".join(step.get("run", "") for step in steps(workflow))
    assert set(re.findall(r"^ *make ([a-z][a-z0-9-]*)", commands, re.MULTILINE)) <= targets


def test_what_a_cache_depends_on_is_there(workflow: dict[str, Any]) -> None:
    """setup-node and setup-python look in the first folder only, and fail where nothing is."""
    for step in steps(workflow):
        given = step.get("with", {})
        if step.get("uses", "").startswith(("actions/setup-node@", "actions/setup-python@")):
            assert ("cache" in given) <= ("cache-dependency-path" in given)
        paths = given.get("cache-dependency-path", "").split()
        for hashed in re.findall(r"hashFiles\(([^)]*)\)", str(given.get("key", ""))):
            paths += re.findall(r"'([^']+)'", hashed)
        assert [path for path in paths if not any(ROOT.glob(path))] == []


def test_a_release_publishes_what_the_check_builds() -> None:
    release = read(ROOT / ".github" / "workflows" / "release.yml")
    jobs = release["jobs"]
    (upload,) = [
        step
        for step in jobs["build"]["steps"]
        if step.get("uses", "").startswith("actions/upload-artifact@")
    ]
    assert upload["with"]["path"] == "dist/release"
    assert all("build" in jobs[name]["needs"] for name in ("image", "github", "pypi"))
    assert {name for name, job in jobs.items() if "permissions" in job} == {
        "image",
        "github",
        "pypi",
    }


def test_the_slow_tests_run_each_night_and_before_a_release() -> None:
    """CI leaves them out."""
    slow = read(ROOT / ".github" / "workflows" / "slow.yml")
    assert {"schedule", "workflow_call"} <= slow["on"].keys()
    assert "make slow" in [step.get("run") for step in steps(slow)]
    jobs = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    assert jobs["slow"]["uses"] == "./.github/workflows/slow.yml"
    for name in ("github", "pypi"):
        assert "image" in jobs[name]["needs"]
    assert "slow" in jobs["image"]["needs"]
    assert "make slow" not in (ROOT / ".ci" / "run").read_text()

"""The wheel: what it contains, and the commands that read files from outside the package."""

import json
import os
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from profiler.aws_account.setup.forwarder_zip import zip_fingerprint
from tests.documentation import scripts
from tests.fake_dashboards import PlayedDashboards
from tests.task_events import EVENT
from tests.tutorial import build_wheel

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel installed, apart from the dependencies."""
    wheel = build_wheel(tmp_path_factory.mktemp("wheel"))
    folder = wheel.parent / "installed"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    subprocess.run(
        (*pip, "--no-index", "--no-deps", "--target", str(folder), str(wheel)), check=True
    )
    return folder


def task_profiler(
    installed: Path, *words: str, text: str = "", **environment: str
) -> CompletedProcess[str]:
    """The installed command, which succeeds; the repository is out of reach."""
    done = subprocess.run(
        [str(installed / "bin" / "task-profiler"), *words],
        cwd=installed,
        env={**os.environ, "PYTHONPATH": str(installed), **environment},
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_the_readmes_commands_for_a_slow_batch_run(installed: Path, tmp_path: Path) -> None:
    """Those before install the package, as the fixture has done."""
    installs, slow, *_ = scripts(Path("README.md"))
    assert installs.startswith("pipx install ")
    assert "task-profiler run" in slow
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TASK_PROFILER")
    }
    environment |= {"PYTHONPATH": str(installed), "XDG_DATA_HOME": str(tmp_path)}
    environment["PATH"] = f"{installed / 'bin'}{os.pathsep}{environment['PATH']}"
    command = ["bash", "-euc", slow]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "● words succeeded in" in done.stderr
    assert "as if they had run on Fargate in eu-west-1" in done.stdout
    assert "words" in done.stdout


@pytest.mark.slow
def test_notify_runs_the_shipped_forwarder(installed: Path) -> None:
    assert (
        json.loads(task_profiler(installed, "notify", "-", text=json.dumps(EVENT)).stdout)[
            "channel"
        ]
        == "failure"
    )


def test_the_shipped_zip_is_that_of_the_repository(installed: Path) -> None:
    """Building it takes ten seconds of pip; its own files and the hashes of its packages decide
    what it contains.
    """
    program = (
        "from profiler.aws_account.setup import forwarder_zip as it; print(it.__file__, "
        "it.zip_fingerprint())"
    )
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(
        (sys.executable, "-c", program),
        cwd=installed,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    file, of_its_zip = done.stdout.split()
    assert Path(file).is_relative_to(installed)
    assert of_its_zip == zip_fingerprint()


def test_kibana_import_reads_the_shipped_templates_and_dashboards(installed: Path) -> None:
    with PlayedDashboards("8.11.0") as played:
        printed = task_profiler(
            installed, "kibana", "import", "--url", played.url, "--dry-run"
        ).stdout
    for template in (ROOT / "kibana" / "index-templates").glob("*.json"):
        assert template.stem in printed
    assert "would import: " in printed
    assert not played.imports
    assert not played.put


@pytest.mark.parametrize("variable", ["PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"])
def test_the_variables_of_a_users_python_are_for_the_users_command(
    installed: Path, tmp_path: Path, variable: str
) -> None:
    for name in ("profiler.py", "msgspec.py", "click.py"):
        (tmp_path / name).write_text("raise SystemExit('the module of the user')\n")
    values = {
        "PYTHONPATH": f"{tmp_path}:{installed}",
        "PYTHONHOME": sys.base_prefix,
        "PYTHONSTARTUP": str(tmp_path / "profiler.py"),
    }
    done = task_profiler(
        installed, "run", "--no-history", "--", "env", **{variable: values[variable]}
    )
    assert f"{variable}={values[variable]}\n" in done.stdout
    assert "● env succeeded in" in done.stderr

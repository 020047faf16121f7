"""What the image is built from: the Dockerfiles, the context, the trimmed botocore."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import profiler
from profiler.aws_account.setup.forwarder_zip import requirements_with_hashes
from profiler.task_definitions.monitor_container import default_image
from tools import trim_botocore

ROOT = Path(profiler.__file__).parent.parent
PINNED = ROOT / "taskdef" / "requirements"
DOCKERFILE = (ROOT / "taskdef" / "Dockerfile").read_text()
VERSION = profiler.__version__


def test_the_last_stage_needs_neither_a_shell_nor_root_and_has_no_health_check() -> None:
    """A base like Google's distroless has no shell, and a check that errs stops the task of an
    essential monitor.
    """
    stage = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]
    assert re.findall(r"^USER (.*)$", stage, re.MULTILINE) == ["65532:65532"]
    assert "HEALTHCHECK" not in DOCKERFILE
    assert "\nRUN " not in stage
    for instruction in ("ENTRYPOINT", "CMD"):
        (words,) = re.findall(rf"^{instruction}\b[^\[\n]*(\[.*\])$", stage, re.MULTILINE)
        assert all(isinstance(word, str) for word in json.loads(words))


@pytest.mark.parametrize(
    "name", ["taskdef/Dockerfile", "taskdef/Dockerfile.neuron", "docs/task-definitions.md"]
)
def test_images_carry_the_name_that_task_definitions_use(name: str) -> None:
    named = set(re.findall(r"task-profiler:([0-9][^\s`\"')]*)", (ROOT / name).read_text()))
    assert {tag.removesuffix("-neuron").removesuffix("-arm64") for tag in named} == {VERSION}
    assert default_image(None) == f"task-profiler:{VERSION}"
    assert f"ARG VERSION={VERSION}\n" in DOCKERFILE


def test_the_context_holds_what_the_wheel_is_made_of_and_nothing_else() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    metadata = {
        project["project"]["readme"],
        *project["project"]["license-files"],
        "pyproject.toml",
    }
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert let_in == {
        *wheel["packages"],
        *(path for path in wheel["force-include"] if not path.startswith("profiler/")),
        *metadata,
        "tools/trim_botocore.py",
        "taskdef/requirements",
    }


def test_whatever_goes_into_the_image_is_pinned_and_installed_with_hashes() -> None:
    pinned = {path.name for path in PINNED.glob("*.txt")}
    assert pinned == {"build.txt", "core.txt", "gpu.txt", "stacks.txt"}
    for name in pinned:
        for line in requirements_with_hashes(PINNED / name):
            assert re.fullmatch(r"[\w.-]+==[\w.]+( --hash=sha256:[0-9a-f]{64})+", line), line
    commands = [
        command
        for command in DOCKERFILE.replace("\\\n", " ").split("-m pip")[1:]
        if " install " in command
    ]
    assert len(commands) == 3
    for command in commands:
        assert "--require-hashes" in command or "--no-index" in command.partition("&&")[0], command


@pytest.mark.parametrize("extra", ["", "gpu", "stacks"])
def test_the_pinned_versions_are_those_that_the_package_takes(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["optional-dependencies"][extra] if extra else project["dependencies"]
    lines = requirements_with_hashes(PINNED / f"{extra or 'core'}.txt")
    pins = dict(line.split()[0].split("==") for line in lines)
    pinned = {canonicalize_name(name): Version(version) for name, version in pins.items()}
    assert wanted
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), (
            requirement
        )


def test_botocore_keeps_the_services_that_are_called() -> None:
    """Those of `setup` are not kept: it runs where people work, and not in the image."""
    sources = [*(ROOT / "profiler").rglob("*.py"), *(ROOT / "lambda").rglob("*.py")]
    called = {
        name
        for path in sources
        if path.parent.name not in ("forwarder", "notifications", "search_cluster", "setup")
        for name in re.findall(r'(?:client|_open)\(\s*"([a-z-]+)"', path.read_text())
    }
    assert {"logs", "ecs", "lambda", "scheduler", "iam"} <= called
    assert called <= trim_botocore.SERVICES


def test_trimming_leaves_the_files_beside_the_services(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "lib" / "python3.13" / "site-packages" / "botocore" / "data"
    for service in ("logs", "sts", "ec2", "s3"):
        (data / service / "2014-03-28").mkdir(parents=True)
        (data / service / "2014-03-28" / "service-2.json.gz").touch()
    (data / "endpoints.json").touch()
    assert trim_botocore.main([str(tmp_path)]) == 0
    assert sorted(path.name for path in data.iterdir()) == ["endpoints.json", "logs", "sts"]
    assert (data / "logs" / "2014-03-28" / "service-2.json.gz").exists()
    assert trim_botocore.main([str(tmp_path / "lib")]) == 1
    assert "must contain one botocore but contains 0" in capsys.readouterr().err

"""Build the forwarder's zip for all Python versions and processors of Lambda.

Builds are reproducible.

    python -m profiler.aws_account.setup.forwarder_zip OUT

msgspec is the only compiled package: the zip contains its extension module for each Python version
and processor, under different file names. pip verifies the hash of each wheel against
lambda/requirements.txt, which `make hashes` updates.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from profiler.core.errors import TaskProfilerError
from profiler.core.files import package_data_folder

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PROCESSORS = ("x86_64", "aarch64")
PURE_WHEEL_OPTIONS = (
    "--platform=any",
    "--implementation=py",
    "--abi=none",
    f"--python-version={PYTHONS[0]}",
)
COMPILED_PACKAGE = "msgspec"
# The part of the profiler that the forwarder imports: whole packages, and modules of others.
_SHARED_PACKAGES = ("core", "forwarder", "otlp", "record", "schedules", "sizing")
_SHARED_MODULES = (
    "aggregation/statistics",
    "aggregation/time_series",
    "aws_account/account_starters",
    "aws_account/aws_errors",
    "aws_account/cloudformation_owners",
    "aws_account/compute_environments",
    "aws_account/eventbridge_calls",
    "aws_account/family_circumstances",
    "aws_account/instance_monitors",
    "aws_account/job_descriptions",
    "aws_account/missed_reasons",
    "aws_account/owned_families",
    "aws_account/planned_family",
    "aws_account/registered_definitions",
    "aws_account/resize_plan",
    "aws_account/revision_read_limit",
    "aws_account/scheduled_jobs",
    "aws_account/scheduled_machines",
    "aws_account/scheduled_targets",
    "aws_account/size_before",
    "aws_account/started_tasks",
    "aws_account/state_machines",
    "aws_account/target_contents",
    "aws_account/target_overrides",
    "runs/past_runs/defined_jobs",
    "runs/past_runs/family_evidence",
    "runs/past_runs/log_places",
    "runs/past_runs/report_agreement",
    "runs/past_runs/run_moments",
    "runs/past_runs/past_run",
    "runs/past_runs/run_source",
    "runs/past_runs/schedule_notices",
    "runs/past_runs/search_conditions",
    "runs/past_runs/search_documents",
    "runs/past_runs/search_runs",
    "runs/past_runs/search_windows",
    "runs/past_runs/searched_indices",
    "runs/past_runs/stack_functions",
    "runs/step_series",
    "search_setup/cluster_requests",
    "settings",
    "task_definitions/containers",
    "task_definitions/definition_difference",
    "task_definitions/definition_json",
    "task_definitions/job_as_task_definition",
    "task_definitions/json_yaml_style",
    "task_definitions/json_yaml_tree",
    "task_definitions/monitor_changes",
    "task_definitions/monitor_container",
    "task_definitions/permissions",
    "task_definitions/size_changes",
)
_EXCLUDED_FOLDERS = {"__pycache__", "tests", "bin"}


def forwarder_folder() -> Path:
    """The folder of handler.py, requirements.txt and template.yaml. Raises TaskProfilerError."""
    return package_data_folder("forwarder", what="The forwarder is")


def requirements_file() -> Path:
    """The file with the versions and hashes of the zip's wheels. Raises TaskProfilerError."""
    return forwarder_folder() / "requirements.txt"


def build_zip(out: Path) -> None:
    """Write the zip.

    Raises TaskProfilerError if pip is missing or fails, or the installation lacks the forwarder.
    """
    with tempfile.TemporaryDirectory(prefix="lambda-zip-") as name:
        folder = Path(name)
        for requirements, options in wheel_sets(requirements_with_hashes(requirements_file())):
            install_wheels(folder, requirements, options)
        out.parent.mkdir(parents=True, exist_ok=True)
        write_zip(sorted([*installed_zip_files(folder), *own_zip_files()]), out)


def zip_fingerprint() -> str:
    """A hash of everything that determines the zip: its own files, the hashes of its wheels, and
    this module.
    """
    digest = hashlib.sha256()
    for name, path in sorted(
        [*own_zip_files(), ("requirements.txt", requirements_file()), ("builder", Path(__file__))]
    ):
        data = path.read_bytes()
        digest.update(f"{name} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def wheel_sets(requirements: Sequence[str]) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Yield sets of requirements, each with the pip options that select its wheels for Lambda."""
    pure = [line for line in requirements if not line.startswith(COMPILED_PACKAGE)]
    (compiled,) = [line for line in requirements if line.startswith(COMPILED_PACKAGE)]
    yield pure, PURE_WHEEL_OPTIONS
    for python in PYTHONS:
        for processor in PROCESSORS:
            platforms = [
                f"--platform=manylinux{tag}_{processor}" for tag in ("2014", "_2_17", "_2_28")
            ]
            yield [compiled], [*platforms, "--implementation=cp", f"--python-version={python}"]


def requirements_with_hashes(path: Path) -> list[str]:
    """Read a requirements file. Each returned line contains a requirement and its hashes."""
    lines = path.read_text().replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) for line in lines if line and not line.startswith("#")]


def install_wheels(folder: Path, requirements: Sequence[str], options: Sequence[str]) -> None:
    """Install into a temporary folder, then copy: pip does not add files to an existing package."""
    with tempfile.TemporaryDirectory(prefix="lambda-zip-pip-") as name:
        target = Path(name) / "target"
        listed = Path(name) / "requirements.txt"
        listed.write_text("\n".join(requirements))
        flags = ("--no-deps", "--no-compile", "--only-binary=:all:", "--require-hashes")
        words = (
            "install",
            "--quiet",
            "--disable-pip-version-check",
            *flags,
            "--target",
            str(target),
            *options,
        )
        command = [*_pip_command(), *words, "-r", str(listed)]
        # Our own arguments.
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            lines = done.stderr.split("\n")
            reason = next(
                (line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")),
                lines[-1],
            )
            raise TaskProfilerError(
                "pip cannot install the forwarder's packages: check the package index "
                f"({' '.join(reason.split())})."
            )
        shutil.copytree(target, folder, dirs_exist_ok=True)


def _pip_command() -> tuple[str, ...]:
    """The command of this interpreter's pip, else of any: it downloads for others, too. uv makes
    environments without pip.
    """
    if find_spec("pip") is not None:
        return sys.executable, "-m", "pip"
    program = shutil.which("pip3") or shutil.which("pip")
    if program is None:
        raise TaskProfilerError(
            "pip is missing, which downloads the forwarder's packages: run python -m ensurepip."
        )
    return (program,)


def installed_zip_files(installed: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name in the zip and the path of each file that pip installed."""
    for path in installed.rglob("*"):
        name = path.relative_to(installed)
        is_metadata = name.parts[0].endswith(".dist-info") and name.name != "METADATA"
        is_left_out = name.suffix in {".pyc", ".pyi"} or _EXCLUDED_FOLDERS.intersection(name.parts)
        if path.is_file() and not (is_metadata or is_left_out):
            yield name.as_posix(), path


def own_zip_files() -> Iterator[tuple[str, Path]]:
    """Yield the name in the zip and the path of each file of the forwarder, and of the
    profiler's part in the zip.
    """
    package = Path(__file__).resolve().parents[2]
    modules = [package / f"{name}.py" for name in _SHARED_MODULES]
    packages: set[Path] = set()
    for module in modules:
        packages.update(folder for folder in module.parents if folder.is_relative_to(package))
    paths = [*modules, *(folder / "__init__.py" for folder in packages)]
    for name in _SHARED_PACKAGES:
        paths += (package / name).rglob("*.py")
    for path in paths:
        yield path.relative_to(package.parent).as_posix(), path
    yield "handler.py", forwarder_folder() / "handler.py"


def write_zip(entries: Sequence[tuple[str, Path]], out: Path) -> None:
    """Write the zip.

    All entries have the same modification time and mode, so that builds are reproducible.
    """
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, path in entries:
            info = zipfile.ZipInfo(name)  # of 1980
            info.external_attr = 0o644 << 16
            info.create_system = 3
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, path.read_bytes())


if __name__ == "__main__":
    build_zip(Path(sys.argv[1]))

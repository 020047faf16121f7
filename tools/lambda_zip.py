"""Build the forwarder's zip for all Python versions and processors of Lambda. Builds are reproducible.

    python tools/lambda_zip.py [OUT]

The zip contains pure packages once. msgspec is the only compiled package: the zip contains its extension module for
each Python version and processor, under different file names. pip verifies the hash of each wheel against
lambda/requirements.txt, which `make hashes` updates. The zip excludes boto3 (part of the Lambda runtime), bytecode,
tests and installer metadata.
"""

import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "lambda" / "requirements.txt"
OUT = ROOT / "dist" / "task-profiler-forwarder.zip"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PROCESSORS = ("x86_64", "aarch64")
PURE_WHEEL_OPTIONS = ("--platform=any", "--implementation=py", "--abi=none", f"--python-version={PYTHONS[0]}")
COMPILED_PACKAGE = "msgspec"
# The part of the profiler that the forwarder imports: files, and packages as patterns.
SHARED_PATTERNS = (
    "profiler/__init__.py",
    "profiler/core/*.py",
    "profiler/record/*.py",
    "profiler/schedules/*.py",
    "profiler/otlp/*.py",
    "profiler/past_runs/__init__.py",
    "profiler/past_runs/moments.py",
    "profiler/past_runs/sampled_functions.py",
    "profiler/aws_account/__init__.py",
    "profiler/aws_account/account_schedules.py",
    "profiler/aws_account/aws_errors.py",
    "profiler/aws_account/missed_reasons.py",
    "profiler/aws_account/registered_definitions.py",
    "profiler/aws_account/scheduled_targets.py",
    "profiler/aws_account/started_tasks.py",
)
_EXCLUDED_FOLDERS = {"__pycache__", "tests", "bin"}
_EXCLUDED_SUFFIXES = {".pyc", ".pyi"}
_INCLUDED_DIST_INFO = {"METADATA"}
# The earliest modification time that a zip can store. SOURCE_DATE_EPOCH overrides it.
_MIN_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


def main(arguments: Sequence[str]) -> None:
    """Install the requirements into a temporary folder, then write the zip."""
    out = Path(arguments[0]) if arguments else OUT
    with tempfile.TemporaryDirectory(prefix="lambda-zip-") as name:
        folder = Path(name)
        install(folder)
        out.parent.mkdir(parents=True, exist_ok=True)
        pack(sorted(files(folder)), out)
    print(f"{out}: {out.stat().st_size / 2**20:.1f} MiB")


def install(folder: Path) -> None:
    """Install all requirements from wheels."""
    for requirements, options in wheels(requirements_with_hashes()):
        install_wheels(folder, requirements, options)


def wheels(requirements: Sequence[str]) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Yield sets of requirements, each with the pip options that select its wheels for Lambda."""
    pure = [line for line in requirements if not line.startswith(COMPILED_PACKAGE)]
    (compiled,) = [line for line in requirements if line.startswith(COMPILED_PACKAGE)]
    yield pure, PURE_WHEEL_OPTIONS
    for python in PYTHONS:
        for processor in PROCESSORS:
            platforms = [f"--platform=manylinux{tag}_{processor}" for tag in ("2014", "_2_17", "_2_28")]
            yield [compiled], [*platforms, "--implementation=cp", f"--python-version={python}"]


def requirements_with_hashes(path: Path = REQUIREMENTS) -> list[str]:
    """Read a requirements file. Each returned line contains a requirement and its hashes."""
    lines = path.read_text().replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) for line in lines if line and not line.startswith("#")]


def install_wheels(folder: Path, requirements: Sequence[str], options: Sequence[str]) -> None:
    """Install into a temporary folder, then copy: pip does not add files to an existing package."""
    with tempfile.TemporaryDirectory(prefix="lambda-zip-pip-") as name:
        target = Path(name) / "target"
        requirements_file = Path(name) / "requirements.txt"
        requirements_file.write_text("\n".join(requirements))
        command = [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"),
            *(
                "--no-compile",
                "--only-binary=:all:",
                "--require-hashes",
                "--target",
                str(target),
                *options,
                "-r",
                str(requirements_file),
            ),
        ]
        subprocess.run(command, check=True)
        for source in target.rglob("*"):
            if source.is_file():
                destination = folder / source.relative_to(target)
                destination.parent.mkdir(parents=True, exist_ok=True)
                destination.write_bytes(source.read_bytes())


def files(installed: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name in the zip and the source path of each file."""
    for path in installed.rglob("*"):
        name = path.relative_to(installed)
        if path.is_file() and _is_wanted(name):
            yield name.as_posix(), path
    for pattern in SHARED_PATTERNS:
        for path in ROOT.glob(pattern):
            yield path.relative_to(ROOT).as_posix(), path
    yield "handler.py", ROOT / "lambda" / "handler.py"
    for path in (ROOT / "lambda" / "forwarder").rglob("*.py"):
        yield path.relative_to(ROOT / "lambda").as_posix(), path


def _is_wanted(name: Path) -> bool:
    if _EXCLUDED_FOLDERS.intersection(name.parts) or name.suffix in _EXCLUDED_SUFFIXES:
        return False
    return not name.parts[0].endswith(".dist-info") or name.name in _INCLUDED_DIST_INFO


def pack(entries: Sequence[tuple[str, Path]], out: Path) -> None:
    """Write the zip. All entries have the same modification time and mode, so that builds are reproducible."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    modified_at = _MIN_ZIP_TIME if epoch is None else max(_MIN_ZIP_TIME, _utc_time(int(epoch)))
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, path in entries:
            info = zipfile.ZipInfo(name, modified_at)
            info.external_attr = 0o644 << 16
            info.create_system = 3
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, path.read_bytes())


def _utc_time(epoch: int) -> tuple[int, int, int, int, int, int]:
    year, month, day, hour, minute, second, *_ = time.gmtime(epoch)
    return year, month, day, hour, minute, second


if __name__ == "__main__":
    main(sys.argv[1:])

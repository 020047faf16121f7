"""Builds the forwarder's zip: the same bytes for the same sources, for every Lambda Python and processor.

    python tools/lambda_zip.py [OUT]

Pure packages are taken once; msgspec, the only compiled one, brings its extension module for each
Python and processor (their file names differ, so they stand side by side). Nothing is installed whose
hash does not stand in lambda/requirements.txt; `make hashes` writes them. Left out: boto3, which
Lambda has, compiled files of this machine, tests, and what installers write about themselves.
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
ANYWHERE = ("--platform=any", "--implementation=py", "--abi=none", f"--python-version={PYTHONS[0]}")
COMPILED = "msgspec"
_SHARED_WITH_THE_PROFILER = (
    "profiler/__init__.py",
    *sorted(
        path.relative_to(ROOT).as_posix()
        for name in ("core", "record")
        for path in (ROOT / "profiler" / name).glob("*.py")
    ),
    "profiler/sizing/__init__.py",
    "profiler/sizing/requirements.py",
)
_LEFT_OUT_FOLDERS = {"__pycache__", "tests", "bin"}
_LEFT_OUT_SUFFIXES = {".pyc", ".pyi"}
_KEPT_OF_DIST_INFO = {"METADATA"}
# The earliest time a zip can hold; SOURCE_DATE_EPOCH is for those who want another.
_TIME = (1980, 1, 1, 0, 0, 0)


def main(arguments: Sequence[str]) -> None:
    """Install into a temporary folder, then pack."""
    out = Path(arguments[0]) if arguments else OUT
    with tempfile.TemporaryDirectory(prefix="lambda-zip-") as name:
        folder = Path(name)
        install(folder)
        out.parent.mkdir(parents=True, exist_ok=True)
        pack(sorted(files(folder)), out)
    print(f"{out}: {out.stat().st_size / 2**20:.1f} MiB")


def install(folder: Path) -> None:
    """All requirements, as wheels only."""
    for requirements, options in wheels(requirements_with_hashes()):
        install_wheels(folder, requirements, options)


def wheels(requirements: Sequence[str]) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """What the zip is made of: requirements, and the options that make pip take them for Lambda."""
    pure = [line for line in requirements if not line.startswith(COMPILED)]
    (compiled,) = [line for line in requirements if line.startswith(COMPILED)]
    yield pure, ANYWHERE
    for python in PYTHONS:
        for processor in PROCESSORS:
            platforms = [f"--platform=manylinux{tag}_{processor}" for tag in ("2014", "_2_17", "_2_28")]
            yield [compiled], [*platforms, "--implementation=cp", f"--python-version={python}"]


def requirements_with_hashes(path: Path = REQUIREMENTS) -> list[str]:
    """The lines of a requirements file, each with its hashes."""
    lines = path.read_text().replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) for line in lines if line and not line.startswith("#")]


def install_wheels(folder: Path, requirements: Sequence[str], options: Sequence[str]) -> None:
    """Install to a folder of its own first: pip does not add to a package that is there."""
    with tempfile.TemporaryDirectory(prefix="lambda-zip-pip-") as name:
        target = Path(name) / "target"
        wanted = Path(name) / "requirements.txt"
        wanted.write_text("\n".join(requirements))
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
                str(wanted),
            ),
        ]
        subprocess.run(command, check=True)
        for source in target.rglob("*"):
            if source.is_file():
                destination = folder / source.relative_to(target)
                destination.parent.mkdir(parents=True, exist_ok=True)
                destination.write_bytes(source.read_bytes())


def files(installed: Path) -> Iterator[tuple[str, Path]]:
    """Names in the zip and what stands there."""
    for path in installed.rglob("*"):
        name = path.relative_to(installed)
        if path.is_file() and _is_wanted(name):
            yield name.as_posix(), path
    for shared in _SHARED_WITH_THE_PROFILER:
        yield shared, ROOT / shared
    yield "handler.py", ROOT / "lambda" / "handler.py"
    for path in (ROOT / "lambda" / "forwarder").rglob("*.py"):
        yield path.relative_to(ROOT / "lambda").as_posix(), path


def _is_wanted(name: Path) -> bool:
    if _LEFT_OUT_FOLDERS.intersection(name.parts) or name.suffix in _LEFT_OUT_SUFFIXES:
        return False
    return not name.parts[0].endswith(".dist-info") or name.name in _KEPT_OF_DIST_INFO


def pack(entries: Sequence[tuple[str, Path]], out: Path) -> None:
    """Write the zip: sorted names, one time, one mode."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    moment = _TIME if epoch is None else max(_TIME, _utc(int(epoch)))
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, path in entries:
            info = zipfile.ZipInfo(name, moment)
            info.external_attr = 0o644 << 16
            info.create_system = 3
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, path.read_bytes())


def _utc(epoch: int) -> tuple[int, int, int, int, int, int]:
    year, month, day, hour, minute, second, *_ = time.gmtime(epoch)
    return year, month, day, hour, minute, second


if __name__ == "__main__":
    main(sys.argv[1:])

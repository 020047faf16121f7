"""Update the wheel hashes in the requirements files that pin versions.

    python -m tools.wheel_hashes

The files are for the forwarder's zip (lambda/requirements.txt) and the monitor's image
(taskdef/requirements). Edit the versions there by hand, then run this tool. It downloads the wheels
for all platforms and writes their hashes.
"""

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from profiler.aws_account.setup.forwarder_zip import (
    PROCESSORS,
    PURE_WHEEL_OPTIONS,
    PYTHONS,
    requirements_file,
    requirements_with_hashes,
    wheel_sets,
)

ROOT = Path(__file__).resolve().parent.parent
IMAGE_REQUIREMENTS = ROOT / "taskdef" / "requirements"
# The base of the image has glibc or musl.
_C_LIBRARY_TAGS = (
    ("manylinux2014", "manylinux_2_17", "manylinux_2_28"),
    ("musllinux_1_1", "musllinux_1_2"),
)
_COMPILED_ONLY = {"msgspec"}
_COMPILED_AND_PURE = {"charset-normalizer"}
# Compiled, for every version of Python. Without a wheel for musl.
_PROGRAMS = {"py-spy"}

# Sets of requirements, each with the pip options that select the wheels of one platform.
WheelSets = Iterator[tuple[Sequence[str], Sequence[str]]]


def main() -> None:
    """Update all requirements files."""
    write_requirements(requirements_file(), wheel_sets(_pins(requirements_file())))
    for path in sorted(IMAGE_REQUIREMENTS.glob("*.txt")):
        write_requirements(path, image_wheels(_pins(path)))


def write_requirements(path: Path, wheel_sets: WheelSets) -> None:
    """Rewrite a requirements file with its comments, its versions, and the hashes of these
    wheels.
    """
    pins = _pins(path)
    hashes = _hashes(wheel_sets)
    head = [line for line in path.read_text().splitlines() if line.startswith("#")]
    path.write_text(
        "\n".join([*head, *(_requirement_entry(pin, hashes[_package_name(pin)]) for pin in pins)])
        + "\n"
    )
    print(
        f"{path.relative_to(ROOT)}: {sum(map(len, hashes.values()))} wheels of {len(pins)} packages"
    )


def image_wheels(pins: Sequence[str]) -> WheelSets:
    """The wheels for every Python version, processor and C library of a base image."""
    pure = [pin for pin in pins if _package_name(pin) not in _COMPILED_ONLY | _PROGRAMS]
    if pure:
        yield pure, PURE_WHEEL_OPTIONS
    programs = [pin for pin in pins if _package_name(pin) in _PROGRAMS]
    for processor in PROCESSORS if programs else ():
        platforms = [f"--platform={tag}_{processor}" for tag in _C_LIBRARY_TAGS[0]]
        yield (
            programs,
            [*platforms, "--implementation=py", "--abi=none", f"--python-version={PYTHONS[0]}"],
        )
    compiled = [pin for pin in pins if _package_name(pin) in _COMPILED_ONLY | _COMPILED_AND_PURE]
    for python in PYTHONS if compiled else ():
        for processor in PROCESSORS:
            for tags in _C_LIBRARY_TAGS:
                platforms = [f"--platform={tag}_{processor}" for tag in tags]
                yield compiled, [*platforms, "--implementation=cp", f"--python-version={python}"]


def _pins(path: Path) -> list[str]:
    return [line.split()[0] for line in requirements_with_hashes(path)]


def _hashes(wheel_sets: WheelSets) -> Mapping[str, set[str]]:
    """Download the wheels. Returns the hashes of each package's wheels, by package name."""
    hashes: dict[str, set[str]] = {}
    for pins, options in wheel_sets:
        with tempfile.TemporaryDirectory(prefix="wheel-hashes-") as folder:
            command = [
                *(
                    sys.executable,
                    "-m",
                    "pip",
                    "download",
                    "--quiet",
                    "--disable-pip-version-check",
                    "--no-deps",
                ),
                *("--only-binary=:all:", "--dest", folder, *options, *pins),
            ]
            subprocess.run(command, check=True)
            for wheel in Path(folder).iterdir():
                digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
                hashes.setdefault(_package_name(wheel.name.split("-")[0]), set()).add(digest)
    return hashes


def _package_name(pin: str) -> str:
    """The normalized name of the package."""
    return pin.split("==", maxsplit=1)[0].lower().replace("_", "-")


def _requirement_entry(pin: str, hashes: Iterable[str]) -> str:
    return " \\\n".join([pin, *(f"    --hash=sha256:{digest}" for digest in sorted(hashes))])


if __name__ == "__main__":
    main()

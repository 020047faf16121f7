"""Writes the hashes of all wheels that pinned versions may come as into the files that pin them.

    python -m tools.wheel_hashes

These are the forwarder's zip (lambda/requirements.txt) and the monitor's image (taskdef/requirements). Change
the versions there by hand, then run this: it downloads each wheel once more and keeps its hash.
"""

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tools.lambda_zip import ANYWHERE, PROCESSORS, PYTHONS, REQUIREMENTS, ROOT, requirements_with_hashes, wheels

IMAGE = ROOT / "taskdef" / "requirements"
# The image's base may have either C library.
_LIBRARIES = (("manylinux2014", "manylinux_2_17", "manylinux_2_28"), ("musllinux_1_1", "musllinux_1_2"))
_ONLY_COMPILED = {"msgspec"}
_ALSO_COMPILED = {"charset-normalizer"}

# Requirements, and the options that make pip take them for one kind of machine.
Wheels = Iterator[tuple[Sequence[str], Sequence[str]]]


def main() -> None:
    """Download, then write."""
    write(REQUIREMENTS, wheels(_pins(REQUIREMENTS)))
    for path in sorted(IMAGE.glob("*.txt")):
        write(path, image_wheels(_pins(path)))


def write(path: Path, choices: Wheels) -> None:
    """The file anew: its comments, its versions, and the hashes of these wheels."""
    pins = _pins(path)
    hashes = _hashes(choices)
    head = [line for line in path.read_text().splitlines() if line.startswith("#")]
    path.write_text("\n".join([*head, *(_entry(pin, hashes[_name(pin)]) for pin in pins)]) + "\n")
    print(f"{path.relative_to(ROOT)}: {sum(map(len, hashes.values()))} wheels of {len(pins)} packages")


def image_wheels(pins: Sequence[str]) -> Wheels:
    """For every Python, processor and C library that a base image may have."""
    yield [pin for pin in pins if _name(pin) not in _ONLY_COMPILED], ANYWHERE
    compiled = [pin for pin in pins if _name(pin) in _ONLY_COMPILED | _ALSO_COMPILED]
    for python in PYTHONS if compiled else ():
        for processor in PROCESSORS:
            for tags in _LIBRARIES:
                platforms = [f"--platform={tag}_{processor}" for tag in tags]
                yield compiled, [*platforms, "--implementation=cp", f"--python-version={python}"]


def _pins(path: Path) -> list[str]:
    return [line.split()[0] for line in requirements_with_hashes(path)]


def _hashes(choices: Wheels) -> Mapping[str, set[str]]:
    """The hashes of each package's wheels by its name."""
    found: dict[str, set[str]] = {}
    for wanted, options in choices:
        with tempfile.TemporaryDirectory(prefix="wheel-hashes-") as folder:
            command = [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"),
                *("--only-binary=:all:", "--dest", folder, *options, *wanted),
            ]
            subprocess.run(command, check=True)
            for wheel in Path(folder).iterdir():
                digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
                found.setdefault(_name(wheel.name.split("-")[0]), set()).add(digest)
    return found


def _name(pin: str) -> str:
    """The package's name as PyPI compares names."""
    return pin.split("==", maxsplit=1)[0].lower().replace("_", "-")


def _entry(pin: str, hashes: Iterable[str]) -> str:
    return " \\\n".join([pin, *(f"    --hash=sha256:{digest}" for digest in sorted(hashes))])


if __name__ == "__main__":
    main()

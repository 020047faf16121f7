"""Writes the hashes of all wheels that the forwarder's zip is made of into lambda/requirements.txt.

    python -m tools.lambda_hashes

Change the versions there by hand, then run this: it downloads each wheel once more and keeps its hash.
"""

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tools.lambda_zip import REQUIREMENTS, requirements_with_hashes, wheels


def main() -> None:
    """Download, then write."""
    pins = [line.split()[0] for line in requirements_with_hashes()]
    hashes = _hashes(pins)
    head = [line for line in REQUIREMENTS.read_text().splitlines() if line.startswith("#")]
    REQUIREMENTS.write_text("\n".join([*head, *(_entry(pin, hashes[_name(pin)]) for pin in pins)]) + "\n")
    print(f"{REQUIREMENTS}: {sum(map(len, hashes.values()))} wheels of {len(pins)} packages")


def _hashes(pins: list[str]) -> Mapping[str, set[str]]:
    """The hashes of each package's wheels by its name."""
    found: dict[str, set[str]] = {}
    for wanted, options in wheels(pins):
        with tempfile.TemporaryDirectory(prefix="lambda-hashes-") as folder:
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


def _entry(pin: str, hashes: set[str]) -> str:
    return " \\\n".join([pin, *(f"    --hash=sha256:{digest}" for digest in sorted(hashes))])


if __name__ == "__main__":
    main()

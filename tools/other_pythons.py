"""Lists the machine's other Pythons that Task Profiler supports: one of each version, from PATH
and from pyenv, as `VERSION PATH`.

    python -m tools.other_pythons
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.waiting import LIMIT_SECONDS

_OLDEST = (3, 11)
# A Python of Debian can lack ensurepip, without which it makes no environment.
_VERSION = "import sys, ensurepip; print(*sys.version_info[:2])"


def main() -> None:
    """Print a line for each version, in the order of the search."""
    found = {sys.version_info[:2]: Path(sys.executable)}
    for program in _python_programs():
        version = _version(program)
        if version is not None and version >= _OLDEST and version not in found:
            found[version] = program
            print(f"{version[0]}.{version[1]} {program}")


def _python_programs() -> Iterator[Path]:
    for folder in os.get_exec_path():
        yield from sorted(Path(folder).glob("python3.[0-9][0-9]"))
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob("versions/3.*/bin/python3"))


def _version(program: Path) -> tuple[int, int] | None:
    """None for a program that does not start, such as a shim of pyenv without its version."""
    words = (program, "-c", _VERSION)
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    major, minor = map(int, done.stdout.split())
    return major, minor


if __name__ == "__main__":
    main()

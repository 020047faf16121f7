"""A copy of the package and of all that it imports, for a user who may see neither the checkout nor
the interpreter's files.
"""

import re
import shutil
import stat
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import profiler

_DISTRIBUTION = "task-profiler"
_NAME = re.compile(r"[\w.-]+")
# What the package does not import, AWS's service models (`data`), which no such run reads, and what
# another process is about to compile.
_IGNORED = shutil.ignore_patterns(
    *("site-packages", "dist-packages", "test", "tests", "idlelib", "ensurepip", "config-*"),
    *("node_modules", "data", "*.js", "*.json", "*.txt", "*.opt-?.pyc", "*.pyc.*"),
)
# Programs, and what belongs to another folder.
_NO_MODULES = ("..", "__pycache__")


def copy_code(folder: Path) -> None:
    """Copy the package and the distributions that it requires into the folder, and the standard
    library as that of a PYTHONHOME, unless every user can read it.
    """
    _copy(Path(profiler.__file__).parent, folder)
    for found in _required(_DISTRIBUTION, set()):
        for place in _places(found):
            _copy(place, folder)
    library = Path(sysconfig.get_path("stdlib"))
    if not _is_readable_by_all(library):
        _copy(library, folder / sys.platlibdir)


def home_of(folder: Path) -> Path | None:
    """The PYTHONHOME of copied code; None where the interpreter's own files are for all."""
    return folder if (folder / sys.platlibdir).is_dir() else None


def _required(name: str, seen: set[str]) -> Iterator[Distribution]:
    """The installed distributions that one requires, without those of its extras."""
    for line in distribution(name).requires or ():
        required = _name(line)
        if "extra ==" in line or required in seen:
            continue
        seen.add(required)
        try:
            found = distribution(required)
        except PackageNotFoundError:  # for another Python
            continue
        yield found
        yield from _required(required, seen)


def _name(requirement: str) -> str:
    found = _NAME.match(requirement)
    return "" if found is None else found[0].lower()


def _places(found: Distribution) -> set[Path]:
    """The modules and packages of a distribution."""
    names = {file.parts[0] for file in found.files or () if file.suffix != ".pth"}
    return {Path(str(found.locate_file(name))) for name in names if name not in _NO_MODULES}


def _copy(place: Path, folder: Path) -> None:
    """Copy a file, or a folder, so that every user can read it; what was compiled stays valid."""
    target = folder / place.name
    if place.is_dir():
        shutil.copytree(place, target, ignore=_IGNORED, dirs_exist_ok=True)
    else:
        shutil.copy2(place, target)
    for copied in (target, *target.rglob("*")):
        copied.chmod(0o755)
    folder.chmod(0o755)


def _is_readable_by_all(folder: Path) -> bool:
    return all(place.stat().st_mode & stat.S_IXOTH for place in (folder, *folder.parents))

"""Finds modules of this package, msgspec and Python by their names, for the commands, each of which
imports a hundred of them.

Python's own finder asks four others first, lists each folder, tries five endings of each name, and
makes the name of the compiled file twice: a tenth of the CPU time of ``run -- true``. Whatever is
unusual is left to it, and a compiled file counts under its rules.
"""

import marshal
import os
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader

TYPE_CHECKING = False  # type checkers treat this name as true; the finder finds these modules, too
if TYPE_CHECKING:
    from collections.abc import Container, Sequence
    from types import CodeType, ModuleType

_HEADER_BYTES = 16
_CHECKED_BY_TIME = bytes(4)
_PACKAGE_FILE = "__init__"
_SHIPPED_PACKAGE = "collections"
# What is written in Python of the modules that Python ships, and that ``run`` imports.
SHIPPED = frozenset(
    (
        *("__future__", "_weakrefset", "contextlib", "functools", "keyword", "operator"),
        *("reprlib", "threading", "types", "typing", "warnings", _SHIPPED_PACKAGE),
    )
)


class _Loader(SourceFileLoader):
    """Loads a module as its parent does, with one file less to look at.

    ``cached``: the compiled file; ``stamp``: the beginning of a valid one.
    """

    cached = ""
    stamp = b""

    def get_code(self, fullname: str) -> "CodeType | None":
        """The code of the compiled file, if that is of this source; else the parent's way."""
        content = _read_file_quickly(self.cached)
        if content[:_HEADER_BYTES] == self.stamp:
            code = marshal.loads(memoryview(content)[_HEADER_BYTES:])  # noqa: S302  as Python does
            # Another folder's name is corrected by the parent.
            if isinstance(code, _CODE) and code.co_filename == self.path:
                return code
        return super().get_code(fullname)


def _read_file_quickly(path: str) -> bytes:
    """A file, in four calls of the kernel: Python's file objects make five more. Empty if it
    cannot be read, or not whole.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            size = os.fstat(descriptor).st_size
            content = os.read(descriptor, size)
        finally:
            os.close(descriptor)
    except OSError:
        return b""
    return content if len(content) == size else b""


_CODE = type(_read_file_quickly.__code__)


class OwnModules:
    """A finder for ``sys.meta_path`` of what is in some packages.

    It also finds what is named ``shipped`` and is in the folder ``library``.
    """

    def __init__(
        self,
        packages: "Sequence[str]",
        tag: str,
        library: str = "",
        shipped: "Container[str]" = (),
    ) -> None:
        self._beginnings = tuple(f"{package}." for package in packages)
        self._ending = f".{tag}.pyc"
        self._library = library
        self._shipped = shipped

    def find_spec(
        self, fullname: str, path: "Sequence[str] | None", _target: "ModuleType | None" = None
    ) -> ModuleSpec | None:
        """The place of a module or a package; None if it is in no single folder as a source."""
        if path is None:
            if fullname not in self._shipped:
                return None
            path = (self._library,)
        elif len(path) != 1 or not fullname.startswith(self._beginnings):
            return None
        folder, name = path[0], fullname.rpartition(".")[2]
        module = self._module_spec(fullname, folder, name)
        return module or self._module_spec(fullname, f"{folder}/{name}", _PACKAGE_FILE)

    def _module_spec(self, fullname: str, folder: str, name: str) -> ModuleSpec | None:
        source = f"{folder}/{name}.py"
        try:
            status = os.stat(source)  # noqa: PTH116  pathlib is slow
        except OSError:
            return None
        loader = _Loader(fullname, source)
        loader.cached = f"{folder}/__pycache__/{name}{self._ending}"
        numbers = (int(status.st_mtime), status.st_size)
        words = [(number & 0xFFFFFFFF).to_bytes(4, "little") for number in numbers]
        loader.stamp = b"".join((MAGIC_NUMBER, _CHECKED_BY_TIME, *words))
        is_package = name == _PACKAGE_FILE
        spec = ModuleSpec(fullname, loader, origin=source, is_package=is_package)
        if is_package:
            spec.submodule_search_locations = [folder]
        spec.has_location = True
        spec.cached = loader.cached
        return spec


def find_own_modules_first() -> None:
    """Put the finder in front of Python's, unless compiled files have other places."""
    tag = sys.implementation.cache_tag
    if tag and not sys.flags.optimize and sys.pycache_prefix is None:
        packages = (__name__.partition(".")[0], "msgspec", _SHIPPED_PACKAGE)
        finder = OwnModules(packages, tag, os.path.dirname(os.__file__), SHIPPED)  # noqa: PTH120
        sys.meta_path.insert(0, finder)

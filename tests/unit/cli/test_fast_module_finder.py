"""The finder of ``run`` finds what Python's own finder does, and obeys its rules."""

import importlib
import importlib.machinery
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import profiler
from profiler.cli.fast_module_finder import SHIPPED, OwnModules

_TAG = sys.implementation.cache_tag


def _finder(package: str) -> OwnModules:
    return OwnModules((package,), _TAG)


def _parts(spec: importlib.machinery.ModuleSpec | None) -> tuple[object, ...]:
    assert spec is not None
    folders = spec.submodule_search_locations
    return (
        spec.name,
        spec.origin,
        spec.cached,
        spec.parent,
        spec.has_location,
        None if folders is None else list(folders),
    )


def test_each_module_has_the_place_that_python_finds() -> None:
    finder = _finder("profiler")
    folders = {"profiler": list(profiler.__path__)}
    for module in pkgutil.walk_packages(profiler.__path__, "profiler."):
        path = folders[module.name.rpartition(".")[0]]
        found = finder.find_spec(module.name, path)
        assert _parts(found) == _parts(importlib.machinery.PathFinder.find_spec(module.name, path))
        if module.ispkg:
            folders[module.name] = [f"{path[0]}/{module.name.rpartition('.')[2]}"]
    assert len(folders) > 20


def test_each_module_that_python_ships_has_the_place_that_python_finds() -> None:
    library = str(Path(os.__file__).parent)
    finder = OwnModules((), _TAG, library, SHIPPED)
    for name in SHIPPED:
        found = finder.find_spec(name, None)
        assert _parts(found) == _parts(importlib.machinery.PathFinder.find_spec(name, [library]))
    assert finder.find_spec("textwrap", None) is None


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package whose module says its number, and which the finder finds."""
    folder = tmp_path / "counted"
    folder.mkdir()
    (folder / "__init__.py").touch()
    _write(folder, 1)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [_finder("counted"), *sys.meta_path])
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return folder


def _write(folder: Path, number: int, at: int = 1_700_000_000) -> None:
    source = folder / "module.py"
    source.write_text(f"number = {number}\n")
    os.utime(source, (at, at))


def _number() -> int:
    for name in [name for name in sys.modules if name.startswith("counted")]:
        del sys.modules[name]
    number = importlib.import_module("counted.module").number
    assert isinstance(number, int)
    return number


def test_a_compiled_file_counts_as_long_as_its_source_has_the_same_time_and_size(
    package: Path,
) -> None:
    assert _number() == 1
    _write(package, 2)
    assert _number() == 1, "Python compares the time and the size alone"
    _write(package, 3, at=1_700_000_001)
    assert _number() == 3
    _write(package, 10, at=1_700_000_001)
    assert _number() == 10


@pytest.mark.parametrize("content", [b"", b"\0" * 16, b"no compiled file"])
def test_a_damaged_compiled_file_is_made_again(package: Path, content: bytes) -> None:
    assert _number() == 1
    (compiled,) = (package / "__pycache__").glob("module.*.pyc")
    compiled.write_bytes(content)
    assert _number() == 1
    assert compiled.read_bytes() != content


@pytest.mark.usefixtures("package")
def test_a_compiled_file_that_is_read_in_part_is_left_to_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _number() == 1
    read = os.read
    monkeypatch.setattr(os, "read", lambda descriptor, size: read(descriptor, size - 1))
    assert _number() == 1


def test_a_moved_package_has_its_new_place_in_a_traceback(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _number() == 1
    moved = package.parent / "elsewhere"
    moved.mkdir()
    package.rename(moved / "counted")
    monkeypatch.syspath_prepend(moved)
    importlib.invalidate_caches()
    assert _number() == 1
    code = sys.modules["counted.module"].__loader__.get_code("counted.module")  # type: ignore[union-attr]
    assert code.co_filename == str(moved / "counted" / "module.py")


@pytest.mark.usefixtures("package")
def test_what_is_not_there_is_left_to_python() -> None:
    assert _number() == 1
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'counted\.absent'"):
        importlib.import_module("counted.absent")
    finder = _finder("counted")
    assert finder.find_spec("other.module", ["/"]) is None
    assert finder.find_spec("counted.module", None) is None
    assert finder.find_spec("counted.module", ["/a", "/b"]) is None


@pytest.mark.parametrize(("option", "is_first"), [([], True), (["-O"], False)])
def test_other_places_of_compiled_files_are_left_to_python(
    option: list[str], *, is_first: bool
) -> None:
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; from profiler.cli import fast_module_finder as own; "
        "own.find_own_modules_first(); print(isinstance(sys.meta_path[0], own.OwnModules))"
    )
    words = (sys.executable, *option, "-I", "-S", "-c", code)
    printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert printed.strip() == str(is_first)


@pytest.mark.parametrize("command", ["--version", "run -- true", "monitor"])
def test_every_command_uses_it(command: str) -> None:
    code = dedent(f"""
        import os, sys
        sys.path[:] = {sys.path!r}
        sys.argv[1:] = {command.split()!r}
        def end(_code=None):
            from profiler.cli.fast_module_finder import OwnModules
            print(isinstance(sys.meta_path[0], OwnModules))
            sys.stdout.flush()
            kill(0)
        kill, os._exit, sys.exit = os._exit, end, end
        from profiler.cli import main
        main()
    """)
    words = (sys.executable, "-I", "-S", "-c", code)
    printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert printed.split()[-1] == "True"

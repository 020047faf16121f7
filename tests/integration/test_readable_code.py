"""The copy of the code with which tests run the profiler as another user has every module: a slow
machine's run imports more of them, and later.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integration.profiled import as_nobody
from tools.waiting import LIMIT_SECONDS

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
# Only AWS Lambda's and CDK's runtimes import them, with distributions of their own.
_OF_OTHER_RUNTIMES = tuple(f"profiler.{name}" for name in ("cdk", "forwarder", "shipped"))
_IMPORTS_ALL = f"""
import importlib, pkgutil
import profiler
for module in pkgutil.walk_packages(profiler.__path__, "profiler."):
    if not module.name.startswith({_OF_OTHER_RUNTIMES!r}):
        importlib.import_module(module.name)
        print(module.name)
"""
_FINDS = """
from importlib.util import find_spec
for name in sys.argv[1:]:
    found = find_spec(name)
    if found is None or not (found.origin in ("built-in", "frozen") or open(found.origin, "rb")):
        print(name)
"""
# They are not for programs.
_NOT_COPIED = {"idlelib", "ensurepip", "test"}


def _lines(*words: str) -> list[str]:
    done = subprocess.run(
        words, capture_output=True, check=False, cwd="/", text=True, timeout=LIMIT_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def _standard_modules() -> Iterator[str]:
    for name in sys.stdlib_module_names - _NOT_COPIED:
        if not name.startswith("__") and find_spec(name) is not None:
            yield name


@pytest.mark.slow
def test_another_user_imports_every_module_of_the_package(code_for_all: Path) -> None:
    imported = _lines(*as_nobody(code_for_all, _IMPORTS_ALL))
    assert "profiler.aggregation.run_notices" in imported
    assert "profiler.record.family_statistics" in imported


def test_another_user_finds_every_module_of_the_standard_library(code_for_all: Path) -> None:
    assert _lines(*as_nobody(code_for_all, _FINDS), *_standard_modules()) == []

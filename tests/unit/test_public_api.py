"""``from profiler import …``: the names, and that they are imported only when they are used."""

import subprocess
import sys

import pytest

import profiler
from profiler.record import record_model

NAMES = ("Record", "Report", "decode", "encode", "json_schema")


def test_all_equals_the_real_exports_which_are_those_of_the_records_model() -> None:
    assert sorted(profiler.__all__) == sorted(("__version__", *NAMES))
    namespace: dict[str, object] = {}
    exec("from profiler import *", namespace)
    assert set(namespace) - {"__builtins__"} == set(profiler.__all__)
    assert set(profiler.__all__) <= set(dir(profiler))
    for name in NAMES:
        assert namespace[name] is getattr(profiler, name) is getattr(record_model, name)


def test_an_unknown_name_is_refused_as_in_any_module() -> None:
    with pytest.raises(AttributeError, match="module 'profiler' has no attribute 'nonsense'"):
        profiler.nonsense  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError):
        exec("from profiler import nonsense")


def run_isolated(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_importing_the_package_loads_none_of_its_modules_and_no_library() -> None:
    code = "import sys; before = {*sys.modules}; import profiler; print(*sorted({*sys.modules} - before))"
    assert run_isolated(code).split() == ["profiler"]


def test_the_first_use_of_a_name_loads_the_model_but_no_program() -> None:
    code = "import sys; from profiler import decode; print(*sys.modules)"
    loaded = set(run_isolated(code).split())
    assert {"profiler.record.record_model", "msgspec"} <= loaded
    assert not loaded & {"click", "boto3", "botocore", "profiler.cli", "profiler.readers"}

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


def test_importing_the_package_loads_no_other_module() -> None:
    """Importing the package loads no other module and the first use of a name the model but no
    program.
    """
    code = (
        "import sys; before = {*sys.modules}; import profiler; print(*({*sys.modules} - "
        "before)); profiler.decode; "
    )
    words = [sys.executable, "-c", f"{code}print(*sys.modules)"]
    first, later = subprocess.run(
        words, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert first == "profiler"
    loaded = set(later.split())
    assert {"profiler.record.record_model", "msgspec"} <= loaded
    assert not loaded & {"click", "boto3", "botocore", "profiler.cli", "profiler.readers"}

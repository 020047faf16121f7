"""The search for failing examples, and that the tests do not roll dice."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tools.fuzz import ROOT

FAILING = """
from hypothesis import given, strategies as st

@given(st.integers())
def test_every_number_is_small(number: int) -> None:
    assert number < 1000
"""


def test_a_seed_repeats_its_failing_example(tmp_path: Path) -> None:
    file = tmp_path / "test_numbers.py"
    file.write_text(FAILING)
    command = [sys.executable, "-m", "tools.fuzz", "--seed", "7", "--", "-p", "tests.conftest", "-n0", str(file)]
    done = [subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False) for _ in range(2)]
    blobs = [re.findall(r"@reproduce_failure\(.*\)", found.stdout) for found in done]
    assert [found.returncode for found in done] == [1, 1], done[0].stdout
    assert "number=1000" in done[0].stdout
    assert "make fuzz SEED=7 repeats it" in done[0].stdout
    assert blobs[0]
    assert blobs[0] == blobs[1]


def test_the_tests_try_the_same_examples_on_every_machine(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--hypothesis-profile"):
        pytest.skip("make fuzz has seeds of its own")
    assert settings.get_current_profile_name() == "same-examples"
    assert settings.default is not None
    assert settings.default.derandomize

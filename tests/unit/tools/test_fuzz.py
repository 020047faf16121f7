"""The search for failing examples, and that the tests do not roll dice."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tools.fuzz import ROOT, fuzz

FAILING = """
from hypothesis import given, strategies as st

@given(st.integers())
def test_every_number_is_small(number: int) -> None:
    assert number < 1000
"""


class Rounds:
    """Rounds of a minute; the one with the seed ``failing`` fails."""

    def __init__(self, failing: int | None = None) -> None:
        self.seeds: list[int] = []
        self.now = 0.0
        self._failing = failing

    def run(self, seed: int) -> int:
        self.seeds.append(seed)
        self.now += 60
        return 1 if seed == self._failing else 0

    def monotonic(self) -> float:
        return self.now


def test_rounds_begin_until_the_time_is_up() -> None:
    rounds = Rounds()
    assert fuzz(range(100), rounds.run, seconds=150, monotonic=rounds.monotonic) == 0
    assert rounds.seeds == [0, 1, 2]


def test_the_search_ends_with_the_round_that_failed(capsys: pytest.CaptureFixture[str]) -> None:
    rounds = Rounds(failing=1)
    assert fuzz(range(100), rounds.run, seconds=600, monotonic=rounds.monotonic) == 1
    assert rounds.seeds == [0, 1]
    assert "make fuzz SEED=1 repeats it" in capsys.readouterr().out


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

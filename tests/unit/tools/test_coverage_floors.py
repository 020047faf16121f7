"""The floors of the coverage gate, on small reports."""

from collections.abc import Mapping
from typing import Any

import pytest

from tools.coverage_floors import below

MATH = "profiler/core/optional_math.py"
FLOORS = {"total": 80, "pure": 95, "pure_modules": [MATH, "profiler/sizing/*.py"]}


def report(total: float, files: Mapping[str, float]) -> dict[str, Any]:
    """A report as coverage writes it as JSON, reduced to what is read."""
    return {
        "totals": {"percent_covered": total},
        "files": {path: {"summary": {"percent_covered": percent}} for path, percent in files.items()},
    }


@pytest.mark.parametrize(
    ("total", "known", "trend", "sentence"),
    [
        (79.99, 95, 95, "The tests cover 79.99 % of everything; the floor is 80 %."),
        (80, 94.99, 95, f"The tests cover 94.99 % of {MATH}; the floor of a pure module is 95 %."),
        (80, 95, 50, "The tests cover 50.00 % of profiler/sizing/reasons.py; the floor of a pure module is 95 %."),
    ],
)
def test_each_floor_is_checked_by_itself(total: float, known: float, trend: float, sentence: str) -> None:
    files = {MATH: known, "profiler/sizing/reasons.py": trend}
    assert list(below(FLOORS, report(total, files))) == [sentence]


def test_a_pattern_that_matches_no_file_is_an_error() -> None:
    """A module that was moved would otherwise be left out without a word."""
    assert list(below(FLOORS, report(90, {MATH: 100}))) == [
        "No measured file matches profiler/sizing/*.py: correct pure_modules in pyproject.toml."
    ]

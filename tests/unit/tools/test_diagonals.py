"""What `make test` runs of a sweep, and that `make slow` runs the rest."""

import ast
import re
import tomllib
from itertools import combinations, product
from pathlib import Path

import pytest

from tests.diagonals import diagonal, with_each_pair

ROOT = Path(__file__).parents[3]


def folders_of_make_test() -> list[str]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return [*tomllib.load(file)["tool"]["pytest"]["ini_options"]["testpaths"]]


@pytest.mark.parametrize("sizes", [(1,), (4,), (2, 3), (2, 4), (3, 8, 7), (6, 6, 2)])
def test_each_value_is_on_the_diagonal_and_few_cases_are(sizes: tuple[int, ...]) -> None:
    cases = [*product(*([f"{n:03}" for n in range(size)] for size in sizes))]
    chosen = [cases[number] for number in diagonal(cases)]
    assert len(chosen) == max(sizes)
    for size, values in zip(sizes, zip(*chosen, strict=True), strict=True):
        assert len(set(values)) == size


def test_at_most_so_many_are_spread_from_the_first_to_the_last() -> None:
    assert diagonal([(f"{n:03}",) for n in range(100)], 4) == {0, 33, 66, 99}
    assert diagonal([("a",), ("b",)], 4) == {0, 1}


@pytest.mark.parametrize("sizes", [(4,), (2, 3), (2, 2, 2), (8, 3, 2), (7, 7, 4, 2)])
def test_each_pair_of_values_is_tested_and_few_cases_are(sizes: tuple[int, ...]) -> None:
    cases = [*product(*([f"{n:03}" for n in range(size)] for size in sizes))]
    chosen = diagonal(cases)
    rest = with_each_pair(cases, chosen)
    assert not rest & chosen
    pairs = [{*combinations(enumerate(case), 2)} for case in cases]
    tested = set().union(*(pairs[number] for number in chosen | rest))
    assert tested == set().union(*pairs)
    largest, second, *_ = sorted((*sizes, 1), reverse=True)
    assert len(rest | chosen) <= 1.5 * largest * second


@pytest.fixture
def sweep(request: pytest.FixtureRequest) -> list[pytest.Item]:
    """The cases of the test below that were collected."""
    return [item for item in request.session.items if "test_a_sweep[" in item.nodeid]


@pytest.mark.diagonal
@pytest.mark.parametrize("second", ["d", pytest.param("e", marks=pytest.mark.slow), "f"])
@pytest.mark.parametrize("first", ["a", "b", "c"])
def test_a_sweep(first: str, second: str, sweep: list[pytest.Item]) -> None:
    """A value that is slow anyway takes no other one's place."""
    fast = {("a", "d"), ("b", "f"), ("c", "d")}
    is_slow = {item.name: item.get_closest_marker("slow") is not None for item in sweep}
    name = f"test_a_sweep[{first}-{second}]"
    assert is_slow[name] == ((first, second) not in fast)


def test_make_slow_runs_the_rest() -> None:
    rules = (ROOT / "Makefile").read_text().split("\n\n")
    (slow,) = (rule for rule in rules if rule.startswith("slow:"))
    assert "-m '(slow or hypothesis) and not waits and not accuracy'" in slow
    assert "grep -rlF -e mark.slow -e mark.diagonal -e " in slow
    for folder in folders_of_make_test():
        assert folder in slow, "each may have a test with parameters"
    assert "-m slow --timeout 0 tests/search" in slow


# The fast tests of what files without a fast test promise.
HELD_BY = {
    "tests/contract/test_account_of_150.py": "tests/contract/test_taskdef_rollout.py",
    "tests/integration/test_nextflow_pipeline.py": "tests/unit/sizing/test_workflow_engine_config.py",
    "tests/simulation/test_resize.py": "tests/unit/sizing/test_resize_scenarios.py",
    "tests/simulation/test_resize_jobs.py": "tests/contract/test_resize_jobs.py",
    "tests/unit/deployment/test_linted_templates.py": "tests/unit/deployment/test_template.py",
}


def _is_slow(test: ast.FunctionDef) -> bool:
    return any(ast.unparse(mark) == "pytest.mark.slow" for mark in test.decorator_list)


def test_each_file_has_a_fast_test() -> None:
    found = set()
    for folder in folders_of_make_test():
        for path in sorted((ROOT / folder).rglob("test_*.py")):
            text = path.read_text()
            if "mark.slow" not in text:
                continue
            tests = [
                one
                for one in ast.walk(ast.parse(text))
                if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")
            ]
            is_whole = re.search(r"^pytestmark = .*mark\.slow", text, re.MULTILINE)
            if is_whole or all(map(_is_slow, tests)):
                found.add(str(path.relative_to(ROOT)))
    assert found == HELD_BY.keys(), "name the fast test of the same promise"
    assert all((ROOT / path).is_file() for path in HELD_BY.values())

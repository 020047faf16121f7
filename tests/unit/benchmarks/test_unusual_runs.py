"""Generated families: few runs are announced as unlike their family, and most of those that did nothing."""

import pytest

from benchmarks.figures import BenchmarkResult
from benchmarks.unusual_runs import INJECTED, KINDS, MAX_FALSE_ALARMS, Kind, count_alarms, measure


@pytest.fixture(scope="module")
def result() -> BenchmarkResult:
    return measure(families=6, runs=80)


def test_few_usual_runs_are_announced(result: BenchmarkResult) -> None:
    bounded = [figure for figure in result.figures if figure.at_most is not None]
    assert len(bounded) == len(KINDS) - 1
    assert sum(figure.value for figure in bounded) / len(bounded) <= MAX_FALSE_ALARMS


def test_most_runs_that_did_nothing_are_announced_and_no_half_run() -> None:
    counts = count_alarms(Kind(name="steady"), families=6, runs=80)
    recall = {name: counts.recall_percent(name) for name in INJECTED}
    assert min(recall["nothing"], recall["nothing, the second time in a row"], recall["10 times the work"]) > 85
    assert recall["half of the work"] < 10


def test_the_table_has_a_row_for_each_kind(result: BenchmarkResult) -> None:
    (table,) = result.tables
    assert [line.split("|")[1].strip() for line in table.splitlines()[2:]] == [kind.name for kind in KINDS]

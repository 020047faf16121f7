"""The notices on small generated nights: what polls is not stuck, and what hangs or leaks is noticed."""

from itertools import islice

import pytest

from benchmarks.night_batches import FAULTS, POLLS_WITH_IO, Batch, night
from benchmarks.notices import Score, expected_kind, fault_table, figures, score, watch, watch_by_monitor

SEEDS = (3, 8)


def batches(seed: int) -> list[Batch]:
    """Eight batches without a fault, and one of half of the faults."""
    return list(night(seed, batches=8 + len(FAULTS) // 2, faults=len(FAULTS) // 2))


OUTCOMES = [watch(batch) for seed in SEEDS for batch in batches(seed)]


def test_the_nights_have_all_faults_and_some_polls() -> None:
    assert {outcome.fault for outcome in OUTCOMES} == {None, *FAULTS}
    assert any(outcome.name in POLLS_WITH_IO for outcome in OUTCOMES)


def test_a_batch_that_polls_with_io_is_not_stuck() -> None:
    assert [outcome for outcome in OUTCOMES if outcome.name in POLLS_WITH_IO and "stuck" in outcome.notices] == []


# A thread that sends metrics looks like a poll, and files that come minutes apart are steps.
@pytest.mark.parametrize(
    "fault",
    [name for name, (kind, _) in FAULTS.items() if kind and "metrics" not in name and "file by file" not in name],
)
def test_a_fault_is_noticed(fault: str) -> None:
    found = [expected_kind(outcome) in outcome.notices for outcome in OUTCOMES if outcome.fault == fault]
    assert (set(found), len(found)) == ({True}, 1)


def test_the_monitor_prints_what_the_detectors_find() -> None:
    chosen = [batch for batch in islice(night(4), 30) if batch.end_seconds < 4000 and batch.traits.is_fargate]
    noticed = [batch for batch in chosen if batch.fault is not None][:2]
    for batch in noticed:
        assert set(watch_by_monitor(batch).notices) == set(watch(batch).notices)


def test_a_night_is_the_same_for_the_same_seed() -> None:
    first, second = ([watch(batch).notices for batch in islice(night(1), 2)] for _ in range(2))
    assert first == second


def test_the_score_of_a_kind() -> None:
    assert score("overdue", OUTCOMES) == Score(right=1, wrong=0, missed=0)
    assert (Score(right=3, wrong=1, missed=2).precision, Score(right=3, wrong=1, missed=2).recall) == (75, 60)
    by_name = {figure.name: figure for figure in figures(OUTCOMES)}
    assert by_name["false stuck, batches that poll with I/O"].at_most == 0
    assert "| deadlock | stuck |" in fault_table(OUTCOMES)

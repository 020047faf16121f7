"""What the local history knows of the family of the run that `run` profiles."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.cli.chosen_run_options import RunOptions
from profiler.cli.local_family_history import (
    highest_peak_of,
    report_and_comparable_records,
    usual_duration_of,
)
from profiler.cli.run_options import parse_usual_arguments
from profiler.cli.terminal.show_comparison import change_spans
from profiler.local_run.prepared_run import family_name
from profiler.record.family_statistics import HighestPeak, UsualDuration
from profiler.record.record_model import Metrics, Report
from tests.fakes import FakeClock
from tests.runs import history_of, report
from tests.values import present


def chosen(*arguments: str) -> RunOptions:
    return RunOptions(**present(parse_usual_arguments(arguments)))


OWN = chosen("--name", "nightly", "etl")


def earlier(count: int) -> list[Report]:
    others = [report(90 + number, family="other", peak_mb=9000) for number in range(2)]
    failed = [report(80 + number, status="failure", peak_mb=9000) for number in range(2)]
    return [*[report(number, peak_mb=400 + number) for number in range(count)], *others, *failed]


def test_the_last_successes_of_the_family_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "history"
    history_of(file, *earlier(52))
    monkeypatch.setenv("TASK_PROFILER_HISTORY", str(file))
    assert highest_peak_of(OWN, FakeClock()) == HighestPeak(
        peak_mb=451, runs=50, median_mb=426.5, counts_files=True
    )
    usual = UsualDuration(median_ms=590_000, p95_ms=590_000, runs=20)
    assert usual_duration_of(OWN, FakeClock()) == usual


@pytest.mark.parametrize(
    ("count", "options"),
    [(4, OWN), (6, chosen("python3", "-c", "1"))],
)
def test_few_successes_or_any_program_reach_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, options: RunOptions
) -> None:
    file = tmp_path / "history"
    history_of(file, *earlier(count))
    monkeypatch.setenv("TASK_PROFILER_HISTORY", str(file))
    assert highest_peak_of(options, FakeClock()) is None


def test_a_history_that_cannot_be_read_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "history"
    file.write_text("no database")
    monkeypatch.setenv("TASK_PROFILER_HISTORY", str(file))
    assert highest_peak_of(OWN, FakeClock()) is None
    assert usual_duration_of(OWN, FakeClock()) is None


def short(number: int = 9, **changed: float | None) -> Report:
    """A success of 20 ms with a peak of 3 MB and a CPU time of 10 ms."""
    run = report(number)
    metrics = Metrics(duration_ms=20, max_memory_used_mb=3, cpu_seconds=0.01)
    return replace(run, record=replace(run.record, metrics=replace(metrics, **changed)))


@pytest.mark.parametrize(
    ("changed", "is_like_the_last"),
    [
        ({}, True),
        ({"duration_ms": 49}, True),
        ({"max_memory_used_mb": 3.9}, True),
        ({"max_memory_used_mb": None}, True),
        ({"duration_ms": 60}, False),
        ({"max_memory_used_mb": 4.5}, False),
        ({"cpu_seconds": 0.07}, False),
    ],
)
def test_earlier_runs_are_not_read_for_a_short_run_that_is_like_the_last(
    tmp_path: Path, changed: dict[str, Any], *, is_like_the_last: bool
) -> None:
    everyone = [short(number) for number in range(6)]
    store = history_of(tmp_path / "history", *everyone)
    own = short(**changed)
    _, earlier = report_and_comparable_records(own, None, OWN, store)
    assert bool(earlier) is not is_like_the_last
    # What is printed is the same as with all of them.
    spans = change_spans(own.record, [one.record for one in everyone], 0, 200)
    assert bool(spans) is not is_like_the_last


def test_earlier_runs_are_read_for_a_failure_and_beside_a_line_that_cannot_be_read_alone(
    tmp_path: Path,
) -> None:
    file = tmp_path / "history"
    store = history_of(file, *[short(number) for number in range(6)])
    failed = replace(short().record, status="failure")
    _, earlier = report_and_comparable_records(replace(short(), record=failed), None, OWN, store)
    assert len(earlier) == 6
    with closing(sqlite3.connect(file)) as connection, connection:
        newest = "(SELECT max(started_at) FROM run)"
        connection.execute(f"UPDATE run SET record = '{{' WHERE started_at = {newest}")
    assert store.last_metrics("nightly", "~") is None
    _, earlier = report_and_comparable_records(short(), None, OWN, store)
    assert len(earlier) == 5
    assert store.last_metrics("unknown", "~") is None


def test_a_program_with_a_space_in_its_name_has_its_own_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "load orders"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    for words in (["load orders", "--all"], [str(program)]):
        assert family_name(None, words) == "load orders"
    # A command line in one word, which cannot be started.
    assert family_name(None, ["load orders --password=x"]) == "load"
    assert family_name(None, [" "]) == " "

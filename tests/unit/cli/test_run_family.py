"""What the local history knows of the family of the run that `run` profiles."""

from pathlib import Path

import pytest

from profiler.cli.run_family import highest_peak_of, usual_duration_of
from profiler.cli.run_options import RunOptions
from profiler.record.family import HighestPeak, UsualDuration
from profiler.record.record_model import Report
from tests.fakes import FakeClock
from tests.runs import history_of, report

OWN = RunOptions(words=("etl",), name="nightly")


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
    [(4, OWN), (6, OWN._replace(words=("python3", "-c", "1"), name=None))],
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

"""Runs from the local history."""

from pathlib import Path

from profiler.cli.terminal.size_lines import find_advice
from profiler.record.record_model import Report, encode
from profiler.runs.history.run_database import HistoryStore
from profiler.runs.past_runs.local_history import LocalRuns
from profiler.runs.past_runs.run_source import PastRun, RunFilter
from profiler.sizing.prices import PriceOverrides
from tests.fakes import FakeClock
from tests.runs import report
from tests.shown_runs import out_of_memory
from tests.values import present


def local_runs(folder: Path, *reports: Report) -> LocalRuns:
    path = folder / "history.sqlite3"
    store = HistoryStore(path, FakeClock())
    for one in reports:
        store.add(encode(one), one, (), max_runs=100)
    return LocalRuns(path, store)


def test_the_advice_for_a_run_includes_that_run(tmp_path: Path) -> None:
    """Its start in nanoseconds lies between two milliseconds of the history."""
    killed = out_of_memory()
    advice = present(find_advice(PastRun(report=killed), local_runs(tmp_path, killed), PriceOverrides()))
    assert advice.evidence.out_of_memory == 1


def test_until_is_exclusive_to_the_nanosecond(tmp_path: Path) -> None:
    odd = report(1, started_at="2026-11-02T00:00:00.123456789Z")
    source = local_runs(tmp_path, report(0), odd)
    started_ns = PastRun(report=odd).started_ns
    assert len(list(source.runs(RunFilter(until_ns=started_ns + 1)))) == 2
    assert len(list(source.runs(RunFilter(until_ns=started_ns)))) == 1

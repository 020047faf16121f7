"""The settings of the history: its file and the number of runs."""

from pathlib import Path

import msgspec
import pytest

from profiler.core.errors import TaskProfilerError, UsageError
from profiler.history.recorder import DEFAULT_RUNS, HistoryRecorder, history_path, runs_to_keep
from profiler.history.run_database import HistoryStore
from profiler.record.record_model import encode
from tests.fakes import FakeClock
from tests.shown_runs import etl, waiting, waiting_stacks


@pytest.mark.parametrize(
    ("option", "environment", "expected"),
    [
        ("h", {"TASK_PROFILER_HISTORY": "/env"}, "h"),
        (None, {"TASK_PROFILER_HISTORY": "/env", "XDG_DATA_HOME": "/data"}, "/env"),
        (None, {"TASK_PROFILER_HISTORY": "", "XDG_DATA_HOME": "/data"}, "/data/task-profiler/history.sqlite3"),
        (None, {"XDG_DATA_HOME": "data", "HOME": "/me"}, "/me/.local/share/task-profiler/history.sqlite3"),
        (None, {"XDG_DATA_HOME": "", "HOME": "/me"}, "/me/.local/share/task-profiler/history.sqlite3"),
    ],
)
def test_where_the_history_is(option: str | None, environment: dict[str, str], expected: str) -> None:
    assert history_path(option, environment) == expected


def test_no_place_for_a_history() -> None:
    with pytest.raises(TaskProfilerError, match="HOME"):
        history_path(None, {"HOME": ""})
    with pytest.raises(UsageError):
        history_path("", {"HOME": "/me"})


@pytest.mark.parametrize(("text", "expected"), [(" 7 ", 7), ("0", 0), ("", DEFAULT_RUNS), ("999999999", 999_999_999)])
def test_how_many_runs_are_kept(text: str, expected: int) -> None:
    assert runs_to_keep({"TASK_PROFILER_HISTORY_RUNS": text}) == (expected, None)


@pytest.mark.parametrize("text", ["-1", "many", "1.5", "1e3", "9" * 5000, "²", "1_000"])
def test_an_invalid_number_of_runs_is_reported(text: str) -> None:
    kept, problem = runs_to_keep({"TASK_PROFILER_HISTORY_RUNS": text})
    assert kept == DEFAULT_RUNS
    assert problem is not None
    assert "TASK_PROFILER_HISTORY_RUNS" in problem


def test_the_stacks_of_a_run_are_added_with_it(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    recorder = HistoryRecorder(str(path), {}, FakeClock())
    assert recorder.add(encode(waiting()), waiting(), None, msgspec.json.encode(waiting_stacks())) == ()
    assert HistoryStore(path, FakeClock()).stacks(waiting()) == waiting_stacks()


def test_the_last_success_is_found_among_comparable_runs(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    recorder = HistoryRecorder(str(path), {}, FakeClock())
    assert recorder.keeps_runs
    earlier, run = etl("a" * 32, days_ago=1), etl("b" * 32)
    assert recorder.add(encode(earlier), earlier, None) == ()
    assert recorder.search_last_success(run.record, lambda _: True)() == earlier.record
    assert recorder.search_last_success(run.record, lambda _: False)() is None
    assert recorder.search_last_success(earlier.record, lambda _: True)() is None


def test_a_history_that_cannot_be_read_has_no_last_success(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    path.write_text("not a database, but longer than the header of one" * 99)
    recorder = HistoryRecorder(str(path), {}, FakeClock())
    assert recorder.search_last_success(etl().record, lambda _: True)() is None
    assert not HistoryRecorder(None, {"TASK_PROFILER_HISTORY_RUNS": "0"}, FakeClock()).keeps_runs

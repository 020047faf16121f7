"""The settings of the history: its file and the number of runs."""

from pathlib import Path

import pytest

from profiler.core.errors import TaskProfilerError, UsageError
from profiler.record.record_model import encode
from profiler.runs.history.history_file import history_path
from profiler.runs.history.recorder import DEFAULT_RUNS, HistoryRecorder, runs_to_keep
from tests.fakes import FakeClock
from tests.shown_runs import etl
from tests.values import present


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


def test_how_many_runs_are_kept() -> None:
    """An invalid number is reported."""
    for text, expected in ((" 7 ", 7), ("0", 0), ("", DEFAULT_RUNS), ("999999999", 999_999_999)):
        assert runs_to_keep({"TASK_PROFILER_HISTORY_RUNS": text}) == (expected, None)
    for text in ("-1", "many", "1.5", "1e3", "9" * 5000, "²", "1_000"):
        kept, problem = runs_to_keep({"TASK_PROFILER_HISTORY_RUNS": text})
        assert (kept, "TASK_PROFILER_HISTORY_RUNS" in present(problem)) == (DEFAULT_RUNS, True)


def test_a_search_gets_the_file_and_its_runs(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    recorder = HistoryRecorder(str(path), {}, FakeClock())
    assert recorder.keeps_runs
    earlier = etl("a" * 32, days_ago=1)
    assert recorder.add(encode(earlier), earlier, None) == ()
    found = recorder.search(
        lambda file, store: (file, [one.record for one in store.last_successes("nightly-etl", "9")])
    )
    assert found() == (str(path), [earlier.record])

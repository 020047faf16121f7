"""The history file: finished runs and runs in progress."""

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.aggregation.time_series import RunSeries
from profiler.core.background_call import BackgroundCall
from profiler.core.errors import TaskProfilerError
from profiler.record.record_model import Report, encode
from profiler.record.run_outcome import Status
from profiler.runs.history import run_database
from profiler.runs.history.history_file import history_path
from profiler.runs.history.recorder import HistoryRecorder
from profiler.runs.history.run_database import HistoryStore
from profiler.runs.past_runs.local_history import LocalRuns
from profiler.runs.past_runs.run_source import RunFilter
from profiler.runs.step_series import StepSeries, encode_steps
from tests.fakes import START_NS, FakeClock, seconds
from tests.report_page import Step, report, rows, series_of, step
from tests.shown_runs import etl, waiting, waiting_stacks

POINTS = b"[[1000,0.5,1048576]]"
COMMAND = ("job.py", "--token", "abc", "\udcff", "x" * 5000)
SHOWN = f"job.py --token … ? {'x' * 3980}…"


class ImpatientClock(FakeClock):
    """A clock that advances far with every reading, so that no wait lasts."""

    def monotonic_ns(self) -> int:
        self.advance(60)
        return super().monotonic_ns()


def keep(
    history: HistoryStore, *reports: Report, max_runs: int = 100, stacks_line: bytes | None = None
) -> None:
    for one in reports:
        history.add_run(encode(one), one, POINTS, max_runs=max_runs, stacks_line=stacks_line)


def ids(history: HistoryStore) -> list[str]:
    return [report.record.task_id for _, report, _ in history.candidate_rows(RunFilter())]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "some" / "folder" / "history.sqlite3"


@pytest.fixture
def history(file: Path) -> HistoryStore:
    return HistoryStore(file, FakeClock())


def asked(file: Path, question: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(question).fetchall()


def change(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


# --- runs and points -----------------------------------------------------------------------------


def test_a_full_disk_asks_for_room(history: HistoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def full(*words: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*words, **options)
        connection.execute("PRAGMA max_page_count = 1")
        return connection

    monkeypatch.setattr(sqlite3, "connect", full)
    with pytest.raises(TaskProfilerError, match=r"has no room .*: free some space on its disk"):
        keep(history, report("a"))


def test_a_run_is_read_as_it_was_written(history: HistoryStore, file: Path) -> None:
    """A missing file has no runs and is not created."""
    one = report("a")
    assert ids(history) == []
    assert next(history.steps([one])) == StepSeries()
    assert file.parent.exists() is False
    keep(history, one)
    assert list(history.candidate_rows(RunFilter())) == [(encode(one), one, None)]
    assert rows(next(history.steps([one]))) == (step(1000, 0.5, 1.0),)
    keep(
        history, replace(one, record=replace(one.record, status="paused"))
    )  # a later version's word
    assert [*LocalRuns(history).runs(RunFilter(statuses=("unknown",)))]


def test_runs_are_read_in_pages_which_do_not_lock_the_file(
    history: HistoryStore, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_database, "_PAGE_SIZE", 10)
    keep(history, *(report(str(number), day=1 + number % 3) for number in range(25)), max_runs=1000)
    assert len(set(ids(history))) == 25
    reading = history.candidate_rows(RunFilter())
    next(reading)
    HistoryStore(file, ImpatientClock()).add_run(
        encode(report("new")), report("new"), b"[]", max_runs=1000
    )


def test_the_oldest_runs_beyond_the_limit_are_deleted(history: HistoryStore) -> None:
    keep(history, *(report(str(day), day=day) for day in (3, 1, 2, 5)), max_runs=3)
    assert ids(history) == ["5", "3", "2"]
    keep(history, report("6", day=6), max_runs=1)
    assert ids(history) == ["6"]


TOO_DEEP = "'{\"more\":' || replace(hex(zeroblob(100000)), '00', '[')"


@pytest.mark.parametrize(
    "damage", ["'{}'", "'no JSON'", "CAST(x'ff00' AS TEXT)", "''", "1", TOO_DEEP]
)
def test_lines_that_cannot_be_read_are_skipped_and_counted(
    history: HistoryStore, file: Path, damage: str
) -> None:
    keep(history, report("a"), report("b"))
    change(file, f"UPDATE run SET record = {damage} WHERE task_id = 'a'")
    assert ids(history) == ["b"]
    assert history.unreadable_count == 1


COUNTS = st.none() | st.integers(0, 2**53)
SIZES_MB = COUNTS.map(lambda size_bytes: size_bytes and size_bytes / 2**20)
STEPS = st.builds(
    step,
    st.integers(0, 2**53),
    vcpu=st.none() | st.floats(0, 1e4),
    memory_mb=SIZES_MB,
    block_read_bytes=COUNTS,
    block_write_bytes=COUNTS,
    gpu_percent=st.none() | st.floats(0, 100),
    gpu_memory_mb=SIZES_MB,
)


@given(st.lists(STEPS))
def test_any_steps_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, written: list[Step]
) -> None:
    history = HistoryStore(tmp_path_factory.mktemp("any") / "h", FakeClock())
    points = encode_steps(series_of(written))
    history.add_run(encode(report("a")), report("a"), points, max_runs=1)
    (read,) = history.steps([report("a")])
    assert rows(read) == tuple(written)


# --- call stacks ---------------------------------------------------------------------------------


def test_stacks_are_read_as_they_were_written(history: HistoryStore, file: Path) -> None:
    assert history.stacks(waiting()) is None
    keep(history, waiting(), stacks_line=msgspec.json.encode(waiting_stacks()))
    assert history.stacks(waiting()) == waiting_stacks()
    assert asked(file, "SELECT count(*) FROM run WHERE length(stacks) < 500") == [(1,)]


def test_only_the_newest_runs_with_stacks_keep_them(
    history: HistoryStore, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_database, "MAX_RUNS_WITH_STACKS", 2)
    for day in (2, 4, 3, 1, 5):
        keep(history, report(str(day), day=day), stacks_line=b"{}")
        keep(history, report(f"without{day}", day=day))
    assert asked(file, "SELECT task_id FROM run WHERE stacks IS NOT NULL ORDER BY task_id") == [
        ("4",),
        ("5",),
    ]
    assert asked(file, "SELECT count(*) FROM run") == [(10,)]


# --- the file ------------------------------------------------------------------------------------


def test_a_new_file_is_private(history: HistoryStore, file: Path, tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        keep(history, report("a"))
    finally:
        os.umask(previous)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent, file.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def refused(file: Path, clock: FakeClock | None = None) -> str:
    """The sentence for writing; reading raises one too, and nothing changes in the file."""
    history = HistoryStore(file, clock or FakeClock())
    before = file.read_bytes() if file.is_file() else None
    with pytest.raises(TaskProfilerError) as refusal:
        history.add_run(encode(report("b")), report("b"), b"[]", max_runs=1)
    reason = str(refusal.value)
    assert "\n" not in reason
    assert reason.startswith(str(file))
    with pytest.raises(TaskProfilerError) as raised:
        list(history.candidate_rows(RunFilter()))
    assert str(raised.value).startswith(str(file))
    assert (file.read_bytes() if file.is_file() else None) == before
    return reason


def test_a_file_of_a_newer_version_or_another_program_is_not_changed(
    history: HistoryStore, file: Path, tmp_path: Path
) -> None:
    keep(history, report("a"))
    change(file, "PRAGMA user_version = 5")
    assert "newer Task Profiler" in refused(file)
    other = tmp_path / "h"
    change(other, "CREATE TABLE bookmark (name TEXT)")
    assert "another program's" in refused(other)
    change(other, "PRAGMA user_version = 1")
    assert "another program's" in refused(other)
    for content in (b"x", b"hello\n" * 1000, bytes(5000)):
        other.write_bytes(content)
        assert "move it away" in refused(other)


@contextmanager
def locked(file: Path, how: str) -> Iterator[None]:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute(how)
        connection.execute("SELECT * FROM run").fetchall()
        yield


def test_a_locked_file_and_a_reader_that_does_not_end(history: HistoryStore, file: Path) -> None:
    keep(history, report("a"))
    with locked(file, "BEGIN EXCLUSIVE"):
        assert "locked" in refused(file, ImpatientClock())
    with locked(file, "BEGIN"):
        with pytest.raises(TaskProfilerError, match="locked"):
            HistoryStore(file, ImpatientClock()).add_run(
                encode(report("b")), report("b"), b"[]", max_runs=9
            )
        assert ids(history) == ["a"]
    keep(history, report("b"))


def test_a_history_that_cannot_be_looked_for_is_not_called_empty(tmp_path: Path) -> None:
    """As in a folder that another user made; root may look everywhere, but not for a name that
    is too long.
    """
    with pytest.raises(TaskProfilerError, match="File name too long"):
        list(HistoryStore(tmp_path / ("x" * 300), FakeClock()).candidate_rows(RunFilter()))
    with pytest.raises(TaskProfilerError, match="Not a directory"):  # a home that is no folder
        list(HistoryStore("/dev/null/history", FakeClock()).candidate_rows(RunFilter()))


def in_progress(family: str = "etl", status: Status = "unknown") -> Report:
    return report(family, family=family, status=status)


class RecordedHistory:
    def __init__(self, history: Path, **environment: str) -> None:
        self.clock = FakeClock()
        self.history = history
        self.recorder = HistoryRecorder(
            {"TASK_PROFILER_HISTORY": str(history), **environment}, self.clock, COMMAND
        )
        self.store = HistoryStore(history, self.clock)
        self.built = 0
        self.series: RunSeries | None = None

    def keep(self) -> None:
        self.recorder.keep_so_far(self._build)
        call = self.recorder._write_call
        if isinstance(call, BackgroundCall):
            # A real disk may need longer than the profiler waits.
            call._thread.join()

    def _build(self) -> tuple[Report, RunSeries | None]:
        self.built += 1
        return in_progress(), self.series

    def kill(self) -> None:
        """As if another process had the profiler's number now."""
        with closing(sqlite3.connect(self.history)) as connection, connection:
            connection.execute("UPDATE running SET pid_started = pid_started - 1")

    def listed(self) -> list[tuple[str, str | None]]:
        runs = LocalRuns(self.store).runs(RunFilter(reads_checkpoints=True))
        return [(run.report.record.status, run.command) for run in runs]

    def stored(self) -> list[tuple[str, int]]:
        runs = self.store.candidate_rows(RunFilter())
        return [
            (report.record.status, len(next(self.store.steps([report])).ends_ms))
            for _, report, _ in runs
        ]


@pytest.fixture
def fakes(tmp_path: Path) -> RecordedHistory:
    return RecordedHistory(tmp_path / "history.sqlite3")


def test_a_kill_loses_at_most_a_tenth_of_the_run(fakes: RecordedHistory) -> None:
    """A kill loses at most a tenth of the run and at most a minute."""
    written: list[int] = []
    for second in range(3601):
        before = fakes.built
        fakes.keep()
        if fakes.built > before:
            written.append(second)
        fakes.clock.advance(1)
    assert written[:11] == list(range(11))
    assert all(
        later - earlier <= max(1.0, min(60.0, earlier / 10 + 1))
        for earlier, later in pairwise(written)
    )
    assert len(written) < 110


def test_the_run_of_a_killed_profiler_is_added_once_with_its_series(fakes: RecordedHistory) -> None:
    fakes.series = RunSeries(START_NS, seconds(1), 10)
    fakes.series.add_cpu(START_NS, START_NS + seconds(3), seconds(1))
    fakes.keep()
    fakes.store.add_abandoned_runs()
    assert fakes.stored() == []
    assert fakes.listed() == [("running", SHOWN)]
    fakes.kill()
    for _ in range(2):
        fakes.store.add_abandoned_runs()
    assert fakes.stored() == [("unknown", 3)]
    assert fakes.listed() == [("unknown", SHOWN)]
    assert list(fakes.store.runs_in_progress()) == []


def test_the_end_of_a_run_replaces_what_was_written_down(
    fakes: RecordedHistory,
) -> None:
    """The end of a run replaces what was written down and adds the runs of killed profilers."""
    killed = in_progress("killed")
    fakes.store.keep_running(encode(killed), killed, b"[[1000,0.5,1]]")
    fakes.kill()
    fakes.keep()
    ended = in_progress(status="success")
    assert fakes.recorder.add_run(encode(ended), ended, None) == ()
    assert sorted(fakes.stored()) == [("success", 0), ("unknown", 1)]
    fakes.store.keep_running(encode(in_progress()), in_progress(), b"[]")  # a write that came late
    assert sorted(status for status, _ in fakes.listed()) == ["success", "unknown"], (
        "each run is listed once"
    )
    fakes.kill()
    fakes.store.add_abandoned_runs()
    assert sorted(fakes.stored()) == [("success", 0), ("unknown", 1)]
    assert list(fakes.store.runs_in_progress()) == []


def test_an_error_in_the_report_so_far_does_not_reach_the_run(fakes: RecordedHistory) -> None:
    def fail() -> tuple[Report, RunSeries | None]:
        raise ZeroDivisionError

    fakes.recorder.keep_so_far(fail)
    fakes.clock.advance(60)
    fakes.keep()
    assert fakes.built == 0
    assert fakes.recorder.add_run(encode(in_progress()), report(), None) == ()


@pytest.mark.parametrize(
    ("file", "environment", "expected"),
    [
        ("h", {"TASK_PROFILER_HISTORY": "/env"}, "h"),
        (None, {"TASK_PROFILER_HISTORY": "/env", "XDG_DATA_HOME": "/data"}, "/env"),
        (
            None,
            {"TASK_PROFILER_HISTORY": "", "XDG_DATA_HOME": "/data"},
            "/data/task-profiler/history.sqlite3",
        ),
        (
            None,
            {"XDG_DATA_HOME": "data", "HOME": "/me"},
            "/me/.local/share/task-profiler/history.sqlite3",
        ),
        (
            None,
            {"XDG_DATA_HOME": "", "HOME": "/me"},
            "/me/.local/share/task-profiler/history.sqlite3",
        ),
    ],
)
def test_where_the_history_is(file: str | None, environment: dict[str, str], expected: str) -> None:
    assert history_path(environment, file) == expected
    for home, said in (("", "HOME is not set"), ("me", "HOME is not absolute")):
        with pytest.raises(TaskProfilerError, match=said):
            history_path({"HOME": home})


def test_a_search_gets_the_file_and_its_runs(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    recorder = HistoryRecorder({"TASK_PROFILER_HISTORY": str(path)}, FakeClock(), COMMAND)
    earlier = etl("a" * 32, days_ago=1)
    assert recorder.add_run(encode(earlier), earlier, None) == ()
    found = recorder.search_history(
        lambda store: (store.path, [*store.last_successes("nightly-etl", "9")])
    )
    assert found() == (str(path), [earlier])


def test_a_disk_that_hangs_does_not_hold_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    returns = threading.Event()
    monkeypatch.setattr(HistoryStore, "add_run", lambda *_, **__: returns.wait())
    monkeypatch.setattr("profiler.runs.history.recorder._MAX_ADD_SECONDS", 0.1)
    recorder = RecordedHistory(tmp_path / "history.sqlite3").recorder
    try:
        (sentence,) = recorder.add_run(encode(report("a")), report("a"), None)
    finally:
        returns.set()
    assert sentence.startswith("This run may be missing in the history: ")


def test_a_run_whose_own_write_still_locks_the_file_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [TaskProfilerError("locked")]

    def add(*_: object, **__: object) -> bool:
        if errors:
            raise errors.pop()
        return False

    monkeypatch.setattr(HistoryStore, "add_run", add)
    recorder = RecordedHistory(tmp_path / "history.sqlite3").recorder
    assert recorder.add_run(encode(report("a")), report("a"), None) == (
        "This run is not in the history. locked",
    )
    errors.append(TaskProfilerError("locked"))
    recorder._write_call = Mock(is_running=True)
    assert recorder.add_run(encode(report("a")), report("a"), None) == ()


def test_a_run_is_kept_also_where_the_current_folder_was_removed(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "removed"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    history = HistoryStore(file, FakeClock())
    keep(history, report("a"))
    assert ids(history) == [report("a").record.task_id]

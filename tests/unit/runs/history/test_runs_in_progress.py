"""The files of runs in progress, on a real file system."""

import os
import resource
from itertools import pairwise
from pathlib import Path

import pytest

from profiler.aggregation.time_series import RunSeries
from profiler.record.record_model import Container, Record, Report, encode
from profiler.runs.history.recorder import HistoryRecorder
from profiler.runs.history.run_database import HistoryStore
from profiler.runs.history.runs_in_progress import RunJournal, WrittenRun, abandoned_runs, running_folder
from tests.fakes import START_NS, FakeClock, seconds
from tests.values import present

FIRST, SECOND = WrittenRun(b"{}", b"[[1,2,3]]"), WrittenRun(b'{"a":1}', b"[]")


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return running_folder(str(tmp_path / "history.sqlite3"))


def found(folder: str) -> list[WrittenRun | None]:
    return [so_far for _, so_far in abandoned_runs(folder)]


def kill(journal: RunJournal) -> None:
    """Close the file as the kernel does when the profiler is killed."""
    os.close(present(journal._descriptor))


def test_the_last_write_of_a_killed_profiler_is_found(folder: str) -> None:
    journal = RunJournal(folder, "a")
    journal.write(FIRST)
    journal.write(SECOND)
    kill(journal)
    assert found(folder) == [SECOND]


def test_what_a_kill_during_a_write_left_behind_is_removed(folder: str) -> None:
    journal = RunJournal(folder, "a")
    journal.write(FIRST)
    Path(folder, "a.run.new").write_bytes(b"{")
    kill(journal)
    assert found(folder) == [FIRST, None]
    for path, _ in abandoned_runs(folder):
        os.unlink(path)  # noqa: PTH108
    assert os.listdir(folder) == []  # noqa: PTH208


def test_a_file_that_is_replaced_while_it_is_looked_at_is_not_abandoned(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening and locking, the profiler replaces the file and lets the lock of the old one go."""
    journal = RunJournal(folder, "a")
    journal.write(FIRST)
    open_file = os.open

    def open_and_be_late(path: str, flags: int, mode: int = 0o777) -> int:
        descriptor = open_file(path, flags, mode)
        if flags == os.O_RDONLY:
            journal.write(SECOND)
        return descriptor

    monkeypatch.setattr(os, "open", open_and_be_late)
    assert found(folder) == []


def test_a_write_that_fails_leaves_the_last_complete_file_only(folder: str) -> None:
    journal = RunJournal(folder, "a")
    journal.write(FIRST)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))  # as if the disk were full
    try:
        with pytest.raises(OSError, match="too large"):
            journal.write(SECOND)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(folder) == ["a.run"]  # noqa: PTH208
    kill(journal)
    assert found(folder) == [FIRST]


# --- the recorder and the history -----------------------------------------------------------------


def report(family: str = "etl") -> Report:
    record = Record(
        task_id="a",
        family=family,
        container=Container(name=family),
        status="unknown",
        started_at="2025-11-20T00:53:20.000Z",
    )
    return Report(time="2025-11-20T00:53:21.000Z", type="task.report", record=record)


class World:
    def __init__(self, history: Path, **environment: str) -> None:
        self.clock = FakeClock()
        self.history = history
        self.folder = running_folder(str(history))
        self.recorder = HistoryRecorder(str(history), environment, self.clock)
        self.built = 0
        self.series: RunSeries | None = None

    def keep(self) -> None:
        self.recorder.keep_so_far(self._build)
        if self.recorder._journal_call is not None:
            self.recorder._journal_call.result()

    def _build(self) -> tuple[Report, RunSeries | None]:
        self.built += 1
        return report(), self.series

    def stored(self) -> list[tuple[str, int]]:
        store = HistoryStore(self.history, self.clock)
        return [(run.report.record.status, len(next(store.steps([run.report])).ends_ms)) for run in store.runs()]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "history.sqlite3")


def test_a_kill_loses_at_most_a_tenth_of_the_run_and_at_most_a_minute(world: World) -> None:
    written: list[int] = []
    for second in range(3601):
        before = world.built
        world.keep()
        if world.built > before:
            written.append(second)
        world.clock.advance(1)
    assert written[:11] == list(range(11))
    pairs = list(pairwise(written))
    assert all(later - earlier <= max(1.0, min(60.0, earlier / 10 + 1)) for earlier, later in pairs)
    assert len(written) < 110


def test_the_run_of_a_killed_profiler_is_added_once_with_its_series(world: World) -> None:
    world.series = RunSeries(START_NS, seconds(1), 10)
    world.series.add_cpu(START_NS, START_NS + seconds(3), seconds(1))
    world.keep()
    kill(present(world.recorder._journal))
    store = HistoryStore(world.history, world.clock)
    store.add_abandoned_runs()
    store.add_abandoned_runs()
    assert world.stored() == [("unknown", 3)]
    assert found(world.folder) == []


def test_the_end_of_a_run_removes_its_file_and_adds_those_of_killed_profilers(world: World) -> None:
    killed = RunJournal(world.folder, "killed")
    line = encode(report("killed")).replace(b'"taskId":"a"', b'"taskId":"k"')
    killed.write(WrittenRun(line, b"[[1000,0.5,1]]"))
    kill(killed)
    world.keep()
    assert world.recorder.add(encode(report()), report(), None) == ()
    assert sorted(world.stored()) == [("unknown", 0), ("unknown", 1)]
    assert not Path(world.folder).exists()


def test_what_is_no_run_is_removed_and_what_cannot_be_added_stays(world: World) -> None:
    for name, line in (("no-json", b"{"), ("no-record", b"{}"), ("good", encode(report()))):
        journal = RunJournal(world.folder, name)
        journal.write(WrittenRun(line, b"[]"))
        kill(journal)
    world.history.write_text("no database, but long enough to be looked at " * 100)
    HistoryStore(world.history, world.clock).add_abandoned_runs()
    assert [Path(path).name for path, _ in abandoned_runs(world.folder)] == ["good.run"]


def test_without_a_history_nothing_is_written_down(tmp_path: Path) -> None:
    world = World(tmp_path / "history.sqlite3", TASK_PROFILER_HISTORY_RUNS="0")
    for _ in range(30):
        world.keep()
        world.clock.advance(100)
    assert not Path(world.folder).exists()
    assert world.built == 1


def test_an_error_in_the_report_so_far_does_not_reach_the_run(world: World) -> None:
    def fail() -> tuple[Report, RunSeries | None]:
        raise ZeroDivisionError

    world.recorder.keep_so_far(fail)
    world.clock.advance(60)
    world.keep()
    assert world.built == 0
    assert world.recorder.add(encode(report()), report(), None) == ()

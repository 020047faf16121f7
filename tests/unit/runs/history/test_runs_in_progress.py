"""Runs in progress in the history: what is lost if their profiler is killed."""

import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from profiler.aggregation.time_series import RunSeries
from profiler.record.record_model import Report, encode
from profiler.record.run_outcome import Status
from profiler.runs.history.recorder import HistoryRecorder
from profiler.runs.history.run_database import HistoryStore
from tests.fakes import START_NS, FakeClock, seconds
from tests.report_page import report as made_report


def report(family: str = "etl", status: Status = "unknown") -> Report:
    return made_report(family, family=family, status=status)


class World:
    def __init__(self, history: Path, **environment: str) -> None:
        self.clock = FakeClock()
        self.history = history
        self.recorder = HistoryRecorder(str(history), environment, self.clock)
        self.store = HistoryStore(history, self.clock)
        self.built = 0
        self.series: RunSeries | None = None

    def keep(self) -> None:
        self.recorder.keep_so_far(self._build)
        if self.recorder._write_call is not None:
            self.recorder._write_call.result()

    def _build(self) -> tuple[Report, RunSeries | None]:
        self.built += 1
        return report(), self.series

    def kill(self) -> None:
        """As if another process had the profiler's number now."""
        with closing(sqlite3.connect(self.history)) as connection, connection:
            connection.execute("UPDATE running SET pid_started = pid_started - 1")

    def stored(self) -> list[tuple[str, int]]:
        runs = self.store.runs()
        return [(report.record.status, len(next(self.store.steps([report])).ends_ms)) for _, report in runs]


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
    assert all(later - earlier <= max(1.0, min(60.0, earlier / 10 + 1)) for earlier, later in pairwise(written))
    assert len(written) < 110


def test_the_run_of_a_killed_profiler_is_added_once_with_its_series(world: World) -> None:
    world.series = RunSeries(START_NS, seconds(1), 10)
    world.series.add_cpu(START_NS, START_NS + seconds(3), seconds(1))
    world.keep()
    world.store.add_abandoned_runs()
    assert (world.stored(), [one.record.status for one in world.store.running()]) == ([], ["running"])
    world.kill()
    for _ in range(2):
        world.store.add_abandoned_runs()
    assert (world.stored(), list(world.store.running())) == ([("unknown", 3)], [])


def test_the_end_of_a_run_replaces_what_was_written_down_and_adds_the_runs_of_killed_profilers(world: World) -> None:
    killed = report("killed")
    world.store.keep_running(encode(killed), killed, b"[[1000,0.5,1]]")
    world.kill()
    world.keep()
    ended = report(status="success")
    assert world.recorder.add(encode(ended), ended, None) == ()
    assert sorted(world.stored()) == [("success", 0), ("unknown", 1)]
    world.store.keep_running(encode(report()), report(), b"[]")  # a write that came late
    world.kill()
    world.store.add_abandoned_runs()
    assert sorted(world.stored()) == [("success", 0), ("unknown", 1)]
    assert list(world.store.running()) == []


def test_without_a_history_nothing_is_written_down(tmp_path: Path) -> None:
    world = World(tmp_path / "history.sqlite3", TASK_PROFILER_HISTORY_RUNS="0")
    world.keep()
    assert (world.built, world.history.exists()) == (0, False)


def test_an_error_in_the_report_so_far_does_not_reach_the_run(world: World) -> None:
    def fail() -> tuple[Report, RunSeries | None]:
        raise ZeroDivisionError

    world.recorder.keep_so_far(fail)
    world.clock.advance(60)
    world.keep()
    assert world.built == 0
    assert world.recorder.add(encode(report()), report(), None) == ()

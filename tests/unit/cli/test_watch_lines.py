"""``task-profiler watch``: its table, its JSON, its screen and its errors."""

import os
import re
import signal
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import pytest
from msgspec.structs import replace

from profiler.aws_account.running_tasks.running_runs import (
    LocalRunsInProgress,
    RunningRun,
    SeenNotice,
)
from profiler.aws_account.running_tasks.watched_tasks import WatchedRun
from profiler.cli.options import SourceOptions
from profiler.cli.watch_command import (
    _draw,
    _draw_until_signal,
    _EndBySignal,
    open_watched_tasks,
    running_document,
    watch_lines,
)
from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.family_statistics import UsualDuration
from profiler.record.record_model import NO_INTERVAL, UNKNOWN_SIZE, Distribution, Interval, Report
from tests.cases import each_case
from tests.fakes import START_NS, FakeClock
from tests.run_sources import MESSAGE, checkpoint_at, ended, text
from tests.terminals import texts
from tests.watched_runs import MISSING, FakeLogs, watched_tasks

USUAL = UsualDuration(median_ms=900_000, p95_ms=1_200_000, runs=9)
LINE = checkpoint_at(START_NS, task_id="158d1c8044f2", family="nightly-etl")
NOTICE = SeenNotice(kind="stuck", at="2025-11-20T00:40:00.000Z", message=MESSAGE)


def watched(
    report: Report = LINE,
    usual: UsualDuration | None = USUAL,
    notices: tuple[SeenNotice, ...] = (),
    silent_ms: int | None = None,
    elapsed_ms: float | None = 600_000,
) -> WatchedRun:
    run = RunningRun(report=report, notices=notices, silent_ms=silent_ms)
    return WatchedRun(run=run, elapsed_ms=elapsed_ms, usual=usual)


def shown(*runs: WatchedRun, width: int | None = 120, height: int | None = None) -> list[str]:
    return texts(watch_lines(runs, "jobs", width=width, height=height))


def test_a_row_has_time_usual_duration_cpu_and_memory() -> None:
    assert shown(watched()) == [
        "jobs: 1 running",
        "Run       Family          Time  Of p95                 Median      p95     vCPU    Memory",
        "158d1c80  nightly-etl  10m 00s  ██████████··········  15m 00s  20m 00s  0.4 / 1  1 / 2 GB",
    ]


def test_the_size_of_a_job_on_an_instance_is_what_it_asked_for() -> None:
    metrics = replace(LINE.record.metrics, vcpu_size=16, vcpu_share=2)
    cluster = "AWSBatch-spot-0a1b2c3d-1111-2222-3333-444455556666"
    record = replace(
        LINE.record,
        metrics=metrics,
        launch_type="EC2",
        cluster=cluster,
        task_size=UNKNOWN_SIZE,
    )
    job = watched(replace(LINE, record=record))
    assert " 0.4 / 2 " in shown(job)[2]
    assert running_document(job).vcpu_size == 2


def test_what_is_unknown_is_a_dash() -> None:
    metrics = replace(LINE.record.metrics, vcpu_size=None)
    bare = replace(LINE, record=replace(LINE.record, interval=NO_INTERVAL, metrics=metrics))
    (row,) = shown(watched(bare, usual=None, elapsed_ms=None))[2:]
    assert row.split() == [
        "158d1c80",
        "nightly-etl",
        "-",
        "-",
        "-",
        "-",
        "-",
        "/",
        "-",
        "-",
        "/",
        "2",
        "GB",
    ]
    reading = Interval(
        vcpu_used=Distribution(avg=0.5), memory_used_mb=Distribution(avg=512)
    )  # of a local run
    (row,) = shown(watched(replace(bare, record=replace(bare.record, interval=reading))))[2:]
    assert row.endswith("0.5 / -  512 MB / 2 GB")
    assert shown() == ["jobs: nothing runs"]


@pytest.mark.parametrize(
    ("minutes", "colour"), [(14, "green"), (16, "yellow"), (21, "red"), (90, "red")]
)
def test_the_colour_of_the_bar_is_how_unusual_the_time_is(minutes: int, colour: str) -> None:
    (*_, row) = watch_lines([watched(elapsed_ms=60_000 * minutes)], "jobs", width=120, height=None)
    (bar,) = [span for span in row if set(span.text) <= {"█", "·"} and span.text]
    assert bar.style == colour
    assert bar.text.count("█") == min(minutes, 20)


def test_notices_silence_and_a_result_are_in_the_row() -> None:
    """Notices silence and a result are in the row and the texts of notices below the table."""
    rows = shown(watched(notices=(NOTICE,), silent_ms=260_000), watched(silent_ms=200_000))
    assert "stuck, last seen 4m 20s ago" in " ".join(" ".join(rows).split())
    assert rows[-1] == f"! 158d1c80 nightly-etl, stuck: {MESSAGE}"
    title, _, first, _ = shown(watched(ended(LINE, "failure", 3)), watched())
    assert title == "jobs: 1 running"
    assert first[-10:] == "failed (3)"


@pytest.mark.diagonal
@pytest.mark.parametrize("height", [8, 12, 24])
@pytest.mark.parametrize("noticed", [0, 40])
@pytest.mark.parametrize("width", [80, 109, 110, 200])
def test_the_lines_fit_and_the_rest_is_counted(height: int, noticed: int, width: int) -> None:
    long = replace(
        LINE, record=replace(LINE.record, family="nightly-export-of-all-orders-to-the-warehouse")
    )
    runs = [watched(long, notices=(NOTICE,) if number < noticed else ()) for number in range(40)]
    rows = shown(*runs, height=height, width=width)
    assert len(rows) <= height
    assert max(map(len, rows)) <= width
    (more,) = [row for row in rows if row.startswith("… and")]
    assert more == f"… and {40 - sum(row.startswith('158d1c80') for row in rows)} more tasks"


@each_case(
    ("running", "ended_before", "ended_first", "more"),
    [(20, 9, 5, 12), (2, 30, 15, 15), (2, 3, 3, 0), (17, 0, 0, 0)],
)
def test_what_has_ended_leaves_room_for_what_runs(
    running: int, ended_before: int, ended_first: int, more: int
) -> None:
    """Many short tasks a minute would hide a long one, for which one looks at the screen."""
    runs = [watched(ended(LINE, "failure", 3))] * ended_before + [watched()] * running
    rows = shown(*runs, height=20)
    states = [row.endswith("failed (3)") for row in rows if row.startswith("158d1c80")]
    assert states == sorted(states, reverse=True)
    assert sum(states) == ended_first
    left = [row for row in rows if row.startswith("… and")]
    assert left == ([f"… and {more} more tasks"] if more else [])


def test_a_read_every_15_seconds_and_a_table_every_second() -> None:
    logs, clock = FakeLogs(), FakeClock()
    shown: list[Sequence[str]] = []

    def show(sentences: Sequence[str]) -> None:
        shown.append(sentences)
        if len(shown) > 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _draw_until_signal(watched_tasks(logs, clock, MISSING), show, clock, _EndBySignal())
    assert len(logs.requests) == 3
    assert clock.now_ns == 39 * 10**9
    assert shown[0] == ("Reading what runs now …",)
    assert shown[-1] == (f"{MISSING} cannot be read: allow logs:FilterLogEvents on the log group.",)


def local_runs(now: dict[str, Report], history: dict[str, Report]) -> LocalRunsInProgress:
    return LocalRunsInProgress(read=now.values, read_ended=history.get)


def test_a_local_run_that_ended_is_listed_with_its_end_for_a_while() -> None:
    """As a task is: until then, a run that was killed was gone without a word."""
    now, history = {"a": checkpoint_at(START_NS, task_id="a")}, dict[str, Report]()
    runs = local_runs(now, history)
    assert [run.is_running for run in runs.current_runs(START_NS)] == [True]
    report = now.pop("a")
    killed = replace(ended(report).record, status="failure", exit_code=137)
    history["a"] = replace(ended(report), record=killed)
    (run,) = runs.current_runs(START_NS + NS_PER_SECOND)
    assert "failed (137)" in shown(watched(run.report))[2]
    assert len(runs.current_runs(START_NS + 300 * NS_PER_SECOND)) == 1
    assert runs.current_runs(START_NS + 301 * NS_PER_SECOND) == ()


def test_a_local_run_that_the_history_did_not_take_is_gone_with_its_end() -> None:
    now = {"a": checkpoint_at(START_NS, task_id="a")}
    runs = local_runs(now, {})
    runs.current_runs(START_NS)
    now.clear()
    assert runs.current_runs(START_NS + NS_PER_SECOND) == ()


def test_local_runs_are_read_each_second() -> None:
    """A run of some seconds was over before it was read."""
    watched = open_watched_tasks(None, SourceOptions(), (), None, FakeClock())
    logs = open_watched_tasks(None, SourceOptions(), ("/ecs/jobs",), None, FakeClock())
    assert (watched.seconds_between_reads, logs.seconds_between_reads) == (1, 15)


def test_a_signal_whose_exception_is_lost_ends_the_command_with_the_next_table() -> None:
    """Python ignores what a finalizer raises, also by a signal's handler that runs in it."""
    ending, tables = _EndBySignal(), []

    def show(sentences: Sequence[str]) -> None:
        tables.append(sentences)
        with suppress(SystemExit):
            ending.on_signal(signal.SIGTERM, None)

    with pytest.raises(SystemExit) as ended:
        _draw_until_signal(watched_tasks(FakeLogs(), FakeClock()), show, FakeClock(), ending)
    assert ended.value.code == 143
    assert tables == [("Reading what runs now …",)]


@pytest.mark.parametrize("size", [(100, 24), (80, 5), (40, 6)])
def test_what_is_drawn_fits_the_terminal(
    size: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """As it is now: a shell may have exported the size that it had before."""
    columns, rows = size
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size(size))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("LINES", "90")
    monkeypatch.setenv("NO_COLOR", "1")
    logs, clock = FakeLogs(), FakeClock()
    line = checkpoint_at(START_NS, task_id="first")
    logs.put(START_NS, text(line))
    watched = watched_tasks(logs, clock)
    draw = partial(_draw, watched, "/ecs/jobs")
    draw(["Reading …"])
    assert "nothing" not in capfdbinary.readouterr().out.decode()
    watched.read_new_data()
    draw(["A sentence that is longer than the terminal, so that it is wrapped."])
    logs.put(START_NS, text(ended(line)))
    watched.read_new_data()
    draw([])
    for drawn in capfdbinary.readouterr().out.decode().split("\x1b[H")[1:]:
        lines = re.sub(r"\x1b\[[KJ]", "", drawn).split("\r\n")
        assert len(lines) <= rows
        assert max(map(len, lines)) <= columns

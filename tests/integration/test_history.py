"""``task-profiler run`` and its history, and ``task-profiler history``."""

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from profiler.history.history_points import decode_points
from profiler.record.record_model import decode
from tests.waiting import wait_until

_PROGRAM = (sys.executable, "-m", "profiler")
_LIMIT_SECONDS = 60


def _profiler(*words: str, **settings: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run((*_PROGRAM, *words), capture_output=True, check=False, timeout=_LIMIT_SECONDS, **settings)


def _run(*words: str, options: tuple[str, ...] = (), **settings: Any) -> subprocess.CompletedProcess[bytes]:
    return _profiler("run", *options, "--", *words, **settings)


def _history(*options: str, **settings: Any) -> subprocess.CompletedProcess[bytes]:
    return _profiler("history", *options, **settings)


def _lines(*options: str) -> list[bytes]:
    finished = _history("--json", *options)
    assert finished.returncode == 0
    return finished.stdout.splitlines()


# --- what run keeps ------------------------------------------------------------------------------


def test_the_line_is_kept_as_it_was_printed() -> None:
    printed = [_run("sh", "-c", f"exit {code}").stderr.splitlines() for code in (0, 3)]
    assert all(len(lines) == 1 for lines in printed)
    assert _lines() == [printed[1][0], printed[0][0]]


def test_the_record_is_kept_whatever_is_printed(tmp_path: Path) -> None:
    _run("true", options=("--format", "text", "--name", "a"))
    _run("no-such-command-at-all", options=("--output", str(tmp_path / "lines"), "--name", "b"))
    records = [decode(line).record for line in _lines()]
    assert [(record.family, record.exit_code) for record in records] == [("b", 127), ("a", 0)]


def test_the_series_is_kept(history_file: Path) -> None:
    program = "import time\nblock = bytearray(50 * 2**20)\ntime.sleep(0.5)\n"
    _run(sys.executable, "-c", program, options=("--interval", "0.05"))
    with closing(sqlite3.connect(history_file)) as connection:
        ((text,),) = connection.execute("SELECT points FROM run").fetchall()
    points = json.loads(text)
    assert len(points) > 3
    assert [point[0] for point in points] == sorted(point[0] for point in points)
    assert max(point[2] or 0 for point in points) > 50 * 2**20
    assert all(point[1] >= 0 for point in points)


def test_what_was_written_stands_in_the_series_where_it_was_written(history_file: Path, tmp_path: Path) -> None:
    """A child of the command writes 8 MiB through to the disk, the command waits for it, then idles."""
    out = tmp_path / "out"
    write = f"import os; f = open({str(out)!r}, 'wb'); f.write(bytes(8 * 2**20)); f.flush(); os.fsync(f.fileno())"
    program = f"import subprocess, sys, time\nsubprocess.run([sys.executable, '-c', {write!r}])\ntime.sleep(0.5)\n"
    finished = _run(sys.executable, "-c", program, options=("--interval", "0.05"))
    total = decode(finished.stderr).record.metrics.block_write_bytes
    if total is None or total < 8 * 2**20:
        pytest.skip("the kernel counts no I/O of processes here, or tmp_path is in memory")
    with closing(sqlite3.connect(history_file)) as connection:
        ((text,),) = connection.execute("SELECT points FROM run").fetchall()
    written = [point.block_write_bytes for point in decode_points(text) if point.block_write_bytes is not None]
    assert sum(written) == pytest.approx(total, abs=64 * 1024)
    assert written[-1] == 0


def test_no_history(history_file: Path) -> None:
    assert len(_run("true", options=("--no-history",)).stderr.splitlines()) == 1
    _run("true", env={**os.environ, "TASK_PROFILER_HISTORY_RUNS": "0"})
    assert not history_file.parent.exists()


def test_a_history_elsewhere(history_file: Path, tmp_path: Path) -> None:
    elsewhere = str(tmp_path / "else" / "where")
    _run("true", options=("--history", elsewhere))
    assert len(_lines("--history", elsewhere)) == 1
    assert not history_file.exists()


def test_the_data_directory_is_the_usual_place(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "xdg")}
    del environment["TASK_PROFILER_HISTORY"]
    _run("true", env=environment)
    assert (tmp_path / "xdg" / "task-profiler" / "history.sqlite3").is_file()


def test_as_many_runs_as_wanted() -> None:
    environment = {**os.environ, "TASK_PROFILER_HISTORY_RUNS": "2"}
    for number in range(3):
        _run("true", options=("--name", str(number)), env=environment)
    assert [decode(line).record.family for line in _lines()] == ["2", "1"]


def test_twenty_at_once_lose_none() -> None:
    processes = [
        subprocess.Popen((*_PROGRAM, "run", "--name", str(number), "--", "true"), stderr=subprocess.PIPE)
        for number in range(20)
    ]
    printed = [process.communicate(timeout=_LIMIT_SECONDS)[1] for process in processes]
    assert [len(stderr.splitlines()) for stderr in printed] == [1] * 20
    assert {decode(line).record.family for line in _lines()} == {str(number) for number in range(20)}


# --- a profiler that is killed ---------------------------------------------------------------------


def _written(history_file: Path) -> list[bytes]:
    return [path.read_bytes() for path in Path(f"{history_file}.running").glob("*.run")]


@pytest.fixture
def in_progress(history_file: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A run that has written down its first readings, and the pid of its command."""
    words = ("run", "--name", "long", "--interval", "0.1", "--", "sh", "-c", "echo $$; exec sleep 60")
    with subprocess.Popen((*_PROGRAM, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as profiler:
        assert profiler.stdout is not None
        command_pid = int(profiler.stdout.readline())
        try:
            wait_until(
                lambda: any(b'"processes":[{' in text for text in _written(history_file)), _LIMIT_SECONDS, "a reading"
            )
            yield profiler, command_pid
        finally:
            with suppress(ProcessLookupError):
                os.kill(command_pid, signal.SIGKILL)
            profiler.kill()
            profiler.wait()
            _run("true")  # removes the control group that the killed profiler left behind


def test_the_next_command_closes_the_run_of_a_killed_profiler(
    in_progress: tuple[subprocess.Popen[bytes], int], history_file: Path
) -> None:
    profiler, command_pid = in_progress
    profiler.send_signal(signal.SIGKILL)
    profiler.wait()
    os.kill(command_pid, 0)  # the command lives
    (line,) = _lines()
    record = decode(line).record
    assert (record.family, record.status, record.exit_code) == ("long", "unknown", None)
    assert record.metrics.duration_ms is None
    assert record.likely_out_of_memory is None
    assert record.started_at is not None
    assert record.finished_at is not None
    assert record.started_at < record.finished_at
    assert record.metrics.max_memory_used_mb is not None
    assert record.metrics.cpu_seconds is not None
    assert [process.name for process in record.processes] == ["sleep"]
    assert record.monitor is not None
    assert "The profiler was killed" in record.monitor.warnings[0]
    with closing(sqlite3.connect(history_file)) as connection:
        ((text,),) = connection.execute("SELECT points FROM run").fetchall()
    assert decode_points(text)
    assert _written(history_file) == []
    assert _lines() == [line]
    shown = _profiler("show", "long").stdout
    assert b"The result of long is unknown.\n  The profiler did not see the end of the command.\n" in shown


def test_another_run_does_not_close_the_run_of_a_profiler_that_lives(
    in_progress: tuple[subprocess.Popen[bytes], int], history_file: Path
) -> None:
    profiler, command_pid = in_progress
    _run("true", options=("--name", "short"))
    assert [decode(line).record.family for line in _lines()] == ["short"]
    os.kill(command_pid, signal.SIGTERM)
    profiler.wait(_LIMIT_SECONDS)
    assert [(record.family, record.exit_code) for record in (decode(line).record for line in _lines())] == [
        ("short", 0),
        ("long", 143),
    ]
    assert not Path(f"{history_file}.running").exists()


def test_a_short_run_leaves_no_file(history_file: Path) -> None:
    _run("true")
    _run("true", options=("--no-history",))
    assert not Path(f"{history_file}.running").exists()


# --- trouble costs a warning ---------------------------------------------------------------------


def _costs_a_warning(*options: str, **settings: Any) -> str:
    finished = _run("sh", "-c", "echo out; exit 3", options=options, **settings)
    assert finished.returncode == 3
    assert finished.stdout == b"out\n"
    line, warning = finished.stderr.splitlines()
    assert decode(line).record.exit_code == 3
    assert warning.startswith(b"task-profiler: ")
    return warning.decode()


def test_a_history_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("/no/such/folder/h")
    for place in (tmp_path, tmp_path / "file" / "h", tmp_path / "link", Path("/proc/no/h"), Path("/dev/full")):
        assert str(place) in _costs_a_warning("--history", str(place))


def test_a_path_with_line_ends_is_still_one_line(tmp_path: Path) -> None:
    (tmp_path / "a\nb\x1b[31m").mkdir()
    _costs_a_warning("--history", str(tmp_path / "a\nb\x1b[31m"))


def test_a_corrupt_history_stays_as_it_is(history_file: Path) -> None:
    history_file.parent.mkdir()
    history_file.write_bytes(b"not a database\n" * 100)
    assert "move it away" in _costs_a_warning()
    assert history_file.read_bytes() == b"not a database\n" * 100
    shown = _history()
    assert (shown.returncode, shown.stdout, len(shown.stderr.splitlines())) == (1, b"", 1)
    assert history_file.read_bytes() == b"not a database\n" * 100


def test_a_disk_without_room() -> None:
    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    assert "not in the history" in _costs_a_warning(preexec_fn=no_room)


def test_nowhere_to_keep_it() -> None:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path.cwd())}
    assert "HOME" in _costs_a_warning(env=environment)


def test_a_bad_number_of_runs(history_file: Path) -> None:
    environment = {**os.environ, "TASK_PROFILER_HISTORY_RUNS": "many"}
    assert "TASK_PROFILER_HISTORY_RUNS" in _costs_a_warning(env=environment)
    assert history_file.exists()


@pytest.mark.parametrize("options", [("--history", ""), ("--history", "h", "--no-history")])
def test_a_bad_option_is_one_sentence_and_starts_nothing(options: tuple[str, ...], tmp_path: Path) -> None:
    finished = _run("touch", str(tmp_path / "started"), options=options)
    assert finished.returncode == 2
    assert len(finished.stderr.splitlines()) == 1
    assert not (tmp_path / "started").exists()


# --- the table -----------------------------------------------------------------------------------


def test_the_table() -> None:
    _run("true", options=("--name", "[red]first[/red]"))
    _run("sh", "-c", "exit 3", options=("--name", "second\x1b[31m\u202e"))
    shown = _history()
    assert shown.stderr == b""
    assert b"\x1b" not in shown.stdout
    head, second, first = shown.stdout.decode().splitlines()
    assert head.split() == ["Run", "Started", "Family", "Result", "Time", "CPU", "Memory"]
    assert second.split()[3:6] == [r"second\x1b[31m\u202e", "failure", "3"]
    assert first.split()[3:5] == ["[red]first[/red]", "success"]


def test_colours_where_they_are_wanted() -> None:
    _run("sh", "-c", "exit 3")
    shown = _history(env={**os.environ, "FORCE_COLOR": "1", "TERM": "xterm"})
    assert b"\x1b[31mfailure 3\x1b[0m" in shown.stdout


def test_which_runs() -> None:
    for name, code in (("etl-a", 0), ("etl-b", 1), ("load", 1)):
        _run("sh", "-c", f"exit {code}", options=("--name", name))
    expected = {
        ("--last", "1"): ["load"],
        ("--family", "etl-*"): ["etl-b", "etl-a"],
        ("--family", "load", "--family", "etl-a"): ["load", "etl-a"],
        ("--status", "failure"): ["load", "etl-b"],
        ("--status", "failure", "--family", "etl-*"): ["etl-b"],
    }
    for options, families in expected.items():
        assert [decode(line).record.family for line in _lines(*options)] == families


def test_no_runs_is_an_error_as_for_every_command_that_reads_runs(history_file: Path, tmp_path: Path) -> None:
    shown = _history()
    assert (shown.returncode, shown.stdout) == (1, b"")
    assert b"task-profiler run -- CMD" in shown.stderr
    assert not history_file.exists()
    _run("true")
    shown = _history("--status", "failure")
    assert (shown.returncode, shown.stdout) == (1, b"")
    assert len(shown.stderr.splitlines()) == 1
    text = tmp_path / "notes.txt"
    text.write_text("no record\n")
    for command in ("history", "show", "recommend", "report"):
        assert _profiler(command, "--from", str(text), cwd=tmp_path).returncode == 1


def test_runs_that_are_not_shown_are_mentioned() -> None:
    for _ in range(3):
        _run("true")
    shown = _history("--last", "2")
    assert len(shown.stdout.splitlines()) == 3
    assert b"Only the 2 newest runs are shown" in shown.stderr
    assert _history("--last", "3").stderr == b""


def test_lines_that_cannot_be_read_are_counted(history_file: Path) -> None:
    _run("true")
    _run("true")
    with closing(sqlite3.connect(history_file)) as connection, connection:
        connection.execute("UPDATE run SET record = 'x' WHERE id = 1")
    shown = _history("--json")
    assert shown.returncode == 0
    assert len(shown.stdout.splitlines()) == 1
    assert b"1 " in shown.stderr


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_reader_that_has_seen_enough(options: tuple[str, ...]) -> None:
    _run("true")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        finished = subprocess.run(
            (*_PROGRAM, "history", *options), stdout=pipe, stderr=subprocess.PIPE, check=False, timeout=_LIMIT_SECONDS
        )
    assert (finished.returncode, finished.stderr) == (0, b"")


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_an_output_that_takes_nothing(options: tuple[str, ...]) -> None:
    _run("true")
    with Path("/dev/full").open("wb") as full:
        finished = subprocess.run(
            (*_PROGRAM, "history", *options), stdout=full, stderr=subprocess.PIPE, check=False, timeout=_LIMIT_SECONDS
        )
    assert finished.returncode == 1
    assert len(finished.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "options",
    [
        ("--last", "0"),
        ("--last", "9" * 20),
        ("--last", "x"),
        ("--status", "fine"),
        ("--history", ""),
        ("--nonsense",),
        ("word",),
    ],
)
def test_a_bad_option_of_history(options: tuple[str, ...]) -> None:
    finished = _history(*options)
    assert (finished.returncode, finished.stdout, len(finished.stderr.splitlines())) == (2, b"", 1)


def test_help_has_an_example() -> None:
    assert b"Example: task-profiler history" in _history("--help").stdout


def test_show_does_not_rule_memory_out_for_a_command_under_a_limit_of_its_own() -> None:
    _run("sh", "-c", f"ulimit -v 500000; exec {sys.executable} -c 'bytearray(10**9)'")
    shown = " ".join(_profiler("show").stdout.decode().split())
    assert "failed with exit code 1" in shown
    assert "a limit of 488 MB" in shown
    assert "limit was not reached" not in shown
    _run("sh", "-c", "exit 3")
    assert "not the reason" not in _profiler("show").stdout.decode()

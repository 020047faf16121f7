"""``task-profiler run`` and its history, and ``task-profiler history``."""

import json
import os
import re
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

from profiler.record.record_model import decode
from profiler.runs.step_series import decode_steps
from tests.command_line import run_here
from tests.integration.profiled import PROGRAM, RUN, run
from tests.report_page import parsed
from tests.values import present
from tools.waiting import LIMIT_SECONDS, READINGS_OF_FILES, wait_until


def _shown(*words: str) -> subprocess.CompletedProcess[str]:
    return run_here(os.environ, *words)


def _lines() -> list[bytes]:
    finished = _shown("history", "--json")
    assert finished.returncode == 0
    return finished.stdout.encode().splitlines()


def _points(history_file: Path) -> Any:
    """The series of the only run."""
    with closing(sqlite3.connect(history_file)) as connection:
        ((text,),) = connection.execute("SELECT points FROM run").fetchall()
    return text


# --- what run keeps ------------------------------------------------------------------------------


def test_the_line_is_kept_as_it_was_printed() -> None:
    printed = [run("sh", "-c", f"exit {code}").stderr.splitlines() for code in (0, 3)]
    assert all(len(lines) == 1 for lines in printed)
    assert _lines() == [printed[1][0], printed[0][0]]


def test_a_run_has_its_redacted_command_line_and_a_single_process_one_memory(
    tmp_path: Path,
) -> None:
    """The memory rises after the last sample that reads each process.

    A command that did not start is not kept.
    """
    # The first sleep is long enough for a reading of the process on a busy machine, too.
    program = "import time; time.sleep(1); x = b'x' * (80 << 20); time.sleep(0.02)"
    run(
        os.path.realpath(sys.executable),
        "-I",
        "-c",
        program,
        "--token",
        "hunter2",
        options=("--name", "spike"),
    )
    assert run("no-such-command").returncode == 127
    command = f"{os.path.realpath(sys.executable)} -I -c {program} --token …"
    (line,) = _lines()
    assert b"--token" not in line
    assert command in _shown("history").stdout
    page = _shown("show").stdout
    assert " ".join(f"command {command}".split()) in " ".join(page.split())
    record = decode(line).record
    assert {one.max_memory_used_mb for one in record.processes} == {
        record.metrics.max_memory_used_mb
    }
    _shown("report", "-o", str(tmp_path / "page.html"))
    (packed,) = re.findall(r'id="task-data">(.*)</script>', (tmp_path / "page.html").read_text())
    assert parsed(packed)["details"][0]["command"] == command


def test_what_was_written_stands_in_the_series_where_it_was_written(
    history_file: Path, tmp_path: Path
) -> None:
    """A child of the command writes 8 MiB through to the disk, the command waits for it, then
    idles.
    """
    out = tmp_path / "out"
    write = (
        f"import os; f = open({str(out)!r}, 'wb'); f.write(bytes(8 * 2**20)); f.flush(); "
        "os.fsync(f.fileno())"
    )
    program = (
        f"{READINGS_OF_FILES}import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {write!r}])\n"
        "wait_until_read('/proc/self/io', count=10)\n"
    )
    finished = run(sys.executable, "-c", program, options=("--interval", "0.05"))
    total = decode(finished.stderr).record.metrics.block_write_bytes
    if total is None or total < 8 * 2**20:
        pytest.skip("the kernel counts no I/O of processes here, or tmp_path is in memory")
    written = [
        size for size in decode_steps(_points(history_file)).block_write_bytes if size is not None
    ]
    assert sum(written) == pytest.approx(total, abs=64 * 1024)
    assert written[-1] == 0


def test_no_history(history_file: Path) -> None:
    assert len(run("true", options=("--no-history",)).stderr.splitlines()) == 1
    assert not history_file.parent.exists()


@pytest.mark.slow
def test_twenty_at_once_lose_none() -> None:
    processes = [
        subprocess.Popen(
            (*PROGRAM, "run", "--json", "--name", str(number), "--", "true"), stderr=subprocess.PIPE
        )
        for number in range(20)
    ]
    printed = [process.communicate(timeout=LIMIT_SECONDS)[1] for process in processes]
    assert [len(stderr.splitlines()) for stderr in printed] == [1] * 20
    assert {decode(line).record.family for line in _lines()} == {
        str(number) for number in range(20)
    }


# --- a profiler that is killed ---------------------------------------------------------------------


def _written(history_file: Path) -> list[tuple[str, str]]:
    """The records and the time series of the runs in progress."""
    if not history_file.exists():
        return []
    with closing(sqlite3.connect(history_file)) as connection, suppress(sqlite3.OperationalError):
        return connection.execute("SELECT record, points FROM running").fetchall()
    return []


def _has_points(written: tuple[str, str]) -> bool:
    record, points = written
    return '"processes":[{' in record and points != "[]"


@pytest.fixture
def in_progress(history_file: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A run that has written down its first readings, and the pid of its command."""
    words = (
        "run",
        "--name",
        "long",
        "--interval",
        "0.1",
        "--",
        "sh",
        "-c",
        "echo $$; exec sleep 1000",
    )
    with subprocess.Popen(
        (*PROGRAM, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as profiler:
        command_pid = int(present(profiler.stdout).readline())
        try:
            wait_until(lambda: any(map(_has_points, _written(history_file))), "two readings")
            yield profiler, command_pid
        finally:
            with suppress(ProcessLookupError):
                os.kill(command_pid, signal.SIGKILL)
            profiler.kill()
            profiler.wait()
            run("true")  # removes the control group that the killed profiler left behind


def test_the_next_command_closes_the_run_of_a_killed_profiler(
    in_progress: tuple[subprocess.Popen[bytes], int], history_file: Path
) -> None:
    profiler, command_pid = in_progress
    profiler.send_signal(signal.SIGKILL)
    profiler.wait()
    os.kill(command_pid, 0)  # the command lives
    (line,) = _lines()
    record = decode(line).record
    assert record.family == "long"
    assert record.status == "unknown"
    assert record.exit_code is None
    assert record.metrics.duration_ms is None
    assert record.likely_out_of_memory is None
    assert present(record.started_at) < present(record.finished_at)
    assert record.metrics.max_memory_used_mb is not None
    assert record.metrics.cpu_seconds is not None
    assert [process.name for process in record.processes] == ["sleep"]
    assert "The profiler was killed" in present(record.monitor).warnings[0]
    assert decode_steps(_points(history_file)).ends_ms
    assert _written(history_file) == []
    assert _lines() == [line]
    shown = _shown("show", "long").stdout
    assert (
        "The result of long is unknown.\n  The profiler did not see the end of the command.\n"
        in shown
    )


def test_another_run_does_not_close_the_run_of_a_profiler_that_lives(
    in_progress: tuple[subprocess.Popen[bytes], int], history_file: Path
) -> None:
    profiler, command_pid = in_progress
    run("true", options=("--name", "short"))
    short, long = _lines()
    assert [decode(line).record.family for line in (short, long)] == ["short", "long"]
    assert decode(long).record.status == "running"
    os.kill(command_pid, signal.SIGTERM)
    profiler.wait(LIMIT_SECONDS)
    assert [
        (record.family, record.exit_code) for record in (decode(line).record for line in _lines())
    ] == [
        ("short", 0),
        ("long", 143),
    ]
    assert _written(history_file) == []


@pytest.mark.usefixtures("in_progress")
def test_a_run_in_progress_is_listed_once() -> None:
    (line,) = _lines()
    (watched,) = map(json.loads, _shown("watch", "--json").stdout.splitlines())
    for shown in (json.loads(line), watched):
        assert shown["family"] == "long"
        assert shown["elapsedMs"] > 0
    assert watched["status"] == "running"
    assert watched["memoryUsedMB"] > 0
    (row,) = _shown("history").stdout.splitlines()[1:]
    assert row.split()[3:5] == ["long", "running"]
    for words in ((), ("long",)):
        page = _shown("show", *words).stdout
        assert page.startswith("● long is running, for ")
        assert "The profiler was killed" not in page
    assert _shown("history", "--status", "failure").returncode == 1
    assert "This machine: 1 running" in _shown("watch", "lon*").stdout
    assert _shown("recommend").returncode == 1


# --- trouble costs a warning ---------------------------------------------------------------------


def _costs_a_warning(**settings: Any) -> str:
    finished = run("sh", "-c", "echo out; exit 3", **settings)
    assert finished.returncode == 3
    assert finished.stdout == b"out\n"
    line, warning = finished.stderr.splitlines()
    assert decode(line).record.exit_code == 3
    assert warning.startswith(b"task-profiler: ")
    return warning.decode()


def test_a_history_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("/no/such/folder/h")
    for place in (
        tmp_path,
        tmp_path / "file" / "h",
        tmp_path / "link",
        Path("/proc/no/h"),
        Path("/dev/full"),
    ):
        monkeypatch.setenv("TASK_PROFILER_HISTORY", str(place))
        assert str(place) in _costs_a_warning()


def test_a_corrupt_history_stays_as_it_is(history_file: Path) -> None:
    history_file.parent.mkdir()
    history_file.write_bytes(b"not a database\n" * 100)
    assert "move it away" in _costs_a_warning()
    shown = _shown("history")
    assert shown.returncode == 1, shown.stderr
    assert shown.stdout == ""
    assert len(shown.stderr.splitlines()) == 1
    assert history_file.read_bytes() == b"not a database\n" * 100


def test_no_room_and_no_place() -> None:
    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    assert "(ulimit -f)" in _costs_a_warning(preexec_fn=no_room)
    nowhere = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path.cwd())}
    assert "HOME" in _costs_a_warning(env=nowhere)
    # Without a history, the end for a person names no command that finds the run.
    finished = subprocess.run(
        (*RUN, "--", "sleep", "0.3"), check=True, capture_output=True, env=nowhere
    )
    assert b"succeeded" in finished.stderr
    assert b"task-profiler show" not in finished.stderr

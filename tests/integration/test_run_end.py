"""The end of ``run`` for a person, on real terminals, in pipes and in files."""

import fcntl
import json
import os
import pty
import re
import sqlite3
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

RUN = (sys.executable, "-m", "profiler", "run")
# 0.2 s are enough for several samples.
WORK = ("--interval", "0.05", "--name", "etl", "--", "sh", "-c", "printf working; sleep 0.2; exit $0")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}


@contextmanager
def terminal(columns: int) -> Iterator[tuple[int, int]]:
    """Both ends of a new terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    yield ours, theirs
    os.close(ours)


def shown(*words: str, columns: int = 80, stdout: int | None = None, **environment: str) -> tuple[str, int]:
    """What a terminal shows that is standard error, and standard output unless that is given; and the exit code."""
    with terminal(columns) as (ours, theirs):
        process = subprocess.Popen(
            (*RUN, *words),
            stdin=theirs,
            stdout=theirs if stdout is None else stdout,
            stderr=theirs,
            env={**ENVIRONMENT, "TERM": "xterm", **environment},
        )
        os.close(theirs)
        text = b""
        while True:
            try:
                text += os.read(ours, 65536)
            except OSError:  # all other ends are closed
                break
        return text.decode().replace("\r\n", "\n"), process.wait()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.fixture
def history(tmp_path: Path) -> str:
    return str(tmp_path / "history.sqlite3")


def test_the_end_on_a_terminal_and_the_change_since_the_last_success(history: str) -> None:
    first, exit_code = shown(*WORK, "0", TASK_PROFILER_HISTORY=history)
    assert exit_code == 0
    assert first.startswith("working\x1b[0m\n")  # the command may have left a colour
    assert "\x1b[1;32m" in first
    command, *lines = plain(first).splitlines()
    assert command == "working"  # the end begins on a line of its own
    assert lines[0].startswith("● etl succeeded in ")
    assert [row.split()[0] for row in lines[1:4]] == ["CPU", "Memory", "Time"]
    assert len(lines) <= 7
    assert max(map(len, lines)) <= 80
    assert "change" not in plain(first)
    run_id = plain(first).partition("task-profiler show ")[2].split()[0]
    second = plain(shown("--history", history, *WORK, "3")[0])
    assert "● etl failed with exit code 3 after " in second
    assert "  change  the last success" in second
    read = subprocess.run([*RUN[:-1], "show", run_id, "--history", history], capture_output=True, text=True, check=True)
    assert "etl succeeded" in read.stdout


def test_a_narrow_terminal_without_colours_and_without_block_elements() -> None:
    words = ("--no-history", *WORK, "0")
    text, exit_code = shown(*words, columns=40, NO_COLOR="1", PYTHONIOENCODING="ascii")
    assert exit_code == 0
    assert text.isascii()
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 40
    assert "* etl succeeded in " in text


def test_standard_output_is_the_commands_alone(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        text, _ = shown("--no-history", *WORK, "0", stdout=out.fileno(), TERM="dumb")
    assert (tmp_path / "out").read_bytes() == b"working"
    assert text.startswith("\n● etl succeeded in ")


def test_with_a_file_the_terminal_shows_nothing_and_the_file_has_json(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    text, exit_code = shown("--no-history", "--output", str(file), *WORK, "0")
    assert (text, exit_code) == ("working", 0)
    assert json.loads(file.read_text())["record"]["family"] == "etl"


def test_json_on_a_terminal_is_for_who_asks_for_it() -> None:
    text, _ = shown("--no-history", "--format", "json", "--", "true")
    assert json.loads(text)["record"]["family"] == "true"


@pytest.mark.parametrize("place", ["pipe", "file"])
def test_the_end_for_a_pipe_and_for_a_file_has_no_colours(tmp_path: Path, place: str) -> None:
    file = tmp_path / "end.txt"
    output = ("--output", str(file)) if place == "file" else ()
    words = [*RUN, "--no-history", "--format", "human", *output, *WORK, "0"]
    done = subprocess.run(words, capture_output=True, env={**ENVIRONMENT, "PYTHONIOENCODING": "utf-8"}, check=True)
    assert done.stdout == b"working"
    text = file.read_text() if output else done.stderr.decode()
    assert text.lstrip("\n").startswith("● etl succeeded in ")
    assert "\x1b" not in text
    assert len(text.splitlines()) <= 8
    assert not output or done.stderr == b""


def test_a_command_that_did_not_start_has_its_sentence_only(history: str) -> None:
    text, exit_code = shown("--history", history, "--", "no-such-command")
    assert exit_code == 127
    assert len(text.splitlines()) == 1
    assert text.startswith("task-profiler: ")


def test_a_locked_history_costs_the_comparison_and_does_not_delay_the_end(history: str) -> None:
    shown("--history", history, *WORK, "0")
    with sqlite3.connect(history, isolation_level=None) as other, terminal(80) as (ours, theirs):
        other.execute("BEGIN EXCLUSIVE")
        process = subprocess.Popen((*RUN, "--history", history, *WORK, "0"), stdout=theirs, stderr=theirs)
        os.close(theirs)
        text = b""
        while not re.search(rb"\r\n.*Time.*\r\n", text):  # the end is complete
            text += os.read(ours, 65536)
        assert other.execute("SELECT count(*) FROM run").fetchall() == [(1,)]
        other.execute("COMMIT")
        assert process.wait() == 0
        assert other.execute("SELECT count(*) FROM run").fetchall() == [(2,)]
    other.close()
    assert b"since the last success" not in text


def test_a_terminal_that_closes_costs_nothing_but_the_end(history: str) -> None:
    with terminal(80) as (_, theirs):
        words = (*RUN, "--history", history, "--name", "etl", "--", "sh", "-c", "read line; exit 5")
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=theirs, stderr=theirs, start_new_session=True)
        os.close(theirs)
    process.communicate(b"\n")
    assert process.returncode == 5
    with closing(sqlite3.connect(history)) as database:
        assert database.execute("SELECT family, status FROM run").fetchall() == [("etl", "failure")]


def test_several_runs_have_an_end_each_and_a_summary() -> None:
    text, exit_code = shown("--no-history", "--runs", "2", "--", "true")
    assert exit_code == 0
    assert plain(text).count("● true succeeded in ") == 2
    assert text.splitlines()[-1].startswith("Median of 2 runs: ")


def test_a_defect_of_the_live_view_does_not_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import profiler.local_run.live_rows as rows\nrows.live_rows = None\n")
    text, exit_code = shown("--live", "--no-history", "--", "sh", "-c", "sleep 0.6; exit 5", PYTHONPATH=str(tmp_path))
    assert exit_code == 5
    assert "● sh failed with exit code 5" in plain(text)

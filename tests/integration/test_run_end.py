"""The end of ``run`` for a person, on real terminals, in pipes and in files."""

import json
import os
import re
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.profiled import PROGRAM, RUN
from tests.terminals import open_terminal, read_until, shown_on_terminal

# 0.2 s are enough for several samples.
WORK = ("--interval", "0.05", "--name", "etl", "--", "sh", "-c", "printf working; sleep 0.2; exit $0")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}


def shown(*words: str, **environment: str) -> tuple[str, int]:
    """What a terminal shows of a run, and the exit code."""
    return shown_on_terminal((*RUN, *words), {**ENVIRONMENT, "TERM": "xterm", **environment})


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
    assert len(lines) <= 7
    assert max(map(len, lines)) <= 80
    assert "change" not in plain(first)
    run_id = plain(first).partition("task-profiler show ")[2].split()[0]
    second = plain(shown("--history", history, *WORK, "3")[0])
    assert "● etl failed with exit code 3 after " in second
    assert "  change  the last success" in second
    read = subprocess.run([*PROGRAM, "show", run_id, "--history", history], capture_output=True, text=True, check=True)
    assert "etl succeeded" in read.stdout


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
    sentence = "task-profiler: The command 'no-such-command' was not found in PATH; check its spelling."
    assert " ".join(text.split()) == sentence  # in lines as long as the terminal's


def test_a_locked_history_costs_the_comparison_and_does_not_delay_the_end(history: str) -> None:
    shown("--history", history, *WORK, "0")
    ours, theirs = open_terminal()
    with sqlite3.connect(history, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        process = subprocess.Popen((*RUN, "--history", history, *WORK, "0"), stdout=theirs, stderr=theirs)
        os.close(theirs)
        text = read_until(ours, b"etl succeeded in ") + read_until(ours, b"\r\n")  # the end is printed
        assert other.execute("SELECT count(*) FROM run").fetchall() == [(1,)]
        other.execute("COMMIT")
        assert process.wait() == 0
        assert other.execute("SELECT count(*) FROM run").fetchall() == [(2,)]
    other.close()
    os.close(ours)
    assert b"since the last success" not in text


def test_a_terminal_that_closes_costs_nothing_but_the_end(history: str) -> None:
    ours, theirs = open_terminal()
    words = (*RUN, "--history", history, "--name", "etl", "--", "sh", "-c", "read line; exit 5")
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    os.close(ours)
    process.communicate(b"\n")
    assert process.returncode == 5
    with closing(sqlite3.connect(history)) as database:
        assert database.execute("SELECT family, status FROM run").fetchall() == [("etl", "failure")]


def test_several_runs_have_a_line_each_and_a_summary() -> None:
    text, exit_code = shown("--no-history", "--runs", "2", "--", "true")
    assert exit_code == 0
    first, second, empty, *summary = plain(text).splitlines()
    assert all(row.startswith("● true succeeded in ") for row in (first, second))
    assert empty == ""
    assert " ".join(summary).startswith("Median of 2 runs: ")
    assert len(summary) <= 2


def test_without_py_spy_the_end_says_once_what_is_missing(tmp_path: Path) -> None:
    program = "import profiler.collectors.stacks.py_spy as py_spy\npy_spy.find_py_spy = lambda *_: None\n"
    (tmp_path / "sitecustomize.py").write_text(program)
    text, _ = shown("--stacks", "--no-history", *WORK, "0", PYTHONPATH=str(tmp_path))
    assert "● etl succeeded in " in plain(text)
    assert plain(text).count("needs py-spy") == 1


def test_a_defect_of_the_live_view_does_not_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import profiler.local_run.live_view as rows\nrows.live_rows = None\n")
    text, exit_code = shown("--live", "--no-history", "--", "sh", "-c", "sleep 0.6; exit 5", PYTHONPATH=str(tmp_path))
    assert exit_code == 5
    assert "● sleep failed with exit code 5" in plain(text)


def test_with_a_file_the_terminal_shows_nothing_and_the_file_has_json(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    text, exit_code = shown("--no-history", "--output", str(file), *WORK, "0")
    assert (text, exit_code) == ("working", 0)
    assert json.loads(file.read_text())["record"]["family"] == "etl"

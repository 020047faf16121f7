"""Budgets and ``--runs`` of ``task-profiler run``, around real commands."""

import os
import signal
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from profiler.record.record_model import NO_MONITOR, Record, decode
from tests.integration.profiled import run, started
from tests.terminals import Pipe
from tests.values import present, without_caused_by_others
from tools.waiting import LIMIT_SECONDS, wait_until

# What a run inherits: its input and open files, and the signals that are blocked and ignored.
_INHERITED = (
    "cat; readlink /proc/self/fd/0; ls /proc/self/fd; grep -E 'Sig(Blk|Ign|Cgt)' "
    "/proc/self/status; echo end"
)
THRICE = ("--runs", "3")


def _run(
    options: Sequence[str], *words: str, **settings: Any
) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    return run(*words, options=options, env=environment, input=b"not for the command", **settings)


def _records(lines: bytes) -> list[Record]:
    return [decode(line).record for line in lines.splitlines()]


# --- budgets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "script", "expected", "sentence"),
    [
        ("--max-memory 900MB --max-duration 10m --max-cpu-seconds 60", "exit 0", 0, ""),
        ("--max-duration 0.001s", "sleep 0.01", 3, "The run exceeded the budget: duration "),
        (
            "--max-duration 0.001s --runs 2",
            "sleep 0.01",
            3,
            "2 of 2 runs exceeded the budget: duration ",
        ),
        ("--max-duration 0.001s", "sleep 0.01; exit 3", 3, ""),
        ("--max-duration 0.001s --runs 2", "sleep 0.01; exit 5", 5, ""),
        ("--max-duration 0.001s", "sleep 0.01; kill -TERM $$", 143, ""),
    ],
)
def test_an_exceeded_budget_is_the_exit_code_of_a_command_that_succeeds(
    options: str, script: str, expected: int, sentence: str, tmp_path: Path
) -> None:
    finished = _run((*options.split(), "--output", str(tmp_path / "runs")), "sh", "-c", script)
    assert finished.returncode == expected
    assert finished.stderr.decode().startswith(f"task-profiler: {sentence}" if sentence else "")
    assert len(finished.stderr.splitlines()) == (1 if sentence else 0)


def test_a_command_that_was_asked_to_stop_is_not_checked_against_its_budget() -> None:
    script = "trap 'exit 0' INT; echo ready; while :; do sleep 0.01; done"
    with started("sh", "-c", script, options=("--max-duration", "0.001s")) as process:
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 0
    assert len(_records(stderr)) == 1


# --- each run is complete ------------------------------------------------------------------------


def test_nothing_of_one_run_is_left_for_the_next(tmp_path: Path, history_file: Path) -> None:
    def prepare() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})

    output = tmp_path / "runs"
    options = ("--runs", "3", "--output", str(output))
    finished = _run(options, "sh", "-c", _INHERITED, preexec_fn=prepare)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == b""
    first, *others, rest = finished.stdout.split(b"end\n")
    assert first.startswith(b"/dev/null\n0\n1\n2\n")
    assert others == [first, first]
    assert rest == b""
    records = _records(output.read_bytes())
    assert len({record.task_id for record in records}) == 3
    assert {record.status for record in records} == {"success"}
    cpu_seconds = [record.monitor.cpu_seconds or 0.0 for record in records]
    assert 0 < max(cpu_seconds[1:]) < cpu_seconds[0]  # the first one has the imports
    with closing(sqlite3.connect(history_file)) as database:
        assert database.execute("SELECT count(*) FROM run").fetchone() == (3,)


# The first run leaves a process with a child behind. The second ends the process: its child becomes
# the profiler's.
_LEAVES_BEHIND = """
if [ -e parent ]; then
    kill $(cat parent)
    while kill -0 $(cat parent) 2>&-; do :; done
else
    sh -c 'sleep 1000 & echo $! > child; wait' >&- 2>&- &
    echo $! > parent
    until [ -s child ]; do :; done
fi
"""


def test_what_a_run_leaves_behind_is_not_the_next_ones(tmp_path: Path) -> None:
    finished = _run(("--runs", "2", "--no-history"), "sh", "-c", _LEAVES_BEHIND, cwd=tmp_path)
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    warnings = [
        without_caused_by_others(record.monitor.warnings)
        for record in _records(finished.stderr)
        if record.monitor != NO_MONITOR
    ]
    assert [len(of_run) for of_run in warnings] == [1, 0]
    assert "still running" in warnings[0][0]


def test_the_first_failure_is_the_last_run(tmp_path: Path) -> None:
    script = "echo >> runs; test $(wc -l < runs) -lt 2 || exit 7"
    finished = _run(
        ("--runs", "5", "--max-duration", "0.001s", "--no-history"),
        "sh",
        "-c",
        script,
        cwd=tmp_path,
    )
    assert finished.returncode == 7
    assert [record.exit_code for record in _records(finished.stderr)] == [0, 7]


# --- signals -------------------------------------------------------------------------------------


@pytest.mark.diagonal
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize(("action", "expected"), [("exit 0", 0), ("-", None)])
def test_a_signal_starts_no_further_run(
    number: signal.Signals, action: str, expected: int | None
) -> None:
    script = f"trap '{action}' {number.name[3:]}; echo ready; while :; do sleep 0.01; done"
    with started("sh", "-c", script, options=THRICE) as process:
        process.send_signal(number)
        _, stderr = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == (128 + number if expected is None else expected)
    assert len(_records(stderr)) == 1


def test_other_signals_and_those_that_the_caller_ignores_do_not_end_the_runs() -> None:
    def ignore_hangup() -> None:  # as nohup does
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    script = "trap 'exit 0' USR1; echo ready; while :; do sleep 0.01; done"
    with started("sh", "-c", script, options=THRICE, preexec_fn=ignore_hangup) as process:
        for _ in range(2):
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGUSR1)
            assert present(process.stdout).readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=LIMIT_SECONDS)
    assert [record.exit_code for record in _records(stderr)] == [0, 0, 143]


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGTERM, 143), (signal.SIGUSR1, 0)])
def test_a_signal_between_two_runs(number: signal.Signals, expected: int) -> None:
    """A request to stop is not lost, and no other signal hits the next run.

    A report that is not read makes the gap.
    """
    with Pipe() as pipe:
        pipe.fill()
        output = f"/proc/{os.getpid()}/fd/{pipe.write_end}"
        options = ("--runs", "2", "--no-history", "--output", output)
        with started("echo", "ready", options=options) as process:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            wait_until(lambda: not children.read_text(), "the end of the first run")
            process.send_signal(number)
            pipe.drop_filling()
            stdout, _ = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == expected
    assert stdout == (b"" if expected else b"ready\n")

"""Who ran what where: labels, the ECS task around a command, and the live view on a terminal."""

import fcntl
import json
import os
import pty
import shlex
import socket
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from tests.integration.profiled import PROGRAM, RUN
from tests.task_endpoint import TASK_ID, Task, served
from tests.terminals import read_until, shown_on_terminal

NO_HISTORY = (*RUN, "--no-history")


def run(*words: str, **environment: str) -> tuple[dict[str, Any], int]:
    """The record and the exit code of a command."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ECS_")}
    done = subprocess.run(
        [*NO_HISTORY, *words], env={**plain, **environment}, capture_output=True, text=True, check=False
    )
    record: dict[str, Any] = json.loads(done.stderr.splitlines()[-1])["record"]
    return record, done.returncode


def test_labels_are_found_and_a_given_one_wins() -> None:
    runners = {"AWS_BATCH_JOB_ID": "4c8d2c6e", "AIRFLOW_CTX_DAG_ID": "nightly"}
    given = ("--label", "team=data", "--label", "host=mine", "--label", "batch.job=mine")
    labels = run(*given, "--", "true", **runners)[0]["labels"]
    assert (labels["team"], labels["host"]) == ("data", "mine")
    assert labels["user"]
    assert (labels["batch.job"], labels["airflow.dag"]) == ("mine", "nightly")
    assert "batch.attempt" not in labels


@pytest.mark.parametrize("length", [256, 70_000])
def test_a_name_beyond_the_limit_is_refused_before_the_start(length: int, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    done = subprocess.run(
        [*NO_HISTORY, "--name", "x" * length, "--", "touch", marker], capture_output=True, check=False
    )
    assert (done.returncode, marker.exists()) == (2, False)
    assert f"--name has {length} characters".encode() in done.stderr
    assert len(done.stderr) < 400


def test_inside_ecs_the_run_is_the_tasks() -> None:
    with served(Task(2)) as task:  # the own container is the monitor's there, which is as good as any
        record, exit_code = run("--", "sh", "-c", "exit 4", ECS_CONTAINER_METADATA_URI_V4=task.address)
    assert exit_code == 4
    assert (record["taskId"], record["family"], record["launchType"]) == (TASK_ID, "bench", "EC2")
    assert record["container"]["name"] == "task-monitor"
    assert (record["logGroup"], record["logStream"]) == ("/ecs/bench", f"ecs/task-monitor/{TASK_ID}")
    assert record["taskSize"] == {"vcpu": 1, "memoryMB": 2048}
    assert record["visible"] == {"memoryMB": record["visible"]["memoryMB"], "cpus": record["processor"]["count"]}
    metrics = record["metrics"]
    assert (metrics["vcpuSize"], metrics["vcpuShare"], metrics["memorySizeMB"]) == (1, 0.25, 512)
    assert metrics["billedDurationMs"] == 60000


def test_an_endpoint_that_is_silent_costs_the_identity_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/v4/x"
        record, exit_code = run("--", "sh", "-c", "exit 4", ECS_CONTAINER_METADATA_URI_V4=address)
    assert (exit_code, record["launchType"], record["family"]) == (4, "LOCAL", "sh")


def on_a_terminal(*words: str, kind: str = "xterm") -> str:
    """All that a terminal shows of a command."""
    return shown_on_terminal(words, {**os.environ, "TERM": kind})[0]


def test_the_live_view_keeps_to_the_bottom_and_gives_the_terminal_back() -> None:
    work = "import time; t = time.monotonic()\nwhile time.monotonic() < t + 0.6: pass\nprint('from the command')"
    shown = on_a_terminal(*NO_HISTORY, "--live", "--interval", "0.1", "--", sys.executable, "-c", work)
    for text in ("\x1b[1;20r", "\x1b[21;1H", "CPU", "vCPU", "1 process, 1 thread", "from the command"):
        assert text in shown
    assert Path(sys.executable).name in shown.rpartition("Top")[2]
    assert shown.rindex("\x1b[r") < shown.rindex(" succeeded in ")


def test_quiet_prints_only_what_the_command_prints_and_stores_the_run(tmp_path: Path) -> None:
    history = tmp_path / "history.sqlite3"
    stored = (*RUN, "-q", "--history", str(history), "--runs", "2")
    assert on_a_terminal(*stored, "--", "echo", "from the command").split("\n") == ["from the command"] * 2 + [""]
    assert subprocess.run([*stored, "--", "true"], capture_output=True, check=True).stderr == b""
    shown = [*PROGRAM, "history", "--json", "--history", str(history)]
    assert len(subprocess.run(shown, capture_output=True, check=True).stdout.splitlines()) == 4


def test_quiet_says_why_the_exit_code_is_not_that_of_the_command() -> None:
    for words, code, sentence in (
        (("--max-duration", "1ms", "--", "sleep", "0.1"), 3, "exceeded the budget"),
        (("--", "no-such-program"), 127, "was not found in PATH; check its spelling."),
        (("--", "cat x | wc"), 127, "for a shell's command line, write sh -c 'cat x | wc'."),
        (("--live", "--", "true"), 2, "--live prints what --quiet does not"),
    ):
        done = subprocess.run([*NO_HISTORY, "--quiet", *words], capture_output=True, text=True, check=False)
        assert (done.returncode, len(done.stderr.splitlines())) == (code, 1)
        assert sentence in done.stderr


def test_the_live_view_gives_the_terminal_to_the_shell_while_the_command_is_stopped() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"], {**os.environ, "TERM": "xterm"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    reserved, closed = b"\x1b[1;20r", b"\x1b[24;1H\x1b[2K\x1b[r"
    os.write(terminal, f"{shlex.join(NO_HISTORY)} --live --interval 0.1 --output /dev/null -- cat\n".encode())
    read_until(terminal, reserved)
    os.write(terminal, b"\x1a")
    read_until(terminal, closed)
    read_until(terminal, b"Stopped")
    os.write(terminal, b"fg\n")
    read_until(terminal, reserved)
    os.write(terminal, b"\x04")
    read_until(terminal, closed)
    os.write(terminal, b"exit\n")
    os.waitpid(pid, 0)
    os.close(terminal)


def test_the_line_is_out_before_accelerators_are_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    program = (
        "import sys; from profiler.cli import app; from profiler.cli.wiring import build_session\n"
        "build_session.stop_collectors = lambda _accelerators: print(open(sys.argv[1]).read().count('task.report'))\n"
        "words = ['run', '--no-history', '--output', sys.argv[1], '--', 'true']\n"
        "sys.exit(app.group.main(words, standalone_mode=False))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.parametrize(("kind", "seconds"), [("xterm", "0.01"), ("dumb", "0.4")])
def test_a_short_run_and_a_terminal_without_control_codes_have_no_live_view(kind: str, seconds: str) -> None:
    assert "\x1b[1;20r" not in on_a_terminal(*NO_HISTORY, "--live", "--", "sleep", seconds, kind=kind)


def test_without_stderr_warnings_are_not_written_into_the_output(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    words = ["sh", "-c", '"$@" 2>&-', "sh", *NO_HISTORY, "--output", str(file), "--", "true"]
    subprocess.run(words, env={**os.environ, "TASK_PROFILER_PRICE_VCPU_HOUR": "abc"}, check=True)
    (line,) = file.read_text().splitlines()
    assert json.loads(line)["type"] == "task.report"

"""What ``run`` shows a person, live and at its end, on terminals, in pipes and files; and who
ran what where.
"""

import fcntl
import json
import os
import pty
import re
import shlex
import socket
import sqlite3
import struct
import subprocess
import sys
import termios
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.batch_jobs import job_id
from tests.integration.profiled import PROGRAM, RUN, ending, python
from tests.task_endpoint import TASK_ID, Task, TaskEndpoint
from tests.terminals import open_terminal, read_until, shown_on_terminal
from tools.waiting import READINGS, READINGS_OF_FILES, wait_until

# Exit code, and seconds: of 0.2 there are several samples, but on a busy machine perhaps none.
WORK = (
    "--interval",
    "0.05",
    "--name",
    "etl",
    "--",
    "sh",
    "-c",
    "printf working; sleep ${1:-0.2}; exit $0",
)
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")
}


def shown(*words: str, **environment: str) -> tuple[str, int]:
    """What a terminal shows of a run, and the exit code."""
    history = os.environ["TASK_PROFILER_HISTORY"]
    known = {**ENVIRONMENT, "TASK_PROFILER_HISTORY": history, "TERM": "xterm"}
    return shown_on_terminal((*RUN, *words), {**known, **environment})


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.fixture
def history(history_file: Path) -> str:
    return str(history_file)


@pytest.mark.slow
def test_the_end_on_a_terminal_and_the_change_since_the_last_success(history: str) -> None:
    first, exit_code = shown(*WORK, "0", "2", TASK_PROFILER_HISTORY=history)
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
    # A run of another length than before is no change on a busy machine, one of more memory is.
    more = f"{READINGS}held = b'x' * (64 << 20)\nwait_for_readings(20)\nraise SystemExit(3)"

    def has_change() -> bool:
        second = plain(shown(*WORK[:5], *python(more), TASK_PROFILER_HISTORY=history)[0])
        assert "● etl failed with exit code 3 after " in second
        return "  change  the last success" in second

    # The end waits only briefly for the history: on a busy machine, it may lack the line.
    wait_until(has_change, "an end with the change since the last success")
    read = subprocess.run(
        [*PROGRAM, "show", run_id, "--from", f"history:{history}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "etl succeeded" in read.stdout


def in_a_pipe(*words: str, **environment: str) -> tuple[str, str]:
    """What a run without a terminal prints: the command's output, and the end."""
    outside = {name: value for name, value in ENVIRONMENT.items() if not name.startswith("ECS_")}
    done = subprocess.run(
        [*RUN, "--no-history", *words, *WORK, "0"],
        capture_output=True,
        env={**outside, "PYTHONIOENCODING": "utf-8", **environment},
        check=True,
    )
    return done.stdout.decode(), done.stderr.decode()


def check_lines_for_people(text: str) -> None:
    lines = text.lstrip("\n").splitlines()
    assert lines[0].startswith("● etl succeeded in ")
    assert "\x1b" not in text
    assert len(lines) <= 8
    assert max(map(len, lines)) <= 80


def test_a_pipe_has_the_lines_of_a_terminal_without_colours_at_80_columns() -> None:
    output, end = in_a_pipe(COLUMNS="200")
    assert output == "working"
    check_lines_for_people(end)


def test_a_file_has_the_lines_for_people_on_request(tmp_path: Path) -> None:
    file = tmp_path / "end.txt"
    _, end = in_a_pipe("--format", "human", "--output", str(file))
    assert end == ""
    check_lines_for_people(file.read_text())


def test_json_is_one_line_on_request() -> None:
    _, end = in_a_pipe("--json")
    assert json.loads(end)["record"]["status"] == "success"


def test_in_ecs_the_end_is_one_line_of_json_on_a_terminal_and_off() -> None:
    address = "http://127.0.0.1:9/v4/x"  # nobody answers there
    _, end = in_a_pipe(ECS_CONTAINER_METADATA_URI_V4=address)
    assert json.loads(end)["type"] == "task.report"
    text, _ = shown("--no-history", *WORK, "0", ECS_CONTAINER_METADATA_URI_V4=address)
    assert '"type":"task.report"' in text
    assert "●" not in text


@pytest.mark.parametrize("place", ["terminal", "pipe"])
def test_with_output_nothing_is_printed(tmp_path: Path, place: str) -> None:
    file = tmp_path / "runs.jsonl"
    if place == "terminal":
        text, _ = shown("--no-history", "--output", str(file), *WORK, "0")
        assert text == "working"
    else:
        assert in_a_pipe("--output", str(file)) == ("working", "")
    assert json.loads(file.read_text())["record"]["family"] == "etl"


def test_a_command_that_did_not_start_has_its_sentence_only() -> None:
    text, exit_code = shown("--", "no-such-command")
    assert exit_code == 127
    sentence = (
        "task-profiler: The command 'no-such-command' was not found in PATH; check its spelling."
    )
    assert " ".join(text.split()) == sentence  # in lines as long as the terminal's


def test_a_locked_history_costs_the_comparison_and_does_not_delay_the_end(history: str) -> None:
    shown(*WORK, "0")
    ours, theirs = open_terminal()
    with sqlite3.connect(history, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        process = subprocess.Popen((*RUN, *WORK, "0"), stdout=theirs, stderr=theirs)
        os.close(theirs)
        with ending(process):
            text = read_until(ours, b"etl succeeded in ") + read_until(
                ours, b"\r\n"
            )  # the end is printed
            assert other.execute("SELECT count(*) FROM run").fetchall() == [(1,)]
            other.execute("COMMIT")
            assert process.wait() == 0
        assert other.execute("SELECT count(*) FROM run").fetchall() == [(2,)]
    other.close()
    os.close(ours)
    assert b"since the last success" not in text


def test_a_terminal_that_closes_costs_nothing_but_the_end(history: str) -> None:
    ours, theirs = open_terminal()
    words = (*RUN, "--name", "etl", "--", "sh", "-c", "read line; exit 5")
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=theirs, stderr=theirs, start_new_session=True
    )
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
    program = (
        "import profiler.collectors.stacks.py_spy as py_spy\npy_spy.find_py_spy = lambda *_: None\n"
    )
    (tmp_path / "sitecustomize.py").write_text(program)
    text, _ = shown("--stacks", "--no-history", *WORK, "0", PYTHONPATH=str(tmp_path))
    assert "● etl succeeded in " in plain(text)
    assert plain(text).count("needs py-spy") == 1


def test_a_defect_of_the_live_view_does_not_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import profiler.local_run.live_view as rows\nrows.live_rows = None\n"
    )
    text, exit_code = shown(
        "--live", "--no-history", "--", "sh", "-c", "sleep 0.6; exit 5", PYTHONPATH=str(tmp_path)
    )
    assert exit_code == 5
    assert "● sleep failed with exit code 5" in plain(text)


NO_HISTORY = (*RUN, "--json", "--no-history")


def run(*words: str, **environment: str) -> tuple[dict[str, Any], int]:
    """The record and the exit code of a command."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ECS_")}
    done = subprocess.run(
        [*NO_HISTORY, *words], env={**plain, **environment}, capture_output=True, check=False
    )
    return json.loads(done.stderr.splitlines()[-1])["record"], done.returncode


def _run_with_a_defect(**environment: str) -> dict[str, Any]:
    """A run whose profiler fails in its first look."""
    program = (
        "from profiler.cli import main\nfrom profiler.local_run.sampler import RunSampler\n"
        "RunSampler.look_if_due = None\nmain()"
    )
    words = (sys.executable, "-c", program, "run", "--json", "--no-history", "--", "sleep", "0.1")
    done = subprocess.run(
        words, env={**os.environ, **environment}, capture_output=True, check=False
    )
    record: dict[str, Any] = json.loads(done.stderr.splitlines()[-1])["record"]
    return record


def test_labels_are_found_and_a_given_one_wins() -> None:
    runner = {"AIRFLOW_CTX_TASK_ID": "load", "AIRFLOW_CTX_DAG_ID": "nightly"}
    given = ("--label", "team=data", "--label", "host=mine", "--label", "airflow.task=mine")
    labels = run(*given, "--", "true", **runner)[0]["labels"]
    assert labels["team"] == "data"
    assert labels["host"] == "mine"
    assert labels["user"]
    assert labels["airflow.task"] == "mine"
    assert labels["airflow.dag"] == "nightly"
    assert "airflow.run" not in labels


@pytest.mark.parametrize("command", ["true", "no-such-command"])
def test_a_command_of_a_job_of_aws_batch_says_which_job_it_is(command: str) -> None:
    variables = {
        "AWS_BATCH_JOB_ID": f"{job_id(1)}:3",
        "AWS_BATCH_JQ_NAME": "nightly",
        "AWS_BATCH_JOB_ATTEMPT": "2",
        "AWS_BATCH_JOB_ARRAY_INDEX": "3",
        "AWS_BATCH_MADE_UP": "secret",
    }
    record, _ = run("--", command, **variables)
    assert record["batch"] == {
        "jobId": f"{job_id(1)}:3",
        "queue": "nightly",
        "attempt": 2,
        "arrayIndex": 3,
    }
    forged, _ = run("--", command, **variables | {"AWS_BATCH_JOB_ID": "<!channel>"})
    assert "batch" not in forged


def test_inside_ecs_the_run_is_the_tasks() -> None:
    """Inside ECS the run is the task's and a silent endpoint costs the identity only."""

    def run_of_the_task() -> dict[str, Any] | None:
        """On a busy machine the task may answer too late for a command that is over."""
        record, exit_code = run(
            "--", "sh", "-c", "exit 4", ECS_CONTAINER_METADATA_URI_V4=task.address
        )
        assert exit_code == 4
        return record if record["taskId"] == TASK_ID else None

    # The own container is the monitor's there, which is as good as any.
    with TaskEndpoint(Task(2)) as task:
        record = wait_until(run_of_the_task, "a run that is the task's")
    assert record["family"] == "bench"
    assert record["launchType"] == "EC2"
    assert record["container"]["name"] == "task-monitor"
    assert record["logGroup"] == "/ecs/bench"
    assert record["logStream"] == f"ecs/task-monitor/{TASK_ID}"
    assert record["taskSize"] == {"vcpu": 1, "memoryMB": 2048}
    assert record["visible"] == {
        "memoryMB": record["visible"]["memoryMB"],
        "cpus": record["processor"]["count"],
    }
    metrics = record["metrics"]
    assert metrics["vcpuSize"] == 1
    assert metrics["vcpuShare"] == 0.25
    assert metrics["memorySizeMB"] == 512
    assert metrics["billedDurationMs"] == 60000
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/v4/x"
        record, exit_code = run("--", "sh", "-c", "exit 4", ECS_CONTAINER_METADATA_URI_V4=address)
    assert exit_code == 4
    assert record["launchType"] == "LOCAL"
    assert record["family"] == "sh"
    assert any("endpoint did not answer" in warning for warning in record["monitor"]["warnings"])


def test_inside_ecs_a_run_without_measurements_is_the_tasks() -> None:
    """A command that does not start, and one whose profile fails."""
    address = "http://127.0.0.1:1/v4/x"
    exit_codes = set[int]()

    def missing_of_the_task() -> dict[str, Any] | None:
        """On a busy machine the task may answer too late for a command that is over."""
        record, exit_code = run("--", "no-such-command", ECS_CONTAINER_METADATA_URI_V4=task.address)
        exit_codes.add(exit_code)
        return record if record["taskId"] == TASK_ID else None

    def failed_in_the_task() -> dict[str, Any] | None:
        record = _run_with_a_defect(ECS_CONTAINER_METADATA_URI_V4=task.address)
        return record if record["taskId"] == TASK_ID else None

    with TaskEndpoint(Task(2)) as task:
        missing = wait_until(missing_of_the_task, "a run that is the task's")
        failed = wait_until(failed_in_the_task, "a run that is the task's")
    silent, _ = run("--", "no-such-command", ECS_CONTAINER_METADATA_URI_V4=address)
    failed_silently = _run_with_a_defect(ECS_CONTAINER_METADATA_URI_V4=address)
    assert exit_codes == {127}
    for record in (missing, failed):
        assert record["taskId"] == TASK_ID
        assert record["launchType"] == "EC2"
        assert record["logStream"] == f"ecs/task-monitor/{TASK_ID}"
    for record in (silent, failed_silently):
        assert record["launchType"] == "LOCAL"
        assert any("endpoint did not answer" in text for text in record["monitor"]["warnings"])


class _LateTask(Task):
    """The endpoint's first answer is no task. It makes a file with it."""

    asked: Path

    def task(self) -> dict[str, object]:
        if self.asked.exists():
            return super().task()
        self.asked.touch()
        return {}


def test_a_task_that_the_endpoint_shows_late_is_the_runs(tmp_path: Path) -> None:
    """The command ends after the thread that asks, the only other one of the profiler."""
    task = _LateTask(2)
    task.asked = tmp_path / "asked"
    until_read = (
        f"until [ -e {task.asked} ]; do sleep 0.02; done\n"
        'while [ "$(ls /proc/$PPID/task | wc -l)" != 1 ]; do sleep 0.02; done'
    )
    with TaskEndpoint(task) as found:
        record, _ = run("--", "sh", "-c", until_read, ECS_CONTAINER_METADATA_URI_V4=found.address)
    assert record["taskId"] == TASK_ID
    assert record["launchType"] == "EC2"


def test_the_live_view_keeps_to_the_bottom_and_gives_the_terminal_back() -> None:
    # The profiler wakes up for quick readings, too, which the view does not draw.
    work = f"{READINGS_OF_FILES}wait_until_read('/proc/self/io', count=10)\n"
    work += "print('from the command')"
    text, _ = shown("--no-history", "--live", "--interval", "0.1", "--", sys.executable, "-c", work)
    for part in (
        "\x1b[1;20r",
        "\x1b[21;1H",
        "CPU",
        "vCPU",
        "1 process, 1 thread",
        "from the command",
    ):
        assert part in text
    assert Path(sys.executable).name in text.rpartition("Top")[2]
    assert text.rindex("\x1b[r") < text.rindex(" succeeded in ")


def test_quiet_prints_only_what_the_command_prints_and_stores_the_run(history: str) -> None:
    stored = ("-q", "--runs", "2")
    assert shown(*stored, "--", "echo", "from the command")[0].split("\n") == [
        "from the command"
    ] * 2 + [""]
    assert (
        subprocess.run([*RUN, *stored, "--", "true"], capture_output=True, check=True).stderr == b""
    )
    listing = [*PROGRAM, "history", "--json", "--from", f"history:{history}"]
    assert len(subprocess.run(listing, capture_output=True, check=True).stdout.splitlines()) == 4


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize("words", [(), ("--quiet",)])
def test_only_an_end_that_is_printed_is_made(words: tuple[str, ...]) -> None:
    """It reads the earlier runs of the history, and imports what draws."""
    imports = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    command = (*RUN, *words, "--", "true")
    done = subprocess.run(command, env=imports, capture_output=True, text=True, check=True)
    assert ("profiler.cli.terminal.end_page" in done.stderr) == (not words)
    assert "profiler.runs.history" in done.stderr


def test_quiet_says_why_the_exit_code_is_not_that_of_the_command() -> None:
    for words, code, sentence in (
        (("--max-duration", "1ms", "--", "sleep", "0.1"), 3, "exceeded the budget"),
        (("--", "no-such-program"), 127, "was not found in PATH; check its spelling."),
        (("--", "cat x | wc"), 127, "for a shell's command line, write sh -c 'cat x | wc'."),
        (("--live", "--", "true"), 2, "--live prints what --quiet does not"),
    ):
        done = subprocess.run(
            [*NO_HISTORY, "--quiet", *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert sentence in done.stderr


def test_a_command_line_in_one_word_is_named_after_its_program_and_shows_no_secret(
    tmp_path: Path,
) -> None:
    line = "psql postgres://joe:hunter2@h/db"
    done = subprocess.run(
        [*NO_HISTORY, "--", line], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 127
    assert "hunter2" not in done.stdout + done.stderr
    assert "write sh -c 'psql postgres://…@h/db'" in done.stderr
    program = tmp_path / "my load"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for word, family in ((line, "psql"), (f"{program}", "my load")):
        done = subprocess.run(
            [*NO_HISTORY, "--", word], capture_output=True, text=True, check=False
        )
        assert json.loads(done.stderr.splitlines()[-1])["record"]["family"] == family
        assert "hunter2" not in done.stdout + done.stderr


def test_the_live_view_gives_the_terminal_to_the_shell_while_the_command_is_stopped() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(
            "bash",
            ["bash", "--norc", "--noprofile", "--noediting", "-i"],
            {**os.environ, "TERM": "xterm"},
        )
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    reserved, closed = b"\x1b[1;20r", b"\x1b[24;1H\x1b[2K\x1b[r"
    os.write(
        terminal,
        f"{shlex.join(NO_HISTORY)} --live --interval 0.1 --output /dev/null -- cat\n".encode(),
    )
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
        "import sys; from profiler.cli import app; from profiler.cli.wiring import "
        "build_session\nbuild_session.Collectors.stop = lambda _accelerators: "
        "print(open(sys.argv[1]).read().count('task.report'))\nwords = ['run', '--no-history', "
        "'--output', sys.argv[1], '--', 'true']\nsys.exit(app.group.main(words, "
        "standalone_mode=False))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n"
    assert done.stderr == ""


@pytest.mark.parametrize(("kind", "seconds"), [("xterm", "0.01"), ("dumb", "0.4")])
def test_a_short_run_and_a_terminal_without_control_codes_have_no_live_view(
    kind: str, seconds: str
) -> None:
    assert "\x1b[1;20r" not in shown("--no-history", "--live", "--", "sleep", seconds, TERM=kind)[0]


def test_without_stderr_warnings_are_not_written_into_the_output(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    words = ["sh", "-c", '"$@" 2>&-', "sh", *NO_HISTORY, "--output", str(file), "--", "true"]
    subprocess.run(words, env={**os.environ, "TASK_PROFILER_PRICE_VCPU_HOUR": "abc"}, check=True)
    (line,) = file.read_text().splitlines()
    assert json.loads(line)["type"] == "task.report"

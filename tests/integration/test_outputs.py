"""Outputs that take nothing, whose reader leaves, or that nobody reads, as behind a log driver
that hangs.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import run_here
from tests.integration.profiled import PROGRAM, RUN
from tests.integration.sidecar import NO_AWS, Sidecar
from tests.runs import lines, report
from tests.task_endpoint import GROUP, STREAM
from tests.terminals import Pipe
from tests.values import present
from tools.moto_server import FakeAws
from tools.waiting import LIMIT_SECONDS, wait_until

DEFINITION = Path(__file__).parents[2] / "taskdef" / "fargate-scheduled.json"
FULL = b"task-profiler: Cannot write to standard output (No space left on device): redirect it.\n"
CLOSED = b"task-profiler: Cannot write to standard output (Bad file descriptor): redirect it.\n"
# Which files get the descriptors of closed streams, and which streams other programs have.
_OPENS_AFTER_CLOSED = """
import os, subprocess, sys
from profiler.cli.printing import replace_standard_streams, write_out
from profiler.core.errors import TaskProfilerError
replace_standard_streams()
with open("opened", "wb", buffering=0) as file:
    try:
        write_out(b"output")
    except TaskProfilerError as error:
        file.write(str(error).encode())
    write_out(b"errors", 2)
    file.write(b" %d " % (file.fileno() > 2))
    open_streams = "for each in 0 1 2; do [ -e /proc/$$/fd/$each ] && echo $each >> seen; done"
    subprocess.run(["sh", "-c", open_streams + "; true"], check=True)
"""
PRINTING = pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("completion", "bash"),
        ("doctor",),
        ("history", "--from", "runs.jsonl"),
        ("taskdef", "add-monitor", "nightly.json"),
        ("schema",),
    ],
    ids=" ".join,
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run and a task definition in it; not in ECS."""
    monkeypatch.delenv("ECS_CONTAINER_METADATA_URI_V4", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("runs.jsonl").write_bytes(lines([report()]))
    shutil.copy(DEFINITION, "nightly.json")
    return tmp_path


def to(output: Path | int, *words: str) -> tuple[int, bytes]:
    """The exit code and what stood on stderr."""
    with os.fdopen(output, "wb") if isinstance(output, int) else output.open("wb") as stream:
        done = subprocess.run(
            [*PROGRAM, *words],
            stdout=stream,
            stderr=subprocess.PIPE,
            check=False,
            timeout=LIMIT_SECONDS,
        )
    return done.returncode, done.stderr


@PRINTING
def test_an_output_that_takes_nothing_is_one_sentence(words: tuple[str, ...]) -> None:
    assert to(Path("/dev/full"), *words) == (1, FULL)


@PRINTING
def test_a_closed_output_is_one_sentence(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        ("sh", "-c", '"$@" >&-', "sh", *PROGRAM, *words),
        stderr=subprocess.PIPE,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    assert (done.returncode, done.stderr) == (1, CLOSED)


def test_no_file_gets_the_descriptor_of_a_closed_stream() -> None:
    words = (sys.executable, "-c", _OPENS_AFTER_CLOSED)
    subprocess.run(
        ("sh", "-c", '"$@" <&- >&- 2>&-', "sh", *words),
        env={**os.environ, "PYTHONPATH": str(DEFINITION.parents[1])},
        check=True,
        timeout=LIMIT_SECONDS,
    )
    sentence = CLOSED.decode().removeprefix("task-profiler: ").rstrip()
    assert Path("opened").read_text() == f"{sentence} 1 "
    assert not Path("seen").exists()  # still closed for other programs


@PRINTING
def test_a_reader_that_has_seen_enough_is_no_error(words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    assert to(writing, *words) == (0, b"")


def test_a_traceback_is_to_be_had() -> None:
    code, errors = to(Path("/dev/full"), "--debug", "schema")
    assert code == 1
    assert b"Traceback" in errors
    assert b"Exception ignored" not in errors


@pytest.mark.parametrize(
    "event", [b"\xff\xfe\xfa", b'{"detail": %s}' % (b"1" * 5000), b"nonsense", b"[" * 10_000]
)
def test_an_event_that_is_no_json_is_one_sentence(event: bytes) -> None:
    Path("event.json").write_bytes(event)
    done = run_here({}, "notify", "event.json")
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "The event is not valid JSON" in done.stderr


# Pipes that are full.


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    with Pipe() as opened:
        opened.fill()
        yield opened


@pytest.mark.slow
def test_checkpoints_that_nobody_reads_stop_neither_the_samples_nor_the_report(
    aws: FakeAws, pipe: Pipe
) -> None:
    with Sidecar(aws.environment(), output=pipe.write_end, CHECKPOINT_SECONDS="0.1") as sidecar:
        sidecar.wait_for_samples(30)
        sidecar.process.send_signal(signal.SIGTERM)
        _, errors = sidecar.finish()
    (event,) = aws.events(GROUP, STREAM)
    record = json.loads(event.message)["record"]
    assert record["status"] == "stopped"
    assert record["logStream"] == STREAM
    (warning,) = [text for text in record["monitor"]["warnings"] if "dropped" in text]
    assert "The monitor's standard output was not read for a while" in warning
    lost = [line["event"] for line in errors if "Lines of the monitor are lost" in line["event"]]
    assert len(lost) == 1


@pytest.mark.slow
def test_the_monitor_ends_in_time_if_nobody_reads_a_word_of_it(pipe: Pipe) -> None:
    both = pipe.write_end
    with Sidecar(
        NO_AWS, output=both, errors=both, CHECKPOINT_SECONDS="0.1", STOP_SECONDS="3"
    ) as sidecar:
        sidecar.wait_for_samples(30)
        sidecar.process.send_signal(signal.SIGTERM)
        sidecar.process.wait(LIMIT_SECONDS)
    assert sidecar.process.returncode == 0


def test_the_report_is_printed_as_soon_as_the_output_is_read(pipe: Pipe) -> None:
    """What was begun before is completed, so that each line is one JSON document."""
    with Sidecar(
        NO_AWS, output=pipe.write_end, CHECKPOINT_SECONDS="0.1", STOP_SECONDS="60"
    ) as sidecar:
        sidecar.wait_for_samples(30)
        sidecar.end_batch()
        for line in present(sidecar.process.stderr):
            if b"The report is not printed" in line:
                break
        pipe.drop_filling()
        sidecar.process.wait(LIMIT_SECONDS)
    kinds = [json.loads(line)["type"] for line in pipe.read_lines()]
    assert kinds[0] == "task.checkpoint"
    assert kinds[-1] == "task.report"
    assert len(kinds) == 2


def test_a_report_that_nobody_reads_does_not_hold_the_exit_code_of_run(
    pipe: Pipe, history_file: Path
) -> None:
    done = subprocess.run(
        (*RUN, "--", "sh", "-c", "exit 7"),
        stderr=pipe.write_end,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 7
    assert history_file.exists()


def test_the_output_of_the_command_stays_blocking(pipe: Pipe) -> None:
    """`run` and its command share one standard error: a command that writes much must not see
    EAGAIN.
    """
    code = "import os; print(os.get_blocking(2), flush=True); os.write(2, b'y' * 100_000)"
    with subprocess.Popen(
        (*RUN, "--no-history", "--", sys.executable, "-c", code),
        stdout=subprocess.PIPE,
        stderr=pipe.write_end,
    ) as process:
        assert present(process.stdout).readline() == b"True\n"
        pipe.drop_filling()
        found = b""
        while found.count(b"y") < 100_000:
            found += os.read(pipe.read_end, 100_000)
        wait_until(lambda: process.poll() is not None, "the end")
    assert process.returncode == 0

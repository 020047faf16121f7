"""What all commands have in common: an output that takes nothing, a reader that leaves, JSON that is none."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.command_line import run_here
from tests.integration.profiled import PROGRAM
from tests.runs import lines, report
from tests.task_events import EVENT

DEFINITION = Path(__file__).parents[2] / "taskdef" / "fargate-scheduled.json"
FULL = b"task-profiler: Cannot write to standard output (No space left on device): redirect it.\n"
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
    """A folder with an event, a run and a task definition in it; not in ECS."""
    monkeypatch.delenv("ECS_CONTAINER_METADATA_URI_V4", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("event.json").write_text(json.dumps(EVENT))
    Path("runs.jsonl").write_bytes(lines([report()]))
    shutil.copy(DEFINITION, "nightly.json")
    return tmp_path


def to(output: Path | int, *words: str) -> tuple[int, bytes]:
    """The exit code and what stood on stderr."""
    with os.fdopen(output, "wb") if isinstance(output, int) else output.open("wb") as stream:
        done = subprocess.run([*PROGRAM, *words], stdout=stream, stderr=subprocess.PIPE, check=False, timeout=60)
    return done.returncode, done.stderr


@PRINTING
def test_an_output_that_takes_nothing_is_one_sentence(words: tuple[str, ...]) -> None:
    assert to(Path("/dev/full"), *words) == (1, FULL)


@PRINTING
def test_a_reader_that_has_seen_enough_is_no_error(words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    assert to(writing, *words) == (0, b"")


def test_a_traceback_is_to_be_had() -> None:
    code, told = to(Path("/dev/full"), "--debug", "schema")
    assert code == 1
    assert b"Traceback" in told
    assert b"Exception ignored" not in told


@pytest.mark.parametrize("event", [b"\xff\xfe\xfa", b'{"detail": %s}' % (b"1" * 5000), b"nonsense"])
def test_an_event_that_is_no_json_is_one_sentence(event: bytes) -> None:
    Path("event.json").write_bytes(event)
    done = run_here({}, "notify", "event.json")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "The event is not valid JSON" in done.stderr

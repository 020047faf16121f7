"""``task-profiler taskdef add-monitor`` as a command: files, standard input, and what is said where."""

import json
import os
import pty
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from profiler import __version__

BATCH = {
    "name": "batch",
    "image": "etl:26",
    "logConfiguration": {"logDriver": "awslogs", "options": {"awslogs-group": "/ecs/nightly"}},
}
PLAIN = {"family": "nightly", "taskRoleArn": "nightly-task", "containerDefinitions": [BATCH], "x-kept": [1.0, "ä"]}
COMMAND = [sys.executable, "-m", "profiler", "taskdef", "add-monitor"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "nightly.json"
    path.write_text(json.dumps(PLAIN, indent=4, ensure_ascii=False) + "\n")
    return path


def add_monitor(*words: str | Path, standard_input: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, *words], input=standard_input, capture_output=True, check=False)


def names(text: bytes) -> list[str]:
    return [container["name"] for container in json.loads(text)["containerDefinitions"]]


def test_the_definition_is_printed_and_the_file_left_alone(file: Path) -> None:
    before = file.read_bytes()
    done = add_monitor(file, "--image", "own:1")
    assert (done.returncode, done.stderr) == (0, b"")
    assert names(done.stdout) == ["batch", "task-monitor"]
    assert done.stdout.startswith(b'{\n    "family": "nightly",\n')
    assert json.loads(done.stdout)["x-kept"] == PLAIN["x-kept"]
    assert file.read_bytes() == before


def test_the_mode_of_the_stacks_is_not_the_next_word(file: Path) -> None:
    always, moments = add_monitor("--stacks", file), add_monitor("--stacks=moments", file)
    assert always.stdout.replace(b'"value": "on"', b'"value": "moments"') == moments.stdout
    assert json.loads(moments.stdout)["pidMode"] == "task"


def test_a_hyphen_is_standard_input(file: Path) -> None:
    done = add_monitor("-", "--image", "own:1", standard_input=file.read_bytes())
    assert done.stdout == add_monitor(file, "--image", "own:1").stdout


def test_what_aws_ecs_describe_task_definition_prints_is_read(tmp_path: Path) -> None:
    arn = "arn:aws:ecs:eu-west-1:111122223333:task-definition/nightly:7"
    described = tmp_path / "described.json"
    described.write_text(json.dumps({"taskDefinition": {**PLAIN, "taskDefinitionArn": arn, "revision": 7}, "tags": []}))
    printed: Any = json.loads(add_monitor(described).stdout)
    assert set(printed) == set(PLAIN)
    image = printed["containerDefinitions"][1]["image"]
    assert image == f"111122223333.dkr.ecr.eu-west-1.amazonaws.com/task-profiler:{__version__}"
    assert add_monitor(described, "--in-place").returncode == 0
    assert json.loads(described.read_text()) == printed


def test_in_place_keeps_permissions_and_links_and_does_nothing_the_second_time(file: Path, tmp_path: Path) -> None:
    file.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(file)
    done = add_monitor(link, "--in-place", "--image", "own:1")
    assert (done.returncode, done.stdout) == (0, b"")
    assert names(file.read_bytes()) == ["batch", "task-monitor"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert link.is_symlink()
    first = file.stat()
    assert add_monitor(file, "--in-place", "--image", "own:1").returncode == 0
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_output_goes_to_another_file(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = add_monitor(file, "-o", out, "--image", "own:1")
    assert (done.returncode, done.stdout) == (0, b"")
    assert names(out.read_bytes()) == ["batch", "task-monitor"]


def test_warnings_and_the_default_image_are_said_on_stderr(tmp_path: Path) -> None:
    file = tmp_path / "silent.json"
    file.write_text(json.dumps({"containerDefinitions": [{"name": "batch"}]}))
    done = add_monitor(file)
    assert done.returncode == 0
    assert names(done.stdout) == ["batch", "task-monitor"]
    assert b"does not log by awslogs" in done.stderr
    assert b"--image" in done.stderr


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [
        ([], 2),
        (["--family", ""], 2),
        (["FILE", "--family", "nightly"], 2),
        (["FILE", "--register"], 2),
        (["FILE", "--policy"], 2),
        (["FILE", "--services"], 2),
        (["FILE", "FILE"], 2),
        (["--cluster", ""], 2),
        (["--family", "nightly", "--update-schedules"], 2),
        (["FILE", "--log-group", " "], 2),
        (["FILE", "--in-place", "-o", "x"], 2),
        (["-", "--in-place"], 2),
        (["--family", "nightly", "--in-place"], 2),
        (["FILE", "--container", "missing"], 1),
        (["missing.json"], 1),
        (["FILE", "-o", "/missing/out.json"], 1),
        (["-"], 1),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(file: Path, words: list[str], exit_code: int) -> None:
    before = file.read_bytes()
    done = add_monitor(*(str(file) if word == "FILE" else word for word in words), "--image=own:1")
    assert (done.returncode, done.stdout) == (exit_code, b"")
    assert done.stderr.count(b"\n") == 1
    assert done.stderr.startswith(b"task-profiler: ")
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"Resources:\n  Queue:\n    Type: AWS::SQS::Queue\n", b"a CloudFormation template without a task definition"),
        (b"Resources:\n  Task: [\n", b"is not valid YAML: correct the mistake in line 3."),
        (b'{"family": "nightly",}', b"is not valid JSON"),
        (b"nightly", b"is not valid JSON"),
    ],
)
@pytest.mark.parametrize("command", ["add-monitor", "remove-monitor"])
def test_a_file_without_a_task_definition_is_named_as_what_it_is(
    tmp_path: Path, command: str, text: bytes, sentence: bytes
) -> None:
    file = tmp_path / "stack.yaml"
    file.write_bytes(text)
    done = subprocess.run([*COMMAND[:-1], command, file], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (1, b"", 1)
    assert sentence in done.stderr


def test_an_empty_image_is_refused(file: Path) -> None:
    done = add_monitor(file, "--image", " ")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)


def test_help_has_an_example() -> None:
    done = add_monitor("--help")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Example: task-profiler taskdef add-monitor" in done.stdout


def test_people_are_shown_what_changes_in_colour(file: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    done = subprocess.run(
        [*COMMAND, file, "--image", "own:1"], stdout=subprocess.PIPE, stderr=theirs, env=environment, check=False
    )
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert names(done.stdout) == ["batch", "task-monitor"]
    assert '\x1b[32m+            "name": "task-monitor"' in shown
    assert "\x1b[31m-  " not in shown  # nothing is taken away

"""``task-profiler taskdef add-monitor``: files, standard input, settings, and what is said
where.
"""

import json
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from profiler.cli.taskdef_command import parse_settings
from profiler.core.errors import UsageError
from tests.command_line import run_here

BATCH = {
    "name": "batch",
    "image": "etl:26",
    "logConfiguration": {"logDriver": "awslogs", "options": {"awslogs-group": "/ecs/nightly"}},
}
PLAIN = {
    "family": "nightly",
    "taskRoleArn": "nightly-task",
    "containerDefinitions": [BATCH],
    "x-kept": [1.0, "ä"],
}
COMMAND = [sys.executable, "-m", "profiler", "taskdef", "add-monitor"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "nightly.json"
    path.write_text(json.dumps(PLAIN, indent=4, ensure_ascii=False) + "\n")
    return path


def add_monitor(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return run_here({}, "taskdef", "add-monitor", *map(str, words))


def names(text: str | bytes) -> list[str]:
    return [container["name"] for container in json.loads(text)["containerDefinitions"]]


def test_the_definition_of_a_file_stays_as_it_is(file: Path, tmp_path: Path) -> None:
    """The definition of a file or standard input is printed or goes to another file and stays as it
    is.
    """
    before = file.read_bytes()
    done = add_monitor(file, "--image", "team/own:1")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert names(done.stdout) == ["batch", "task-monitor"]
    assert done.stdout.startswith('{\n    "family": "nightly",\n')
    assert json.loads(done.stdout)["x-kept"] == PLAIN["x-kept"]
    written = add_monitor(file, "-o", tmp_path / "out.json", "--image", "team/own:1")
    assert written.returncode == 0, written.stderr
    assert written.stdout == ""
    piped = subprocess.run(
        [*COMMAND, "-", "--image", "team/own:1"], input=before, capture_output=True, check=False
    )
    assert (tmp_path / "out.json").read_text() == done.stdout == piped.stdout.decode()
    assert add_monitor(file, "--image", "team/own:1", "-o", "-").stdout == done.stdout
    assert file.read_bytes() == before


def test_the_mode_of_the_stacks_is_not_the_next_word(file: Path) -> None:
    always, moments = add_monitor("--stacks", file), add_monitor("--stacks=moments", file)
    assert always.stdout.replace('"value": "on"', '"value": "moments"') == moments.stdout
    assert json.loads(moments.stdout)["pidMode"] == "task"


def test_in_place_keeps_permissions_and_links_and_does_nothing_the_second_time(
    file: Path, tmp_path: Path
) -> None:
    file.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(file)
    done = add_monitor(link, "--in-place", "--image", "team/own:1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert names(file.read_bytes()) == ["batch", "task-monitor"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert link.is_symlink()
    first = file.stat()
    assert add_monitor(file, "--in-place", "--image", "team/own:1").returncode == 0
    assert file.stat().st_ino == first.st_ino
    assert file.stat().st_mtime_ns == first.st_mtime_ns
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_warnings_and_the_default_image_are_said_on_stderr(tmp_path: Path) -> None:
    file = tmp_path / "silent.json"
    file.write_text(json.dumps({"containerDefinitions": [{"name": "batch"}]}))
    done = add_monitor(file)
    assert done.returncode == 0
    assert names(done.stdout) == ["batch", "task-monitor"]
    assert "does not log by awslogs" in done.stderr
    assert "--image" in done.stderr


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [
        ("", 2),
        ("--family ''", 2),
        ("FILE --family nightly", 2),
        ("FILE --register", 2),
        ("FILE FILE", 2),
        ("--family nightly --update-schedules", 2),
        ("FILE --image ' '", 2),
        ("FILE --in-place -o x", 2),
        ("- --in-place", 2),
        ("FILE --container missing", 1),
        ("missing.json", 1),
        ("FILE -o /missing/out.json", 1),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(
    file: Path, words: str, exit_code: int
) -> None:
    before = file.read_bytes()
    done = add_monitor(
        "--image=team/own:1", *(file if word == "FILE" else word for word in shlex.split(words))
    )
    assert done.returncode == exit_code, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("task-profiler: ")
    assert file.read_bytes() == before


def test_settings_of_the_monitor_and_other_variables_have_one_value() -> None:
    texts = (
        "TASK_PROFILER_TAGS=true",
        "TASK_PROFILER_PRICE_HOUR=1.5",
        "https_proxy=http://a=b",
        "EMPTY=",
    )
    assert parse_settings(texts) == {
        "TASK_PROFILER_TAGS": "true",
        "TASK_PROFILER_PRICE_HOUR": "1.5",
        "https_proxy": "http://a=b",
        "EMPTY": "",
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("A=1 A=2", "given twice"),
        ("TASK_PROFILER_TAGS", "is not NAME=VALUE"),
        ("TASK_PROFILER_TAG=true", "no such setting"),
        ("TASK_PROFILER_TAGS=maybe", "'maybe' is not true or false"),
        ("TASK_PROFILER_INTERVAL_SECONDS=0", "is not a number of seconds from 0.02"),
        ("TASK_PROFILER_CONTAINER=etl", "use --container."),
        ("TASK_PROFILER_STACKS=on", "use --stacks."),
    ],
)
def test_a_mistake_in_a_setting_is_one_sentence(text: str, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_settings(tuple(text.split()))
    assert reason in str(refused.value)
    assert str(refused.value).startswith("--setting ")
    assert str(refused.value).endswith(".")

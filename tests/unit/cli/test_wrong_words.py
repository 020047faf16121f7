"""What commands say of a source or a family that is nearly right."""

import json
import sqlite3
import sys
from contextlib import chdir, closing
from pathlib import Path
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from profiler.cli import aws_names
from profiler.record.batch_job import BatchJob
from profiler.record.record_model import SCHEMA_VERSION
from tests.cases import each_case
from tests.command_line import run_here
from tests.runs import lines, report


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "runs.jsonl"
    made.write_bytes(lines([report(family="nightly-etl"), report(1, family="nightly-etl")]))
    return made


@pytest.mark.parametrize("address", ["s3://bucket/runs.jsonl", "S3://bucket", "ftp://host/runs"])
def test_an_address_of_another_kind_is_not_called_a_log_group(address: str) -> None:
    done = run_here({}, "history", "--from", address)
    assert done.returncode == 2
    assert f"{address.partition(':')[0].lower()}:// is not supported" in done.stderr
    assert "logs:" not in done.stderr


@pytest.mark.parametrize("address", ["search:9200", "10.0.0.1:9200/jobs"])
def test_a_host_with_a_port_names_the_scheme(address: str) -> None:
    done = run_here({}, "history", "--from", address)
    assert done.returncode == 2
    assert f"write https://{address}" in done.stderr


def test_a_file_that_looks_like_an_address_is_a_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.rename(file.parent / "search:9200")
    monkeypatch.chdir(file.parent)
    assert run_here({}, "history", "--from", "search:9200").returncode == 0


@pytest.mark.parametrize(
    "word", ["s3://bucket", "nowhere.jsonl", "search:9200", "logs:", "history:/nowhere"]
)
def test_an_error_about_a_word_of_the_variable_names_the_variable(word: str) -> None:
    done = run_here({"TASK_PROFILER_FROM": word}, "history")
    assert done.returncode > 0
    assert done.stderr.endswith("TASK_PROFILER_FROM has this source.\n")


def test_a_word_of_the_variable_that_fails_beside_others_names_the_variable(file: Path) -> None:
    done = run_here({"TASK_PROFILER_FROM": f"{file} nowhere.jsonl"}, "history")
    assert done.returncode == 1
    assert "logs:nowhere.jsonl. TASK_PROFILER_FROM has this source." in done.stderr


def test_an_error_about_the_option_does_not_name_the_variable() -> None:
    environment = {"TASK_PROFILER_FROM": "s3://bucket"}
    assert "TASK_PROFILER_FROM" not in run_here(environment, "history", "--from", "none").stderr


def test_another_error_does_not_name_the_variable(file: Path) -> None:
    done = run_here({"TASK_PROFILER_FROM": str(file)}, "history", "--since", "never")
    assert "TASK_PROFILER_FROM" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("show", "nightly-elt"),
        ("show", "nightly-elt", "--stacks"),
        ("history", "nightly-elt"),
        ("history", "nightly-elt", "--status", "success"),
        ("recommend", "nightly-elt"),
        ("report", "nightly-elt"),
        ("compare", "nightly-elt@25", "nightly-etl@26"),
    ],
)
def test_a_family_that_is_nearly_right_gets_a_suggestion(
    words: tuple[str, ...], file: Path
) -> None:
    done = run_here({}, *words, "--from", str(file))
    assert done.returncode == 1
    assert done.stderr.endswith("Did you mean nightly-etl?\n")


def test_a_family_that_is_nearly_right_beside_another_one_gets_a_suggestion(file: Path) -> None:
    done = run_here({}, "recommend", "nightly-etl", "nightly-elt", "--from", str(file))
    assert "Did you mean nightly-etl?" in done.stderr


@pytest.mark.parametrize("name", ["billing", "nightly-x*", "4dd5853f"])
def test_another_name_gets_no_suggestion(name: str, file: Path) -> None:
    assert "Did you mean" not in run_here({}, "show", name, "--from", str(file)).stderr


@pytest.mark.parametrize("name", ["NIGHTLY-ETL", "Nightly-Elt"])
def test_a_family_in_other_letters_gets_a_suggestion(name: str, file: Path) -> None:
    done = run_here({}, "show", name, "--from", str(file))
    assert done.returncode == 1
    assert done.stderr.endswith("Did you mean nightly-etl?\n")


@pytest.mark.parametrize(
    ("address", "meant"),
    [
        ("https:://search", "https://search"),
        ("https:/search:9200", "https://search:9200"),
        ("htps://search", "https://search"),
        ("http:::///search", "http://search"),
        ("https//search:9200", "https://search:9200"),
    ],
)
def test_an_address_that_is_nearly_right_is_told_the_right_one(address: str, meant: str) -> None:
    done = run_here({}, "history", "--from", address)
    assert done.returncode == 2
    assert done.stderr.endswith(f"is not an address: write {meant}.\n")


@pytest.mark.parametrize(
    "words",
    [
        ("setup", "stack", "--elasticsearch"),
        ("kibana", "import", "--url"),
        ("kibana", "import", "--elasticsearch"),
    ],
)
def test_an_option_with_an_address_is_told_the_right_one_as_a_source_is(
    words: tuple[str, ...],
) -> None:
    done = run_here({}, *words, "https:://search:9200")
    assert done.returncode == 2
    assert done.stderr == (
        "task-profiler: https:://search:9200 is not an address: write https://search:9200.\n"
    )
    assert run_here({}, *words, "search").stderr.endswith(
        "has no scheme: add http:// or https:// before it.\n"
    )


@pytest.mark.parametrize("port", ["port", "99999", "9200a", "-1"])
def test_an_address_with_what_is_no_port_is_a_mistake(port: str) -> None:
    wrong = f"https://search:{port}/task"
    for words in (("history", "--from"), ("setup", "stack", "--elasticsearch")):
        done = run_here({}, *words, wrong)
        assert done.returncode == 2
        assert "what follows the host is no port: write a number" in done.stderr
        assert "no port" not in run_here({}, *words, "http://[::1]:1/task").stderr
    done = run_here({}, "history", "--from", f"https://me:hunter2@search:{port}")
    assert done.returncode == 2
    assert "hunter2" not in done.stderr


@pytest.mark.parametrize("kind", ["logs", "insights"])
def test_a_kind_of_source_alone_needs_a_name(kind: str, file: Path) -> None:
    done = run_here({}, "history", "--from", kind)
    assert done.returncode == 2
    assert f"--from {kind!r} has no name: write history:FILE, logs:GLOB" in done.stderr
    with chdir(file.parent):
        file.rename(kind)
        assert run_here({}, "history", "--from", kind).returncode == 0


@pytest.mark.parametrize("kind", ["", "logs:"])
@pytest.mark.parametrize("end", ["", ":*"])
def test_the_arn_of_a_log_group_is_told_its_name_and_region(kind: str, end: str) -> None:
    arn = f"arn:aws:logs:eu-west-1:123456789012:log-group:/ecs/jobs{end}"
    done = run_here({}, "history", "--from", f"{kind}{arn}")
    assert done.returncode == 2
    assert done.stderr.endswith("is an ARN: write --from logs:/ecs/jobs --region eu-west-1.\n")


@pytest.mark.parametrize("names", ["logs:/ecs/a,/ecs/b", "logs:/ecs/a /ecs/b", "insights:a,b"])
def test_a_list_of_names_in_one_source_is_told_to_repeat_the_option(names: str) -> None:
    done = run_here({}, "history", "--from", names)
    assert done.returncode == 2
    assert done.stderr.endswith("is one name: give --from for each of several.\n")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("log:/ecs/jobs", "is of no known kind: write logs:/ecs/jobs."),
        ("LOGS:/ecs/jobs", "is of no known kind: write logs:/ecs/jobs."),
        ("insight:prod", "is of no known kind: write insights:prod."),
        ("histroy:runs.sqlite3", "is of no known kind: write history:runs.sqlite3."),
        ("file:runs.jsonl", "a file has no kind before it: write runs.jsonl."),
        ("file:///var/runs.jsonl", "a file has no kind before it: write /var/runs.jsonl."),
    ],
)
def test_a_kind_that_is_nearly_right_is_told_the_right_one(source: str, said: str) -> None:
    done = run_here({}, "history", "--from", source)
    assert done.returncode == 2
    assert done.stderr.endswith(f"{said}\n")
    assert done.stderr.count("\n") == 1


def test_a_file_with_a_colon_in_its_name_and_one_that_is_missing_are_files(tmp_path: Path) -> None:
    path = tmp_path / "log:runs"
    path.write_bytes(b"")
    assert "No runs in" in run_here({}, "history", "--from", str(path)).stderr
    missing = run_here({}, "history", "--from", "nightly:2026.jsonl")
    assert missing.stderr.startswith("task-profiler: There is no file nightly:2026.jsonl: ")


def test_a_file_of_records_that_is_named_as_a_history_is_told_how_it_is_read(file: Path) -> None:
    done = run_here({}, "history", "--from", f"history:{file}")
    assert done.returncode == 1
    assert done.stderr == f"task-profiler: {file} is JSON and no history: write --from {file}.\n"


@pytest.mark.parametrize(
    "text", [b"a text\n", b"task,minutes\n" * 99, b"\x1f\x8b\x08\0", b"SQLite 2"]
)
def test_a_file_that_is_no_database_is_not_called_a_damaged_history(
    text: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(text)
    done = run_here({}, "history", "--from", f"history:{path}")
    assert done.returncode == 1
    assert done.stderr == (
        f"task-profiler: {path} is no history, which is an SQLite database: name one, or write "
        f"--from {path} for a file of record lines.\n"
    )
    assert path.read_bytes() == text


@pytest.mark.parametrize("is_option", [True, False])
def test_a_file_that_cannot_be_a_history_is_named_where_another_can_be_named(
    is_option: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    other = tmp_path / "other.sqlite3"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE orders (number)")
        connection.commit()
    for path, said in ((tmp_path, "is not a file: name another"), (other, "name another file")):
        source = f"history:{path}" if is_option else "history"
        variable = {} if is_option else {"TASK_PROFILER_HISTORY": str(path)}
        done = run_here(variable, "history", "--from", source)
        assert done.returncode == 1
        assert said in done.stderr
        named_by = "--from history:FILE" if is_option else "TASK_PROFILER_HISTORY"
        assert done.stderr.endswith(f" by {named_by}.\n")


@pytest.mark.parametrize("words", [("history",), ("show", "etl"), ("report",)])
def test_a_history_below_a_file_is_not_one_without_runs(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    """No run could be added to it."""
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "history.sqlite3"
    done = run_here({"TASK_PROFILER_HISTORY": str(path)}, *words)
    assert done.returncode == 1
    assert done.stderr == (
        f"task-profiler: {path} cannot be opened (Not a directory): name another file by "
        "TASK_PROFILER_HISTORY.\n"
    )


def test_an_empty_file_is_a_history_without_runs_and_a_broken_one_is_damaged(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.sqlite3"
    path.touch()
    assert "No runs" in run_here({}, "history", "--from", f"history:{path}").stderr
    path.write_bytes(b"SQLite format 3\0" + bytes(4080))
    assert "is damaged or not a history" in (
        run_here({}, "history", "--from", f"history:{path}").stderr
    )


@pytest.mark.parametrize("command", ["history", "show", "recommend", "report", "watch", "doctor"])
def test_the_option_of_a_family_where_it_is_an_argument(command: str) -> None:
    done = run_here({}, command, "--family", "words")
    assert done.returncode == 2
    assert done.stderr == (
        "task-profiler: No such option '--family': name the family without it, as in "
        f"task-profiler {command} nightly-etl.\n"
    )
    assert "nightly-etl" not in run_here({}, "replay", "--family", "words").stderr


@pytest.mark.parametrize("address", ["https://", "http:///task", "https://:9200"])
def test_an_address_without_a_host_is_a_mistake(address: str) -> None:
    done = run_here({}, "history", "--from", address)
    assert done.returncode == 2
    scheme = address.partition(":")[0]
    assert done.stderr.endswith(f"names no host: write {scheme}://HOST.\n")


@pytest.mark.parametrize(
    ("beginning", "said"),
    [
        (b"SQLite format 3\0", "is an SQLite database, as a history is: write history:"),
        (b"\x1f\x8b\x08\0", "or - with a pipe from zcat."),
        (b"PK\3\4", "or - with a pipe from unzip -p."),
        (b"\xfd7zXZ\0", "or - with a pipe from xzcat."),
        (b"BZh9", "or - with a pipe from bzcat."),
        (b"\x28\xb5\x2f\xfd", "or - with a pipe from zstdcat."),
        (b"\xff\xfe{\0", "is text in UTF-16: convert it to UTF-8"),
        (b'{\0"\0', "is text in UTF-16: convert it to UTF-8"),
        (
            b"runs.jsonl" + bytes(247) + b"ustar  \0" + bytes(247) + b"{}",
            "is an archive: unpack it",
        ),
    ],
)
def test_a_file_of_another_format_is_named(beginning: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "runs"
    path.write_bytes(beginning + b"\n\0\0\n")
    done = run_here({}, "history", "--from", str(path))
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert "invalid" not in done.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("history", "--from"), "/dev/zero has more than 64 MB without a line's end: name a file"),
        (("notify",), "The event has more than 64 MB: name the file of a stopped task's event"),
        (("taskdef", "add-monitor"), "/dev/zero has more than 64 MB: name the file of a task"),
    ],
)
def test_a_device_that_never_ends_is_not_read_on(command: tuple[str, ...], said: str) -> None:
    done = run_here({}, *command, "/dev/zero")
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (
            "profiler.runs.past_runs.record_files.read_run_line",
            "runs.jsonl does not fit into memory: name a file of record lines, or a part of it.",
        ),
        ("profiler.cli.history_command.open_source", "The memory does not suffice: select fewer"),
    ],
)
def test_too_little_memory_is_one_sentence(
    place: str, said: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a line of some GB below ``ulimit -v``."""
    monkeypatch.setattr(place, Mock(side_effect=MemoryError))
    done = run_here({}, "history", "--from", str(file))
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words", [("history", "--from"), ("taskdef", "add-monitor"), ("doctor",)], ids=" ".join
)
def test_a_closed_standard_input_is_one_sentence(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``task-profiler history --from - <&-``, and some daemons."""
    monkeypatch.setattr(sys, "stdin", None)
    done = run_here({}, *words, "-")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        "task-profiler: standard input cannot be read (Bad file descriptor): name "
    )


@pytest.mark.parametrize("command", ["show", "history", "report", "recommend"])
def test_a_file_in_the_place_of_a_family_names_the_option(command: str, file: Path) -> None:
    named = file.rename(file.parent / "my runs.jsonl")
    done = run_here({"HOME": str(file.parent)}, command, str(named))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith(f"to read the file of this name, write --from '{named}'.\n")
    script = file.parent / "etl.py"
    script.write_text("print()")
    done = run_here({"HOME": str(file.parent)}, command, str(script))
    assert "list the runs with task-profiler history" in done.stderr


@pytest.mark.parametrize("before", [b"", b"\n"])
def test_a_byte_order_mark_costs_no_run(before: bytes, file: Path) -> None:
    file.write_bytes(before + b"\xef\xbb\xbf" + file.read_bytes())
    done = run_here({}, "history", "--from", str(file), "--json")
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 2, "")


def test_lines_of_a_newer_schema_are_read_with_a_word(file: Path) -> None:
    text = file.read_text()
    file.write_text(text.replace(f'"schemaVersion":"{SCHEMA_VERSION}"', '"schemaVersion":"2.0"', 1))
    done = run_here({}, "history", "--from", str(file))
    assert done.returncode == 0
    assert "1 line of schema 2.0, which a newer Task Profiler wrote: update this one" in done.stderr
    file.write_text(text.replace(f'"schemaVersion":"{SCHEMA_VERSION}"', '"schemaVersion":"1.99"'))
    assert "newer" not in run_here({}, "history", "--from", str(file)).stderr
    file.write_text(text.replace(f'"schemaVersion":"{SCHEMA_VERSION}"', '"schemaVersion":"one"'))
    done = run_here({}, "history", "--from", str(file))
    assert "2 lines of schema one, which no Task Profiler writes: their values" in done.stderr


def test_a_line_that_is_longer_than_any_that_is_written_is_no_run(file: Path) -> None:
    """As in a log group. Spaces of another program do not count."""
    first, second = file.read_text().splitlines()
    long = first.replace('"record":{', '"record":{"added":"' + 845_000 * "x" + '",')
    file.write_text(f"{long}\n{second}\n")
    done = run_here({}, "history", "--from", str(file), "--json")
    assert (done.stdout.count("\n"), "skipped 1 invalid line: 1" in done.stderr) == (1, True)
    indented = json.dumps(json.loads(second), indent=2000)
    assert len(indented) > 64 * 1024
    file.write_text(f"{indented}\n")
    done = run_here({}, "history", "--from", str(file), "--json")
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "--budget", "1"), "No such option '--budget': see task-profiler run --help."),
        (("run", "--stack"), "No such option '--stack'. Did you mean '--stacks'?"),
        (("show", "--form", "x"), "No such option '--form'. Did you mean '--from'?"),
        (("history", "-x"), "No such option '-x': see task-profiler history --help."),
    ],
)
def test_only_an_option_that_is_near_is_proposed(words: tuple[str, ...], said: str) -> None:
    assert run_here({}, *words).stderr == f"task-profiler: {said}\n"


@pytest.mark.parametrize("text", ["7", "2026", "1.5"])
@pytest.mark.parametrize("option", ["--since", "--until"])
def test_a_time_without_a_unit_is_no_seconds(option: str, text: str, file: Path) -> None:
    done = run_here({}, "history", option, text, "--from", str(file))
    assert done.returncode == 2
    assert f"'{text}' is a number without a unit: write 30m, 12h or 7d" in done.stderr


@pytest.mark.diagonal(1)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--region", "eu-west-1", "history"), "as in task-profiler history --region."),
        (("--region=eu-west-1", "setup", "stack"), "as in task-profiler setup stack --region."),
        (("setup", "--yes", "stack"), "as in task-profiler setup stack --yes."),
        (
            ("--regoin", "eu-west-1", "history"),
            "No such option '--regoin': see task-profiler --help.",
        ),
    ],
)
def test_an_option_before_its_command_is_told_its_place(words: tuple[str, ...], said: str) -> None:
    done = run_here({}, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "--version" not in done.stderr


def test_run_has_labels_and_no_tags() -> None:
    done = run_here({}, "run", "--tag", "team=etl", "--", "true")
    assert done.returncode == 2
    assert done.stderr.endswith("No such option '--tag'. Did you mean '--label'?\n")
    done = run_here({}, "run", "--family", "words", "--", "true")
    assert (done.returncode, done.stderr) == (
        2,
        "task-profiler: No such option '--family'. Did you mean '--name'?\n",
    )


@pytest.mark.parametrize(
    ("option", "meant"), [(("--tag", "team=etl"), "--label"), (("--label", "cost=a"), "--tag")]
)
def test_labels_and_tags_are_not_mixed_up(
    option: tuple[str, str], meant: str, tmp_path: Path
) -> None:
    one = report(family="nightly-etl")
    made = tmp_path / "runs.jsonl"
    record = replace(one.record, labels={"team": "etl"}, tags={"cost": "a"})
    made.write_bytes(lines([replace(one, record=record)]))
    done = run_here({}, "history", "--from", str(made), *option)
    assert done.returncode == 1
    assert done.stderr.endswith(f"use fewer filters. Did you mean {meant}?\n")
    wrong = run_here({}, "history", "--from", str(made), option[0], "a=b")
    assert wrong.stderr.endswith("use fewer filters.\n")


@each_case(
    ("option", "value", "meant"),
    [
        ("--cluster", "jbos", "jobs"),
        ("--account", "11112222333", "111122223333"),
        ("--task-region", "eu-wset-1", "eu-west-1"),
        ("--tag", "team=elt", "team=etl"),
        ("--label", "user=rott", "user=root"),
        ("--label", "batch.queue=sopt", "batch.queue=spot"),
        ("--cluster", "production", ""),
        ("--tag", "cost=a", ""),
    ],
)
def test_a_filter_that_is_nearly_right_is_told_the_right_one(
    option: str, value: str, meant: str, tmp_path: Path
) -> None:
    made = tmp_path / "runs.jsonl"
    batch = BatchJob(queue="spot", job_id="0f8fad5b-d9cb-469f-a165-70867728950e")
    named = report(
        cluster="jobs",
        account_id="111122223333",
        region="eu-west-1",
        tags={"team": "etl"},
        labels={"user": "root"},
        batch=batch,
    )
    made.write_bytes(lines([named, report(1)]))
    done = run_here({}, "history", "--from", str(made), option, value)
    assert done.returncode == 1
    assert done.stderr.endswith(
        f"use fewer filters.{f' Did you mean {option} {meant}?' if meant else ''}\n"
    )
    both = run_here({}, "history", "--from", str(made), option, value, "--status", "failure")
    assert both.stderr.endswith("use fewer filters.\n"), "no run is left by the other filter"


@pytest.mark.parametrize("name", ["task_profiler_tags", "TASK_PROFILER_TAG"])
def test_a_setting_that_is_nearly_right_is_refused(name: str) -> None:
    done = run_here(
        {}, "taskdef", "add-monitor", "--image", "i", "--setting", f"{name}=true", "etl.json"
    )
    assert done.returncode == 2
    assert "the monitor has no such setting, but TASK_PROFILER_TAGS: check" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "taskdef add-monitor etl.json --setting TASK_PROFILER_PROCESSES=on",
            "TASK_PROFILER_PROCESSES has no effect with TASK_PROFILER_SCOPE=task: correct it, or",
        ),
        (
            "setup batch-instances --setting TASK_PROFILER_PROMETHEUS_PORT=9100",
            "TASK_PROFILER_PROMETHEUS_PORT has no effect with TASK_PROFILER_SCOPE=instance: correct",
        ),
        (
            "taskdef add-monitor etl.json --setting TASK_PROFILER_TAGS=yes",
            "TASK_PROFILER_TAGS='yes' is not true or false: correct it, or leave it out.",
        ),
    ],
)
def test_a_setting_without_an_effect_is_refused(words: str, said: str) -> None:
    done = run_here({}, *words.split())
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    "setting", ["TASK_PROFILER_PROCESSES=on", "TASK_PROFILER_FAMILIES=etl-*", "TEAM=etl"]
)
def test_a_setting_of_the_instances_monitor_is_accepted_for_it(setting: str) -> None:
    done = run_here({}, "setup", "batch-instances", "--image", "i:1", "--setting", setting)
    assert "--setting" not in done.stderr


@pytest.mark.parametrize("tag", ["a b", "-1", "x" * 129, "1/2", "1:2"])
def test_a_tag_that_docker_refuses_is_refused_before_the_build(tag: str) -> None:
    done = run_here({}, "setup", "image", f"--tag={tag}")
    assert done.returncode == 2
    assert f"{tag!r} is not a tag" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("content", ["", "\n \n"])
@pytest.mark.parametrize("words", ["taskdef add-monitor", "taskdef remove-monitor", "doctor"])
def test_an_empty_file_is_no_yaml(words: str, content: str, tmp_path: Path) -> None:
    file = tmp_path / "etl.json"
    file.write_text(content)
    done = run_here({}, *words.split(), str(file))
    assert done.returncode == 1
    assert f"{file} is empty: give the file of a task definition" in done.stderr


def test_a_file_of_a_similar_name_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").write_bytes(lines([report()]))
    done = run_here({}, "history", "--from", str(tmp_path / "rnus.jsonl"))
    assert done.returncode == 1
    assert done.stderr.endswith(". Did you mean runs.jsonl?\n")
    assert "mean" not in run_here({}, "history", "--from", str(tmp_path / "other")).stderr


def test_a_mistake_in_an_event_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "event.json"
    file.write_text('{\n  "detail": nothing\n}')
    done = run_here({}, "notify", str(file))
    assert done.returncode == 2
    assert "correct the mistake in line 2, or pass it as EventBridge sends it" in done.stderr


@each_case(
    ("words", "name", "kind"),
    [
        (("setup", "proof", "--cluster", "jobs", "--subnets", "a b"), "a b", "a subnet's id"),
        (("setup", "proof", "--cluster", "jobs", "--subnets", "subnet-1,a"), "a", "a subnet's id"),
        (
            ("setup", "proof", "--queue", "x", "--security-groups", "web"),
            "web",
            "a security group's",
        ),
        (("setup", "proof", "--cluster", "jobs", "--task-role", "a b"), "a b", "a role's name"),
        (("setup", "proof", "--cluster", "x", "--execution-role", "a/b"), "a/b", "a role's name"),
        *(
            ((*command, "--cluster", "jobs (old)"), "jobs (old)", "an ECS cluster's name")
            for command in (
                ("doctor",),
                ("schedules",),
                ("setup",),
                ("setup", "proof"),
                ("taskdef", "add-monitor"),
                ("taskdef", "resize"),
                ("watch",),
            )
        ),
        (("setup", "image", "--repository", "Team/X"), "Team/X", "a repository's name"),
        (("setup", "stack", "--bucket", "My_Code"), "My_Code", "a bucket's name"),
        (
            ("setup", "batch-instances", "--policy", "--log-group", "a b"),
            "a b",
            "a log group's name",
        ),
        (("taskdef", "add-monitor", "etl", "--log-group", "a b"), "a b", "a log group's name"),
        (("taskdef", "container", "--log-group", "a:b"), "a:b", "a log group's name"),
        (("taskdef", "container", "--container", "a b"), "a b", "a container's name"),
        (("taskdef", "container", "--stream-prefix", "a:b"), "a:b", "a stream's prefix"),
        (("replay", "--log-group", "a b", "--function", "f"), "a b", "a log group's name"),
        (("replay", "--log-group", "/ecs/*", "--function", "a b"), "a b", "a Lambda function's"),
        (("replay", "--log-group", "/ecs/*", "--function", "f@1"), "f@1", "a Lambda function's"),
    ],
)
def test_a_name_that_aws_would_refuse_later_is_refused_before_the_plan(
    words: tuple[str, ...], name: str, kind: str
) -> None:
    done = run_here({"AWS_REGION": "us-east-1"}, *words)
    assert done.returncode == 2
    assert f"{name!r} is not {kind}" in done.stderr
    assert done.stderr.count("\n") == 1


@each_case(
    ("kind", "name"),
    [
        (aws_names.CLUSTER, "AWSBatch-spot_1-0123-abc"),
        (aws_names.CLUSTER, "arn:aws-cn:ecs:cn-north-1:123456789012:cluster/jobs"),
        (aws_names.FUNCTION, "task-profiler-forward-logs"),
        (aws_names.FUNCTION, "forward:live"),
        (aws_names.FUNCTION, "123456789012:function:forward:$LATEST"),
        (aws_names.FUNCTION, "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:f:7"),
        (aws_names.ROLE, "arn:aws:iam::123456789012:role/team/batch/jobs@etl"),
        (aws_names.ROLE, "jobs"),
        (aws_names.SUBNETS, "subnet-0123456789abcdef0, subnet-01234567"),
        (aws_names.REPOSITORY, "team/task-profiler"),
        (aws_names.BUCKET, "task-profiler-123456789012-us-east-1"),
        (aws_names.LOG_GROUP, "/aws/ecs/containerinsights/jobs/performance#1.a_b"),
        (aws_names.LOG_GROUPS, "/ecs/[!a]*?"),
        (aws_names.STREAM_PREFIX, "team/ecs"),
    ],
)
def test_a_name_that_aws_accepts_is_accepted(kind: aws_names.AwsName, name: str) -> None:
    assert kind.convert(name, None, None) == name


@each_case(
    ("words", "answer"),
    [
        (("--tag", "aws:team=data"), "AWS keeps the keys that begin with aws: for itself"),
        (("--tag", "team;x=data"), "--tag team;x=data is not a tag of AWS"),
        (("--tag", "team=a*b"), "--tag team=a*b is not a tag of AWS"),
        (("--tag", f"{'k' * 129}=data"), "at most 128 in the key"),
        (("--tag", f"team={'v' * 257}"), "256 in the value"),
        (("--otlp", "otlp.example.com:4318"), "--otlp otlp.example.com:4318 is not an address"),
        (("--otlp", "https://"), "--otlp https:// is not an address"),
        (("--delete", "--bucket", "code"), "leave out --bucket."),
        (
            ("--delete", "--yes", "--tag", "a=b", "--elasticsearch", "https://search"),
            "--delete deletes the whole stack: leave out --elasticsearch and --tag.",
        ),
        (("--delete", "--no-instance-monitor"), "leave out --no-instance-monitor."),
    ],
)
def test_what_a_stack_cannot_take_is_refused_before_the_account_is_asked(
    words: tuple[str, ...], answer: str
) -> None:
    done = run_here({}, "setup", "stack", *words)
    assert done.returncode == 2
    assert answer in done.stderr


@pytest.mark.parametrize("tag", ["Kostenträger=Müller @ Söhne", "cost center=", "a:b/c=x=y+z"])
def test_a_tag_that_aws_accepts_is_no_wrong_word(tag: str) -> None:
    done = run_here({}, "setup", "stack", "--tag", tag)
    assert "tag" not in done.stderr


@pytest.mark.parametrize("name", ["none.json", "."])
def test_a_file_that_cannot_be_read_has_a_remedy(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_here({}, "notify", name)
    assert done.returncode == 2
    assert "name a file that can be read, or - for standard input." in done.stderr


@pytest.mark.parametrize("command", ["add-monitor", "remove-monitor"])
def test_a_file_beside_a_family_is_not_called_missing(command: str, tmp_path: Path) -> None:
    file = tmp_path / "etl.json"
    done = run_here({}, "taskdef", command, str(file), "nightly-etl")
    assert done.returncode == 2
    assert f"{file} is a file, and the families of the account are others: give" in done.stderr


def test_a_file_in_place_of_a_family_names_the_option_for_files() -> None:
    done = run_here({}, "taskdef", "resize", "etl.json")
    assert done.returncode == 2
    assert "etl.json is no family: to write the sizes into a file, use --apply" in done.stderr

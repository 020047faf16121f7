"""What agents read: the lines of ``--json`` against their schemas, errors, and each command of
the skill, in the demo account.
"""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from jsonschema import Draft202012Validator

from profiler.cli.app import group
from profiler.cli.json_lines import JSON_LINES, schema_of_command_lines
from profiler.forwarder.notifications.event_details import LINE_TYPE, EndedRunDetail
from profiler.record.record_model import Report
from profiler.record.run_outcome import Cause
from tests import shown_runs
from tests.command_line import run_here
from tests.demo_account import FAMILY, LOG_LINE, DemoAccount, demo_account
from tests.documentation import ROOT, commands_of
from tests.runs import lines, report
from tools.command_schemas import written_schemas
from tools.commands_page import leaf_commands

SKILL = Path("examples/agent-skill/SKILL.md")
# They change something, or print what another program reads; their JSON has no schema.
OTHERS = {
    "kibana import",
    "notify",
    "replay",
    "setup image",
    "setup proof",
    "setup redrive",
    "setup stack",
}
CHANGING = {"--register", "--yes", "--in-place", "--attach-policy", "--update-schedules"}
CALLS = {
    "history": "history --json",
    "show": f"show {FAMILY} --json",
    "compare": f"compare {FAMILY} nightly-load --json",
    "report": "report --output page.html --json",
    "recommend": "recommend --json",
    "watch": "watch --cluster jobs --json",
    "watch --queue": "watch --queue nightly --json",
    "schedules": "schedules --json",
    "setup": "setup --json",
    "doctor": f"doctor {FAMILY} --json",
    "doctor --cluster": "doctor --cluster jobs --json",
    "taskdef add-monitor": "taskdef add-monitor --cluster jobs --json",
    "taskdef remove-monitor": "taskdef remove-monitor --cluster jobs --json",
    "taskdef resize": "taskdef resize nightly-* --json",
}


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoAccount]:
    with demo_account(tmp_path_factory.mktemp("demo")) as made:
        yield made


def check(words: str, output: str) -> list[Any]:
    """The lines of a command, which are valid and have no field that the schema lacks."""
    schema = schema_of_command_lines(words)
    validator = Draft202012Validator(schema)
    documents = [json.loads(line) for line in output.splitlines()]
    assert documents
    for document in documents:
        validator.validate(document)
        described = [set(one.get("properties", ())) for one in schema["$defs"].values()]
        assert any(set(document) <= names for names in described), document
    return documents


def described_as(words: list[str]) -> str:
    """The longest name of a schema whose words a command line has."""
    names = [name for name in JSON_LINES if name and {*name.split()} <= {*words}]
    return max(names, key=len)


@pytest.mark.parametrize("words", CALLS)
def test_what_a_reading_command_prints_is_valid_by_its_schema(
    account: DemoAccount, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = account.command(*shlex.split(CALLS[words]))
    assert done.returncode == int(words.startswith("doctor")), done.stderr
    check(words, done.stdout)


def test_call_stacks_have_a_schema(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    stacks = msgspec.json.encode(shown_runs.waiting_stacks())
    file.write_bytes(stacks + b"\n" + lines([shown_runs.waiting()]))
    done = run_here({}, "show", "--stacks", "--json", "--from", str(file))
    assert done.returncode == 0, done.stderr
    check("show --stacks", done.stdout)


def test_every_command_with_json_has_a_schema_or_changes_something() -> None:
    found = {
        " ".join(words)
        for words, command in leaf_commands(group, ())
        if any("--json" in parameter.opts for parameter in command.params)
    }
    described = {words.partition(" --")[0] for words in JSON_LINES} - {"", "error"}
    assert found == described | OTHERS
    reports = {words for words, types in JSON_LINES.items() if types == (Report,)}
    assert reports == {"", "run", "history", "show"}
    assert set(CALLS) == set(JSON_LINES) - {"", "run", "show --stacks", "error"}


def test_the_committed_schemas_are_those_of_the_types() -> None:
    written = written_schemas()
    for path, schema in written.items():
        assert json.loads(path.read_text()) == json.loads(json.dumps(schema)), "run: make schema"
    assert {*(ROOT / "docs" / "json").iterdir()} == {*written}


def test_the_command_prints_each_schema() -> None:
    for words in JSON_LINES:
        done = run_here({}, "schema", *words.split())
        assert done.returncode == 0, done.stderr
        Draft202012Validator.check_schema(json.loads(done.stdout))
    done = run_here({}, "schema", "recomend")
    assert done.returncode == 2
    assert "name one of run, history, show, show --stacks, compare" in done.stderr


@pytest.mark.parametrize(
    ("words", "exit_code", "part"),
    [
        ("history nightly-elt --json", 1, "Did you mean nightly-etl?"),
        ("show --json 0123456789ab", 1, "No run"),
        ("recommend --json --last 0", 2, "0 is not in the range"),
        ("recommend --json --lst 5", 2, "--last"),
        ("hstory --json", 2, "did you mean history"),
        ("--json history", 2, "stands before the command"),
        ("doctor nightly-elt --json", 1, "nightly-etl"),
        ("watch --queue none --json", 1, "There is no job queue 'none'"),
        ("watch --cluster jbos --json", 1, "There is no ECS cluster jbos in"),
        ("doctor --cluster jbos --json", 1, "Did you mean jobs?"),
        ("taskdef add-monitor --cluster jbos --json", 1, "Did you mean jobs?"),
        ("taskdef resize --cluster jbos --json", 1, "Did you mean jobs?"),
    ],
)
def test_with_json_an_error_is_a_line_of_json(
    account: DemoAccount, words: str, exit_code: int, part: str
) -> None:
    done = account.command(*shlex.split(words))
    assert done.returncode == exit_code
    assert done.stdout == ""
    (document,) = check("error", done.stderr.splitlines()[-1])
    assert document["type"] == "error"
    assert document["exitCode"] == exit_code
    assert part in document["message"]
    plain = account.command(*(word for word in shlex.split(words) if word != "--json"))
    assert plain.stderr.startswith("task-profiler: ") or "Usage" in plain.stderr
    assert plain.returncode == exit_code or words.startswith("--json")


def test_every_command_with_json_prints_its_errors_as_json() -> None:
    """But ``run``: its standard error is its command's."""
    for words, command in leaf_commands(group, ()):
        if words != ("run",) and any("--json" in option.opts for option in command.params):
            done = run_here({}, *words, "--json", "--no-such-option")
            assert done.returncode == 2, words
            (document,) = check("error", done.stderr.splitlines()[-1])
            assert "--no-such-option" in document["message"]


def test_an_error_in_json_has_no_credentials_and_no_workflow_command() -> None:
    done = run_here({}, "history", "--json", "--from", "http://me:hunter2@search:1/##[error]")
    assert done.returncode
    assert "hunter2" not in done.stderr
    assert "##[" not in done.stderr
    check("error", done.stderr.splitlines()[-1])


def test_what_belongs_to_a_profiled_command_asks_for_no_json() -> None:
    done = run_here({}, "run", "--json", "--interval", "x", "--", "true", "--json")
    assert done.returncode == 2
    assert done.stderr.startswith("task-profiler: ")
    done = run_here({}, "history", "--last", "0", "--", "--json")
    assert done.stderr.startswith("task-profiler: ")


def test_every_command_of_the_skill_runs_and_changes_nothing(
    account: DemoAccount, tmp_path: Path
) -> None:
    before = account.revisions()
    called = commands_of("task-profiler", SKILL, tmp_path)
    names = {words[0] for words in called}
    assert {"history", "show", "recommend", "taskdef", "doctor", "watch", "schedules"} == names
    for words in called:
        assert not CHANGING & {*words}
        done = account.command(*words)
        is_problem = words[0] == "doctor" and "--queue" not in words
        assert done.returncode == int(is_problem), (words, done.stderr)
        assert done.stdout
        if "--json" in words:
            check(described_as(words), done.stdout)
        if "--logs" in words:
            assert LOG_LINE in done.stdout
    assert account.revisions() == before


def test_the_commands_of_aws_in_the_skill_only_read(tmp_path: Path) -> None:
    called = commands_of("aws", SKILL, tmp_path)
    assert [words[1].partition("-")[0] for words in called] == ["filter", "list"]
    (pattern,) = (
        words[words.index("--filter-pattern") + 1] for words in called if words[0] == "logs"
    )
    assert f'$.type = "{LINE_TYPE}"' in pattern


def test_the_functions_line_has_the_fields_that_the_skill_names() -> None:
    text = (ROOT / SKILL).read_text()
    (sentence,) = re.findall(r"In each line of the function: (.+?)\. Without", text, re.DOTALL)
    named = {*re.findall(r"`(\w+)`", re.sub(r"\(.+?\)", "", sentence))}
    assert named == {"family", "taskId", "outcome", "outcomeSentence", "stoppedReason"}
    assert named <= {*EndedRunDetail.__struct_encode_fields__}
    words = re.findall(r"`(\w+)`", re.findall(r"\((.+?)\)", sentence)[0])
    assert {*words} <= {*get_args(Cause)}


def test_the_plan_that_the_skill_proposes_has_its_fields_and_differs_from_the_advice(
    account: DemoAccount,
) -> None:
    text = (ROOT / SKILL).read_text()
    (sentence,) = re.findall(r"`\"type\":\"family\"` have (.+?);", text, re.DOTALL)
    named = {*re.findall(r"`(\w+)`", sentence)}
    assert {"action", "from", "to", "reason", "savingUsdPerMonth", "evidence"} == named
    plan, _ = map(
        json.loads, account.command("taskdef", "resize", FAMILY, "--json").stdout.splitlines()
    )
    advice = json.loads(account.command("recommend", FAMILY, "--json").stdout)
    assert named <= {*plan}
    assert plan["to"]["memoryMB"] >= advice["recommended"]["memoryMB"]
    assert plan["to"] != advice["recommended"], "so the skill says which one to propose"


def test_the_record_has_the_fields_that_the_skill_names() -> None:
    named = re.findall(r"`record\.([\w.]+)`", (ROOT / SKILL).read_text())
    assert len(named) > 5
    parts = schema_of_command_lines("history")["$defs"]
    for path in named:
        part = parts["Record"]
        for name in path.split("."):
            assert name in part["properties"], path
            reference = re.search(r"#/\$defs/(\w+)", json.dumps(part["properties"][name]))
            part = parts[reference[1]] if reference else {}


def test_the_skill_leads_from_the_killed_run_to_more_memory(account: DemoAccount) -> None:
    failed = account.command("history", "--since", "24h", "--status", "failure", "--json")
    (run,) = check("history", failed.stdout)
    assert run["record"]["likelyOutOfMemory"] is True
    family = run["record"]["family"]
    planned = account.command("taskdef", "resize", family, "--json")
    change, total = check("taskdef resize", planned.stdout)
    assert change["action"] == "resize"
    assert change["to"]["memoryMB"] > change["from"]["memoryMB"]
    assert total["changes"] == 1


def test_a_file_of_runs_answers_without_an_account(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_bytes(lines(report(number) for number in range(3)))
    for words in ("history", "show", "recommend"):
        done = run_here({}, words, "--json", "--from", str(file))
        assert done.returncode == 0, done.stderr
        check(words, done.stdout)

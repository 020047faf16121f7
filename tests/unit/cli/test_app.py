"""The help of the whole program, and what it says to a mistake in a command line."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from profiler.cli.app import COMMANDS, group
from profiler.cli.options import WholeSentenceGroup
from profiler.sizing.choose_size import SizePolicy
from tests.cases import each_case
from tests.command_line import run_here
from tests.documentation import ROOT
from tests.runs import history_of, report
from tests.values import present
from tools.commands_page import leaf_commands


@pytest.mark.parametrize("words", [(), ("taskdef",), ("kibana",)])
def test_without_a_command_the_help_is_printed_as_it_is(words: tuple[str, ...]) -> None:
    done = run_here({}, *words)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("Usage: task-profiler")


def test_the_list_of_commands_has_the_whole_first_sentence_of_their_help() -> None:
    for name, (*_, sentence) in COMMANDS.items():
        command = present(group.get_command(click.Context(group), name))
        assert command.get_short_help_str(1_000) == sentence
    shown = CliRunner().invoke(group, ["setup", "--help"], terminal_width=60).output
    assert "Build the monitor's image, push it to Amazon ECR, and print its URI." in " ".join(
        shown.split()
    )


def test_the_commands_are_listed_in_the_order_of_their_use() -> None:
    shown = CliRunner().invoke(group, ["--help"], terminal_width=80).output
    listed = [
        line.split()[0] for line in shown.splitlines() if re.match(r"  [a-z]+  |[A-Z].*:$", line)
    ]
    assert " ".join(listed) == (
        "Options: Profile: run compare Look show history report recommend Now: watch schedules "
        "AWS: setup taskdef doctor replay kibana notify Shell: completion"
    )


def test_the_program_knows_the_commands_of_its_groups() -> None:
    """Else they are not proposed."""
    assert isinstance(group, WholeSentenceGroup)
    named = {(name, one) for name, commands in group.groups.items() for one in commands}
    assert named == {words for words, _ in leaf_commands(group, ()) if len(words) == 2}


@each_case(
    ("words", "sentence"),
    [
        ("rnu", "Unknown command 'rnu': did you mean run?"),
        ("recomend x", "did you mean recommend?"),
        ("setup stak", "Unknown command 'stak': did you mean stack?"),
        ("taskdef xyzzyx", "Unknown command 'xyzzyx': "),
        ("resize", "Unknown command 'resize': did you mean task-profiler taskdef resize?"),
        ("add-monitor etl", "did you mean task-profiler taskdef add-monitor?"),
        ("setup-stak", "did you mean task-profiler setup stack?"),
        ("setup resize", "did you mean task-profiler taskdef resize?"),
        ("remove", "did you mean task-profiler taskdef remove-monitor?"),
        ("rec", "Unknown command 'rec': did you mean recommend?"),
        ("re", "Unknown command 're': task-profiler --help lists the commands."),
        ("history --format json", "No such option '--format'. Did you mean '--json'?"),
        ("history --format=json", "No such option '--format'. Did you mean '--json'?"),
        ("report --limit 5", "No such option '--limit'. Did you mean '--last'?"),
        ("history -n 5", "No such option '-n'. Did you mean '--last'?"),
        ("show -n 5", "No such option '-n': see task-profiler show --help."),
        (
            "taskdef resize --dry-run",
            "leave it out, because without --register task-profiler taskdef resize only prints",
        ),
        ("setup stack --dry-run", "without --yes task-profiler setup stack only prints"),
        ("run --dry-run -- true", "No such option '--dry-run': see task-profiler run --help."),
        ("recommend --min-saving 5", "--min-saving needs --check: without it, no saving"),
        ("recommend --min-saving-usd 5 --json", "--min-saving-usd needs --check"),
        ("xyzzyx", "task-profiler --help lists the commands."),
        ("history --last 0", "0 is not in the range 1 to 1000000."),
        ("show --logs x", "'x' is not a valid whole number."),
        ("run --max-gpu-idle 101 -- true", "'101' is not a share from 0 to 100 %."),
        ("run --output '' -- true", "--output is empty: give it a value or omit the option."),
        ("run --interval 1ms -- true", "'1ms' is not a time from 20ms to 1h."),
        ("run --interval 2h -- true", "'2h' is not a time from 20ms to 1h."),
        ("doctor --seconds 11m", "'11m' is not a time from 0s to 10m."),
        ("recommend --max-slowdown -1", "-1.0 is not in the range 0 to 10000."),
        (
            "recommend --from logs:",
            "--from 'logs:' has no name: write history:FILE, logs:GLOB or insights:CLUSTER.",
        ),
        ("show --from a --from ''", "--from is empty: give it a value or omit the option."),
        (
            "history --from http://me:hun/ter2@search",
            "set ELASTICSEARCH_USER and ELASTICSEARCH_PASSWORD",
        ),
        ("history --from logs:/ecs/jobs --services", "--services is for --from insights:CLUSTER"),
        ("doctor a.json --cluster b", "are different checks: use one of them"),
        ("notify", "Missing argument 'FILE': see task-profiler notify --help."),
        ("compare a", "Missing argument 'B': see task-profiler compare --help."),
        ("replay", "Missing option '--log-group': see task-profiler replay --help."),
        ("-v", "No such option '-v': see task-profiler --help."),
        ("kibana import b c", "extra arguments (b c): see task-profiler kibana import --help."),
        ("history --since 2200-01-01", "--since 2200-01-01 is in the future: use an earlier time."),
        (
            "taskdef add-monitor --family a --image https://b/c",
            "'https://b/c' is not an image: write REPOSITORY:TAG, without https://.",
        ),
        ("setup batch-instances --image 'a b'", "'a b' is not an image"),
        (
            f"doctor arn:aws:ecs:us-west-2:111122223333:task/jobs/{'0a' * 16}",
            f"{'0a' * 16} is a task: task-profiler show {'0a' * 16} shows its run",
        ),
        (f"doctor {'0a' * 16}", "task-profiler doctor FAMILY checks its definition."),
        ("doctor arn:aws:ecs:us-west-2:111122223333:cluster/jobs", "neither a task definition"),
        ("show ''", "The name of the run is empty"),
        ("show --against ''", "--against is empty: give it a value or omit the option."),
        ("doctor --deployed ' '", "--deployed is empty: give it a value or omit the option."),
        ("watch --cluster ''", "--cluster is empty: give it a value or omit the option."),
        ("watch ''", "FAMILY|TASK is empty: give it a value or omit it."),
        ("history ''", "FAMILY is empty: give it a value or omit it."),
        ("show --stacks --logs", "--stacks shows nothing else"),
        ("show --json --logs", "--json prints the record alone: leave out --against and --logs."),
        ("show --json --against x", "--json prints the record alone"),
        ("history --delete", "--delete needs ids of runs"),
        ("compare a ''", "The name of a set is empty"),
        ("recommend --on-fargate=", "--on-fargate is empty: give it a value or omit the option."),
        (
            "show a 'b c'",
            "show is for one run: to compare two, write task-profiler compare a 'b c'",
        ),
        ("completion tcsh", "There is no completion for 'tcsh': name bash, zsh or fish, as"),
        ("completion", "Missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish\n"),
        ("report -o ''", "--output is empty: give it a value or omit the option."),
        ("history --statsu x", "--status"),
        ("run --nmae x -- true", "--name"),
    ],
)
def test_a_mistake_in_a_command_line_is_a_sentence(words: str, sentence: str) -> None:
    done = run_here({"PATH": os.environ["PATH"]}, *shlex.split(words))
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert sentence in done.stderr


@pytest.mark.parametrize("words", ["run --interval 2h -- true", "doctor --seconds 2h"])
def test_the_help_of_a_time_states_its_limit_as_the_error_does(words: str) -> None:
    command, option, *rest = words.split()
    refused = CliRunner().invoke(group, [command, option, *rest]).output
    (limit,) = re.findall(r"to (\d+[a-z]+)\.$", refused, re.MULTILINE)
    shown = CliRunner().invoke(group, [command, "--help"], terminal_width=200).output
    (line,) = (line for line in shown.splitlines() if f" {option} TIME" in line)
    assert re.search(rf"to {limit}\.", line)


def test_every_command_that_prints_data_as_text_has_json() -> None:
    without = {
        " ".join(words)
        for words, command in leaf_commands(group, ())
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    # They print a document of another form; ``taskdef container`` has --format.
    documents = {"completion", "schema", "setup batch-instances", "taskdef container"}
    assert without == {"monitor", *documents}


@pytest.fixture
def history(tmp_path: Path) -> dict[str, str]:
    """The variable of a history with some families."""
    path = tmp_path / "history.sqlite3"
    families = (("0b", "nightly-copy"), ("0a", "nightly-etl"), ("2b", "two words"))
    history_of(
        path,
        *(
            report(number, family=name, task_id=part * 8)
            for number, (part, name) in enumerate(families)
        ),
    )
    return {"TASK_PROFILER_HISTORY": str(path)}


@pytest.mark.diagonal
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("his", ["history"]),
        ("history --stat", ["--status"]),
        ("run -- python et", None),
        ("report --from run", None),
        ("report -o pag", None),
        ("show nig", ["nightly-etl", "nightly-copy"]),
        ("show --from runs.jsonl nig", None),
        ("show --from history nig", ["nightly-etl", "nightly-copy"]),
        ("show --from logs:/ecs/a nig", None),
        ("show --from h", ["history", "https://"]),
        ("show --from x", None),
        ("watch --from log", ["logs:"]),
        ("history nightly-e", ["nightly-etl"]),
        ("history two", None),
        ("compare 0a", ["0a0a0a0a"]),
        ("history --delete 0a0a0a0a", ["0a0a0a0a0a0a0a0a"]),
        ("run --name nightly-c", ["nightly-copy"]),
    ],
)
def test_a_shell_completes_commands_options_families_and_runs_and_keeps_files(
    shell: str, line: str, expected: list[str] | None, history: dict[str, str]
) -> None:
    words = ["task-profiler", *line.split()]
    position = words[-1] if shell == "fish" else str(len(words) - 1)
    variables = {
        "_TASK_PROFILER_COMPLETE": f"{shell}_complete",
        "COMP_CWORD": position,
        "COMP_WORDS": " ".join(words),
    }
    lines = run_here({**history, **variables}).stdout.splitlines()
    step = 3 if shell == "zsh" else 1
    kinds = lines[::step] if shell == "zsh" else [one.partition(",")[0] for one in lines]
    names = (
        lines[1::step]
        if shell == "zsh"
        else [one.partition(",")[2].partition("\t")[0] for one in lines]
    )
    assert list(zip(kinds, names, strict=True)) == (
        [("file", words[-1])] if expected is None else [("plain", name) for name in expected]
    )


_BASH = """
source <(task-profiler completion bash)
compopt() { echo "compopt $1 $2"; }
COMP_WORDS=($1) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_task_profiler_completion task-profiler
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.diagonal(1)
@pytest.mark.parametrize(
    ("line", "expected"),
    [("show nig", ["nightly-etl", "nightly-copy"]), ("report -o pag", ["compopt -o default"])],
)
def test_a_real_shell_completes_with_the_script(
    line: str, expected: list[str], history: dict[str, str]
) -> None:
    environment = {
        **os.environ,
        **history,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    command = ["bash", "-c", _BASH, "bash", f"task-profiler {line}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == " ".join(expected).split()


_HELP = """
import contextlib, io, sys
from profiler.cli.app import COMMANDS, group
from profiler.cli.options import WholeSentenceGroup
for line in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        group.main([*line.split(), "--help"])
print(*sys.modules)
"""


def test_the_help_imports_no_command_and_a_commands_help_no_client_of_a_service() -> None:
    def modules(*lines: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-c", _HELP, *lines], capture_output=True, text=True, check=True
        )
        return set(done.stdout.split())

    assert not {"msgspec", "ssl", "profiler.record", "pathlib"} & modules("")
    commands = modules(*(" ".join(words) for words, _ in leaf_commands(group, ())))
    assert "profiler.cli.setup.setup_commands" in commands
    assert not {"boto3", "botocore", "sqlite3", "requests", "http.client"} & commands


def test_defaults_in_the_help_are_those_of_the_module_that_it_does_not_import() -> None:
    defaults = {
        one.name: one.default for one in dict(leaf_commands(group, ()))["recommend",].params
    }
    policy = SizePolicy()
    assert defaults["max_slowdown_percent"] == policy.max_slowdown_percent
    assert defaults["memory_margin_percent"] == "auto"
    assert policy.memory_margin_percent is None


@pytest.mark.parametrize(
    "name", ["show", "history", "report", "recommend", "compare", "schedules", "watch"]
)
def test_the_help_lists_a_commands_own_options_before_the_sources(name: str) -> None:
    shown = CliRunner().invoke(group, [name, "--help"], terminal_width=80).output
    own, heading, shared = shown.partition("\nSources and filters:\n")
    assert heading
    assert "--help" in own
    for option in ("--from", "--region", "--profile"):
        assert f"  {option} " in shared
        assert f"  {option} " not in own
    assert "--json" not in shared


def test_all_commands_together_have_at_most_275_option_slots() -> None:
    """266 before jobs of AWS Batch: setup batch-instances has six, and add-monitor (--wrap), resize
    (--job-definition, --queue) and setup proof (--queue) name what a job has and a task has not.
    """
    commands = [group, *dict(leaf_commands(group, ())).values()]
    assert (
        sum(
            isinstance(parameter, click.Option)
            for command in commands
            for parameter in command.params
        )
        <= 275
    )


def test_a_terminal_without_a_character_of_the_help_gets_its_code() -> None:
    words = (sys.executable, "-m", "profiler", "run", "--help")
    done = subprocess.run(
        words, env={**os.environ, "PYTHONIOENCODING": "latin-1"}, capture_output=True, check=True
    )
    assert rb"OTEL_EXPORTER_OTLP_\u2026" in done.stdout


def test_every_help_fits_the_screen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every help fits the screen and has no raw type no cut line and no path of a home."""
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("TASK_PROFILER_HISTORY", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    commands = [(), ("taskdef",), ("kibana",), *dict(leaf_commands(group, ()))]
    assert len(commands) > 20
    for words in commands:
        text = CliRunner().invoke(group, [*words, "--help"], terminal_width=80).output
        usage, _, rest = text.partition("\n\n")
        assert max(map(len, text.splitlines())) <= 80, usage
        assert words != ("show",) or text.count("\n") <= 50
        assert not re.search(r"\b(INTEGER|FLOAT|TEXT|RANGE)\b", text), usage
        assert not re.search(r"default:\s+\d+\.0\b|\de\+", text), f"a number of Python: {usage}"
        assert not re.search(r"(…|\.\.\.)$", rest, re.MULTILINE), usage
        assert "/home/someone" not in text, usage


def test_the_help_of_the_monitor_lists_every_setting_of_the_page() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    settings = set(re.findall(r"^\| `(TASK_PROFILER_[A-Z_]+)` \|", page, re.MULTILINE))
    shown = CliRunner().invoke(group, ["monitor", "--help"], terminal_width=200).output
    assert len(settings) > 15
    assert {name for name in settings if name not in shown} == set()

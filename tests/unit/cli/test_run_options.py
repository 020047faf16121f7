"""The parser of ``run`` that does without click, compared with click."""

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from profiler.cli.run_command import command
from profiler.cli.run_options import Format, RunOptions, parse_usual, printed_format

_OPTIONS = tuple(name for parameter in command.params if isinstance(parameter, click.Option) for name in parameter.opts)
_VALUES = (
    "auto",
    "human",
    "json",
    "text",
    "1",
    "0.02",
    "3600",
    "1e1",
    "1_0",
    " 2 ",
    "nan",
    "inf",
    "0",
    "-1",
    "x",
    "",
    "-",
    "--",
    "a=b",
    "5",
    "10000",
    "10001",
    "900MB",
    "1.5gib",
    "900 MB",
    "90s",
    "1.5h",
    "0.5",
    "60",
    "900",
    "0MB",
    "1h30m",
    "-1s",
)
_VALID = {
    "--interval": ["2"],
    "--format": ["text"],
    "--no-history": [],
    "--live": [],
    "--otlp": [],
    "--runs": ["3"],
    "--max-memory": ["2GB"],
    "--max-duration": ["2m"],
    "--max-cpu-seconds": ["2"],
}
_words = st.one_of(
    st.sampled_from(_OPTIONS),
    st.sampled_from(_VALUES),
    st.builds("{}={}".format, st.sampled_from((*_OPTIONS, "--nam", "-n")), st.sampled_from(_VALUES)),
    st.text(max_size=4),
    st.text("-=ah", max_size=4),
)


def parsed_by_click(arguments: list[str]) -> RunOptions:
    return RunOptions(**command.make_context("run", list(arguments)).params)


@given(st.lists(_words, max_size=8))
@example(["--", "--", "true"])
@example(["-", "--live"])
@example(["--name", "--", "true"])
@example(["--label", "a=b", "--label=c=d=e", "--name=x", "--name", "y", "--", "true", "--name", "z"])
def test_what_is_parsed_without_click_is_what_click_parses(arguments: list[str]) -> None:
    options = parse_usual(arguments)
    if options is not None:
        assert options == parsed_by_click(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["true"],
        ["--", "python", "etl.py", "--help"],
        ["--name", "etl", "--interval=0.5", "--format", "text", "--output", "runs.jsonl", "--", "true"],
        ["--history", "h.sqlite3", "--live", "--label", "team=data", "--label=a=b", "true"],
        ["--no-history", "--otlp", "--", "true"],
        ["--stacks", "python", "etl.py"],
        ["--stacks=moments", "--", "python", "etl.py", "--stacks"],
        ["--name", "--stacks", "--stacks", "true"],
        ["--runs", "5", "--max-memory", "900MB", "--max-duration=10m", "--max-cpu-seconds", "60", "--", "true"],
        ["--format=auto", "--format", "human", "true"],
    ],
)
def test_the_usual_command_lines_are_parsed_without_click(arguments: list[str]) -> None:
    assert parse_usual(arguments) == parsed_by_click(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--"],
        ["--help"],
        ["-h"],
        ["--unknown", "true"],
        ["--interval", "0.001", "true"],
        ["--interval", "nan", "true"],
        ["--interval", "fast", "true"],
        ["--format", "JSON", "true"],
        ["--live=yes", "true"],
        ["--stacks=always", "true"],
        ["--name"],
        ["--runs", "0", "true"],
        ["--runs", "10001", "true"],
        ["--max-memory", "900", "true"],
        ["--max-duration", "10", "true"],
        ["--max-cpu-seconds", "60s", "true"],
    ],
)
def test_help_and_errors_are_left_to_click(arguments: list[str]) -> None:
    assert parse_usual(arguments) is None


def test_every_option_is_parsed_without_click() -> None:
    for option in _OPTIONS:
        values = _VALID.get(option, ["a"])
        assert parse_usual([option, *values, "true"]) is not None, option


@pytest.mark.parametrize(
    ("output_format", "on_terminal", "in_pipe", "in_file"),
    [
        ("auto", "human", "json", "json"),
        ("human", "human", "human", "human"),
        ("json", "json", "json", "json"),
        ("text", "text", "text", "text"),
    ],
)
def test_the_report_is_for_a_person_only_on_a_terminal_or_on_request(
    output_format: Format, on_terminal: str, in_pipe: str, in_file: str
) -> None:
    assert printed_format(output_format, has_output=False, is_terminal=True) == on_terminal
    assert printed_format(output_format, has_output=False, is_terminal=False) == in_pipe
    for is_terminal in (False, True):
        assert printed_format(output_format, has_output=True, is_terminal=is_terminal) == in_file

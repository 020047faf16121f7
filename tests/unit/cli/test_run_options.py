"""The parser of ``run`` that does without click, compared with click; the variables that ``run
--otlp`` reads.
"""

from typing import Any

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from profiler.cli.chosen_run_options import RunOptions
from profiler.cli.run_command import run as command
from profiler.cli.run_options import parse_usual_arguments
from profiler.cli.wiring.build_export import (
    max_export_seconds,
    targets_of_variables,
    user_attributes,
)
from profiler.core.errors import UsageError
from tests.cases import each_case
from tests.values import present

_OPTIONS = tuple(
    name
    for parameter in command.params
    if isinstance(parameter, click.Option)
    for name in parameter.opts
)
_TYPED = (
    "auto human json text 1 0.02 3600 1e1 1_0 nan inf 0 -1 x - -- a=b 5 10000 10001 900MB 1.5gib "
    "90s 1.5h 0.5 60 900 0MB 1h30m -1s 100ms 900m 0.9g"
)
_VALUES = (*_TYPED.split(), " 2 ", "", "900 MB")
_words = st.one_of(
    st.sampled_from(_OPTIONS),
    st.sampled_from(_VALUES),
    st.builds(
        "{}={}".format, st.sampled_from((*_OPTIONS, "--nam", "-n")), st.sampled_from(_VALUES)
    ),
    st.text(max_size=4),
    st.text("-=ah", max_size=4),
)


def parsed_by_click(arguments: list[str]) -> dict[str, Any]:
    return command.make_context("run", list(arguments)).params


def test_every_option_has_a_value_in_the_chosen_ones() -> None:
    values = present(parse_usual_arguments(["true"]))
    assert {*RunOptions.__struct_fields__} == {*values}


@given(st.lists(_words, max_size=8))
@example(["--", "--", "true"])
@example(["-", "--live"])
@example(["--name", "--", "true"])
@example(
    ["--label", "a=b", "--label=c=d=e", "--name=x", "--name", "y", "--", "true", "--name", "z"]
)
def test_what_is_parsed_without_click_is_what_click_parses(arguments: list[str]) -> None:
    options = parse_usual_arguments(arguments)
    if options is not None:
        assert options == parsed_by_click(arguments)


_USUAL = [
    ["true"],
    ["--", "python", "etl.py", "--help"],
    ["--name", "etl", "--interval=0.5", "--format", "text", "--output", "runs.jsonl", "--", "true"],
    ["--live", "--label", "team=data", "--label=a=b", "true"],
    ["--no-history", "--otlp", "--", "true"],
    ["--stacks", "python", "etl.py"],
    ["--stacks", "moments", "--", "python", "etl.py", "--stacks"],
    ["--stacks", "off", "on"],
    ["--stacks=moments", "--", "python", "etl.py", "--stacks"],
    ["--stacks=50hz", "--", "python", "etl.py"],
    ["--name", "--stacks", "--stacks", "true"],
    [
        "--runs",
        "5",
        "--max-memory",
        "900MB",
        "--max-duration=10m",
        "--max-cpu-seconds",
        "60",
        "--max-gpu-memory=70GB",
        "--max-gpu-idle",
        "20%",
        "--",
        "true",
    ],
    ["-q", "--json", "-o", "runs.jsonl", "true"],
    ["--json", "--quiet", "--format", "text", "--", "true"],
    ["--format=auto", "--format", "human", "true"],
]


@each_case("arguments", _USUAL)
def test_the_usual_command_lines_are_parsed_without_click(arguments: list[str]) -> None:
    assert parse_usual_arguments(arguments) == parsed_by_click(arguments)
    assert {*_OPTIONS} <= {word.partition("=")[0] for line in _USUAL for word in line}


@each_case(
    "line",
    [
        *(
            "",
            "--",
            "--help",
            "-h",
            "--unknown true",
            "--name",
            "--live=yes true",
            "--format JSON true",
        ),
        *(
            "--interval 0.001 true",
            "--interval nan true",
            "--interval fast true",
            "--stacks=always true",
        ),
        *(
            f"--stacks={word} true"
            for word in ("0hz", "101hz", "500hz", "20", "hz", "-5hz", "1.5hz")
        ),
        *("--runs 0 true", "--runs 10001 true", "--max-memory 900 true", "--max-duration 10x true"),
        "--max-cpu-seconds 60MB true",
    ],
)
def test_help_and_errors_are_left_to_click(line: str) -> None:
    assert parse_usual_arguments(line.split()) is None


def addresses(**environment: str) -> dict[str, str]:
    return {signal: target.url for signal, target in targets_of_variables(environment).items()}


def test_all_signals_with_an_exporter_go_to_the_local_collector() -> None:
    """All signals whose exporter is not none go to the local collector and gRPC is refused."""
    traces = {"traces": "http://localhost:4318/v1/traces"}
    others = {signal: f"http://localhost:4318/v1/{signal}" for signal in ("logs", "metrics")}
    assert addresses() == traces | others
    assert (
        addresses(
            OTEL_LOGS_EXPORTER="none", OTEL_METRICS_EXPORTER="None", OTEL_TRACES_EXPORTER="otlp"
        )
        == traces
    )
    sentence = "^The run was not exported: OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf or"
    with pytest.raises(UsageError, match=sentence):
        addresses(OTEL_EXPORTER_OTLP_PROTOCOL="grpc")


@each_case(
    ("text", "seconds"),
    [
        ("", 5),
        ("10000", 5),
        ("2500", 2.5),
        (" 300 ", 0.3),
        ("0", 5),
        ("-1", 5),
        ("2s", 5),
        ("1e3", 5),
        ("²", 5),
    ],
)
def test_the_time_is_that_of_the_variable_and_at_most_ours(text: str, seconds: float) -> None:
    assert max_export_seconds({"OTEL_EXPORTER_OTLP_TIMEOUT": text}) == seconds


def test_the_users_attributes_are_decoded_and_the_service_has_its_own_variable() -> None:
    text = (
        "deployment.environment.name=pre%2Cprod, team = data%20platform "
        ",broken,=x,empty=,service.name=b,a=b=c"
    )
    attributes = {
        "deployment.environment.name": "pre,prod",
        "team": "data platform",
        "service.name": "b",
        "a": "b=c",
    }
    assert user_attributes({"OTEL_RESOURCE_ATTRIBUTES": text}) == attributes
    named = user_attributes({"OTEL_RESOURCE_ATTRIBUTES": text, "OTEL_SERVICE_NAME": "etl"})
    assert named == attributes | {"service.name": "etl"}
    assert user_attributes({}) == {}

"""``task-profiler run``: runs a command and reports what it used.

click parses only the command lines that :func:`profiler.cli.run_options.parse_usual` does not.
"""

from collections.abc import Callable
from typing import Any

import click

from profiler.cli.options import Number, WholeNumber, history_option
from profiler.cli.run_options import (
    MAX_INTERVAL_SECONDS,
    MAX_RUNS,
    MIN_INTERVAL_SECONDS,
    RunOptions,
    with_stacks_value,
)
from profiler.local_run.run_budgets import parse_cpu_seconds, parse_duration_ms, parse_memory_mb

_DEFAULTS = RunOptions(words=())


class _RunCommand(click.Command):
    """The command ``run``, with one option whose value is optional."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_stacks_value(args))


class _Budget(click.types.FloatParamType):
    """A limit with its unit."""

    def __init__(self, parse: Callable[[str], float]) -> None:
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401  click's signature
        """Convert the text of the command line."""
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command(
    "run",
    cls=_RunCommand,
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    epilog="Example: task-profiler run --name nightly-etl --output runs.jsonl -- python etl.py --date 2026-11-20",
)
@click.option(
    "--name", metavar="NAME", help="Family of the run, at most 255 characters (default: the base name of CMD)."
)
@click.option(
    "--interval",
    "interval_seconds",
    metavar="SECONDS",
    type=Number(MIN_INTERVAL_SECONDS, MAX_INTERVAL_SECONDS),
    default=_DEFAULTS.interval_seconds,
    show_default=True,
    help="Sampling period.",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["auto", "human", "json", "text"]),
    default=_DEFAULTS.output_format,
    show_default=True,
    help="Format of the report: a summary for people, JSON, or text like AWS Lambda's REPORT. auto is human if stderr "
    "is a terminal and --output is not given, else json.",
)
@click.option("--output", metavar="FILE", help="Append the report line to FILE instead of printing it to stderr.")
@history_option("history_file", verb="Add the run to")
@click.option("--no-history", is_flag=True, help="Do not add the run to the history.")
@click.option("--label", "labels", metavar="NAME=VALUE", multiple=True, help="Add a label to the run. Repeatable.")
@click.option(
    "--live",
    is_flag=True,
    help="Show CPU, memory, the time left and the largest processes at the bottom of the terminal while CMD runs.",
)
@click.option(
    "--stacks",
    metavar="[=moments]",
    type=click.Choice(["off", "moments", "on"]),
    default=_DEFAULTS.stacks,
    help="Sample the call stacks of Python processes (py-spy); --stacks=moments only while memory rises, nothing runs "
    "or all CPUs are in use.",
)
@click.option(
    "--otlp",
    is_flag=True,
    help="Export each run over OTLP (OpenTelemetry), configured by the variables OTEL_EXPORTER_OTLP_… (default: to "
    "localhost:4318).",
)
@click.option(
    "--runs",
    metavar="N",
    type=WholeNumber(1, MAX_RUNS),
    default=_DEFAULTS.runs,
    show_default=True,
    help="Run CMD N times, until the first failure or signal, and report each run. If N is above 1, CMD's input is "
    "empty.",
)
@click.option(
    "--max-memory",
    "max_memory_mb",
    metavar="SIZE",
    type=_Budget(parse_memory_mb),
    help="Exit with 3 if CMD succeeds but its memory peak is above SIZE, such as 900MB or 1.5GB.",
)
@click.option(
    "--max-duration",
    "max_duration_ms",
    metavar="TIME",
    type=_Budget(parse_duration_ms),
    help="Exit with 3 if CMD succeeds but takes longer than TIME, such as 90s, 10m or 1.5h. CMD is not killed.",
)
@click.option(
    "--max-cpu-seconds",
    "max_cpu_seconds",
    metavar="SECONDS",
    type=_Budget(parse_cpu_seconds),
    help="Exit with 3 if CMD succeeds but uses more CPU time than SECONDS.",
)
@click.argument("words", metavar="-- CMD [ARG]...", nargs=-1, type=click.UNPROCESSED)
def command(**options: Any) -> int:  # noqa: ANN401  click has checked the types
    """Run a command and report its CPU, memory and I/O.

    The command's input, output, signals and exit code do not change, except for --runs and for an
    exceeded budget. When it ends, the report is printed to stderr, and the run is added to the local
    history (task-profiler history).
    """
    from profiler.cli.wiring.build_run import run_command  # not for the help

    return run_command(RunOptions(**options))

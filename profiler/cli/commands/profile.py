"""``run`` and ``compare``.

Of ``run``, click parses only the command lines that :func:`profiler.cli.run_options.parse_usual` does not.
"""

from typing import Any

import click

from profiler.cli.options import (
    Number,
    PastRunsCommand,
    Quantity,
    WholeNumber,
    completes,
    flag,
    history_option,
    implemented_in,
    json_format_option,
    last_option,
    on_fargate_option,
    option,
    repeatable,
    source_options,
)
from profiler.cli.run_options import MAX_INTERVAL_SECONDS, MAX_RUNS, MIN_INTERVAL_SECONDS, RunOptions, with_stacks_value

# The names of profiler.runs.comparison.compared_metrics.COMPARED_METRICS, whose module is slow to import.
METRIC_NAMES = (
    "durationMs",
    "cpuSeconds",
    "maxMemoryUsedMB",
    "memoryAverageMB",
    "blockReadBytes",
    "blockWriteBytes",
    "costUsd",
)
_DEFAULTS = RunOptions(words=())


class _RunCommand(click.Command):
    """The command ``run``, with one option whose value is optional."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_stacks_value(args))


@click.command(
    "run",
    cls=_RunCommand,
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    epilog="Example: task-profiler run --name nightly-etl --output runs.jsonl -- python etl.py --date 2026-11-20",
)
@option(
    "--name",
    "NAME",
    "Family of the run, at most 255 characters (default: the base name of CMD).",
    shell_complete=completes(families=True),
)
@option(
    "--interval interval_seconds",
    "TIME",
    "Sampling period, 20ms to 1h; a number without a unit is seconds.",
    type=Quantity("parse_seconds", MIN_INTERVAL_SECONDS, MAX_INTERVAL_SECONDS),
    default=_DEFAULTS.interval_seconds,
)
@json_format_option
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["auto", "human", "json", "text"]),
    default=_DEFAULTS.output_format,
    show_default=True,
    help="Format of the report: a summary for people, JSON, or text like AWS Lambda's REPORT. auto is human if stderr "
    "is a terminal and --output is not given, else json.",
)
@flag(
    "-q --quiet",
    "Print no report, notification or warning to stderr, only why CMD did not start or which budget it exceeded.",
)
@option("-o --output", "FILE", "Append the report line to FILE instead of printing it to stderr.")
@history_option(verb="Add the run to")
@flag("--no-history", "Do not add the run to the history.")
@repeatable("--label labels", "NAME=VALUE", "Add a label to the run.")
@flag(
    "--live", "Show CPU, memory, the time left and the largest processes at the bottom of the terminal while CMD runs."
)
@option(
    "--stacks",
    "[=moments]",
    "Sample the call stacks of Python processes (py-spy); --stacks=moments only while memory rises, nothing runs "
    "or all CPUs are in use.",
    type=click.Choice(["off", "moments", "on"]),
    default=_DEFAULTS.stacks,
    show_default=False,
)
@flag(
    "--otlp",
    "Export each run over OTLP (OpenTelemetry), configured by the variables OTEL_EXPORTER_OTLP_… (default: to "
    "localhost:4318).",
)
@option(
    "--runs",
    "N",
    "Run CMD N times, until the first failure or signal, and report each run. If N is above 1, CMD's input is empty.",
    type=WholeNumber(1, MAX_RUNS),
    default=_DEFAULTS.runs,
)
@option(
    "--max-memory max_memory_mb",
    "SIZE",
    "Exit with 3 if CMD succeeds but its memory peak is above SIZE, such as 900MB, 900MiB or 1.5g.",
    type=Quantity("parse_memory_mb"),
)
@option(
    "--max-duration max_duration_ms",
    "TIME",
    "Exit with 3 if CMD succeeds but takes longer than TIME, such as 90s or 1h30m. CMD is not killed.",
    type=Quantity("parse_duration_ms"),
)
@option(
    "--max-cpu-seconds",
    "TIME",
    "Exit with 3 if CMD succeeds but uses more CPU time than TIME.",
    type=Quantity("parse_seconds"),
)
@click.argument("words", metavar="-- CMD [ARG]...", nargs=-1, type=click.UNPROCESSED)
def run(**options: Any) -> int:  # noqa: ANN401  click has checked the types
    """Run a command and report its CPU, memory and I/O.

    The command's input, output, signals and exit code do not change, except for --runs and for an
    exceeded budget. When it ends, the report is printed to stderr, and the run is added to the local
    history (task-profiler history).
    """
    from profiler.cli.wiring.build_run import run_command  # not for the help

    return run_command(RunOptions(**options))


@click.command(
    "compare",
    cls=PastRunsCommand,
    epilog="Example: task-profiler compare nightly-etl@25 nightly-etl@26 --fail-above 10% --from runs.jsonl",
)
@click.argument("a", metavar="A", shell_complete=completes(families=True, ids=True))
@click.argument("b", metavar="B", shell_complete=completes(families=True, ids=True))
@source_options
@last_option(10_000, 50, "Use the N newest successes of each set.")
@option("--container", "NAME", "Compare this container, if the tasks have reports of several.")
@repeatable(
    "--metric names", "NAME", f"Compare only this metric: {', '.join(METRIC_NAMES)}.", type=click.Choice(METRIC_NAMES)
)
@option(
    "--fail-above limit_percent",
    "PERCENT",
    "Exit with 3 if the whole 95 % interval of a metric's change is above PERCENT, such as 10%.",
    type=Number(0, 10_000),
)
@on_fargate_option
@json_format_option
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    show_default=True,
    help="Print tables or one JSON object; github: annotations, and a table in $GITHUB_STEP_SUMMARY.",
)
@implemented_in("profiler.cli.compare_command", "compare_sets")
def compare() -> None:
    """Compare two sets of runs: medians, changes, verdicts.

    A is the base. A and B are each a family, FAMILY@REVISION, FAMILY@LABEL=VALUE, or run IDs joined by
    commas. Only a family's successes count. Runs come from the local history unless --from,
    --elasticsearch, --log-group or --container-insights is given.
    """

"""``task-profiler run``: runs a command and reports what it used.

click parses only the command lines that :func:`profiler.cli.run_options.parse_usual` does not.
"""

from typing import Any

import click

from profiler.cli.options import Number, history_option
from profiler.cli.run_options import MAX_INTERVAL_SECONDS, MIN_INTERVAL_SECONDS, RunOptions, with_stacks_value

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
    type=click.Choice(["json", "text"]),
    default=_DEFAULTS.output_format,
    show_default=True,
    help="Format of the report line: JSON, or text like AWS Lambda's REPORT.",
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
@click.argument("words", metavar="-- CMD [ARG]...", nargs=-1, type=click.UNPROCESSED)
def command(**options: Any) -> int:  # noqa: ANN401  click has checked the types
    """Run a command and report its CPU, memory and I/O.

    The command's input, output, signals and exit code do not change. When it ends, the report is
    printed as one line to stderr, and the run is added to the local history (task-profiler history).
    """
    from profiler.cli.wiring.build_run import run_command  # not for the help

    return run_command(RunOptions(**options))

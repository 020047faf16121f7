"""``task-profiler run`` for click, which parses only what
:func:`~profiler.cli.run_options.parse_usual` does not.
"""

from typing import Any

import click

from profiler.cli.options import (
    Decorator,
    Quantity,
    WholeNumber,
    add_options,
    completes,
    flag,
    option,
    repeatable,
)
from profiler.cli.run_options import RUN_OPTIONS, Amount, RunOption, RunOptions, with_stacks_value


class _RunCommand(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_stacks_value(args))


def _run_option(one: RunOption) -> Decorator:
    if one.default is False:
        return flag(one.names, one.text)
    if one.default == ():
        return repeatable(one.names, one.metavar, one.text)
    more: dict[str, Any]
    if one.field == "name":
        more = {"shell_complete": completes(families=True)}
    else:
        more = {}
    if isinstance(one.values, Amount):
        parser = one.values.parser
        least = one.values.least
        most = one.values.most
        if parser == "int":
            more["type"] = WholeNumber(int(least), int(most))
        else:
            more["type"] = Quantity(parser, least, most)
    elif one.values is not None:
        more["type"] = click.Choice(one.values)
    shown = one.default is not None and not one.metavar.startswith("[")
    return option(one.names, one.metavar, one.text, default=one.default, show_default=shown, **more)


@click.command(
    "run",
    cls=_RunCommand,
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    epilog=(
        "Example: task-profiler run --name nightly-etl --output runs.jsonl -- python etl.py "
        "--date 2026-11-20"
    ),
)
@add_options(*map(_run_option, RUN_OPTIONS))
@click.argument("words", metavar="-- CMD [ARG]...", nargs=-1, type=click.UNPROCESSED)
def run(**options: Any) -> int:  # noqa: ANN401  click has checked the types
    """Run a command and report its CPU, memory and I/O.

    The command's input, output, signals and exit code do not change, except for --runs and for an
    exceeded budget. When it ends, the report is printed to stderr, and the run is added to the
    local history (task-profiler history).
    """
    from profiler.cli.wiring.build_run import run_command  # not for the help

    return run_command(RunOptions(**options))

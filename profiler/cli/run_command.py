"""``task-profiler run`` for click, which parses only what
:func:`~profiler.cli.run_options.parse_usual_arguments` does not.
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
from profiler.cli.run_options import (
    RUN_OPTIONS,
    Amount,
    RunOption,
    StacksWords,
    with_stacks_value,
)


class _StacksType(click.types.StringParamType):
    name = "stacks"

    def __init__(self, words: StacksWords) -> None:
        self._words = words

    def convert(
        self,
        value: Any,  # noqa: ANN401  click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str:
        word = self._words.parse(value)
        if word is None:
            self.fail(
                f"{value!r} is neither a rate from 1hz to {self._words.max_hz}hz nor one of "
                f"{', '.join(self._words.modes)}.",
                param,
                ctx,
            )
        return word


class _RunCommand(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_stacks_value(args))


def _run_option(row: RunOption) -> Decorator:
    if row.default is False:
        return flag(row.names, row.text)
    if row.default == ():
        return repeatable(row.names, row.metavar, row.text)
    more: dict[str, Any]
    if row.field == "name":
        more = {"shell_complete": completes(families=True)}
    else:
        more = {}
    if isinstance(row.values, Amount):
        parser = row.values.parser
        least = row.values.least
        most = row.values.most
        if parser == "int":
            more["type"] = WholeNumber(int(least), int(most))
        else:
            more["type"] = Quantity(parser, least, most)
    elif isinstance(row.values, StacksWords):
        more["type"] = _StacksType(row.values)
    elif row.values is not None:
        more["type"] = click.Choice(row.values)
    shown = row.default is not None and not row.metavar.startswith("[")
    default = f"{row.default:g}s" if isinstance(row.default, float) else row.default
    return option(row.names, row.metavar, row.text, default=default, show_default=shown, **more)


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
    # Not for the help.
    from profiler.cli.chosen_run_options import RunOptions
    from profiler.cli.wiring.run_and_report import run_command

    return run_command(RunOptions(**options))

"""What ``task-profiler setup`` prints without a subcommand: the four steps, and what is done already."""

import os
import shlex

import click

from profiler.account_setup.setup_steps import SetupStep, SetupSteps
from profiler.cli.progress import progress_row
from profiler.cli.wiring.aws_options import open_clients
from profiler.core.text import printable

_STATES = {True: ("done", "green"), False: ("not done", "yellow"), None: ("unknown", "cyan")}
_INDENT = " " * 22


def print_steps(clusters: tuple[str, ...], region: str | None, profile: str | None) -> None:
    """Print the steps, each when it is known."""
    with progress_row(os.environ) as show:
        steps = SetupSteps(
            open_clients(region, profile),
            clusters,
            {"region": region, "profile": profile},
            lambda read, count: show(f"{read} of {count} families", read / count),
        )
        found = list(steps.read())
    for number, step in enumerate(found, 1):
        click.echo(_lines(number, step))


def _lines(number: int, step: SetupStep) -> str:
    word, colour = _STATES[step.is_done]
    first = f"{number} {step.name:10}{click.style(f'{word:10}', fg=colour)}{printable(step.text)}"
    commands = () if step.is_done else step.commands
    return "\n".join([first, *(f"{_INDENT}{printable(shlex.join(words))}" for words in commands)])

"""What ``task-profiler setup`` prints without a subcommand: the four steps, and what is done already."""

import click

_STEPS = (
    "task-profiler setup image",
    "task-profiler setup stack",
    "task-profiler taskdef add-monitor --cluster NAME --scheduled --attach-policy --register",
    "task-profiler doctor --cluster NAME",
)


def print_steps() -> None:
    """Print the steps."""
    for number, step in enumerate(_STEPS, 1):
        click.echo(f"{number}. {step}")

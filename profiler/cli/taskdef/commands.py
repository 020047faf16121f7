"""The command group ``task-profiler taskdef``."""

import click

from profiler.cli.taskdef.add_monitor import add_monitor_


@click.group("taskdef", epilog="Example: task-profiler taskdef add-monitor nightly-etl.json --in-place")
def command() -> None:
    """Add the monitor to ECS task definitions."""


command.add_command(add_monitor_)

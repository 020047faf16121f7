"""The command group ``task-profiler taskdef``."""

import click

from profiler.cli.taskdef.add_monitor_command import add_monitor_
from profiler.cli.taskdef.container_command import container_
from profiler.cli.taskdef.remove_monitor_command import remove_monitor_


@click.group("taskdef", epilog="Example: task-profiler taskdef add-monitor nightly-etl.json --in-place")
def command() -> None:
    """Add the monitor to ECS task definitions, and remove it."""


command.add_command(add_monitor_)
command.add_command(remove_monitor_)
command.add_command(container_)

"""``task-profiler healthcheck --help``. The check itself starts without click, see profiler.cli."""

import sys

import click

from profiler.cli.healthcheck import run_healthcheck


@click.command(
    "healthcheck",
    epilog='Example (Dockerfile): HEALTHCHECK CMD ["task-profiler", "healthcheck"]',
)
def command() -> None:
    """Tell whether the monitor in this container still wakes up to sample.

    Exits with 0 if it does, else with 1 and a sentence on stderr. Takes one sampling period,
    at most 10 seconds.
    """
    sys.exit(run_healthcheck())

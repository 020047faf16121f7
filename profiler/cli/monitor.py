"""``task-profiler monitor --help`` and ``healthcheck --help``. Both start without click, see profiler.cli."""

import sys
import time

import click

from profiler.cli.wiring.healthcheck import run_healthcheck
from profiler.cli.wiring.monitor import run_monitor
from profiler.core.signals import SignalHandler

# Click wraps nothing behind a backspace. A docstring with it would have to be raw, and then it is two characters.
_HELP = """Run as the sidecar of an ECS task, configured by environment variables only.

Samples the task's containers every second and puts one report line into the batch
container's log stream when the batch ends.

\b
TASK_PROFILER_CONTAINER           the batch container (the only other one)
TASK_PROFILER_INTERVAL_SECONDS    sampling period (1)
TASK_PROFILER_CHECKPOINT_SECONDS  period of checkpoint lines, 0 = off (60)
TASK_PROFILER_LOG_GROUP           where the report goes (the batch's awslogs
TASK_PROFILER_LOG_STREAM          options)
TASK_PROFILER_PROMETHEUS_PORT     live metrics for Prometheus (off)
TASK_PROFILER_STOP_SECONDS        budget after SIGTERM (25)
"""


@click.command(
    "monitor",
    help=_HELP,
    epilog="Example (container definition): "
    '{"name": "task-monitor", "image": "…", "command": ["monitor"], "essential": false, '
    '"dependsOn": [{"containerName": "batch", "condition": "START"}]}',
)
def command() -> None:
    """Start what profiler.cli starts without click."""
    stop = SignalHandler(time.monotonic_ns)
    stop.install()
    sys.exit(run_monitor(stop))


@click.command(
    "healthcheck",
    epilog='Example (Dockerfile): HEALTHCHECK CMD ["task-profiler", "healthcheck"]',
)
def healthcheck() -> None:
    """Tell whether the monitor in this container still wakes up to sample.

    Exits with 0 if it does, else with 1 and a sentence on stderr. Takes one sampling period,
    at most 10 seconds.
    """
    sys.exit(run_healthcheck())

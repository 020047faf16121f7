"""``task-profiler monitor`` for click, which handles only its help."""

import click

from profiler.cli import run_monitor_process
from profiler.settings import settings_help

# Click does not wrap a paragraph that begins with a backspace. Not a docstring: it would have to be
# raw, and the backspace would be two characters.
_MONITOR_HELP = f"""Run as a sidecar of an ECS task. All settings are environment variables.

Polls the stats of the task's containers every second. When the batch ends, writes one report
line to the batch's log stream; until then, writes a checkpoint line a minute to its own,
and one whenever more of its memory is in use from 70 % on.

\b
{settings_help()}
ECS_CONTAINER_METADATA_URI_V4       task metadata endpoint (set by ECS)
ECS_CONTAINER_METADATA_URI
AWS_REGION, AWS_ENDPOINT_URL, …     settings of boto3
"""


@click.command(
    "monitor",
    help=_MONITOR_HELP,
    epilog="Example (container definition): "
    '{"name": "task-monitor", "image": "…", "command": ["monitor"], "essential": false, '
    '"dependsOn": [{"containerName": "batch", "condition": "START"}]}',
)
def monitor() -> None:
    """Run the monitor. ``profiler.cli`` does the same without click if no argument follows."""
    run_monitor_process()

"""``task-profiler monitor`` as a click command, for ``--help``.

``profiler.cli`` starts it without click when it has no further argument.
"""

import click

from profiler.cli import run_monitor_process

# Click does not wrap a paragraph that begins with a backspace. Not a docstring: it would have to be raw, and the
# backspace would be two characters.
_HELP = """Run as a sidecar of an ECS task. All settings are environment variables.

Polls the stats of the task's containers every second. When the batch ends, writes one report
line to the batch's log stream; until then, writes a checkpoint line a minute to its own.

\b
TASK_PROFILER_CONTAINER             name of the batch container (the only other)
TASK_PROFILER_INTERVAL_SECONDS      sampling period (1)
TASK_PROFILER_CHECKPOINT_SECONDS    period of checkpoints, 0 = none (60)
TASK_PROFILER_STOP_SECONDS          time limit after SIGTERM (25)
TASK_PROFILER_LOG_GROUP             destination of the report (the batch's
TASK_PROFILER_LOG_STREAM            awslogs options)
TASK_PROFILER_SERIES_POINTS         size of the time series, 0 = none (60)
TASK_PROFILER_STUCK_MINUTES         idle minutes until a notice, 0 = never (30)
TASK_PROFILER_EXPECTED_SECONDS      seconds until a notice (none)
TASK_PROFILER_TAGS                  true: record the task's tags (false)
TASK_PROFILER_GPU                   auto, on, off (auto)
TASK_PROFILER_GPU_UUIDS             the batch's GPUs (all visible ones)
TASK_PROFILER_NEURON                auto, on, off (auto)
TASK_PROFILER_PROCESS_ARGUMENTS     off, redacted, all (off)
TASK_PROFILER_STACKS                call stacks of Python: on, moments (off)
TASK_PROFILER_EMF                   CloudWatch metrics: true, live (false)
TASK_PROFILER_EMF_METRICS           names of these metrics
TASK_PROFILER_PROMETHEUS_PORT       live metrics for Prometheus (off)
TASK_PROFILER_PRICE_VCPU_HOUR       Fargate prices in USD (built-in table)
TASK_PROFILER_PRICE_GB_HOUR
TASK_PROFILER_PRICE_STORAGE_GB_HOUR
TASK_PROFILER_PRICE_HOUR            USD per hour of the task on EC2 (none)
ECS_CONTAINER_METADATA_URI_V4       task metadata endpoint (set by ECS)
ECS_CONTAINER_METADATA_URI
AWS_REGION, AWS_ENDPOINT_URL, …     settings of boto3
"""


@click.command(
    "monitor",
    help=_HELP,
    epilog="Example (container definition): "
    '{"name": "task-monitor", "image": "…", "command": ["monitor"], "essential": false, '
    '"dependsOn": [{"containerName": "batch", "condition": "START"}]}',
)
def command() -> None:
    """Run the monitor, as ``profiler.cli`` does without click."""
    run_monitor_process()

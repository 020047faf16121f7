"""``taskdef``, ``doctor``, ``replay``, ``notify`` and ``monitor``: task definitions, and what is deployed."""

import click

from profiler.cli import run_monitor_process
from profiler.cli.options import (
    CommandGroup,
    Quantity,
    StacksCommand,
    WholeNumber,
    add_options,
    aws_options,
    ca_file_option,
    flag,
    implemented_in,
    json_format_option,
    option,
    repeatable,
    report_stream_option,
    search_options,
    stacks_option,
)
from profiler.core.version import __version__

# The implementation gathers them as RolloutRequest.
_rollout_options = add_options(
    repeatable("--family globs", "GLOB", "Plan these families of ECS."),
    repeatable(
        "--cluster clusters",
        "NAME",
        "Plan the families of tasks in this cluster, and of schedules that start tasks there.",
    ),
    flag("--scheduled", "Only families that an EventBridge rule or schedule starts."),
    flag("--services", "Include families that services run."),
    flag("--register", "Register the planned revisions."),
    flag(
        "--update-schedules",
        "With --register: move pinned EventBridge rules and schedules to the new revision, if theirs differs only "
        "by the monitor.",
    ),
)
_output_options = add_options(
    option("-o --output out", "OUT", "Write the new definition to a file."),
    flag("--in-place", "Write the new definition to FILE."),
    flag("--json as_json", "Print the plan as one JSON object for each family."),
)


@click.group(
    "taskdef", cls=CommandGroup, epilog="Example: task-profiler taskdef add-monitor nightly-etl.json --in-place"
)
def taskdef() -> None:
    """Add the monitor to ECS task definitions, and remove it."""


@taskdef.command(
    "add-monitor",
    cls=StacksCommand,
    epilog="Example: task-profiler taskdef add-monitor nightly-etl.json "
    "--image 111122223333.dkr.ecr.us-west-2.amazonaws.com/task-profiler:0.1.0 --in-place",
)
@click.argument("names", metavar="[FILE|FAMILY]...", nargs=-1)
@_rollout_options
@flag("--policy print_policy", "Print the IAM policy that the task roles need.")
@flag("--attach-policy", "Attach that policy to each task role, as the inline policy task-profiler.")
@flag("--yes", "Attach the policies also without --register.")
@option("--container", "NAME", "The batch container (default: the only essential container that is not a sidecar).")
@option(
    "--image",
    "IMAGE",
    "The monitor's image (default: the existing monitor's image, else the image that setup image pushes, "
    f"task-profiler:{__version__}, in the private registry of the account in the definition, if it has one).",
)
@option(
    "--log-group",
    "NAME",
    "Send the report to the monitor's own log stream in this group (default: the batch's stream, or /ecs/FAMILY "
    "if the batch does not log by awslogs).",
)
@report_stream_option
@flag("--pid shared_pids", "Share the process namespace of the task, which makes the kernel's peaks readable.")
@stacks_option
@repeatable("--setting settings", "NAME=VALUE", "Set this environment variable of each monitor.")
@_output_options
@aws_options
@implemented_in("profiler.cli.taskdef_command", "add_monitor")
def add_monitor() -> None:
    """Add the monitor container to the task definition in FILE, and print the new definition.

    FILE has the format that register-task-definition reads or describe-task-definition prints, or is
    a CloudFormation template; - is standard input. Other containers and the task's size are not
    changed. An existing monitor is upgraded. Repeating the command changes nothing.

    FAMILY, as --family, and --cluster print a plan for the families in ECS. --register carries it out.
    """


@taskdef.command("remove-monitor", epilog="Example: task-profiler taskdef remove-monitor 'nightly-*' --register")
@click.argument("names", metavar="[FILE|FAMILY]...", nargs=-1)
@_rollout_options
@option("--image", "IMAGE", "The monitor's image, if its repository is not called task-profiler.")
@_output_options
@aws_options
@implemented_in("profiler.cli.taskdef_command", "remove_monitor_from")
def remove_monitor() -> None:
    """Remove the monitor container from the task definition in FILE, and print the definition without it.

    The result is the definition before add-monitor. FAMILY, as --family, and --cluster print a plan for the families
    in ECS, and --register carries it out. IAM policies and log groups are not removed.
    """


@taskdef.command(
    "container",
    cls=StacksCommand,
    epilog="Example: task-profiler taskdef container --format terraform --container etl --log-group /ecs/etl",
)
@json_format_option
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["json", "terraform", "cloudformation", "cdk"]),
    default="json",
    show_default=True,
    help="The language: JSON of the API, HCL for jsonencode(), YAML of CloudFormation, TypeScript of the CDK.",
)
@option("--container", "NAME", "The name of the batch container.", default="batch")
@option("--image", "IMAGE", "The monitor's image, which you build and push.", default=f"task-profiler:{__version__}")
@option("--log-group", "NAME", "The log group of the batch's awslogs log driver (default: /ecs/CONTAINER).")
@option("--region", "REGION", "Region of the log group (default: AWS_REGION, else the deployment's).")
@option("--stream-prefix", "PREFIX", "The batch's awslogs-stream-prefix.", default="ecs")
@report_stream_option
@stacks_option
@implemented_in("profiler.cli.taskdef_command", "print_container")
def container() -> None:
    """Print the monitor's container definition, to paste into a definition that is kept in code."""


@click.command(
    "doctor",
    epilog="Example, as the monitor's command in a task definition for one run: "
    '"command": ["doctor"]; before the first run: task-profiler doctor nightly-etl.json',
)
@click.argument("name", metavar="[FILE|FAMILY]", required=False)
@flag("--json as_json", "Print one JSON object per finding (topic, level, text, advice) or per family.")
@option(
    "--seconds",
    "TIME",
    "Watch the stats for at most this time (10m at most), to measure how often they are refreshed.",
    type=Quantity("parse_seconds", 0, 600),
    default=25.0,
)
@option("--task file", "FILE", "Check the task definition in FILE instead, before its first run.")
@option(
    "--family",
    "NAME",
    "Check the latest revision of this family in ECS, or NAME:REVISION, and the schedules that start the family.",
)
@option("--cluster", "NAME", "Check all families of this ECS cluster instead.")
@option("--deployed stack", "STACK", "Check the forwarder in this CloudFormation stack instead.")
@option(
    "--elasticsearch url",
    "URL",
    "With --deployed: check the index templates there, too. With --cluster: look for reports there.",
)
@option("--url ui_url", "URL", "With --deployed: check the dashboards in this Kibana, too.")
@search_options
@ca_file_option
@aws_options
@implemented_in("profiler.cli.doctor.doctor_command", "run_doctor")
def doctor() -> None:
    """Show what can be measured in this container and what to change in the task definition.

    Checks the task metadata, the batch, its processes, its log stream and the permission to write to
    it, GPUs and Neuron devices. To test the permission, the command sends an event that is too old for CloudWatch
    Logs to accept, so nothing is written; only this test uses --region and --profile. The exit code
    is 1 if there is a problem.

    FILE and --task, or FAMILY and --family, check a task definition from outside. --cluster checks the families of a
    cluster: monitor, role, log group, subscription, last report. --deployed checks a forwarder: its
    stack, subscriptions, functions and their last errors, queues and alarms.
    """


@click.command("replay", epilog="Example: task-profiler replay --log-group /ecs/jobs --function forwarder --since 30d")
@option("--log-group name", "GROUP", "The log group to read, or those that match * ? [].", required=True)
@option("--function function_name", "NAME", "Name or ARN of the forwarder function.", required=True)
@option("--since", "TIME", "Start: 30m, 12h or 7d ago, or an ISO time.", default="7d")
@option("--until", "TIME", "End, like --since (default: now).", default="0m", show_default=False)
@option("--concurrency", "N", "Number of concurrent invocations.", type=WholeNumber(1, 32), default=4)
@aws_options
@flag("--dry-run", "Count the reports without sending them.")
@flag("--restart", "Ignore the progress of an interrupted replay of this log group.")
@flag("--json as_json", "Print one JSON object instead of a sentence.")
@implemented_in("profiler.cli.replay_command", "replay_groups")
def replay() -> None:
    """Send the reports in a log group through the forwarder again.

    An interrupted replay continues where it stopped. Reports that are already indexed do not change.
    Notifications are indexed, too, but not sent again.
    """


@click.command("notify", epilog="Example: task-profiler notify stopped-task.json --dry-run")
@click.argument("file", metavar="[FILE]", type=click.File("rb"), required=False)
@option(
    "--event", "FILE", "File with ECS's event or a notification line (- for standard input).", type=click.File("rb")
)
@flag("--dry-run", "Print the notification without sending it.")
@flag("--json as_json", "Print the notification, which is JSON, on one line.")
@aws_options
@implemented_in("profiler.cli.notify_command", "notify_channels")
def notify() -> None:
    """Print the notification of a stopped task and send it.

    FILE has the event, as --event. The notification is the Slack message and the detail of the EventBridge
    event. For a stopped task, it contains only data of ECS's event; the deployed function adds the
    run's numbers and log lines. The channels are configured by the function's environment variables.
    """


# Click does not wrap a paragraph that begins with a backspace. Not a docstring: it would have to be raw, and the
# backspace would be two characters.
_MONITOR_HELP = """Run as a sidecar of an ECS task. All settings are environment variables.

Polls the stats of the task's containers every second. When the batch ends, writes one report
line to the batch's log stream; until then, writes a checkpoint line a minute to its own.

\b
TASK_PROFILER_CONTAINER             name of the batch container (the only other)
TASK_PROFILER_INTERVAL_SECONDS      sampling period (1)
TASK_PROFILER_CHECKPOINT_SECONDS    period of checkpoints, 0 = none (60)
TASK_PROFILER_STOP_SECONDS          time limit after SIGTERM (25)
TASK_PROFILER_LOG_GROUP             destination of the report (the batch's
TASK_PROFILER_LOG_STREAM            awslogs options)
TASK_PROFILER_REPORT_STREAM         monitor: the monitor's own stream (batch)
TASK_PROFILER_SERIES_POINTS         size of the time series, 0 = none (60)
TASK_PROFILER_STUCK_MINUTES         idle minutes until stuck, 0 = never (30)
TASK_PROFILER_EXPECTED_SECONDS      seconds until overdue (none)
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
    help=_MONITOR_HELP,
    epilog="Example (container definition): "
    '{"name": "task-monitor", "image": "…", "command": ["monitor"], "essential": false, '
    '"dependsOn": [{"containerName": "batch", "condition": "START"}]}',
)
def monitor() -> None:
    """Run the monitor. ``profiler.cli`` does the same without click if no argument follows."""
    run_monitor_process()

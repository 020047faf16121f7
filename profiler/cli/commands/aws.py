"""``setup``, ``kibana``, ``taskdef``, ``doctor``, ``replay``, ``notify`` and ``monitor``: what is in an AWS account."""

import re
from typing import Any

import click

from profiler.cli import run_monitor_process
from profiler.cli.options import (
    CommandGroup,
    Number,
    PastRunsCommand,
    Quantity,
    StacksCommand,
    WholeNumber,
    add_options,
    aws_options,
    flag,
    from_option,
    implemented_in,
    last_option,
    option,
    past_run_options,
    policy_options,
    repeatable,
    report_stream_option,
    stacks_option,
    yes_option,
)
from profiler.core.errors import UsageError
from profiler.core.index_names import DEFAULT_PREFIX
from profiler.core.version import __version__

# As profiler.aws_account.stack_state.DEFAULT_STACK, whose module is not imported for the help.
DEFAULT_STACK = "task-profiler"
# The names of the functions, which begin with the stack's, have at most 64 characters.
_STACK = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,49}", re.ASCII)
# The implementation gathers them as RolloutRequest.
_rollout_options = add_options(
    repeatable("--family globs", "GLOB", "Plan these families of ECS."),
    repeatable("--cluster clusters", "NAME", "Plan the families of this cluster's tasks and schedules."),
    flag("--scheduled", "Only families that an EventBridge rule or schedule starts."),
    flag("--services", "Include families that services run."),
    flag("--register", "Register the planned revisions."),
    flag(
        "--update-schedules", "With --register: move schedules pinned to a revision that differs only by the monitor."
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
@option("--log-group", "NAME", "Send the report to this group (default: the batch's stream, else /ecs/FAMILY).")
@report_stream_option
@flag("--pid shared_pids", "Share the process namespace of the task, which makes the kernel's peaks readable.")
@stacks_option
@repeatable("--setting settings", "NAME=VALUE", "Set this environment variable of each monitor.")
@_output_options
@aws_options
@implemented_in("profiler.cli.taskdef_command", "add_monitor")
def add_monitor() -> None:
    """Add the monitor container to the task definition in FILE, and print the new definition.

    FILE (JSON or YAML) has the format that register-task-definition reads or describe-task-definition prints, or is
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


@taskdef.command("resize", cls=PastRunsCommand, epilog="Example: task-profiler taskdef resize --scheduled")
@click.argument("globs", metavar="[FAMILY]...", nargs=-1)
@past_run_options
@repeatable("--cluster clusters", "NAME", "Only families of this cluster's tasks and schedules.")
@flag("--scheduled", "Only families that an EventBridge rule or schedule starts.")
@flag("--register", "Register the planned revisions.")
@flag("--update-schedules", "With --register: move schedules pinned to a revision that differs only by the size.")
@last_option(10_000, 50, "Use the N newest runs of each family for its size.")
@policy_options
@option("--min-saving min_saving_percent", "PERCENT", "Minimum saving.", type=Number(0, 100), default=10)
@option("--min-runs", "N", "Change a size only after N runs.", type=WholeNumber(1, 10_000), default=20)
@repeatable("--apply files", "FILE", "Write the sizes to the task definitions in FILE, and call nothing in ECS.")
@flag("--json as_json", "Print one JSON object for each family, and one for all.")
@implemented_in("profiler.cli.resize_command", "resize_families")
def resize() -> None:
    """Give families the size that their past runs call for, and judge the last change.

    FAMILY can be a shell pattern; the default is all families with runs. This prints a plan; --register carries it out.
    A revision remembers the size before. Its runs are judged: if it was too small, the old size comes back.
    """


@taskdef.command(
    "container",
    cls=StacksCommand,
    epilog="Example: task-profiler taskdef container --format terraform --container etl --log-group /ecs/etl",
)
@option(
    *(
        "--format output_format",
        "",
        "JSON of the API, HCL for jsonencode(), YAML of CloudFormation, TypeScript of the CDK.",
    ),
    type=click.Choice(["json", "terraform", "cloudformation", "cdk"]),
    default="json",
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
    "--seconds", "TIME", "Watch the stats for at most this time.", type=Quantity("parse_seconds", 0, 600), default=25.0
)
@option("--cluster", "NAME", "Check all families of this ECS cluster instead.")
@option("--deployed stack", "STACK", "Check the forwarder in this CloudFormation stack instead.")
@from_option
@aws_options
@implemented_in("profiler.cli.doctor.doctor_command", "run_doctor")
def doctor() -> None:
    """Show what can be measured in this container and what to change in the task definition.

    Checks the task metadata, the batch, its processes, its log stream and the permission to write to
    it, GPUs and Neuron devices. To test the permission, the command sends an event that is too old for CloudWatch
    Logs to accept, so nothing is written; only this test uses --region and --profile. The exit code
    is 1 if there is a problem.

    FILE is a task definition to check before its first run. FAMILY checks its latest revision in ECS, or
    FAMILY:REVISION, and the schedules that start it. --cluster checks the families of a cluster: monitor, role, log
    group, subscription, last report. --deployed checks a forwarder: its stack, subscriptions, functions and their last
    errors, and queues. https://HOST in --from is searched for reports (--cluster) or index templates.
    """


@click.command(
    "replay", epilog="Example: task-profiler replay --log-group /ecs/jobs --function forwarder --since 30d --yes"
)
@option("--log-group name", "GROUP", "The log group to read, or those that match * ? [].", required=True)
@option("--function function_name", "NAME", "Name or ARN of the forwarder function.", required=True)
@option("--since", "TIME", "Start: 30m, 12h or 7d ago, or an ISO time.", default="7d")
@option("--until", "TIME", "End, like --since (default: now).", default="0m", show_default=False)
@aws_options
@yes_option
@flag("--json as_json", "Print one JSON object instead of a sentence.")
@implemented_in("profiler.cli.replay_command", "replay_groups")
def replay() -> None:
    """Send the reports in a log group through the forwarder again.

    Without --yes, they are counted. An interrupted replay continues where it stopped. Reports that are already indexed
    do not change. Notifications are indexed, too, but not sent again.
    """


@click.command("notify", epilog="Example: task-profiler notify stopped-task.json --yes")
@click.argument("file", metavar="FILE", type=click.File("rb"))
@yes_option
@flag("--json as_json", "Print the notification, which is JSON, on one line.")
@aws_options
@implemented_in("profiler.cli.notify_command", "notify_channels")
def notify() -> None:
    """Print the notification of a stopped task, and send it with --yes.

    FILE has ECS's event or a notification line; - is standard input. The notification is the Slack message and the
    detail of the EventBridge event. For a stopped task, it contains only data of ECS's event; the deployed function
    adds the run's numbers and log lines. The channels are configured by the function's environment variables.
    """


# Click does not wrap a paragraph that begins with a backspace. Not a docstring: it would have to be raw, and the
# backspace would be two characters.
_MONITOR_HELP = """Run as a sidecar of an ECS task. All settings are environment variables.

Polls the stats of the task's containers every second. When the batch ends, writes one report
line to the batch's log stream; until then, writes a checkpoint line a minute to its own.

\b
{settings}
ECS_CONTAINER_METADATA_URI_V4       task metadata endpoint (set by ECS)
ECS_CONTAINER_METADATA_URI
AWS_REGION, AWS_ENDPOINT_URL, …     settings of boto3
"""


class _MonitorCommand(click.Command):
    """The command ``monitor``, whose help lists the settings."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from profiler.settings import settings_help  # msgspec, only for this help

        self.help = _MONITOR_HELP.format(settings=settings_help())
        super().format_help_text(ctx, formatter)


@click.command(
    "monitor",
    cls=_MonitorCommand,
    help=_MONITOR_HELP,
    epilog="Example (container definition): "
    '{"name": "task-monitor", "image": "…", "command": ["monitor"], "essential": false, '
    '"dependsOn": [{"containerName": "batch", "condition": "START"}]}',
)
def monitor() -> None:
    """Run the monitor. ``profiler.cli`` does the same without click if no argument follows."""
    run_monitor_process()


def stack_name(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
    """Refuse what AWS would refuse later. CloudFormation's answer to an empty name is all stacks."""
    if not _STACK.fullmatch(name):
        raise UsageError(
            f"--name {name!r} is not a stack's name: use at most 50 letters, digits and hyphens, a letter first."
        )
    return name


def _secret(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """A secret, or that in the file of ``@FILE``: all users of the machine see a command line."""
    if value is None or not value.startswith("@"):
        return value
    try:
        with click.open_file(value[1:], encoding="utf-8-sig") as file:
            secret = str(file.read()).strip()
    except (OSError, ValueError):
        secret = ""
    if secret:
        return secret
    # Without the value, which may be a password.
    raise click.BadParameter("The file that follows @ is empty or cannot be read: check it and its path.")


_name_option = option("--name", "STACK", "Name of the stack.", default=DEFAULT_STACK, callback=stack_name)


@click.group(
    "setup", cls=CommandGroup, invoke_without_command=True, epilog="Example: task-profiler setup --cluster jobs"
)
@repeatable("--cluster clusters", "NAME", "Only this ECS cluster (default: all).")
@flag("--json as_json", "Print one JSON object for each step.")
@aws_options
@click.pass_context
def setup(context: click.Context, /, **values: Any) -> int:  # noqa: ANN401  the values of the options
    """Set up an AWS account: image, forwarder, monitors.

    Without a subcommand, print the steps, what is done already, and the next commands.
    """
    if context.invoked_subcommand is not None:
        return 0
    from profiler.cli.setup.setup_commands import print_steps  # not for the help

    return print_steps(**values)


@setup.command("image", epilog="Example: task-profiler setup image --region eu-west-1 --yes")
@click.argument("options", metavar="[DOCKER_OPTION]...", nargs=-1)
@option("--repository", "NAME", "ECR repository.", default="task-profiler")
@option("--tag", "TAG", "The image's tag (default: this version).", default=__version__, show_default=False)
@repeatable("--platform platforms", "PLATFORM", "Build for this platform with buildx (default: amd64 and arm64).")
@yes_option
@flag("--json as_json", "Print the image's URI, or the commands, as a JSON object.")
@aws_options
@implemented_in("profiler.cli.setup.setup_commands", "build_image")
def image() -> None:
    """Build the monitor's image, push it to Amazon ECR, and print its URI.

    Without --yes, the commands are printed. A missing repository is created, with immutable tags. A tag that
    exists is not pushed again.
    DOCKER_OPTIONs after -- go to docker build, such as --build-arg BASE_IMAGE=python:3.13-slim.
    """


@setup.command("stack", epilog="Example: task-profiler setup stack --elasticsearch https://search.example.com --yes")
@_name_option
@option("--slack-failure-webhook failure_webhook", "URL", "Slack webhook for all but successes.", callback=_secret)
@option("--slack-success-webhook success_webhook", "URL", "Slack webhook for successes.", callback=_secret)
@option("--elasticsearch url", "URL", "Index the reports in this Elasticsearch or OpenSearch.")
@option("--api-key", "KEY", "API key of the functions there.", callback=_secret)
@option("--user", "NAME:PASSWORD", "Password of the functions there.", callback=_secret)
@option("--otlp otlp_url", "URL", "Export each run to this OpenTelemetry backend.")
@option("--otlp-headers", "NAME=VALUE,…", "Headers of the export, such as an API key.", callback=_secret)
@repeatable("--log-group groups", "NAME", "Subscribe this log group, or all NAME*, in place of the earlier ones.")
@flag("--all-log-groups", "Subscribe all log groups of the Region.")
@option("--instance-monitor", "CLUSTER", "Monitor each EC2 instance of this ECS cluster; without it, none.")
@repeatable("--parameter parameters", "NAME=VALUE", "Set a template parameter.")
@repeatable("--tag tags", "KEY=VALUE", "Tag the stack, its resources and new secrets; KEY= removes a tag.")
@option("--bucket", "NAME", "Bucket for the code (default: task-profiler-ACCOUNT-REGION, created).")
@option("--zip zip_file", "FILE", "The forwarder's zip of a release, instead of building it.")
@flag("--delete", "Delete the stack, and print what stays.")
@yes_option
@flag("--json as_json", "Print one JSON object; steps go to stderr.")
@aws_options
@implemented_in("profiler.cli.setup.setup_commands", "deploy_stack")
def stack() -> None:
    """Deploy the forwarder by CloudFormation, or update it.

    Settings that are not given keep their values. Webhooks, API keys, passwords and headers are stored in Secrets
    Manager; @FILE instead of one reads it from a file, @- from standard input.
    Without --yes, the command prints what it would do.
    """


@setup.command("redrive", epilog="Example: task-profiler setup redrive --region eu-west-1 --yes")
@_name_option
@yes_option
@flag("--json as_json", "Print one JSON object for each function.")
@aws_options
@implemented_in("profiler.cli.setup.setup_commands", "redrive_events")
def redrive() -> None:
    """Send failed events to the forwarder's functions again.

    They are in the dead-letter queues of its stack. Without --yes, they are counted. Repeating the command does no
    harm.
    """


@click.group(
    "kibana", cls=CommandGroup, epilog="Example: task-profiler kibana import --url https://kibana.example.com --dry-run"
)
def kibana() -> None:
    """Set up Elasticsearch or OpenSearch, and their dashboards."""


@kibana.command("import", epilog="Example: task-profiler kibana import --url https://kibana.example.com --dry-run")
@option("--url ui_url", "URL", "URL of Kibana or OpenSearch Dashboards.")
@option("--elasticsearch url", "URL", "The cluster (default: ELASTICSEARCH_URL).", envvar="ELASTICSEARCH_URL")
@option("--prefix", "P", "Prefix of the index names.", default=DEFAULT_PREFIX)
@aws_options
@option(
    "--flavour", "", "Kind of dashboards (default: by the server's version).", type=click.Choice(["classic", "lens"])
)
@flag("--keep-existing", "Import only missing dashboards and charts.")
@flag("--dry-run", "Print what would be installed, without installing it.")
@flag("--json as_json", "Print one JSON object for each step.")
@implemented_in("profiler.cli.kibana_command", "import_setup")
def import_() -> None:
    """Install index templates, this month's empty indices, lifecycle policies and dashboards.

    Without --elasticsearch, the templates are installed through the console of the dashboard server.
    Repeating the command restores the original dashboards unless --keep-existing is given.
    """

"""``task-profiler taskdef add-monitor``: adds the monitor to task definitions in files and in Amazon ECS."""

import click

from profiler.aws_account.rollout import RolloutRequest
from profiler.aws_account.rollout_plan import PlannedFamily, plan_addition
from profiler.cli.options import StacksCommand, aws_options, stacks_option
from profiler.cli.taskdef.definition_output import change_files
from profiler.cli.taskdef.monitor_variables import parse_settings
from profiler.cli.taskdef.pushed_image import check_default_image
from profiler.cli.taskdef.rollout_output import check_destination, roll_out, rollout_options
from profiler.cli.wiring.aws_options import open_clients, region_of_environment
from profiler.core.errors import UsageError
from profiler.core.version import __version__
from profiler.task_definitions.add_monitor import AddMonitorOptions, add_monitor_to
from profiler.task_definitions.containers import StacksAccess


@click.command(
    "add-monitor",
    cls=StacksCommand,
    epilog="Example: task-profiler taskdef add-monitor nightly-etl.json "
    "--image 111122223333.dkr.ecr.us-west-2.amazonaws.com/task-profiler:0.1.0 --in-place",
)
@click.argument("files", metavar="[FILE]...", nargs=-1)
@rollout_options
@click.option("--policy", "print_policy", is_flag=True, help="Print the IAM policy that the task roles need.")
@click.option(
    "--attach-policy", is_flag=True, help="Attach that policy to each task role, as the inline policy task-profiler."
)
@click.option(
    "--container",
    metavar="NAME",
    help="The batch container (default: the only essential container that is not a sidecar).",
)
@click.option(
    "--image",
    metavar="IMAGE",
    help="The monitor's image (default: the image of the monitor that the definition already has, else that of setup "
    f"image, task-profiler:{__version__}, in the private registry of the definition's account if it names one).",
)
@click.option(
    "--log-group",
    metavar="NAME",
    help="Send the report to the monitor's own log stream in this group (default: the batch's stream, or /ecs/FAMILY "
    "if the batch does not log by awslogs).",
)
@click.option(
    "--pid",
    "shared_pids",
    is_flag=True,
    help="Share process IDs within the task, which makes the kernel's peaks readable.",
)
@stacks_option
@click.option(
    "--setting",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="Set this environment variable of each monitor. Repeatable.",
)
@click.option("-o", "--output", "out", metavar="OUT", help="Write the new definition to a file.")
@click.option("--in-place", is_flag=True, help="Write the new definition to FILE.")
@aws_options
def add_monitor_(
    *,
    files: tuple[str, ...],
    request: RolloutRequest,
    container: str | None,
    image: str | None,
    log_group: str | None,
    shared_pids: bool,
    stacks: StacksAccess | None,
    settings: tuple[str, ...],
    out: str | None,
    in_place: bool,
    region: str | None,
    profile: str | None,
) -> int:
    """Add the monitor container to the task definition in FILE, and print the new definition.

    FILE has the format that register-task-definition reads or describe-task-definition prints, or is
    a CloudFormation template; - is standard input. Other containers and the task's size are not
    changed. An existing monitor is upgraded. Repeating the command changes nothing.

    --family and --cluster print a plan for the families in ECS. --register carries it out.
    """
    check_destination(request, has_files=bool(files), in_place=in_place, out=out)
    for name, value in (("--image", image), ("--log-group", log_group)):
        if value is not None and not value.strip():
            raise UsageError(f"{name} is empty: give it a value or omit the option.")
    options = AddMonitorOptions(
        container=container,
        image=image,
        shared_pids=shared_pids,
        stacks=stacks,
        log_group=log_group,
        region=region_of_environment(region),
        settings=parse_settings(settings),
    )
    if files:
        change_files(
            files,
            lambda definition, arn, region: add_monitor_to(definition, options, revision_arn=arn, stack_region=region),
            out=out,
            in_place=in_place,
        )
        return 0
    open_client = open_clients(region, profile)

    def check_plan(planned: tuple[PlannedFamily, ...]) -> None:
        if image is None:
            check_default_image(planned, open_client, must_exist=request.register)

    return roll_out(
        request,
        lambda family, document: plan_addition(family, document, options),
        open_client,
        image=image,
        check_plan=check_plan,
    )

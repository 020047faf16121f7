"""``task-profiler taskdef remove-monitor``: removes the monitor from task definitions in files and in Amazon ECS."""

from collections.abc import Mapping

import click
from msgspec.structs import replace

from profiler.aws_account.rollout import RolloutRequest
from profiler.aws_account.rollout_plan import plan_removal
from profiler.cli.options import aws_options
from profiler.cli.taskdef.definition_output import change_files
from profiler.cli.taskdef.rollout_output import check_destination, roll_out, rollout_options
from profiler.cli.wiring.aws_options import open_clients
from profiler.task_definitions.definition_json import ChangedDefinition
from profiler.task_definitions.remove_monitor import remove_monitor


@click.command("remove-monitor", epilog="Example: task-profiler taskdef remove-monitor --family 'nightly-*' --register")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@rollout_options
@click.option("--image", metavar="IMAGE", help="The monitor's image, if its repository is not called task-profiler.")
@click.option("-o", "--output", "out", metavar="OUT", help="Write the new definition to a file.")
@click.option("--in-place", is_flag=True, help="Write the new definition to FILE.")
@aws_options
def remove_monitor_(
    *,
    files: tuple[str, ...],
    request: RolloutRequest,
    image: str | None,
    out: str | None,
    in_place: bool,
    region: str | None,
    profile: str | None,
) -> int:
    """Remove the monitor container from the task definition in FILE, and print the definition without it.

    The result is the definition before add-monitor. --family and --cluster print a plan for the families in
    ECS, and --register carries it out. IAM policies and log groups are not removed.
    """
    check_destination(request, has_files=bool(files), in_place=in_place, out=out)
    if files:
        change_files(files, lambda definition, *_: _remove(definition, image), out=out, in_place=in_place)
        return 0
    return roll_out(
        request,
        lambda family, document: plan_removal(family, document, image),
        open_clients(region, profile),
        image=image,
    )


def _remove(definition: Mapping[str, object], image: str | None) -> ChangedDefinition:
    removed = remove_monitor(definition, image)
    return removed if removed.had_monitor else replace(removed, notes=("There is no monitor: nothing was removed.",))

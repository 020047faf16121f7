"""``task-profiler taskdef add-monitor``: adds the monitor to task definitions in files and in Amazon ECS."""

from collections.abc import Mapping

import click
from msgspec.structs import replace

from profiler.aws_account.rollout_plan import Action, Change
from profiler.cli.options import aws_options
from profiler.cli.printing import warn
from profiler.cli.taskdef.definition_output import ChangedText, change_files
from profiler.cli.taskdef.rollout import Rollout, RolloutRequest, check_destination, rollout_options
from profiler.cli.wiring.aws_clients import open_clients, region_of_environment
from profiler.core.ecs_terms import arn_part
from profiler.core.errors import UsageError
from profiler.core.version import __version__
from profiler.task_definitions.add_monitor import (
    AddMonitorOptions,
    AddMonitorResult,
    add_monitor,
    default_image_note,
    log_group_note,
)
from profiler.task_definitions.cloudformation import DefinitionChange, change_template, is_template
from profiler.task_definitions.containers import default_image, own_log_group
from profiler.task_definitions.document import TaskDefinitionDocument, read_document
from profiler.task_definitions.permissions import report_streams

_REGION_OF_ARN = 3


@click.command(
    "add-monitor",
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
    help="The monitor's image, which you build and push (default: the image of the monitor that the definition already "
    f"has, else task-profiler:{__version__}, in the private registry of the definition's account if it names one).",
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
    help="Share process ids within the task, which makes the kernel's peaks readable.",
)
@click.option("-o", "--output", "out", metavar="OUT", help="Write the new definition to a file.")
@click.option("--in-place", is_flag=True, help="Write the new definition to FILE.")
@aws_options
def add_monitor_(
    *,
    files: tuple[str, ...],
    families: tuple[str, ...],
    clusters: tuple[str, ...],
    services: bool,
    register: bool,
    update_schedules: bool,
    print_policy: bool,
    attach_policy: bool,
    container: str | None,
    image: str | None,
    log_group: str | None,
    shared_pids: bool,
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
    request = RolloutRequest(
        globs=families,
        clusters=clusters,
        register=register,
        update_schedules=update_schedules,
        print_policy=print_policy,
        attach_policy=attach_policy,
        services=services,
    )
    check_destination(request, has_files=bool(files), in_place=in_place, out=out)
    for name, value in (("--image", image), ("--log-group", log_group)):
        if value is not None and not value.strip():
            raise UsageError(f"{name} is empty: give it a value or omit the option.")
    options = AddMonitorOptions(
        container=container,
        image=image,
        shared_pids=shared_pids,
        log_group=log_group,
        region=region_of_environment(region),
    )
    if files:
        change_files(files, lambda data, name: _change_text(data, name, options), out=out, in_place=in_place)
        return 0
    if image is None:
        warn(default_image_note(f"task-profiler:{__version__} in the registry of the account"))
    return Rollout(
        open_clients(region, profile), request, lambda document: _planned(document, options), image=image
    ).run()


def _change_text(data: bytes, name: str, options: AddMonitorOptions) -> ChangedText:
    if is_template(data):
        return ChangedText.of_template(
            data, change_template(data, name, lambda *given: _add_in_template(options, *given))
        )
    document = read_document(data, name)
    added = _add(document, options)
    return ChangedText(
        before=document.text(document.definition),
        after=document.text(added.definition),
        is_changed=added.definition != document.definition or document.is_from_ecs,
        notes=added.notes,
    )


def _add_in_template(
    options: AddMonitorOptions, definition: Mapping[str, object], region: Mapping[str, object]
) -> DefinitionChange:
    located = replace(options, region=options.region or region)
    added = add_monitor(definition, located, default_image=default_image(None, __version__))
    return DefinitionChange(definition=added.definition, notes=added.notes)


def _planned(document: TaskDefinitionDocument, options: AddMonitorOptions) -> Change:
    added = _add(document, options)
    image = options.image or default_image(document.arn, __version__)
    log_group = own_log_group(added.definition, image)
    is_changed = added.definition != document.definition
    # The plan names the default image once, and knows whether the log group exists.
    general = {default_image_note(image), log_group_note(log_group)}
    action: Action = "up to date" if not is_changed else "update monitor" if added.has_monitor else "add monitor"
    return Change(
        action=action,
        definition=added.definition,
        notes=tuple(note for note in added.notes if note not in general),
        batch=added.batch,
        streams=report_streams(added.definition, added.batch, document.arn or "", image=image),
        log_group=log_group,
    )


def _add(document: TaskDefinitionDocument, options: AddMonitorOptions) -> AddMonitorResult:
    located = replace(options, region=arn_part(document.arn, _REGION_OF_ARN) or options.region)
    return add_monitor(document.definition, located, default_image=default_image(document.arn, __version__))

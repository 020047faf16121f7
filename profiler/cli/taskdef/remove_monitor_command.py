"""``task-profiler taskdef remove-monitor``: removes the monitor from task definitions in files and in Amazon ECS."""

from collections.abc import Mapping

import click

from profiler.aws_account.rollout_plan import Change
from profiler.cli.options import aws_options
from profiler.cli.printing import warn
from profiler.cli.taskdef.definition_output import ChangedText, change_files
from profiler.cli.taskdef.rollout import Rollout, RolloutRequest, check_destination, rollout_options
from profiler.cli.wiring.aws_options import open_clients
from profiler.task_definitions.cloudformation import DefinitionChange, change_template, is_template
from profiler.task_definitions.containers import own_log_group
from profiler.task_definitions.document import TaskDefinitionDocument, read_document
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
    families: tuple[str, ...],
    clusters: tuple[str, ...],
    services: bool,
    register: bool,
    update_schedules: bool,
    image: str | None,
    out: str | None,
    in_place: bool,
    region: str | None,
    profile: str | None,
) -> int:
    """Remove the monitor container from the task definition in FILE, and print the definition without it.

    The result is what add-monitor was given. --family and --cluster print a plan for the families in
    ECS, and --register carries it out. IAM policies and log groups are not removed.
    """
    request = RolloutRequest(
        globs=families, clusters=clusters, register=register, update_schedules=update_schedules, services=services
    )
    check_destination(request, has_files=bool(files), in_place=in_place, out=out)
    if files:
        change_files(files, lambda data, name: _change_text(data, name, image), out=out, in_place=in_place)
        return 0
    return Rollout(
        open_clients(region, profile), request, lambda document: _planned(document, image), image=image
    ).run()


def _change_text(data: bytes, name: str, image: str | None) -> ChangedText:
    if is_template(data):
        return ChangedText.of_template(data, change_template(data, name, lambda *given: _remove(image, *given)))
    document = read_document(data, name)
    removed = remove_monitor(document.definition, image)
    if not removed.has_monitor:
        warn(f"{name} has no monitor: nothing was removed.")
    return ChangedText(
        before=document.text(document.definition),
        after=document.text(removed.definition),
        is_changed=removed.has_monitor or document.is_from_ecs,
        notes=removed.notes,
    )


def _remove(image: str | None, definition: Mapping[str, object], _region: Mapping[str, object]) -> DefinitionChange:
    removed = remove_monitor(definition, image)
    return DefinitionChange(definition=removed.definition, notes=removed.notes)


def _planned(document: TaskDefinitionDocument, image: str | None) -> Change:
    removed = remove_monitor(document.definition, image)
    log_group = own_log_group(document.definition, image)
    kept = () if log_group is None else (f"The log group {log_group} is kept.",)
    return Change(
        action="remove monitor" if removed.has_monitor else "no monitor",
        definition=removed.definition,
        notes=(*removed.notes, *kept),
    )

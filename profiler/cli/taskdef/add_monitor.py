"""``task-profiler taskdef add-monitor``: adds the monitor to task definitions in files and Amazon ECS."""

import difflib
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from profiler import __version__
from profiler.cli.output import printable, warn
from profiler.cli.taskdef.definition_files import read_bytes, write_definition
from profiler.cli.taskdef.ecs import open_task_definitions
from profiler.core.errors import UsageError
from profiler.taskdef.add_monitor import AddMonitorOptions, add_monitor
from profiler.taskdef.containers import default_image
from profiler.taskdef.document import TaskDefinitionDocument, read_document

_STANDARD_INPUT = "-"
_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
_OUTPUT_REMEDY = "name another file by -o"


@click.command(
    "add-monitor",
    epilog="Example: task-profiler taskdef add-monitor nightly-etl.json "
    "--image 111122223333.dkr.ecr.us-west-2.amazonaws.com/task-profiler:0.1.0 --in-place",
)
@click.argument("file", required=False)
@click.option("--family", metavar="NAME", help="Read the definition from ECS: a family, or family:revision.")
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
    "--pid",
    "shared_pids",
    is_flag=True,
    help="Share process ids within the task, which makes the kernel's peaks readable.",
)
@click.option("-o", "--output", "out", metavar="OUT", help="Write the new definition to a file.")
@click.option("--in-place", is_flag=True, help="Write the new definition to FILE.")
@click.option(
    "--register", is_flag=True, help="Register the new definition as a revision of the family, and print its name."
)
def add_monitor_(
    *,
    file: str | None,
    family: str | None,
    container: str | None,
    image: str | None,
    shared_pids: bool,
    out: str | None,
    in_place: bool,
    register: bool,
) -> None:
    """Add the monitor container to the task definition in FILE, and print the new definition.

    FILE has the format that register-task-definition reads or describe-task-definition prints; - is
    standard input. Other containers and the task's size are not changed. Repeating the command
    changes nothing, or with another --image only the image.
    """
    _check_options(file=file, family=family, out=out, in_place=in_place, register=register)
    if image is not None and not image.strip():
        raise UsageError("--image is empty: name an image or leave the option out.")
    definitions = open_task_definitions() if family else None
    name = family or ("standard input" if file == _STANDARD_INPUT else str(file))
    document = read_document(definitions.describe(name) if definitions is not None else _read(str(file)), name)
    options = AddMonitorOptions(container=container, image=image, shared_pids=shared_pids)
    added = add_monitor(document.definition, options, default_image=default_image(document.arn, __version__))
    changed = added.definition != document.definition
    text = document.text(added.definition)
    for note in added.notes:
        warn(note)
    _print_diff(document.text(document.definition), text, name)
    if out is not None:
        write_definition(Path(out), text, remedy=_OUTPUT_REMEDY)
    if definitions is not None and register:
        click.echo(definitions.register(added.definition) if changed else _unchanged(document))
    elif in_place and (changed or document.is_from_ecs):
        write_definition(Path(str(file)), text, remedy=_OUTPUT_REMEDY)
    elif out is None and not in_place:
        click.echo(text, nl=False)


def _check_options(*, file: str | None, family: str | None, out: str | None, in_place: bool, register: bool) -> None:
    if bool(file) == bool(family):
        raise UsageError("Name one task definition: a FILE (- is standard input) or --family NAME.")
    if register and not family:
        raise UsageError("--register needs --family: a file has no revision to compare with, so give its family.")
    if in_place and (not file or file == _STANDARD_INPUT):
        raise UsageError("--in-place needs a FILE to write to: name one, or use -o OUT.")
    if in_place and out is not None:
        raise UsageError("--in-place and -o are two destinations: use one of them.")


def _read(file: str) -> bytes:
    return sys.stdin.buffer.read() if file == _STANDARD_INPUT else read_bytes(Path(file))


def _print_diff(before: bytes, after: bytes, name: str) -> None:
    """Print the difference on standard error if that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return
    old, new = (text.decode().splitlines() for text in (before, after))
    for line in difflib.unified_diff(old, new, name, f"{name} with the monitor", lineterm=""):
        console.print(Text(printable(line), _DIFF_COLOURS.get(line[:1], "")), soft_wrap=True)


def _unchanged(document: TaskDefinitionDocument) -> str:
    revision = (document.arn or "").rpartition("/")[2]
    warn(f"{revision} has this monitor already: nothing was registered.")
    return revision

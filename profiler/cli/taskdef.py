"""``task-profiler taskdef``: adds the monitor to task definitions in files, standard input and Amazon ECS."""

import difflib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from profiler import __version__
from profiler.cli.definition_files import read_bytes, write_definition
from profiler.cli.output import printable, warn
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.taskdef.add_monitor import AddMonitorOptions, add_monitor
from profiler.taskdef.containers import default_image
from profiler.taskdef.document import TaskDefinitionDocument, read_document

_STANDARD_INPUT = "-"
_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
_OUTPUT_REMEDY = "name another file by -o"


class TaskDefinitions:
    """The account's task definitions in Amazon ECS. Every method raises TaskProfilerError with ECS's reason."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401  boto3 makes its clients at run time
        self._client = client

    def describe(self, name: str) -> bytes:
        """Return ECS's response for a family's latest revision, or for ``family:revision``, unparsed.

        boto3's parsed response lacks fields that are newer than boto3. Registering it would lose them.
        """
        bodies: list[bytes] = []
        # The event has more arguments than the response.
        self._client.meta.events.register_last(
            "after-call.ecs.DescribeTaskDefinition", lambda http_response, **_: bodies.append(http_response.content)
        )
        with _translate_errors(f"the task definition {name!r} could not be read"):
            self._client.describe_task_definition(taskDefinition=name, include=["TAGS"])
        return bodies[-1]

    def register(self, definition: Mapping[str, object]) -> str:
        """Register a revision and return its name, ``family:revision``."""
        with _translate_errors("no revision was registered"):
            response = self._client.register_task_definition(**definition)
        registered = response["taskDefinition"]
        return f"{registered['family']}:{registered['revision']}"


def open_task_definitions() -> TaskDefinitions:
    """Connect with boto3's own settings: region, credentials, AWS_ENDPOINT_URL."""
    import boto3  # heavy, and only for --family

    with _translate_errors("Amazon ECS cannot be reached"):
        return TaskDefinitions(boto3.client("ecs"))


@contextmanager
def _translate_errors(what: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError  # as boto3

    try:
        yield
    except ParamValidationError as error:
        reason = " ".join(str(error.kwargs["report"]).split())
        raise TaskProfilerError(
            f"boto3 does not know all fields of the definition, so {what}: upgrade boto3 ({reason})."
        ) from error
    except (BotoCoreError, ClientError) as error:
        reason = str(error).rstrip(".")
        raise TaskProfilerError(
            f"{what[0].upper()}{what[1:]} ({reason}): check the family's name, the region and your credentials."
        ) from error


@click.group("taskdef", epilog="Example: task-profiler taskdef add-monitor nightly-etl.json --in-place")
def command() -> None:
    """Add the monitor to ECS task definitions."""


@command.command(
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

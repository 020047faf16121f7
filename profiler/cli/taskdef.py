"""``task-profiler taskdef``: wires files, standard input and Amazon ECS to the addition of the monitor."""

import difflib
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from profiler import __version__
from profiler.cli.output import printable
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.files import write_atomically
from profiler.taskdef.add_monitor import AddMonitorOptions, add_monitor
from profiler.taskdef.containers import default_image
from profiler.taskdef.document import TaskDefinitionDocument, read_document


class TaskDefinitions:
    """The account's task definitions. Every call raises TaskProfilerError with ECS's reason."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401  boto3 makes its clients at run time
        self._client = client

    def describe(self, name: str) -> bytes:
        """The answer for a family's latest revision, or for ``family:revision``, as ECS sent it.

        boto3 leaves out of its own reading the fields that are newer than itself; registering that
        would lose them.
        """
        bodies: list[bytes] = []
        # boto3 passes much more than the answer.
        self._client.meta.events.register_last(
            "after-call.ecs.DescribeTaskDefinition", lambda http_response, **_: bodies.append(http_response.content)
        )
        with _translate_errors(f"the task definition {name!r} could not be read"):
            self._client.describe_task_definition(taskDefinition=name, include=["TAGS"])
        return bodies[-1]

    def register(self, definition: Mapping[str, object]) -> str:
        """Register a revision; its name, ``family:revision``."""
        with _translate_errors("no revision was registered"):
            answer = self._client.register_task_definition(**definition)
        registered = answer["taskDefinition"]
        return f"{registered['family']}:{registered['revision']}"


def open_task_definitions() -> TaskDefinitions:
    """With boto3's own settings: region, credentials, AWS_ENDPOINT_URL."""
    import boto3  # heavy, and only for --family

    with _translate_errors("Amazon ECS cannot be asked"):
        return TaskDefinitions(boto3.client("ecs"))


@contextmanager
def _translate_errors(what: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError  # as boto3

    try:
        yield
    except ParamValidationError as error:
        reason = " ".join(str(error.kwargs["report"]).split())
        raise TaskProfilerError(
            f"boto3 does not know all that the definition holds, so {what}: upgrade boto3 ({reason})."
        ) from error
    except (BotoCoreError, ClientError) as error:
        reason = str(error).rstrip(".")
        raise TaskProfilerError(
            f"{what[0].upper()}{what[1:]} ({reason}): check the family's name, the region and your credentials."
        ) from error


_STANDARD_INPUT = "-"
_NEW_FILE_MODE = 0o644
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@click.group("taskdef", epilog="Example: task-profiler taskdef add-monitor nightly-etl.json --in-place")
def command() -> None:
    """Prepare ECS task definitions."""


@command.command(
    "add-monitor",
    epilog="Example: task-profiler taskdef add-monitor nightly-etl.json "
    "--image 111122223333.dkr.ecr.us-west-2.amazonaws.com/task-profiler:0.1.0 --in-place",
)
@click.argument("file", required=False)
@click.option("--family", metavar="NAME", help="Read the definition from ECS instead: a family, or family:revision.")
@click.option("--container", metavar="NAME", help="The batch (default: the only essential container of your own).")
@click.option(
    "--image",
    metavar="IMAGE",
    help="The monitor's image, which you build and push (default: that of a monitor that is there already, else "
    f"task-profiler:{__version__}, in the private registry of the definition's account where it names one).",
)
@click.option("--pid", "shared_pids", is_flag=True, help="Share process ids in the task, for the kernel's own peaks.")
@click.option("-o", "--output", "out", metavar="OUT", help="Write the new definition to a file.")
@click.option("--in-place", is_flag=True, help="Write it to FILE.")
@click.option("--register", is_flag=True, help="Register it as a new revision of the family and print its name.")
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

    FILE is what register-task-definition takes or describe-task-definition prints; - is standard
    input. Other containers and the task's size stay as they are. Doing it again changes nothing;
    with another --image, only the image.
    """
    _check_options(file=file, family=family, out=out, in_place=in_place, register=register)
    if image is not None and not image.strip():
        raise UsageError("--image is empty: name an image or leave the option out.")
    families = open_task_definitions() if family else None
    shown = family or ("standard input" if file == _STANDARD_INPUT else str(file))
    document = read_document(families.describe(shown) if families is not None else _read(file, shown), shown)
    options = AddMonitorOptions(container=container, image=image, shared_pids=shared_pids)
    added = add_monitor(document.definition, options, default_image=default_image(document.arn, __version__))
    changed = added.definition != document.definition
    text = document.text(added.definition)
    for note in added.notes:
        click.echo(f"task-profiler: {printable(note)}", err=True)
    _print_diff(document.text(document.definition), text, shown)
    if out is not None:
        _write(Path(out), text)
    if families is not None and register:
        click.echo(families.register(added.definition) if changed else _unchanged(document))
    elif in_place and (changed or document.is_from_ecs):
        _write(Path(str(file)), text)
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
        raise UsageError("--in-place and -o are two places to write to: choose one.")


def _read(file: str | None, shown: str) -> bytes:
    if file == _STANDARD_INPUT:
        return sys.stdin.buffer.read()
    try:
        return Path(shown).read_bytes()
    except OSError as error:
        raise TaskProfilerError(f"{shown} cannot be read ({error.strerror}): name a task definition's file.") from error


def _write(path: Path, text: bytes) -> None:
    """An existing file keeps its permissions, and a link goes on pointing to it."""
    try:
        target = path.resolve()
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else _NEW_FILE_MODE
        write_atomically(target, text, mode=mode)
    except OSError as error:
        raise TaskProfilerError(f"{path} cannot be written ({error.strerror}): name another file by -o.") from error


def _print_diff(before: bytes, after: bytes, shown: str) -> None:
    """On stderr, for people only."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return
    old, new = (text.decode().splitlines() for text in (before, after))
    for line in difflib.unified_diff(old, new, shown, f"{shown} with the monitor", lineterm=""):
        console.print(Text(printable(line), _COLOURS.get(line[:1], "")), soft_wrap=True)


def _unchanged(document: TaskDefinitionDocument) -> str:
    revision = (document.arn or "").rpartition("/")[2]
    click.echo(f"task-profiler: {revision} has the monitor as wanted: nothing was registered.", err=True)
    return revision

"""``task-profiler notify``: the forwarder's preview of a notice, in a process of its own.

The profiler never imports the forwarder; what both share is the record.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

import click

from profiler.errors import TaskProfilerError


@click.command("notify", epilog="Example: task-profiler notify --event stopped-task.json --dry-run")
@click.option("--event", "event", type=click.File("rb"), required=True, metavar="FILE", help="The event (- = stdin).")
@click.option("--dry-run", is_flag=True, help="Only print the message.")
def command(event: BinaryIO, dry_run: bool) -> int:
    """Print the Slack message for an ended task, and send it unless --dry-run.

    Made from the event alone: the deployed function adds the run's numbers from its log. Slack's
    settings are those of the function, in the environment.
    """
    if find_spec("slack_sdk") is None:
        raise TaskProfilerError("The notice needs the forwarder's packages: pip install 'task-profiler[lambda]'.")
    options = [] if dry_run else ["--send"]
    done = subprocess.run(  # noqa: S603  our own module
        [sys.executable, "-m", "forwarder.preview", *options],
        input=event.read(),
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(_forwarder()), *_present_path()))},
        check=False,
    )
    return done.returncode


def _forwarder() -> Path:
    """From the installed package, or from the repository where it is installed editable."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "lambda", package.parent / "lambda"):
        if (folder / "forwarder").is_dir():
            return folder
    raise TaskProfilerError("The forwarder is missing from this installation: install the package again.")


def _present_path() -> tuple[str, ...]:
    present = os.environ.get("PYTHONPATH")
    return (present,) if present else ()

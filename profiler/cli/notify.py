"""``task-profiler notify``: the forwarder's preview of a notice, in a process of its own.

The profiler never imports the forwarder; what both share is the record.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import BinaryIO

import click

from profiler.cli.output import write_out
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.files import package_data_folder


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
    text = _as_ascii(event.read())
    forwarder = package_data_folder("forwarder", what="The forwarder is")
    options = [] if dry_run else ["--send"]
    done = subprocess.run(  # noqa: S603  our own module
        [sys.executable, "-m", "forwarder.preview", *options],
        input=text,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(forwarder.parent), *_present_path()))},
        check=False,
    )
    write_out(done.stdout)
    return done.returncode


def _as_ascii(event: bytes) -> bytes:
    """The same JSON, whatever the locale in which the forwarder reads it."""
    try:
        return json.dumps(json.loads(event)).encode()
    except (ValueError, RecursionError) as error:
        where = f" in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise UsageError(f"The event is not valid JSON{where}: give it as EventBridge sends it.") from error


def _present_path() -> tuple[str, ...]:
    present = os.environ.get("PYTHONPATH")
    return (present,) if present else ()

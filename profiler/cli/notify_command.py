"""``task-profiler notify``: runs the forwarder's preview of a notice in a separate process.

The profiler never imports the forwarder.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import BinaryIO

import click

from profiler.cli.options import aws_options
from profiler.cli.printing import write_out
from profiler.cli.wiring.aws_options import AwsOptions, aws_environment
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.files import package_data_folder


@click.command("notify", epilog="Example: task-profiler notify --event stopped-task.json --dry-run")
@click.option(
    "--event",
    "event",
    type=click.File("rb"),
    required=True,
    metavar="FILE",
    help="The event from ECS, or the line of a notice (- for standard input).",
)
@click.option("--dry-run", is_flag=True, help="Print the notification without sending it.")
@aws_options
def command(event: BinaryIO, dry_run: bool, region: str | None, profile: str | None) -> int:
    """Print the notification of a stopped task and send it.

    The notification is the Slack message and the detail of the EventBridge event. Of a stopped task,
    it contains only data of ECS's event; the deployed function adds the run's numbers and log lines.
    The channels are configured by the function's environment variables.
    """
    if find_spec("slack_sdk") is None:
        raise TaskProfilerError("notify needs the forwarder's packages: pip install 'task-profiler[lambda]'.")
    text = _as_ascii(event.read())
    forwarder = package_data_folder("forwarder", what="The forwarder is")
    options = [] if dry_run else ["--send"]
    done = subprocess.run(  # noqa: S603  our own module
        [sys.executable, "-m", "forwarder.preview", *options],
        input=text,
        stdout=subprocess.PIPE,
        env={
            **os.environ,
            **aws_environment(AwsOptions(region=region, profile=profile), os.environ),
            "PYTHONPATH": os.pathsep.join((str(forwarder.parent), *_python_path())),
        },
        check=False,
    )
    write_out(done.stdout)
    return done.returncode


def _as_ascii(event: bytes) -> bytes:
    """Encode the JSON in ASCII, which the forwarder's process reads alike in every locale."""
    try:
        return json.dumps(json.loads(event)).encode()
    except (ValueError, RecursionError) as error:
        where = f" in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise UsageError(f"The event is not valid JSON{where}: pass it as EventBridge sends it.") from error


def _python_path() -> tuple[str, ...]:
    path = os.environ.get("PYTHONPATH")
    return (path,) if path else ()

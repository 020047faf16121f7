"""``task-profiler taskdef container``: prints the monitor's container, to paste into code."""

import click

from profiler.cli.options import StacksCommand, stacks_option
from profiler.cli.printing import warn
from profiler.cli.wiring.aws_options import region_of_environment
from profiler.core.ecs_terms import MONITOR_REPOSITORY
from profiler.core.errors import UsageError
from profiler.core.version import __version__
from profiler.task_definitions.container_snippets import (
    DEFAULT_CONTAINER,
    ContainerFormat,
    ContainerRequest,
    container_text,
)
from profiler.task_definitions.containers import DEFAULT_STREAM_PREFIX, StacksAccess


@click.command(
    "container",
    cls=StacksCommand,
    epilog="Example: task-profiler taskdef container --format terraform --container etl --log-group /ecs/etl",
)
@click.option(
    "--format",
    "container_format",
    type=click.Choice(["json", "terraform", "cloudformation", "cdk"]),
    default="json",
    show_default=True,
    help="The language: JSON of the API, HCL for jsonencode(), YAML of CloudFormation, TypeScript of the CDK.",
)
@click.option(
    "--container", metavar="NAME", default=DEFAULT_CONTAINER, show_default=True, help="The name of the batch container."
)
@click.option(
    "--image",
    metavar="IMAGE",
    default=f"{MONITOR_REPOSITORY}:{__version__}",
    show_default=True,
    help="The monitor's image, which you build and push.",
)
@click.option(
    "--log-group", metavar="NAME", help="The log group of the batch's awslogs log driver (default: /ecs/CONTAINER)."
)
@click.option(
    "--region", metavar="REGION", help="Region of the log group (default: AWS_REGION, else the deployment's)."
)
@click.option(
    "--stream-prefix",
    metavar="PREFIX",
    default=DEFAULT_STREAM_PREFIX,
    show_default=True,
    help="The batch's awslogs-stream-prefix.",
)
@stacks_option
def container_(
    *,
    container_format: ContainerFormat,
    container: str,
    image: str,
    log_group: str | None,
    region: str | None,
    stream_prefix: str,
    stacks: StacksAccess | None,
) -> None:
    """Print the monitor's container definition, to paste into a definition that is kept in code."""
    for name, value in (("--container", container), ("--image", image), ("--stream-prefix", stream_prefix)):
        if not value.strip():
            raise UsageError(f"{name} is empty: give it a value or omit the option.")
    request = ContainerRequest(
        image=image,
        container=container,
        log_group=log_group or f"/ecs/{container}",
        region=region_of_environment(region),
        stream_prefix=stream_prefix,
        stacks=stacks,
    )
    if stacks is not None and container_format != "cdk":
        warn("Set pidMode to task in the task definition, too, because the monitor must see the batch's processes.")
    click.echo(container_text(request, container_format), nl=False)

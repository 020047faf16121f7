"""``task-profiler setup``: from an installed wheel to an account that reports, in four steps."""

import click

from profiler.cli.options import aws_options
from profiler.cli.setup.image_command import image_
from profiler.cli.setup.redrive_command import redrive_
from profiler.cli.setup.stack_command import stack_


@click.group("setup", invoke_without_command=True, epilog="Example: task-profiler setup --cluster jobs")
@click.option(
    "--cluster", "clusters", metavar="NAME", multiple=True, help="Only this ECS cluster (default: all). Repeatable."
)
@aws_options
@click.pass_context
def command(context: click.Context, *, clusters: tuple[str, ...], region: str | None, profile: str | None) -> None:
    """Set up an AWS account: image, forwarder, monitors.

    Without a subcommand, print the steps, what is done already, and the next commands.
    """
    if context.invoked_subcommand is None:
        from profiler.cli.setup.steps_output import print_steps  # not for the subcommands

        print_steps(clusters, region, profile)


command.add_command(image_)
command.add_command(stack_)
command.add_command(redrive_)

"""``task-profiler setup``: from an installed wheel to an account that reports, in four steps."""

import click

from profiler.cli.setup.image_command import image_


@click.group("setup", invoke_without_command=True, epilog="Example: task-profiler setup --cluster jobs")
@click.pass_context
def command(context: click.Context) -> None:
    """Set up an AWS account: image, forwarder, monitors. Without a subcommand, print the steps and what is done."""
    if context.invoked_subcommand is None:
        from profiler.cli.setup.steps_output import print_steps  # not for the subcommands

        print_steps()


command.add_command(image_)

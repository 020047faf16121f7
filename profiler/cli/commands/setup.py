"""``setup`` and ``kibana``: what is installed once in an AWS account and in a search cluster."""

import re
from typing import Any

import click

from profiler.cli.options import (
    CommandGroup,
    add_options,
    apply_options,
    aws_auth_option,
    aws_options,
    ca_file_option,
    flag,
    implemented_in,
    option,
    repeatable,
    search_options,
)
from profiler.core.errors import UsageError
from profiler.core.version import __version__

# As profiler.aws_account.stack_state.DEFAULT_STACK, whose module is not imported for the help.
DEFAULT_STACK = "task-profiler"
# The names of the functions, which begin with the stack's, have at most 64 characters.
_STACK = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,49}", re.ASCII)


def stack_name(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
    """Refuse what AWS would refuse later. CloudFormation's answer to an empty name is all stacks."""
    if not _STACK.fullmatch(name):
        raise UsageError(
            f"--name {name!r} is not a stack's name: use at most 50 letters, digits and hyphens, a letter first."
        )
    return name


_name_option = option("--name", "STACK", "Name of the stack.", default=DEFAULT_STACK, callback=stack_name)


def _secret(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """A secret, or that in the file of ``@FILE``: all users of the machine see a command line."""
    if value is None or not value.startswith("@"):
        return value
    try:
        with click.open_file(value[1:], encoding="utf-8-sig") as file:
            secret = str(file.read()).strip()
    except (OSError, ValueError):
        secret = ""
    if secret:
        return secret
    # Without the value, which may be a password.
    raise click.BadParameter("The file that follows @ is empty or cannot be read: check it and its path.")


@click.group(
    "setup", cls=CommandGroup, invoke_without_command=True, epilog="Example: task-profiler setup --cluster jobs"
)
@repeatable("--cluster clusters", "NAME", "Only this ECS cluster (default: all).")
@flag("--json as_json", "Print one JSON object for each step.")
@aws_options
@click.pass_context
def setup(context: click.Context, /, **values: Any) -> None:  # noqa: ANN401  the values of the options
    """Set up an AWS account: image, forwarder, monitors.

    Without a subcommand, print the steps, what is done already, and the next commands.
    """
    if context.invoked_subcommand is None:
        from profiler.cli.setup.setup_commands import print_steps  # not for the help

        print_steps(**values)


@setup.command("image", epilog="Example: task-profiler setup image --region eu-west-1 --yes")
@click.argument("options", metavar="[DOCKER_OPTION]...", nargs=-1)
@option("--repository", "NAME", "ECR repository.", default="task-profiler")
@option("--tag", "TAG", "The image's tag (default: this version).", default=__version__, show_default=False)
@repeatable(
    "--platform platforms",
    "PLATFORM",
    "Build for this platform with buildx (default: linux/amd64 and linux/arm64 with buildx, else this machine's).",
)
@apply_options
@flag("--json as_json", "Print the image's URI, or the commands, as a JSON object.")
@aws_options
@implemented_in("profiler.cli.setup.setup_commands", "build_image")
def image() -> None:
    """Build the monitor's image, push it to Amazon ECR, and print its URI.

    Without --yes, the commands are printed. A missing repository is created, with immutable tags. A tag that
    exists is not pushed again.
    DOCKER_OPTIONs after -- go to docker build, such as --build-arg BASE_IMAGE=python:3.13-slim.
    """


@setup.command("stack", epilog="Example: task-profiler setup stack --elasticsearch https://search.example.com --yes")
@_name_option
@option("--slack-failure-webhook failure_webhook", "URL", "Slack webhook for all but successes.", callback=_secret)
@option("--slack-success-webhook success_webhook", "URL", "Slack webhook for successes.", callback=_secret)
@option("--elasticsearch url", "URL", "Index the reports in this Elasticsearch or OpenSearch.")
@option("--api-key", "KEY", "API key of the functions there.", callback=_secret)
@option("--user", "NAME:PASSWORD", "Password of the functions there.", callback=_secret)
@aws_auth_option
@ca_file_option
@option("--otlp otlp_url", "URL", "Export each run to this OpenTelemetry backend.")
@option("--otlp-headers", "NAME=VALUE,…", "Headers of the export, such as an API key.", callback=_secret)
@repeatable(
    "--log-group groups",
    "NAME",
    "Subscribe this log group, or all that match NAME*, in place of groups of earlier deployments.",
)
@flag("--all-log-groups", "Subscribe all log groups of the Region.")
@repeatable("--parameter parameters", "NAME=VALUE", "Set a template parameter.")
@option("--bucket", "NAME", "Bucket for the code (default: task-profiler-ACCOUNT-REGION, created).")
@option("--zip zip_file", "FILE", "The forwarder's zip of a release, instead of building it.")
@flag("--delete", "Delete the stack, and print what stays.")
@apply_options
@flag("--json as_json", "Print one JSON object; steps go to stderr.")
@aws_options
@implemented_in("profiler.cli.setup.setup_commands", "deploy_stack")
def stack() -> None:
    """Deploy the forwarder by CloudFormation, or update it.

    Settings that are not given keep their values. Webhooks, API keys, passwords and headers are stored in Secrets
    Manager; @FILE instead of one reads it from a file, @- from standard input.
    Without --yes, the command prints what it would do.
    """


@setup.command("redrive", epilog="Example: task-profiler setup redrive --region eu-west-1 --yes")
@_name_option
@apply_options
@flag("--json as_json", "Print one JSON object for each function.")
@aws_options
@implemented_in("profiler.cli.setup.setup_commands", "redrive_events")
def redrive() -> None:
    """Send failed events to the forwarder's functions again.

    They are in the dead-letter queues of its stack. Without --yes, they are counted. Repeating the command does no
    harm.
    """


@click.group(
    "kibana", cls=CommandGroup, epilog="Example: task-profiler kibana import --url https://kibana.example.com --dry-run"
)
def kibana() -> None:
    """Set up Elasticsearch or OpenSearch, and their dashboards."""


_server_options = add_options(
    option("--url ui_url", "URL", "URL of Kibana or OpenSearch Dashboards."),
    option("--elasticsearch url", "URL", "URL of Elasticsearch or OpenSearch (default: ELASTICSEARCH_URL)."),
    search_options,
    ca_file_option,
    aws_options,
)


@kibana.command("import", epilog="Example: task-profiler kibana import --url https://kibana.example.com --dry-run")
@_server_options
@click.option(
    "--flavour",
    type=click.Choice(["classic", "lens"]),
    help="Kind of dashboards (default: depends on the server's version).",
)
@flag("--keep-existing", "Import only missing dashboards and charts.")
@flag("--dry-run", "Print what would be installed, without installing it.")
@flag("--json as_json", "Print one JSON object for each step.")
@implemented_in("profiler.cli.kibana_command", "import_setup")
def import_() -> None:
    """Install index templates, this month's empty indices, lifecycle policies and dashboards.

    Without --elasticsearch, the templates are installed through the console of the dashboard server.
    Repeating the command restores the original dashboards unless --keep-existing is given.
    """


@kibana.command("remove", epilog="Example: task-profiler kibana remove --url https://kibana.example.com")
@_server_options
@flag("--with-data", "Remove indices with documents, too.")
@apply_options
@flag("--json as_json", "Print one JSON object for each step.")
@implemented_in("profiler.cli.kibana_command", "remove_setup")
def remove_() -> None:
    """Remove what import has installed: dashboards, index templates, lifecycle policies, empty indices.

    Indices with documents stay, and so does the lifecycle policy that deletes them later. Without --yes, the command
    prints what it would remove. Delete the forwarder's stack first.
    """

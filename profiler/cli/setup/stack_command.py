"""``task-profiler setup stack``: deploys the forwarder by CloudFormation, updates it, and deletes it."""

import re
import sys

import click

from profiler.cli.options import aws_options
from profiler.cli.printing import is_terminal
from profiler.core.errors import UsageError

# As profiler.aws_account.stack_state.DEFAULT_STACK, whose module is not imported for the help.
DEFAULT_STACK = "task-profiler"
# The names of the functions, which begin with the stack's, have at most 64 characters.
_STACK = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,49}", re.ASCII)
_MAX_SECRET = 65_536  # of Secrets Manager
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


def stack_name(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
    """Refuse what AWS would refuse later. CloudFormation's answer to an empty name is all stacks."""
    if not _STACK.fullmatch(name):
        raise UsageError(
            f"--name {name!r} is not a stack's name: use at most 50 letters, digits and hyphens, a letter first."
        )
    return name


def _secret(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """A secret, or that in the file of ``@FILE``: all users of the machine see a command line."""
    if value is None or not value.startswith("@"):
        return value
    try:
        with click.open_file(value[1:], encoding="utf-8-sig") as file:
            secret = str(file.read(_MAX_SECRET + 1)).strip()
    except OSError as error:
        reason = error.strerror
    except ValueError:
        reason = "it is not text"
    except AttributeError:
        reason = "standard input is closed"
    else:
        if 0 < len(secret) <= _MAX_SECRET:
            return secret
        reason = "it is too long" if secret else "it is empty"
    # Without the value, which may be a password.
    raise click.BadParameter(f"The file that follows @ cannot be read ({reason}): check it and its path.")


@click.command(
    "stack", epilog="Example: task-profiler setup stack --elasticsearch https://search.example.com --dry-run"
)
@click.option(
    "--name", default=DEFAULT_STACK, show_default=True, metavar="STACK", callback=stack_name, help="Name of the stack."
)
@click.option(
    "--slack-failure-webhook",
    "failure_webhook",
    metavar="URL",
    callback=_secret,
    help="Slack webhook for all but successes.",
)
@click.option(
    "--slack-success-webhook", "success_webhook", metavar="URL", callback=_secret, help="Slack webhook for successes."
)
@click.option("--elasticsearch", "url", metavar="URL", help="Index the reports in this Elasticsearch or OpenSearch.")
@click.option("--api-key", metavar="KEY", callback=_secret, help="API key of the functions there.")
@click.option("--user", metavar="NAME:PASSWORD", callback=_secret, help="Password of the functions there.")
@click.option("--otlp", "otlp_url", metavar="URL", help="Export each run to this OpenTelemetry backend.")
@click.option(
    "--otlp-headers", metavar="NAME=VALUE,…", callback=_secret, help="Headers of the export, such as an API key."
)
@click.option(
    "--log-group",
    "groups",
    metavar="NAME",
    multiple=True,
    help="Subscribe this log group; those of before must be given again. Repeatable.",
)
@click.option("--all-log-groups", is_flag=True, help="Subscribe all log groups of the Region.")
@click.option(
    "--parameter", "parameters", metavar="NAME=VALUE", multiple=True, help="Set a template parameter. Repeatable."
)
@click.option("--bucket", metavar="NAME", help="Bucket for the code (default: task-profiler-ACCOUNT-REGION, created).")
@click.option("--zip", "zip_file", metavar="FILE", help="The forwarder's zip of a release, instead of building it.")
@click.option("--yes", is_flag=True, help="Do not ask before changes.")
@click.option("--dry-run", is_flag=True, help="Print what would be done, without doing it.")
@click.option("--delete", is_flag=True, help="Delete the stack, and print what stays.")
@aws_options
def stack_(
    *,
    name: str,
    failure_webhook: str | None,
    success_webhook: str | None,
    url: str | None,
    api_key: str | None,
    user: str | None,
    otlp_url: str | None,
    otlp_headers: str | None,
    groups: tuple[str, ...],
    all_log_groups: bool,
    parameters: tuple[str, ...],
    bucket: str | None,
    zip_file: str | None,
    yes: bool,
    dry_run: bool,
    delete: bool,
    region: str | None,
    profile: str | None,
) -> int:
    """Deploy the forwarder by CloudFormation, or update it.

    Settings that are not given keep their values. Webhooks, API keys, passwords and headers are stored in Secrets
    Manager; @FILE instead of one reads it from a file, @- from standard input. If input and output are a terminal, the
    command shows the changes and asks before it applies them.
    """
    from profiler.account_setup.stack_deployment import StackRequest  # slow to import, as the next ones
    from profiler.cli.setup.stack_output import deploy, remove
    from profiler.cli.wiring.aws_options import open_clients

    _check_bucket(bucket)
    open_client = open_clients(region, profile)
    can_ask = is_terminal() and sys.stdin is not None and sys.stdin.isatty()  # None: the caller has closed it
    confirm = _ask if can_ask and not yes else _agree
    if delete:
        return remove(name, open_client, confirm, dry_run=dry_run)
    request = StackRequest(
        name=name,
        bucket=bucket,
        zip_file=zip_file,
        parameters=parameters,
        settings=_settings(url, otlp_url, groups, all_log_groups=all_log_groups),
        secrets=_secrets(failure_webhook, success_webhook, api_key, user, otlp_headers),
    )
    from profiler.cli.setup.stack_cluster import SearchCluster  # requests

    cluster = SearchCluster(url, api_key, user) if url else None
    return deploy(request, open_client, confirm, cluster, dry_run=dry_run)


def _check_bucket(bucket: str | None) -> None:
    if bucket is not None and not _BUCKET.fullmatch(bucket):
        raise UsageError(
            f"--bucket {bucket!r} is not a bucket's name: use 3 to 63 lower-case letters, digits, hyphens and dots."
        )


def _settings(
    url: str | None, otlp_url: str | None, groups: tuple[str, ...], *, all_log_groups: bool
) -> dict[str, str]:
    settings = {}
    if url is not None:
        if "@" in url:
            raise UsageError("--elasticsearch contains a password: give it as --user NAME:PASSWORD.")
        settings["ElasticsearchUrl"] = url
    if otlp_url is not None:
        if "@" in otlp_url:
            raise UsageError("--otlp contains a password: give it in --otlp-headers.")
        settings["OtlpEndpoint"] = otlp_url
    if groups:
        settings["LogGroups"] = ",".join(groups)
    if all_log_groups:
        settings["Subscribe"] = "account"
    return settings


def _secrets(
    failure_webhook: str | None,
    success_webhook: str | None,
    api_key: str | None,
    user: str | None,
    otlp_headers: str | None,
) -> dict[str, dict[str, str]]:
    """The values of each secret, by the parameter that gets its name. No message contains a value."""
    webhooks = {"slack_failure_webhook_url": failure_webhook, "slack_success_webhook_url": success_webhook}
    slack = {key: webhook for key, webhook in webhooks.items() if webhook}
    if not all(re.fullmatch(r"https://[!-~]+", webhook) for webhook in slack.values()):
        raise UsageError("A Slack webhook is not an address: it begins with https://, without spaces and line ends.")
    if api_key and user:
        raise UsageError("--api-key and --user are two ways to sign in: give one of them.")
    if api_key or user:
        from profiler.search_setup.search_servers import open_session  # requests

        open_session(api_key, user, {})  # refuses what cannot be sent
    search = {"api_key": api_key} if api_key else {}
    if user:
        name, _, password = user.partition(":")
        search = {"username": name, "password": password}
    otlp = {"otlp_headers": otlp_headers} if otlp_headers else {}
    if otlp_headers:
        from profiler.otlp.otlp_settings import parse_headers  # seldom needed

        parse_headers(otlp_headers, "--otlp-headers")
    secrets = {"SlackSecretId": slack, "ElasticsearchSecretId": search, "OtlpSecretId": otlp}
    return {parameter: values for parameter, values in secrets.items() if values}


def _ask(question: str) -> bool:
    try:
        return click.confirm(question)
    except click.Abort:  # Ctrl-C or the end of the input: a change set must not stay
        return False


def _agree(question: str) -> bool:  # noqa: ARG001  as _ask
    return True

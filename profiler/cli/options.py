"""Options and arguments that several commands share."""

import functools
import math
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click
from msgspec import Struct

from profiler.core.errors import TaskProfilerError, UsageError
from profiler.search_setup.template_install import DEFAULT_PREFIX

_RELATIVE_TIME = re.compile(r"(\d{1,5})([mhd])", re.ASCII)
_MS_PER_UNIT = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
MAX_RUNS = 1_000_000
Decorated = Callable[..., int | None]


class WholeNumber(click.IntRange):
    """A whole number within limits, which help and errors name in words."""

    def _describe_range(self) -> str:
        return f"{self.min} to {self.max}" if self.max is not None else f"{self.min} or more"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401  click's signature
        """Convert the text of the command line."""
        try:
            number: int = super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is not a whole number ({self._describe_range()}).", param, ctx)
        return number


class Number(click.FloatRange):
    """A number within limits, which help and errors name in words."""

    def _describe_range(self) -> str:
        return f"{self.min:g} to {self.max:g}" if self.max is not None else f"{self.min:g} or more"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401  click's signature
        """Convert the text of the command line."""
        try:
            number: float = super().convert(value, param, ctx)
        except click.BadParameter:
            number = math.nan
        if math.isnan(number):  # click takes nan for a number within all limits
            self.fail(f"{value!r} is not a number ({self._describe_range()}).", param, ctx)
        return number


class StacksCommand(click.Command):
    """A command with ``--stacks[=MODE]``: the mode is never the next word, which may be a file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line."""
        return super().parse_args(ctx, ["--stacks=on" if word == "--stacks" else word for word in args])


class _HistoryOption(click.Option):
    """``--history``: its help names the file that is used without it."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The option's row in the help."""
        from profiler.history.recorder import history_path  # only for the help

        record = super().get_help_record(ctx)
        try:
            path = history_path(None, os.environ)
        except TaskProfilerError:
            return record
        return record and (record[0], f"{record[1]} Default here: {path}")


def history_option(name: str, *, verb: str = "Read") -> Callable[[Decorated], Decorated]:
    """Add ``--history FILE``, which the function takes as ``name``."""
    return click.option(
        "--history",
        name,
        cls=_HistoryOption,
        metavar="FILE",
        help=f"{verb} this history file (default: $TASK_PROFILER_HISTORY, else "
        "$XDG_DATA_HOME/task-profiler/history.sqlite3).",
    )


def add_options(*options: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """A decorator that adds the options in this order."""

    def add(function: Decorated) -> Decorated:
        for option in reversed(options):
            function = option(function)
        return function

    return add


search_options = add_options(
    click.option("--prefix", metavar="P", default=DEFAULT_PREFIX, show_default=True, help="Prefix of the index names."),
    click.option("--api-key", metavar="KEY", help="Sign in with an API key (default: ELASTICSEARCH_API_KEY)."),
    click.option(
        "--user",
        metavar="NAME:PASSWORD",
        help="Sign in with a password (default: ELASTICSEARCH_USERNAME and ELASTICSEARCH_PASSWORD).",
    ),
)
ca_file_option = click.option(
    "--ca-file", "ca_file", metavar="FILE", help="Also trust the certificates of this private CA (PEM)."
)
aws_options = add_options(
    click.option("--region", metavar="REGION", help="AWS Region (default: AWS_REGION, else the profile's)."),
    click.option("--profile", metavar="NAME", help="AWS profile (default: AWS_PROFILE)."),
)
stacks_option = click.option(
    "--stacks",
    type=click.Choice(["on", "moments", "off"]),
    metavar="[=MODE]",
    is_flag=False,
    flag_value="on",
    help="Record call stacks of Python processes: on (as --stacks alone) or moments. The monitor gets shared process "
    "IDs, SYS_PTRACE and user 0; off gives it these without call stacks.",
)
on_fargate_option = click.option(
    "--on-fargate",
    "on_fargate",
    metavar="REGION",
    help="Treat local and EC2 runs as if they had run on Fargate in this Region.",
)


class SourceOptions(Struct, frozen=True, kw_only=True):
    """The options that select a source of runs, and runs in it. Times and tags are as they were typed."""

    source: str | None = None
    history_file: str | None = None
    url: str | None = None
    prefix: str = ""
    api_key: str | None = None
    user: str | None = None
    ca_file: str | None = None
    groups: tuple[str, ...] = ()
    region: str | None = None
    profile: str | None = None
    families: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None


def source_options(function: Callable[..., int | None]) -> Decorated:
    """Add the options of :class:`SourceOptions`, which the function takes together as ``options``."""

    @functools.wraps(function)
    def command(**values: Any) -> int | None:  # noqa: ANN401  the values of all options
        own = {name: values.pop(name) for name in SourceOptions.__struct_fields__}
        return function(options=SourceOptions(**own), **values)

    return _source_options(command)


past_run_options = add_options(
    click.option(
        "--from",
        "source",
        metavar="FILE",
        help="Read report lines, or the JSON output of aws logs, from FILE (- for standard input).",
    ),
    click.option(
        "--elasticsearch",
        "url",
        metavar="URL",
        help="Read the forwarder's documents in this Elasticsearch or OpenSearch.",
    ),
    search_options,
    ca_file_option,
    click.option(
        "--log-group",
        "groups",
        metavar="GROUP",
        multiple=True,
        help="Read this log group in CloudWatch, or those that match * ? []. Repeatable.",
    ),
    aws_options,
)
_source_options = add_options(
    history_option("history_file"),
    past_run_options,
    click.option("--family", "families", metavar="GLOB", multiple=True, help="Only matching families. Repeatable."),
    click.option("--cluster", "clusters", metavar="NAME", multiple=True, help="Only this ECS cluster. Repeatable."),
    click.option("--account", "accounts", metavar="ID", multiple=True, help="Only this AWS account. Repeatable."),
    click.option(
        "--task-region", "regions", metavar="REGION", multiple=True, help="Only tasks in this Region. Repeatable."
    ),
    click.option(
        "--tag",
        "tags",
        metavar="KEY=VALUE",
        multiple=True,
        help="Only tasks with this tag. Repeatable; all must match.",
    ),
    click.option(
        "--status",
        "statuses",
        type=click.Choice(["success", "failure", "stopped", "unknown"]),
        multiple=True,
        help="Only runs with this status. Repeatable.",
    ),
    click.option("--since", metavar="TIME", help="Only runs that started at TIME or later: 12h or 7d ago, 2026-11-01."),
    click.option("--until", metavar="TIME", help="Only runs that started before TIME."),
)


def parse_tags(texts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Parse ``KEY=VALUE``. Raises UsageError."""
    tags = []
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"--tag {text!r} is not KEY=VALUE: write the tag's key, =, and its value.")
        tags.append((name, value))
    return tuple(tags)


def parse_time(text: str, now_ms: int) -> int:
    """Parse ``7d`` (that long ago) or an ISO 8601 time, which is in UTC if it has no zone.

    Returns:
        Milliseconds since 1970.

    Raises:
        UsageError: if the text is neither, or the time is before 1970.
    """
    relative = _RELATIVE_TIME.fullmatch(text)
    if relative is not None:
        return _check_after_1970(text, now_ms - int(relative[1]) * _MS_PER_UNIT[relative[2]])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is not a time: use 30m, 12h, 7d, or an ISO time like 2026-11-20T00:00:00Z."
        ) from error
    return _check_after_1970(text, round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


def _check_after_1970(text: str, time_ms: int) -> int:
    if time_ms < 0:
        raise UsageError(f"{text!r} is before 1970: use a later time.")
    return time_ms

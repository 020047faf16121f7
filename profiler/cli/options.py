"""Options and arguments that several commands share.

As the help of each imports it, it imports little but click.
"""

import functools
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

import click

from profiler.cli.run_options import with_joined_stacks_word
from profiler.core.errors import TaskProfilerError, UsageError

_WHOLE_SENTENCE = 1_000  # characters
_IMAGE_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
Decorated = Callable[..., int | None]
Decorator = Callable[[Decorated], Decorated]
FROM_VARIABLE = "TASK_PROFILER_FROM"
SOURCE_FAILED = "profiler.source_failed"  # in the meta of click's context


class Text(click.types.StringParamType):
    """A text that is not empty: an empty one comes from a shell's variable that is not set.

    Without this, it is another meaning: no family, or each one.
    """

    def convert(
        self,
        value: Any,  # noqa: ANN401  click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str:
        text = str(super().convert(value, param, ctx))
        if text.strip() or param is None:
            return text
        if isinstance(param, click.Argument):
            name = param.make_metavar(ctx or click.get_current_context()).strip("[].")
            raise UsageError(f"{name} is empty: give it a value or omit it.")
        raise UsageError(f"{param.opts[-1]} is empty: give it a value or omit the option.")


class ImageName(Text):
    """The name of a container image. ECS stops a task that has another one."""

    def convert(
        self,
        value: Any,  # noqa: ANN401  click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str:
        image = super().convert(value, param, ctx)
        if "://" in image or image.split() != [image]:
            self.fail(f"{image!r} is not an image: write REPOSITORY:TAG, without https://.")
        return image


class ImageTag(Text):
    """The tag of a container image, which Docker and ECR would refuse after the build."""

    def convert(
        self,
        value: Any,  # noqa: ANN401  click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str:
        tag = super().convert(value, param, ctx)
        if not re.fullmatch(_IMAGE_TAG, tag):
            self.fail(f"{tag!r} is not a tag: use letters, digits, '_', '.' and '-', as in 1.2.")
        return tag


class WholeNumber(click.IntRange):
    """A whole number within limits, which help and errors state in words."""

    name = "whole number"

    def _describe_range(self) -> str:
        return f"{self.min} to {self.max}"


class Number(click.FloatRange):
    """A number within limits, which help and errors state in words. It can have a percent sign."""

    name = "number"

    def _describe_range(self) -> str:
        least, most = (f"{limit:.12g}" for limit in (self.min, self.max))
        return f"{least} to {most}"

    def convert(
        self,
        value: Any,  # noqa: ANN401  click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        digits = value
        if isinstance(value, str):
            digits = value.removesuffix("%")
        number: Any = super().convert(digits, param, ctx)
        if math.isnan(number):  # it is neither below nor above a limit
            self.fail(f"{value!r} is not a number.", param, ctx)
        return float(number)


class NumberOrAuto(Number):
    """A number within limits, or None for the word ``auto``."""

    def convert(
        self,
        value: Any,  # noqa: ANN401  click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:  # noqa: ANN401  a number's type has no None
        if value == "auto":
            return None
        return super().convert(value, param, ctx)


class Quantity(click.types.FloatParamType):
    """A number with its unit, which a function of ``profiler.core.quantity_parsing`` parses, within
    limits.
    """

    def __init__(self, parser: str, least: float = 0, most: float = math.inf) -> None:
        self._parser = parser
        self._least = least
        self._most = most

    def convert(
        self,
        value: Any,  # noqa: ANN401  click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        if not isinstance(value, str):  # a default
            return float(value)
        from profiler.core import quantity_parsing  # not for the help

        try:
            number: float = getattr(quantity_parsing, self._parser)(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not self._least <= number <= self._most:
            if self._parser == "parse_percent":
                expected = f"a share from {self._least:g} to {self._most:g} %"
            else:
                least, most = map(quantity_parsing.seconds_text, (self._least, self._most))
                expected = f"a time from {least} to {most}"
            self.fail(f"{value!r} is not {expected}.", param, ctx)
        return number


class WholeSentenceGroup(click.Group):
    """A group whose help lists each command with the whole first sentence of the command's help.

    ``groups``: the commands of its groups, which are not imported for their names.
    """

    groups: ClassVar[Mapping[str, Sequence[str]]] = {}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None:
                rows.append((name, command.get_short_help_str(_WHOLE_SENTENCE)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for an unknown name, suggest a similar one."""
        if ctx.resilient_parsing or args[0] in self.list_commands(ctx) or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        from profiler.core.text import words_if_known  # only for a wrong command

        path = " ".join(("task-profiler", *ctx.command_path.split()[1:]))
        similar = self._meant_command(ctx, args[0])
        advice = words_if_known("did you mean {}?", similar) or f"{path} --help lists the commands."
        raise UsageError(f"Unknown command {args[0]!r}: {advice}")

    def _meant_command(self, ctx: click.Context, name: str) -> str | None:
        """The command that is meant by an unknown name: that of its first letters, if there is one,
        or the most similar one, also of another group, as ``resize`` for ``taskdef resize``.
        """
        from profiler.core.text import similar_name

        known = {one: one for one in self.list_commands(ctx)}
        root = ctx.find_root().command
        if isinstance(root, WholeSentenceGroup):
            known = root.commands_of_groups() | known
        beginning = {path for one, path in known.items() if one.startswith(name.lower())}
        similar = similar_name(name, known)
        if len(beginning) == 1:
            return beginning.pop()
        return known[similar] if similar else None

    def commands_of_groups(self) -> dict[str, str]:
        """The commands of this group's groups, as ``task-profiler taskdef resize``, by what a
        person types for them: ``resize`` or ``taskdef-resize``.
        """
        found: dict[str, str] = {}
        for name, commands in self.groups.items():
            for command in commands:
                path = f"task-profiler {name} {command}"
                found |= dict.fromkeys((command, f"{name}-{command}"), path)
        return found


class CallStacksCommand(click.Command):
    """A command with ``--stacks [MODE]``: a next word that is not a mode may be a file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--stacks" in args:
            position = args.index("--stacks")
            args = [
                *args[:position],
                *with_joined_stacks_word(args[position : position + 2]),
                *args[position + 2 :],
            ]
        return super().parse_args(ctx, args)


# Click's own.
def option(names: str, metavar: str, text: str, **more: Any) -> Decorator:  # noqa: ANN401
    """An option with a value.

    ``names`` are its spellings and perhaps its field. The help shows a default.
    """
    usual: dict[str, Any] = {"type": Text(), "show_default": "default" in more}
    return click.option(*names.split(), metavar=metavar or None, help=text, **(usual | more))


def image_option(text: str, **more: Any) -> Decorator:  # noqa: ANN401
    """Add ``--image IMAGE``: the image of a monitor that will run."""
    return option("--image", "IMAGE", text, type=ImageName(), **more)


def flag(names: str, text: str) -> Decorator:
    """An option without a value."""
    return click.option(*names.split(), is_flag=True, help=text)


# Click's own.
def repeatable(names: str, metavar: str, text: str, **more: Any) -> Decorator:  # noqa: ANN401
    """An option that can be given several times; its help says so."""
    return option(names, metavar, f"{text} Repeatable.", multiple=True, **more)


def last_option(most: int, default: int, text: str) -> Decorator:
    """Add ``--last N``: how many of the newest runs count."""
    return option("--last", "N", text, type=WholeNumber(1, most), default=default)


def add_options(*options: Decorator) -> Decorator:
    """A decorator that adds the options in this order."""

    def add(function: Decorated) -> Decorated:
        for decorator in reversed(options):
            function = decorator(function)
        return function

    return add


def gathered(kind: type[Any], name: str) -> Decorator:
    """A decorator: the options that are fields of ``kind``, and not parameters of the function,
    become ``name``.
    """
    all_fields = getattr(kind, "__struct_fields__", None) or tuple(kind.__dataclass_fields__)

    def decorate(function: Decorated) -> Decorated:
        fields = [field for field in all_fields if field not in function.__annotations__]

        @functools.wraps(function)
        def command(**values: Any) -> int | None:  # noqa: ANN401  the values of all options
            own = {field: values.pop(field) for field in fields if field in values}
            return function(**{name: kind(**own)}, **values)

        return command

    return decorate


def _repeat(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Repeat an option in the commands that this command prints."""
    if value:
        # The help does not need it.
        from profiler.core.commands_to_copy import repeated_option

        # A command's own context is not closed after an error in a later option.
        root = context.find_root()
        root.with_resource(repeated_option(f"--{parameter.name}", value))
    return value


yes_option = flag("--yes", "Carry out the plan.")
aws_options = add_options(
    # Empty ones are the defaults, as for the AWS CLI.
    option(
        *("--region", "REGION", "AWS Region (default: AWS_REGION, else the profile's)."),
        type=str,
        callback=_repeat,
    ),
    option("--profile", "NAME", "AWS profile (default: AWS_PROFILE).", type=str, callback=_repeat),
)
call_stacks_option = click.option(
    "--stacks",
    type=click.Choice(["on", "moments", "off"]),
    metavar="[=MODE]",
    is_flag=False,
    flag_value="on",
    help="Record call stacks of Python processes: on (as --stacks alone) or moments. The task "
    "gets a shared process namespace, the monitor SYS_PTRACE and user 0; off does this "
    "without call stacks.",
)
report_stream_option = click.option(
    "--report-stream",
    type=click.Choice(["batch", "monitor"]),
    help="Whose log stream gets the report (default: the batch's, or the monitor's for families "
    "that Airflow starts). For the monitor's own, the task role needs no permission.",
)
policy_options = add_options(
    option(
        *(
            "--max-slowdown max_slowdown_percent",
            "PERCENT",
            "How much longer a run may take than at the current size.",
        ),
        type=Number(0, 10_000),
        default=25,
    ),
    option(
        *(
            "--memory-margin memory_margin_percent",
            "auto|PERCENT",
            "Margin above the required memory; auto: by how much the family's runs differ.",
        ),
        type=NumberOrAuto(0, 10_000),
        default="auto",
    ),
)
on_fargate_option = option(
    "--on-fargate",
    "REGION",
    "Treat local and EC2 runs as if they had run on Fargate in this Region.",
)


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The options that select sources of runs, and runs in them.

    Sources, times and tags are as they were typed.
    """

    sources: tuple[str, ...] = ()
    region: str | None = None
    profile: str | None = None
    with_services: bool = False
    families: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None


@dataclass(frozen=True, kw_only=True)
class ProofRequest:
    """The other options of ``setup proof``, as they were typed."""

    source: str | None
    keep: bool
    yes: bool
    as_json: bool
    markdown: bool
    region: str | None
    profile: str | None


class PastRunsCommand(click.Command):
    """A command that reads past runs: its help lists its own options first, then the options of
    all such commands.
    """

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None or not isinstance(param, click.Option):
                continue
            if param.name in SourceOptions.__dataclass_fields__:
                shared.append(record)
            else:
                own.append(record)
        for heading, records in (("Options", own), ("Sources and filters", shared)):
            with formatter.section(heading):
                formatter.write_dl(records)

    def invoke(self, ctx: click.Context) -> int | None:
        """Run the command.

        The exit code is 1 if a source failed, unless the command has its own. An error about a word
        of TASK_PROFILER_FROM names the variable.
        """
        try:
            result: int | None = super().invoke(ctx)
        except TaskProfilerError as error:
            hint = variable_hint(str(error), ctx)
            if hint:
                raise type(error)(f"{error}{hint}") from error
            raise
        return result or (1 if SOURCE_FAILED in ctx.meta else None)


def variable_hint(sentence: str, ctx: click.Context) -> str:
    """A sentence that names TASK_PROFILER_FROM, if the first one is about a word of it."""
    source = ctx.get_parameter_source("sources")
    if source is not click.core.ParameterSource.ENVIRONMENT:
        return ""
    for word in ctx.params["sources"]:
        kind, _, name = word.partition(":")
        is_kind = kind in ("history", "logs", "insights")
        if word in sentence or (is_kind and name and name in sentence):
            return f" {FROM_VARIABLE} has this source."
    return ""


# Click's type of the function.
def completes(*, families: bool = False, ids: bool = False) -> Any:  # noqa: ANN401
    """The completion of an option or argument in a shell: families, or ids of runs, of the local
    history.
    """

    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        # Only for completion in a shell.
        from profiler.cli.completion_command import families_and_run_ids

        return families_and_run_ids(
            context.params.get("sources"), incomplete, families=families, ids=ids
        )

    return complete


def _complete_source(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    # Without one, the shell completes files.
    prefixes = ("history", "https://", "insights:", "logs:")
    return [prefix for prefix in prefixes if prefix.startswith(incomplete)]


from_option = repeatable(
    "--from sources",
    "SOURCE",
    "history[:FILE], FILE or - (report lines, or JSON of aws logs), https://HOST[/PREFIX] (the "
    "forwarder's documents), logs:GLOB (log groups in CloudWatch) or insights:CLUSTER (Container "
    "Insights). Default: $TASK_PROFILER_FROM, else the log groups of families in AWS that the "
    "command line names, else history.",
    envvar=FROM_VARIABLE,
    shell_complete=_complete_source,
)
past_run_options = add_options(from_option, aws_options)
# The implementation gathers them as SourceOptions.
family_arguments = click.argument(
    "families",
    metavar="[FAMILY]...",
    nargs=-1,
    type=Text(),
    shell_complete=completes(families=True),
)
filter_options = add_options(
    flag("--services with_services", "Also services' tasks of insights:CLUSTER."),
    repeatable("--cluster clusters", "NAME", "Only this ECS cluster."),
    repeatable("--account accounts", "ID", "Only this AWS account."),
    repeatable("--task-region regions", "REGION", "Only tasks in this Region."),
    repeatable("--tag tags", "KEY=VALUE", "Only tasks with this tag; all must match."),
    repeatable(
        "--label labels",
        "NAME=VALUE",
        "Only runs with this label, or of this job: batch.job_id, batch.queue, batch.attempt ….",
    ),
    option(
        "--since",
        "TIME",
        "Only runs that started at TIME or later: 12h or 7d ago, or local time: 2026-11-01.",
    ),
    option("--until", "TIME", "Only runs that started before TIME."),
)
status_option = click.option(
    "--status",
    "statuses",
    type=click.Choice(["success", "failure", "stopped", "unknown"]),
    multiple=True,
    help="Only runs with this status. Repeatable.",
)
source_options = add_options(past_run_options, filter_options, status_option)


def is_file_name(name: str) -> bool:
    """Whether an argument FILE|FAMILY is a file: a family has only letters, digits, - and _."""
    return bool(set("./") & set(name)) or name == "-" or os.path.lexists(name)


def parse_tags(
    texts: tuple[str, ...],
    option_name: str = "--tag",
    form: str = "KEY=VALUE",
    key: str = "tag's key",
) -> tuple[tuple[str, str], ...]:
    """Parse ``KEY=VALUE``. Raises UsageError."""
    tags = []
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(
                f"{option_name} {text!r} is not {form}: write the {key}, =, and its value."
            )
        tags.append((name, value))
    return tuple(tags)


def parse_time(text: str, now_ms: int) -> int:
    """Milliseconds since 1970 of an ISO 8601 time, local without a zone, or of ``7d`` ago.

    No run is older: a time before 1970 is 0. Raises UsageError, also for a number without a unit,
    which may be days, a year or anything.
    """
    from profiler.core.quantity_parsing import duration_ms_or_none, is_number  # not for the help
    from profiler.core.timestamps import instant_of_local

    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = instant_of_local(moment)
    except (ValueError, OverflowError) as error:
        if is_number(text):
            raise UsageError(
                f"{text!r} is a number without a unit: write 30m, 12h or 7d, or an ISO time like "
                "2026-11-20."
            ) from error
        ago_ms = duration_ms_or_none(text)
        if ago_ms is not None:
            return max(now_ms - round(ago_ms), 0)
        raise UsageError(
            f"{text!r} is not a time: use 30m, 12h, 7d, or an ISO time like 2026-11-20 (local) or "
            "2026-11-20T00:00:00Z."
        ) from error
    return max(round(moment.timestamp() * 1000), 0)

"""What to say of the options and arguments of a command line that are wrong or missing."""

from collections.abc import Iterable
from difflib import get_close_matches

import click

# Labels are given to a run by `run`, tags to a task by ECS.
_MIXED_UP = {"--tag": "--label", "--label": "--tag"}

# An option of other commands.
_FAMILY_OPTIONS = ("--family", "--families")
_RUN = "run"  # it gives its run a family


def usage_sentence(error: click.UsageError, message: str, arguments: Iterable[str]) -> str:
    """What is wrong, by click's ``message``, and what to do."""
    if isinstance(error, click.NoSuchOption):
        meant = _unknown_option_sentence(error, arguments)
        if meant is not None:
            return meant
        if _has_near_option(error):
            return message
        message = error.message
    elif isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter):
        if error.param is not None and isinstance(error.param.type, click.File):
            return f"{message}: name a file that can be read, or - for standard input."
        return message  # it has the values that are right
    if error.ctx is None or not message.endswith((".", ")")):
        return message
    return f"{message.removesuffix('.')}: see {error.ctx.command_path} --help."


def _unknown_option_sentence(error: click.NoSuchOption, arguments: Iterable[str]) -> str | None:
    """The sentence about an unknown option of the command line; None where click's own says as
    much.
    """
    context = error.ctx
    if context is None:
        return None
    name = error.option_name
    meant = _MIXED_UP.get(name)
    if meant is not None and _has_option(context.command, meant):
        return f"No such option {name!r}. Did you mean {meant!r}?"
    if name in _FAMILY_OPTIONS and context.command.name == _RUN:
        return f"No such option {name!r}. Did you mean '--name'?"
    if name in _FAMILY_OPTIONS and _takes_families(context.command):
        return (
            f"No such option {name!r}: name the family without it, as in "
            f"{context.command_path} nightly-etl."
        )
    path = context.command_path.split()[1:]
    command = context.command
    for word in arguments:
        if isinstance(command, click.Group) and word in command.list_commands(context):
            command = command.get_command(context, word) or command
            path += [] if word in path else [word]
    if command is context.command or not _has_option(command, name):
        return None
    words = " ".join(("task-profiler", *path, name))
    return f"The option {name!r} stands before the command: write it after it, as in {words}."


def _has_near_option(error: click.NoSuchOption) -> bool:
    """Whether an option that click proposes is near without the dashes, which all have in common:
    ``--quiet`` is no ``--budget``.
    """
    bare = [option.lstrip("-") for option in error.possibilities or ()]
    return bool(get_close_matches(error.option_name.lstrip("-"), bare))


def _takes_families(command: click.Command) -> bool:
    metavars = [
        param.metavar or "" for param in command.params if param.param_type_name == "argument"
    ]
    return any("FAMILY" in metavar for metavar in metavars)


def _has_option(command: click.Command, name: str) -> bool:
    return any(name in param.opts for param in command.params)

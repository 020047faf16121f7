"""What to say of the options and arguments of a command line that are wrong or missing."""

from collections.abc import Iterable

import click

from profiler.core.text import similar_name

# What other programs or commands call an option. Labels are given to a run by `run`, tags to a
# task by ECS.
_OTHER_NAMES = {
    "--tag": "--label",
    "--label": "--tag",
    "--limit": "--last",
    "-n": "--last",
}
# What carries out a plan, which is printed without it.
_CARRY_OUT = ("--register", "--yes")

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
    meant = _meant_option(context.command, name, arguments)
    if meant:
        return f"No such option {name!r}. Did you mean {meant!r}?"
    if name in _FAMILY_OPTIONS and _takes_families(context.command):
        return (
            f"No such option {name!r}: name the family without it, as in "
            f"{context.command_path} nightly-etl."
        )
    carry_out = next((one for one in _CARRY_OUT if _has_option(context.command, one)), "")
    if name == "--dry-run" and carry_out:
        return (
            f"No such option {name!r}: leave it out, because without {carry_out} "
            f"{context.command_path} only prints what it would do."
        )
    return _misplaced_option_sentence(context, name, arguments)


def _meant_option(command: click.Command, name: str, arguments: Iterable[str]) -> str:
    """The option of a command for which other programs, or other commands, have this name; "" if
    there is none.
    """
    meant = _OTHER_NAMES.get(name, "")
    if name == "--format" and any(word.removeprefix("--format=") == "json" for word in arguments):
        meant = "--json"
    elif name in _FAMILY_OPTIONS and command.name == _RUN:
        meant = "--name"
    return meant if _has_option(command, meant) else ""


def _misplaced_option_sentence(
    context: click.Context, name: str, arguments: Iterable[str]
) -> str | None:
    """The sentence about an option that a later word of the command line has, which is a command;
    None if none has it.
    """
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
    return similar_name(error.option_name.lstrip("-"), bare) is not None


def _takes_families(command: click.Command) -> bool:
    metavars = [
        param.metavar or "" for param in command.params if param.param_type_name == "argument"
    ]
    return any("FAMILY" in metavar for metavar in metavars)


def _has_option(command: click.Command, name: str) -> bool:
    return any(name in param.opts for param in command.params)

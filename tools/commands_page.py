"""Generate docs/commands.md, the reference of all commands and options, from the click commands.

python tools/commands_page.py
"""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from profiler.cli.app import group
from profiler.cli.options import add_options, aws_options, ca_file_option, search_options, source_options

PAGE = Path(__file__).resolve().parent.parent / "docs" / "commands.md"
_PROGRAM = "task-profiler"
_NO_WRAP_MARK = "\b\n"
_METAVARS = {"integer": "N", "float": "NUMBER"}  # of options without a metavar of their own
_HEAD = """\
# Commands

`--help` after a command prints its help. Errors are one sentence on stderr; the exit code is 2 for an invalid command
line and 1 for a later failure. `run` exits with its command's exit code. The global options `--version` and `--debug`
(print a traceback on failure) precede the command. `--region` (default: AWS_REGION, else the profile's) and `--profile`
(default: AWS_PROFILE) select the AWS account.

`make commands` generates this page.
"""
_SETTINGS = "[The monitor](monitor.md#settings) lists them."


def text() -> str:
    """Generate the text of the page."""
    described: dict[str, str] = {}
    return _HEAD + "".join(_section(names, command, described) for names, command in leaves(group, ()))


def leaves(command: click.Command, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each command that does something, with its full name: a group only if it needs no subcommand."""
    if not isinstance(command, click.Group):
        yield names, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        if child is not None and not child.hidden:
            yield from leaves(child, (*names, name))
    if names and command.invoke_without_command:
        yield names, command


def _section(names: tuple[str, ...], command: click.Command, described: dict[str, str]) -> str:
    """Generate the section of a command; ``described`` has the heading below which each option was described first."""
    context = click.Context(command)
    arguments = [option.make_metavar(context) for option in command.params if isinstance(option, click.Argument)]
    usage = " ".join([_PROGRAM, *names, *(["[OPTION]…"] if _options(command) else []), *arguments])
    parts = [f"\n## {' '.join(names)}\n", f"`{usage}`\n", *_paragraphs(inspect.cleandoc(command.help or ""))]
    own, reads_runs = _without(source_options, _options(command))
    own, signs_in = _without(add_options(search_options, ca_file_option), own)
    own, calls_aws = _without(aws_options, own)
    heading = " ".join(names)
    new = [option for option in own if described.setdefault(_item(option), heading) == heading]
    if new:
        parts.append("".join(map(_item, new)))
    if seen := [option for option in own if option not in new]:
        parts.append(f"{_repeated(seen, described)}\n")
    if reads_runs:
        parts.append("Also: [options for past runs](past-runs.md).\n")
    if signs_in:
        parts.append("Also: [search cluster](past-runs.md#sources).\n")
    if calls_aws:
        parts.append("Also: `--region`, `--profile`.\n")
    if command.epilog:
        parts.append(f"{_example(command.epilog)}\n")
    return "\n".join(parts)


def _paragraphs(help_text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text. The list of settings, which click does not wrap, is on a page of its own."""
    for paragraph in help_text.split("\n\n"):
        lines = paragraph.strip("\n")
        if lines.startswith(_NO_WRAP_MARK):
            yield f"{_SETTINGS}\n"
        else:
            yield f"{_escaped(' '.join(lines.split()))}\n"


def _options(command: click.Command) -> list[click.Option]:
    return [option for option in command.params if isinstance(option, click.Option) and not option.hidden]


def _without(
    add_options: Callable[[Callable[..., None]], Callable[..., int | None]], options: list[click.Option]
) -> tuple[list[click.Option], bool]:
    """Leave out the options that this decorator adds if all of them are there, and tell whether they are."""
    shared = {_item(option) for option in _options(click.command("any")(add_options(lambda **_: None)))}
    if not shared <= {_item(option) for option in options}:
        return options, False
    return [option for option in options if _item(option) not in shared], True


def _repeated(options: list[click.Option], described: dict[str, str]) -> str:
    """Name options that other commands have, too, with links to their descriptions."""
    headings: dict[str, list[str]] = {}
    for option in options:
        headings.setdefault(described[_item(option)], []).append(_option_names(option))
    links = [f"{', '.join(names)} of [{heading}](#{heading.replace(' ', '-')})" for heading, names in headings.items()]
    return f"Also: {'; '.join(links)}."


def _item(option: click.Option) -> str:
    return f"- {_option_names(option)}: {_description(option)}\n"


def _option_names(option: click.Option) -> str:
    value = "" if option.is_flag else f" {_value(option)}"
    return ", ".join(f"`{name}{value}`" for name in option.opts)


def _value(option: click.Option) -> str:
    if option.metavar is not None:
        return option.metavar
    choices: Any = getattr(option.type, "choices", None)
    return "|".join(choices) if choices else _METAVARS[option.type.name.partition(" ")[0]]


def _description(option: click.Option) -> str:
    default = f" Default: `{option.default}`." if option.show_default and option.default is not None else ""
    return _escaped((option.help or "") + default + (" Required." if option.required else ""))


def _example(epilog: str) -> str:
    """Format an epilog; if it is only an example, format its command as code."""
    word, _, rest = epilog.partition(": ")
    return f"{word}: `{rest}`" if word == "Example" and "`" not in rest else _escaped(epilog)


def _escaped(text: str) -> str:
    return text.replace("*", "\\*")


if __name__ == "__main__":
    PAGE.write_text(text())

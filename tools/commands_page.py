"""Writes docs/commands.md: every option of every command, from the commands themselves.

python tools/commands_page.py
"""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from profiler.cli.app import group

PAGE = Path(__file__).resolve().parent.parent / "docs" / "commands.md"
_PROGRAM = "task-profiler"
_UNWRAPPED = "\b\n"
_TYPES = {"integer": "N", "float": "NUMBER"}  # of options that do not say what their value is called
_HEAD = """\
# Commands

Each also explains itself with `--help`. An error is one sentence on stderr; the exit code is 2 for a mistake in the
command line and 1 for what failed afterwards (`run` has its command's own). Before any command stand `--version` and
`--debug`, which shows a traceback when something fails.

This page is written by `make commands`.
"""


def text() -> str:
    """The page."""
    return _HEAD + "".join(_section(names, command) for names, command in leaves(group, ()))


def leaves(command: click.Command, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Each command that does something, with the words that call it."""
    if not isinstance(command, click.Group):
        yield names, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        if child is not None and not child.hidden:
            yield from leaves(child, (*names, name))


def _section(names: tuple[str, ...], command: click.Command) -> str:
    context = click.Context(command)
    arguments = [one.make_metavar(context) for one in command.params if isinstance(one, click.Argument)]
    usage = " ".join([_PROGRAM, *names, *(["[OPTION]…"] if _options(command) else []), *arguments])
    parts = [f"\n## {' '.join(names)}\n", f"`{usage}`\n", *_paragraphs(inspect.cleandoc(command.help or ""))]
    if _options(command):
        rows = "".join(f"| {_spelling(one)} | {_meaning(one)} |\n" for one in _options(command))
        parts.append(f"| option | meaning |\n|---|---|\n{rows}")
    if command.epilog:
        parts.append(f"{_example(command.epilog)}\n")
    return "\n".join(parts)


def _paragraphs(help_text: str) -> Iterator[str]:
    """What click would wrap is one line each; what it would not (behind its mark) is a block."""
    for paragraph in help_text.split("\n\n"):
        lines = paragraph.strip("\n")
        if lines.startswith(_UNWRAPPED):
            yield f"```text\n{lines.removeprefix(_UNWRAPPED)}\n```\n"
        else:
            yield f"{_escaped(' '.join(lines.split()))}\n"


def _options(command: click.Command) -> list[click.Option]:
    return [one for one in command.params if isinstance(one, click.Option) and not one.hidden]


def _spelling(option: click.Option) -> str:
    value = "" if option.is_flag else f" {_value(option)}"
    return ", ".join(f"`{name}{value}`" for name in option.opts).replace("|", "\\|")


def _value(option: click.Option) -> str:
    if option.metavar is not None:
        return option.metavar
    choices: Any = getattr(option.type, "choices", None)
    return "|".join(choices) if choices else _TYPES[option.type.name.partition(" ")[0]]


def _meaning(option: click.Option) -> str:
    default = f" Default: `{option.default}`." if option.show_default and option.default is not None else ""
    return _escaped((option.help or "") + default + (" Required." if option.required else ""))


def _example(epilog: str) -> str:
    """The command as code, where the text is an example and nothing else."""
    word, _, rest = epilog.partition(": ")
    return f"{word}: `{rest}`" if word == "Example" and "`" not in rest else _escaped(epilog)


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    PAGE.write_text(text())

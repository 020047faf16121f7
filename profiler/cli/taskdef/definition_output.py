"""Task definitions in files and on standard input: reads, prints, writes and compares them."""

import difflib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from msgspec import Struct

from profiler.cli.printing import STDERR, is_terminal, warn
from profiler.cli.styled_text import Span, is_coloured, line, render_lines
from profiler.core.errors import UsageError
from profiler.task_definitions.cloudformation import TemplateChange
from profiler.task_definitions.in_files import read_bytes, write_definition

STANDARD_INPUT = "-"
_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
_OUTPUT_REMEDY = "name another file with -o"


class ChangedText(Struct, frozen=True, kw_only=True):
    """A document before and after the change, in one style. ``is_changed`` is False if the file is right already."""

    before: bytes
    after: bytes
    is_changed: bool
    notes: tuple[str, ...] = ()

    @classmethod
    def of_template(cls, data: bytes, changed: TemplateChange) -> "ChangedText":
        """The change of a CloudFormation template."""
        return cls(before=data, after=changed.text, is_changed=changed.text != data, notes=changed.notes)


def change_files(
    files: Sequence[str], change: Callable[[bytes, str], ChangedText], *, out: str | None, in_place: bool
) -> None:
    """Change the files and write or print the result.

    Args:
        files: Their names; a hyphen is standard input.
        change: (content, name of the source) -> the change; raises TaskProfilerError if it is refused.
        out: The file to write to.
        in_place: Whether to write into the files.

    Raises:
        UsageError: if the options contradict each other.
        TaskProfilerError: if a file cannot be read, changed or written. No file is written then.
    """
    if in_place and (STANDARD_INPUT in files):
        raise UsageError("--in-place needs a FILE to write to: name one, or use -o OUT.")
    if in_place and out is not None:
        raise UsageError("--in-place and -o are two destinations: use one of them.")
    if len(files) > 1 and not in_place:
        raise UsageError("Several files can only be changed in place: add --in-place, or name one FILE.")
    changes = {file: _changed(file, change) for file in files}
    for file, changed in changes.items():
        for note in changed.notes:
            warn(note if len(files) == 1 else f"{file}: {note}")
        _print_diff(changed, _source_name(file))
        if out is not None:
            write_definition(Path(out), changed.after, remedy=_OUTPUT_REMEDY)
        elif in_place and changed.is_changed:
            write_definition(Path(file), changed.after, remedy=_OUTPUT_REMEDY)
        elif not in_place:
            click.echo(changed.after, nl=False)


def _changed(file: str, change: Callable[[bytes, str], ChangedText]) -> ChangedText:
    data = sys.stdin.buffer.read() if file == STANDARD_INPUT else read_bytes(Path(file))
    return change(data, _source_name(file))


def _source_name(file: str) -> str:
    return "standard input" if file == STANDARD_INPUT else file


def _print_diff(changed: ChangedText, name: str) -> None:
    """Print the difference on standard error if that is a terminal."""
    if not is_terminal(STDERR):
        return
    old, new = (text.decode().splitlines() for text in (changed.before, changed.after))
    rows = difflib.unified_diff(old, new, name, f"{name} (new)", lineterm="")
    lines = [line(Span(row, _DIFF_COLOURS.get(row[:1], ""))) for row in rows]
    text = render_lines(lines, is_coloured=is_coloured(os.environ, STDERR), encoding=sys.stderr.encoding)
    click.echo(text, err=True, nl=False)

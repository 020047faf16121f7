"""Task definitions in files and on standard input: reads, prints, writes and compares them."""

import difflib
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from profiler.cli.printing import STDERR, is_terminal, warn, write_out
from profiler.cli.styled_text import Span, is_coloured, line, render_lines
from profiler.core.errors import UsageError
from profiler.task_definitions.definition_files import ChangeDefinition, change_text, read_bytes, write_definition
from profiler.task_definitions.definition_json import ChangedText

STANDARD_INPUT = "-"
_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def change_files(files: Sequence[str], change: ChangeDefinition, *, out: str | None, in_place: bool) -> None:
    """Change the files, of which a hyphen is standard input, and write or print the result.

    Raises UsageError if the options contradict each other, and TaskProfilerError, before a file is written, if one
    cannot be read or changed.
    """
    if in_place and (STANDARD_INPUT in files):
        raise UsageError("--in-place needs a FILE to write to: name one, or use -o OUT.")
    if in_place and out is not None:
        raise UsageError("--in-place and -o are two destinations: use one of them.")
    if len(files) > 1 and not in_place:
        raise UsageError("Several files can only be changed in place: add --in-place, or name one FILE.")
    changes = {file: change_text(read_input(file), source_name(file), change) for file in files}
    for file, changed in changes.items():
        for note in changed.notes:
            warn(note if len(files) == 1 else f"{file}: {note}")
        _print_diff(changed, source_name(file))
        if out is not None:
            write_definition(Path(out), changed.after, remedy="name another file with -o")
        elif in_place and changed.is_changed:
            write_definition(Path(file), changed.after, remedy="name another file with -o")
        elif not in_place:
            write_out(changed.after)


def read_input(file: str) -> bytes:
    """The content of a file, or of standard input for a hyphen. Raises TaskProfilerError if it cannot be read."""
    return sys.stdin.buffer.read() if file == STANDARD_INPUT else read_bytes(Path(file))


def source_name(file: str) -> str:
    """The name of a file, or of standard input, for messages."""
    return "standard input" if file == STANDARD_INPUT else file


def _print_diff(changed: ChangedText, name: str) -> None:
    """Print the difference on standard error if that is a terminal."""
    if not is_terminal(STDERR):
        return
    old, new = (text.decode().splitlines() for text in (changed.before, changed.after))
    rows = difflib.unified_diff(old, new, name, f"{name} (new)", lineterm="")
    lines = [line(Span(row, _DIFF_COLOURS.get(row[:1], ""))) for row in rows]
    text = render_lines(lines, is_coloured=is_coloured(STDERR), encoding=sys.stderr.encoding)
    click.echo(text, err=True, nl=False)

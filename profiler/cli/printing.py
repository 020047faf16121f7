"""What the commands print on the standard streams, for people and for programs that read it."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import RawIOBase, TextIOWrapper
from itertools import islice
from typing import TYPE_CHECKING

from profiler.cli.standard_streams import (
    STDERR,
    STDIN,
    STDOUT,
    stdout_encoding,
    terminal_columns,
    without_ci_commands,
    without_signs,
    write_out,
)
from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import first_known, known, sum_known
from profiler.core.text import printable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from profiler.record.record_model import TaskSize
    from profiler.runs.past_runs.run_source import RunSource

UNKNOWN = "-"
NOT_APPLIED = "Nothing was changed; --yes carries this out."
_WARNED = "profiler.warned"  # the sentences, in the meta of click's context
_LINES_AT_ONCE = 1000


def value_text(value: float | None, format_value: Callable[[float], str]) -> str:
    """The text of a value that may be unknown."""
    return first_known(known(format_value, value), UNKNOWN)


def size_text(size: "TaskSize") -> str:
    """The text of a size that may be unknown."""
    return size.text or UNKNOWN


def total_saving_text(
    changes: Sequence[float | None], families: Sequence[float | None], mark: str = ""
) -> str:
    """What the changed families save in a month, or cost more, and what all families cost now.

    No cost is known: the numbers. ``mark``: of estimated amounts.
    """
    from profiler.record.units import format_count, format_usd_a_month  # not for `run`

    money = " would change"
    usd = sum_known(*families)
    if usd is not None:
        saved_usd = sum_known(*changes) or 0
        amount = format_usd_a_month(abs(saved_usd), mark)
        relation = "of" if saved_usd >= 0 else "more than"
        money = f", {amount} a month {relation} {format_usd_a_month(usd, mark)}"
    return f"{len(changes):,} of {format_count(len(families), 'family')}{money}."


def warn(sentence: str) -> None:
    """Print a sentence on standard error."""
    import click  # not for `run`

    click.echo(safe_message_text(sentence), err=True)
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta.setdefault(_WARNED, set()).add(sentence)


def safe_message_text(sentence: str) -> str:
    """A sentence for standard error: without credentials, and without what a terminal or the log
    of a CI job would act on.
    """
    from profiler.core.redaction import without_credentials  # most runs have no messages

    shown = wrapped_to_terminal(f"task-profiler: {printable(without_credentials(sentence))}")
    return "\n".join(map(without_ci_commands, shown.split("\n")))


def json_without_controls(line: bytes) -> bytes:
    """JSON with the same content, and without what a terminal or the log of a CI job would act
    on: control characters, those that change the direction of writing, and commands.
    """
    if line.isascii() and b"##" not in line and b"\x7f" not in line:
        return line
    text = without_signs(line.decode(errors="replace"), r"#\u0023")
    rows = text.split("\n")
    return "\n".join(row if row.isprintable() else _escaped(row) for row in rows).encode()


def _escaped(text: str) -> str:
    shown = []
    for char in text:
        if char.isprintable():
            shown.append(char)
        else:
            units = char.encode("utf-16-be")
            shown += [f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)]
    return "".join(shown)


def wrapped_to_terminal(text: str, descriptor: int = STDERR) -> str:
    """A sentence on lines that fit if standard error, or standard output, is a terminal."""
    columns = terminal_columns(descriptor)
    if columns is None:
        return text
    import textwrap  # most errors go to a pipe or are short

    return "\n".join(textwrap.wrap(text, columns, break_long_words=False, break_on_hyphens=False))


def warn_if_partial(source: "RunSource") -> None:
    """Say at the end of the command why the source's runs are only a part, unless it was said."""
    import click  # not for `run`

    context = click.get_current_context(silent=True)
    if context is None:
        return
    meta = context.meta

    def warn_of_rest() -> None:
        for sentence in source.completeness.sentences:
            if sentence not in meta.get(_WARNED, ()):
                warn(sentence)

    context.call_on_close(warn_of_rest)


@contextmanager
def warn_of_notes(source: "RunSource") -> Iterator[None]:
    """Print the source's notes after the reading, also if the reading fails: a note is often the
    reason.
    """
    try:
        yield
    finally:
        for note in source.notes:
            warn(note)


class _StandardStream(RawIOBase):
    """Standard output or standard error, for what click itself prints, such as the help."""

    def __init__(self, descriptor: int) -> None:
        self.name = descriptor  # as of io.FileIO

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.name

    def write(self, data: "ReadableBuffer", /) -> int:
        write_out(bytes(data), self.name)
        return memoryview(data).nbytes


def replace_standard_streams() -> None:
    """Let all that is written to ``sys.stdout`` and ``sys.stderr`` go through :func:`write_out`,
    without a buffer to flush at the end; also where the caller has closed standard output.
    """
    _reserve_standard_descriptors()
    if sys.stdout is None:  # the caller has closed it
        sys.stdout = TextIOWrapper(
            _StandardStream(STDOUT), "utf-8", "backslashreplace", write_through=True
        )
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout is sys.__stdout__:
        sys.stdout = _stream_through_write_out(sys.stdout, STDOUT)
    if isinstance(sys.stderr, TextIOWrapper) and sys.stderr is sys.__stderr__:
        sys.stderr = _stream_through_write_out(sys.stderr, STDERR)


def _reserve_standard_descriptors() -> None:
    """Let no file get the descriptor of a stream that the caller has closed: it would receive the
    output.

    The null device is opened for the wrong direction, so that to use the stream still fails, and
    is not inherited, so that the stream stays closed for other programs.
    """
    for descriptor in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            with suppress(OSError):  # the lowest free descriptor is this one
                os.open(os.devnull, os.O_WRONLY if descriptor == STDIN else os.O_RDONLY)


def _stream_through_write_out(stream: TextIOWrapper, descriptor: int) -> TextIOWrapper:
    errors = "backslashreplace" if stream.errors == "strict" else stream.errors
    return TextIOWrapper(_StandardStream(descriptor), stream.encoding, errors, write_through=True)


def say(text: str, end: str = "\n") -> None:
    """Write a text to standard output, as :func:`write_out` does."""
    shown = "\n".join(map(without_ci_commands, (text + end).split("\n")))
    write_out(shown.encode(stdout_encoding(), errors="backslashreplace"))


def say_sentence(sentence: str) -> None:
    """Write a sentence to standard output, on lines that fit the terminal."""
    say(wrapped_to_terminal(sentence, STDOUT))


def say_done(sentence: str, *, as_json: bool) -> None:
    """Print what an act has done: on standard error if standard output is for JSON, or if it cannot
    be written, because the act goes on.
    """
    if not as_json:
        try:
            say_sentence(sentence)
        except TaskProfilerError as error:
            warn(str(error))
        else:
            return
    import click  # as in warn

    click.echo(wrapped_to_terminal(printable(sentence)), err=True)


def write_json_lines(documents: Iterable[object]) -> None:
    """Write each document to standard output as a line of JSON."""
    import msgspec  # not for `run`

    write_record_lines(map(msgspec.json.encode, documents))


def write_record_lines(lines: Iterable[bytes]) -> None:
    """Write lines of JSON to standard output, some at once: of 100,000 runs all take 200 MB."""
    rest = iter(lines)
    while part := b"".join(
        json_without_controls(line) + b"\n" for line in islice(rest, _LINES_AT_ONCE)
    ):
        write_out(part)

"""Standard output, for people and for programs that read it."""

import os
import sys
from io import BufferedWriter, FileIO, StringIO, TextIOWrapper
from typing import TYPE_CHECKING

from profiler.core.errors import TaskProfilerError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from rich.console import RenderableType


def printable(text: str) -> str:
    r"""Control characters, and those that turn the direction of writing, as ``\x1b`` and the like."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


_STDOUT = 1
# Nothing is folded or cut for a program that reads a table.
_PIPE_COLUMNS = 10_000
# On a terminal that is narrower than the table, lines run over rather than lose columns.
_MIN_COLUMNS = 80


def render(*parts: "RenderableType") -> bytes:
    """Rich's drawing of the parts, as wide as the terminal."""
    from rich.console import Console  # not for --json

    text = StringIO()
    terminal = _is_terminal()
    console = Console(file=text, force_terminal=terminal or None)
    console.width = max(console.width, _MIN_COLUMNS) if terminal else _PIPE_COLUMNS
    for part in parts:
        console.print(part)
    lines = [line.rstrip() for line in text.getvalue().split("\n")]
    return "\n".join(lines).encode(sys.stdout.encoding if sys.stdout else "utf-8", errors="backslashreplace")


class _StandardOutput(FileIO):
    """Fails once at most, with a sentence.

    What is left after that in the buffers above it is dropped: the interpreter would try it again at its end, and
    tell that in its own words. A reader that has seen enough is no error.
    """

    _has_failed = False

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write some of the data."""
        if self._has_failed:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except BrokenPipeError:
            self._has_failed = True
            return memoryview(data).nbytes
        except OSError as error:
            self._has_failed = True
            raise _stdout_error(error) from error


def report_stdout_errors() -> None:
    """Make what anybody prints from here on fail with TaskProfilerError where it cannot be written."""
    present = sys.stdout
    if not isinstance(present, TextIOWrapper) or present is not sys.__stdout__:
        return
    sys.stdout = TextIOWrapper(
        BufferedWriter(_StandardOutput(_STDOUT, "w", closefd=False)),
        encoding=present.encoding,
        errors=present.errors,
        line_buffering=present.line_buffering,
        write_through=present.write_through,
    )


def write_out(data: bytes) -> None:
    """Write to standard output; a reader that has seen enough is no error."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(_STDOUT, rest) :]
    except BrokenPipeError:
        return
    except OSError as error:
        raise _stdout_error(error) from error


def _stdout_error(error: OSError) -> TaskProfilerError:
    return TaskProfilerError(f"Standard output cannot be written ({error.strerror}): send it somewhere else.")


def _is_terminal() -> bool:
    try:
        return os.isatty(_STDOUT)
    except OSError:
        return False

"""Standard output, for people and for programs that read it."""

import os
import sys
from io import StringIO
from typing import TYPE_CHECKING

from profiler.errors import TaskProfilerError

if TYPE_CHECKING:
    from rich.console import RenderableType

_STDOUT = 1
# Nothing is folded or cut for a program that reads a table.
_WIDTH_OF_A_PIPE = 10_000
# On a terminal that is narrower than the table, lines run over rather than lose columns.
_NARROWEST = 80


def drawn(*parts: "RenderableType") -> bytes:
    """Rich's drawing of the parts, as wide as the terminal."""
    from rich.console import Console  # noqa: PLC0415  not for --json

    text = StringIO()
    terminal = _is_terminal()
    console = Console(file=text, force_terminal=terminal or None)
    console.width = max(console.width, _NARROWEST) if terminal else _WIDTH_OF_A_PIPE
    for part in parts:
        console.print(part)
    lines = [line.rstrip() for line in text.getvalue().split("\n")]
    return "\n".join(lines).encode(sys.stdout.encoding if sys.stdout else "utf-8", errors="backslashreplace")


def write_out(data: bytes) -> None:
    """Write to standard output; a reader that has seen enough is no error."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(_STDOUT, rest) :]
    except BrokenPipeError:
        return
    except OSError as error:
        raise TaskProfilerError(f"Standard output cannot be written ({error.strerror}).") from error


def _is_terminal() -> bool:
    try:
        return os.isatty(_STDOUT)
    except OSError:
        return False

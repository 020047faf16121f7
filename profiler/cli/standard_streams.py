"""The standard streams of the commands: what they can show, and writing to them."""

import os
import sys

from profiler.core.errors import TaskProfilerError

STDIN = 0
STDOUT = 1
STDERR = 2
_SIGNS_OF_COMMANDS = ("##[", "##vso[", "##teamcity[")
_ASCII = str.maketrans("▁▂▃▄▅▆▇█▓▒░━╸·▔●→≥≈×…", "_.:-=+*#%=-=-.^*>>~x~")


def encode_text(text: str, encoding: str, errors: str = "backslashreplace") -> bytes:
    """Encode a text.

    If the encoding lacks some of its characters, bars and signs become ASCII of the same width.
    """
    try:
        return text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_ASCII).encode(encoding, errors)


def text_as_encoded(text: str, encoding: str) -> str:
    """The text as a reader of the encoding sees it: what it lacks is longer as an escape."""
    return text if text.isascii() else encode_text(text, encoding).decode(encoding)


def stdout_encoding() -> str:
    """The encoding of standard output."""
    return (sys.stdout.encoding if sys.stdout else None) or "utf-8"


def without_ci_commands(row: str) -> str:
    """A line that GitHub Actions, Azure Pipelines and TeamCity do not take for a command.

    The first looks for ``::`` at the beginning of a line, after spaces, and for ``##[`` anywhere.
    https://github.com/actions/runner/blob/main/src/Runner.Common/ActionCommand.cs
    https://learn.microsoft.com/en-us/azure/devops/pipelines/scripts/logging-commands
    https://www.jetbrains.com/help/teamcity/service-messages.html
    """
    start = row.lstrip()
    if start.startswith("::"):
        row = row[: len(row) - len(start)] + r"\x3a:" + start.removeprefix("::")
    return without_signs(row, r"#\x23")


def without_signs(text: str, escaped: str) -> str:
    """A text in which no sign of a CI job's command is left; ``escaped`` is its beginning then."""
    for sign in _SIGNS_OF_COMMANDS:
        text = text.replace(sign, escaped + sign.removeprefix("##"))
    return text


def write_out(data: bytes, descriptor: int = STDOUT) -> None:
    """Write to standard output, whose reader may leave, or to standard error, which may lose it.

    TaskProfilerError.
    """
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError as error:
        if descriptor == STDOUT and not isinstance(error, BrokenPipeError):
            raise TaskProfilerError(
                f"Cannot write to standard output ({error.strerror}): redirect it."
            ) from error


def terminal_columns(descriptor: int = STDOUT) -> int | None:
    """The columns of the terminal.

    None in a pipe, where every line is whole, and for a terminal without a size.
    """
    return _terminal_size(descriptor).columns or None


def screen_size() -> os.terminal_size:
    """The size of the terminal of standard output now. ``COLUMNS`` and ``LINES`` of the environment
    do not change with the terminal.
    """
    size = _terminal_size(STDOUT)
    return os.terminal_size((size.columns or 80, size.lines or 24))


def _terminal_size(descriptor: int) -> os.terminal_size:
    try:
        return os.get_terminal_size(descriptor)
    except OSError:
        return os.terminal_size((0, 0))

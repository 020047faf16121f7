"""The error of a command that was called with ``--json``, as a line on stderr."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Literal

import msgspec

from profiler.cli.printing import json_without_controls
from profiler.core.redaction import without_credentials
from profiler.core.text import printable
from profiler.record.model_base import JsonLine


class ErrorLine(JsonLine, frozen=True, kw_only=True):
    """Why a command with ``--json`` failed: the last line of stderr.

    ``exitCode``: 2 for a command line that cannot work, 1 for a later failure, 128 + n for
    signal n.
    """

    type: Literal["error"] = "error"
    exit_code: int
    message: str


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the command line asks for JSON; never of ``run``, whose stderr is its command's."""
    words = [*takewhile(lambda word: word != "--", arguments)]
    commands = [word for word in words if not word.startswith("-")]
    return "--json" in words and commands[:1] != ["run"]


def error_line(message: str, exit_code: int) -> str:
    """The line of an error, without credentials."""
    text = printable(without_credentials(message))
    line = msgspec.json.encode(ErrorLine(exit_code=exit_code, message=text))
    return json_without_controls(line).decode()

"""Workflow commands and the summary of a step in GitHub Actions.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from profiler.cli.printing import warn
from profiler.cli.standard_streams import stdout_encoding, write_out
from profiler.core.text import on_one_line, printable

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
_ADDRESS = re.compile(r"(?<=:)//|(?<=\bwww)\.", re.IGNORECASE)
_IN_ADDRESS = {"//": "&#47;/", ".": "&#46;"}
_MARKDOWN = re.compile(r"([\\`*_\[\]<>#!|~&])")


def annotation_command(level: Literal["error", "notice"], title: str, message: str) -> str:
    """A workflow command, without the end of its line."""
    escaped = _escaped_command_data(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={escaped}::{_escaped_command_data(message)}"


def write_annotations(lines: Iterable[str]) -> None:
    """Write lines that are workflow commands to standard output; ``say`` would escape them."""
    write_out("".join(lines).encode(stdout_encoding(), errors="backslashreplace"))


def append_to_summary(lines: Iterable[str], environment: Mapping[str, str]) -> None:
    """Append Markdown to the step's summary. One that cannot be written is a warning."""
    path = environment.get(SUMMARY_VARIABLE)
    if not path:
        warn(f"{SUMMARY_VARIABLE} is not set, so no summary was written: GitHub Actions sets it.")
        return
    try:
        with Path(path).open("a", encoding="utf-8", errors="replace") as file:
            file.write("\n".join(("", *lines)) + "\n")
    except OSError as error:
        warn(f"The summary {path} cannot be written ({error.strerror}): check {SUMMARY_VARIABLE}.")


def markdown_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table whose cells are plain text."""
    for cells in (titles, ["---"] * len(titles), *rows):
        yield f"| {' | '.join(map(escaped_markdown, cells))} |"


def escaped_markdown(text: str) -> str:
    """A text as it is, on one line of Markdown: GitHub makes no link of an address in it.

    https://github.github.com/gfm/#autolinks-extension-
    """
    escaped = _MARKDOWN.sub(r"\\\1", on_one_line(text))
    return _ADDRESS.sub(lambda found: _IN_ADDRESS[found[0]], escaped)


def _escaped_command_data(text: str) -> str:
    return printable(text).replace("%", "%25")

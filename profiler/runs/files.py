"""Record lines from a file or standard input."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from profiler.core.errors import TaskProfilerError
from profiler.record.model import Report, decode

STANDARD_INPUT = "-"
_MAX_LISTED_LINES = 5


def source_name(source: str) -> str:
    """Name the source in a sentence."""
    return "standard input" if source == STANDARD_INPUT else source


def read_lines(source: str) -> Iterator[bytes]:
    """Yield the lines of a file, or of standard input for ``-``. Raises TaskProfilerError if it cannot be read."""
    try:
        if source == STANDARD_INPUT:
            yield from sys.stdin.buffer
        else:
            with Path(source).open("rb") as stream:
                yield from stream
    except OSError as error:
        raise TaskProfilerError(
            f"{source_name(source)} cannot be read ({error.strerror}): name a file of record lines."
        ) from error


def decode_lines(lines: Iterable[bytes], invalid_lines: list[int]) -> Iterator[Report]:
    """Decode record lines. Empty lines are skipped; the numbers of invalid lines are added to ``invalid_lines``."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            report = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            invalid_lines.append(number)
        else:
            yield report


def format_line_numbers(numbers: list[int]) -> str:
    """List the first five line numbers."""
    return ", ".join(map(str, numbers[:_MAX_LISTED_LINES])) + (", …" if len(numbers) > _MAX_LISTED_LINES else "")

"""Record lines in files, on standard input, and in the JSON that the AWS CLI prints.

``aws logs filter-log-events`` and ``get-log-events`` print an object with ``events``,
``get-query-results`` one with ``results``; ``--query`` reduces them to lists. The messages in them
are lines as in a file.
"""

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import decoded
from profiler.core.text import first_names
from profiler.record.activity_model import STACKS_BEGINNING, StacksLine, is_stacks_line
from profiler.record.notice_model import ScheduleNoticeLine, is_notice_line
from profiler.record.record_model import Report
from profiler.record.units import format_count
from profiler.runs.past_runs.run_source import (
    PastRun,
    RunFilter,
    RunLine,
    RunSource,
    group_lines,
    matching_runs,
    run_line,
    stacks_of,
)
from profiler.runs.past_runs.schedule_notices import read_notices, select_notices

STANDARD_INPUT = "-"


class FileRuns(RunSource):
    """The runs of a file of record lines, or of standard input for ``-``.

    The last 300 lines of stacks may be kept.
    """

    remedy = (
        "it should contain the lines that task-profiler writes, or the JSON that aws logs prints"
    )

    def __init__(self, source: str, now_ns: int, *, keeps_stacks: bool = False) -> None:
        self._source = source
        self._now_ns = now_ns
        self._stacks: deque[bytes] = deque(
            maxlen=300 if keeps_stacks else 0
        )  # of at most 200 KB each
        self.place = source_name(source)
        self._invalid_lines: set[int] = set()
        self._runs: list[list[RunLine]] | None = None
        self._notices: deque[ScheduleNoticeLine] = deque(maxlen=10_000)

    @property
    def notes(self) -> Sequence[str]:
        numbers = sorted(self._invalid_lines)
        if not numbers:
            return ()
        listed = first_names([*map(str, numbers)])
        return (f"{self.place}: skipped {format_count(len(numbers), 'invalid line')}: {listed}",)

    def runs(self, selection: RunFilter) -> Iterator[PastRun]:
        """Yield the matching runs. The file is read once: standard input cannot be read again."""
        if self._runs is None:
            self._runs = group_lines(self.run_lines(read_lines(self._source)))
        return matching_runs(self._runs, selection, self._invalid_lines.add, self._now_ns)

    def run_lines(self, lines: Iterable[bytes]) -> Iterator[RunLine]:
        """The record lines.

        The others are kept: call stacks, notices about schedules, numbers of invalid lines.
        """
        for number, line in enumerate(lines, start=1):
            text = line.strip()
            if not text:
                continue
            if text.startswith(STACKS_BEGINNING):  # to find an error in 200 KB takes milliseconds
                self._stacks.append(text)
                continue
            found = run_line(text, number)
            if found is not None:
                yield found
            elif is_stacks_line(text):
                self._stacks.append(text)
            elif is_notice_line(text):
                self._notices.extend(read_notices([text.decode(errors="replace")]))
            else:
                self._invalid_lines.add(number)

    def stacks(self, report: Report) -> StacksLine | None:
        return stacks_of(report, reversed(self._stacks))

    def schedule_notices(self, selection: RunFilter) -> Sequence[ScheduleNoticeLine]:
        return select_notices(self._notices, selection)


def source_name(source: str) -> str:
    """Name the source in a sentence."""
    return "standard input" if source == STANDARD_INPUT else source


def read_lines(source: str) -> Iterator[bytes]:
    """Yield the lines of a file or standard input, or the messages in the AWS CLI's JSON. Raises
    TaskProfilerError.
    """
    try:
        if source == STANDARD_INPUT:
            yield from messages(sys.stdin.buffer)
        else:
            with Path(source).open("rb") as stream:
                yield from messages(stream)
    except FileNotFoundError as error:
        raise TaskProfilerError(
            f"{source}: no such file; for CloudWatch Logs write logs:{source}"
        ) from error
    except OSError as error:
        raise TaskProfilerError(
            f"{source_name(source)} cannot be read ({error.strerror}): name a file of record lines."
        ) from error


def messages(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield record lines, or the messages in the AWS CLI's JSON, which begins with an unfinished
    line.
    """
    remaining = iter(lines)
    beginning: list[bytes] = []
    for line in remaining:
        beginning.append(line)
        if line.strip():
            break
    if beginning and beginning[-1].strip() in (b"{", b"["):
        beginning += remaining
    rows: Sequence[object] = ()
    match decoded(msgspec.json.decode, b"".join(beginning)):
        case {"record": _}:
            pass
        case {"events": [*found]} | {"results": [*found]} | [*found]:
            rows = found
    yield from _flat(rows) or beginning
    yield from remaining


def _flat(rows: Sequence[object]) -> list[bytes]:
    """The messages of events, of rows of fields, and of lists of texts."""
    texts: list[bytes] = []
    for row in rows:
        match row:
            case list():
                texts += _flat(row)
            case str(text) | {"message": str(text)}:
                texts.append(text.encode(errors="replace"))
            case {"field": "@message", **fields}:
                texts.append(str(fields.get("value", "")).encode(errors="replace"))
    return texts

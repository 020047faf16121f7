"""Record lines in files, on standard input, and in the JSON that the AWS CLI prints.

``aws logs filter-log-events`` and ``get-log-events`` print an object with ``events``, ``get-query-results`` one with
``results``; ``--query`` reduces them to lists. The messages in them are lines as in a file.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from profiler.core.errors import TaskProfilerError
from profiler.record.activity_model import STACKS_BEGINNING, StacksLine, decode_stacks, is_stacks_line
from profiler.record.notice_model import ScheduleNoticeLine, is_notice_line
from profiler.record.record_model import Report
from profiler.record.units import format_count
from profiler.runs.past_runs.run_source import PastRun, RunFilter, RunLine, RunLines, RunSource, group_lines, run_line
from profiler.runs.past_runs.schedule_notices import read_notice, select_notices

STANDARD_INPUT = "-"
_MAX_LISTED_LINES = 5
_MAX_STACKS_BYTES = 64 * 2**20
_MAX_KEPT_NOTICES = 10_000
_MESSAGE_FIELD = "@message"


class FileRuns(RunSource):
    """The runs of a file of record lines, or of standard input for ``-``.

    ``keeps_stacks``: the last lines of call stacks stay in memory, up to 64 MB.
    """

    remedy = "it should contain the lines that task-profiler writes, or the JSON that aws logs prints"

    def __init__(self, source: str, *, keeps_stacks: bool = False) -> None:
        self._source = source
        self._stacks = _LastStacks() if keeps_stacks else None
        self.place = source_name(source)
        self._invalid_lines: set[int] = set()
        self._runs: list[RunLines] | None = None
        self._notices: deque[ScheduleNoticeLine] = deque(maxlen=_MAX_KEPT_NOTICES)

    @property
    def notes(self) -> Sequence[str]:
        """A sentence with the lines that are not records, if there are any."""
        count = len(self._invalid_lines)
        if not count:
            return ()
        numbers = format_line_numbers(sorted(self._invalid_lines))
        return (f"{self.place}: skipped {format_count(count, 'invalid line')}: {numbers}",)

    def runs(self, selection: RunFilter) -> Iterator[PastRun]:
        """Yield the matching runs. The file is read once: standard input cannot be read again.

        A line is decoded completely only if its run matches, so the values of other lines are not checked.
        """
        if self._runs is None:
            keep = None if self._stacks is None else self._stacks.add
            self._runs = group_lines(find_run_lines(read_lines(self._source), self._invalid_lines, keep, self._notices))
        return self._matching(self._runs, selection)

    def stacks(self, report: Report) -> StacksLine | None:
        """The last stacks in the file of the run's container."""
        return None if self._stacks is None else self._stacks.find(report.record.task_id, report.record.container.name)

    def schedule_notices(self, selection: RunFilter) -> Sequence[ScheduleNoticeLine]:
        """The notices in the file."""
        return select_notices(self._notices, selection)

    def _matching(self, runs: Sequence[RunLines], selection: RunFilter) -> Iterator[PastRun]:
        for lines in runs:
            if selection.matches(lines.head):
                invalid: list[RunLine] = []
                run = lines.decoded(invalid)
                self._invalid_lines.update(line.number for line in invalid)
                if run is not None and selection.matches(run.report):
                    yield run


class _LastStacks:
    """The last lines of call stacks of a file."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._size_bytes = 0

    def add(self, line: bytes) -> None:
        self._lines.append(line)
        self._size_bytes += len(line)
        while self._size_bytes > _MAX_STACKS_BYTES:
            self._size_bytes -= len(self._lines.popleft())

    def find(self, task_id: str, container: str) -> StacksLine | None:
        text = msgspec.json.encode(task_id)
        # To decode a line takes longer than to search all of them.
        for line in reversed(self._lines):
            stacks = decode_stacks(line) if text in line else None
            if stacks is not None and (stacks.task_id, stacks.container) == (task_id, container):
                return stacks
        return None


def source_name(source: str) -> str:
    """Name the source in a sentence."""
    return "standard input" if source == STANDARD_INPUT else source


def read_lines(source: str) -> Iterator[bytes]:
    """Yield the lines of a file, or of standard input for ``-``; of the AWS CLI's JSON, the messages.

    Raises TaskProfilerError if the source cannot be read.
    """
    try:
        if source == STANDARD_INPUT:
            yield from messages(sys.stdin.buffer)
        else:
            with Path(source).open("rb") as stream:
                yield from messages(stream)
    except OSError as error:
        raise TaskProfilerError(
            f"{source_name(source)} cannot be read ({error.strerror}): name a file of record lines."
        ) from error


def messages(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield record lines; if the lines together are the AWS CLI's JSON, yield the messages in it.

    Only a document that begins with an unfinished line is read whole: record lines are complete documents.
    """
    remaining = iter(lines)
    beginning: list[bytes] = []
    for line in remaining:
        beginning.append(line)
        if line.strip():
            break
    if beginning and beginning[-1].strip() in (b"{", b"["):
        beginning += remaining
    try:
        document = msgspec.json.decode(b"".join(beginning))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = None
    yield from _messages_in(document) or beginning
    yield from remaining


def _messages_in(document: object) -> list[bytes] | None:
    """The messages in the AWS CLI's JSON; None if the document is something else."""
    if isinstance(document, dict):
        if "record" in document:
            return None
        for member in ("events", "results"):
            if isinstance(document.get(member), list):
                return _flat(document[member])
        return None
    return _flat(document) if isinstance(document, list) else None


def _flat(rows: Sequence[object]) -> list[bytes]:
    """The messages of events, of rows of fields, and of lists of texts."""
    texts: list[bytes] = []
    for row in rows:
        if isinstance(row, str):
            texts.append(_encoded(row))
        elif isinstance(row, list):
            texts += _flat(row)
        elif isinstance(row, dict) and isinstance(row.get("message"), str):
            texts.append(_encoded(row["message"]))
        elif isinstance(row, dict) and row.get("field") == _MESSAGE_FIELD:
            texts.append(_encoded(str(row.get("value", ""))))
    return texts


def _encoded(text: str) -> bytes:
    return text.encode(errors="replace")


def find_run_lines(
    lines: Iterable[bytes],
    invalid_lines: set[int],
    keep_stacks: Callable[[bytes], None] | None = None,
    notices: deque[ScheduleNoticeLine] | None = None,
) -> Iterator[RunLine]:
    """Find record lines.

    Empty lines, call stacks and notices are skipped; ``keep_stacks`` is called with the stacks, and notices about
    schedules are added to ``notices``. The numbers of invalid lines are added to ``invalid_lines``.
    """
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text:
            continue
        is_stacks = text.startswith(STACKS_BEGINNING)  # to find an error in 200 KB takes milliseconds
        try:
            if not is_stacks:
                yield run_line(text, number)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            is_stacks = is_stacks_line(text)
            is_notice = not is_stacks and is_notice_line(text)
            if not (is_stacks or is_notice):
                invalid_lines.add(number)
            if is_notice and notices is not None:
                notice = read_notice(text)
                if isinstance(notice, ScheduleNoticeLine):
                    notices.append(notice)
        if is_stacks and keep_stacks is not None:
            keep_stacks(text)


def format_line_numbers(numbers: list[int]) -> str:
    """List the first five line numbers."""
    return ", ".join(map(str, numbers[:_MAX_LISTED_LINES])) + (", …" if len(numbers) > _MAX_LISTED_LINES else "")

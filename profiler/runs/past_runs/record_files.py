"""Record lines in files, on standard input, and in the JSON that the AWS CLI prints.

``aws logs filter-log-events`` and ``get-log-events`` print an object with ``events``,
``get-query-results`` one with ``results``; ``--query`` reduces them to lists. The messages in them
are lines as in a file. Programs such as jq print a record over several lines, or an array of them.
"""

from array import array
from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from heapq import merge
from itertools import chain, islice
from pathlib import Path
from typing import IO

import msgspec

from profiler.core.errors import TaskProfilerError
from profiler.core.files import MAX_TEXT_BYTES, standard_input
from profiler.core.json_fields import decoded_or_none
from profiler.core.text import did_you_mean, first_names
from profiler.record.notice_model import ScheduleNoticeLine, is_notice_line
from profiler.record.record_model import CHECKPOINT, Report
from profiler.record.stacks_line import STACKS_BEGINNING, StacksLine, is_stacks_line
from profiler.record.units import format_count
from profiler.runs.past_runs.line_index import LineFile, LineIndex
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.record_lines import (
    RunLine,
    line_text,
    matching_runs,
    other_schema_versions,
    read_run_line,
    schema_remarks,
)
from profiler.runs.past_runs.run_source import RunFilter, RunSource, stacks_of_run_in
from profiler.runs.past_runs.schedule_notices import read_notices, select_notices
from profiler.sizing.job_grouping import RunsOf

STANDARD_INPUT = "-"
# Names of a folder: more would take seconds.
_MAX_COMPARED = 2_000
_LISTED_NUMBERS = 10  # more than a sentence has
_MAX_STACKS = 300
# What files of other formats begin with, the compressed ones with the program that unpacks them.
_SQLITE = b"SQLite format 3\0"
_COMPRESSED = {
    b"\x1f\x8b": "zcat",
    b"PK\3\4": "unzip -p",
    b"BZh": "bzcat",
    b"\xfd7zXZ\0": "xzcat",
    b"\x28\xb5\x2f\xfd": "zstdcat",
}
_UTF_16 = (b"\xff\xfe", b"\xfe\xff", b"{\0", b"\0{")
_TAR = b"ustar"
_TAR_PLACE = 257


class FileRuns(RunSource):
    """The runs of a file of record lines, or of standard input for ``-``.

    The last 300 lines of stacks may be kept.
    """

    remedy = (
        "it should contain the lines that task-profiler writes, or the JSON that aws logs prints"
    )
    leaves_out_older = True

    def __init__(self, source: str, now_ns: int, *, keeps_stacks: bool = False) -> None:
        self._source = source
        self._now_ns = now_ns
        # Lines of at most 200 KB.
        self._stacks: deque[bytes] = deque(maxlen=_MAX_STACKS if keeps_stacks else 0)
        self.place = source_name(source)
        self._unreadable_numbers = array("Q")
        self._invalid_numbers: set[int] = set()  # of lines that begin as a record does
        self._other_schemas: Counter[str] = Counter()
        self._index: LineIndex | None = None
        self._notices: deque[ScheduleNoticeLine] = deque(maxlen=10_000)

    @property
    def remarks(self) -> Sequence[str]:
        remarks = [*schema_remarks(self.place, self._other_schemas)]
        count = len(self._unreadable_numbers) + len(self._invalid_numbers)
        if not count:
            return tuple(remarks)
        numbers = merge(self._unreadable_numbers, sorted(self._invalid_numbers))
        first_numbers = [str(number) for number in islice(numbers, _LISTED_NUMBERS)]
        skipped = format_count(count, "invalid line")
        remarks.append(f"{self.place}: skipped {skipped}: {first_names(first_numbers)}")
        return tuple(remarks)

    def runs(self, selection: RunFilter) -> Iterator[PastRun]:
        """Yield the matching runs. The file is read once, and then only the runs that count:
        standard input cannot be read again.
        """
        return self._matching_runs(selection, ())

    def last_runs(self, selection: RunFilter, last: int) -> Iterator[PastRun]:
        ended: Counter[RunsOf] = Counter()
        last_ns: dict[RunsOf, int] = {}
        complete: set[RunsOf] = set()
        for run in self._matching_runs(selection, complete):
            if run.report.type != CHECKPOINT:
                kind = self._line_index().kind_of_runs(run.record)
                # Of several runs of one start, the order of the lines does not choose the last.
                if ended[kind] >= last and run.started_ns < last_ns[kind]:
                    complete.add(kind)
                    continue
                ended[kind] += 1
                last_ns[kind] = run.started_ns
            yield run

    def _matching_runs(
        self, selection: RunFilter, left_out: Container[RunsOf]
    ) -> Iterator[PastRun]:
        with _reading_errors_named(self._source):
            add_invalid = self._invalid_numbers.add
            groups = self._line_index().lines_of_runs(selection, add_invalid, left_out)
            yield from matching_runs(groups, selection, add_invalid, self._now_ns)

    def _line_index(self) -> LineIndex:
        if self._index is None:
            self._index = self._read_line_index()
        return self._index

    def _read_line_index(self) -> LineIndex:
        lines, kept = _open_lines(self._source)
        index = LineIndex(kept)
        for line in self.run_lines(_lines_added_to(_lines_if_records(lines, self._source), kept)):
            index.add_line(line)
        index.sort_runs()
        return index

    def run_lines(self, lines: Iterable[bytes]) -> Iterator[RunLine]:
        """The record lines.

        The others are kept: call stacks, notices about schedules, numbers of invalid lines.
        """
        for number, line in enumerate(lines, start=1):
            text = line_text(line)
            if not text:
                continue
            if text.startswith(STACKS_BEGINNING):  # to find an error in 200 KB takes milliseconds
                self._stacks.append(text)
                continue
            record_line = read_run_line(text, number)
            if record_line is not None:
                self._other_schemas.update(other_schema_versions(record_line.head))
                yield record_line
            elif is_stacks_line(text):
                self._stacks.append(text)
            elif is_notice_line(text):
                self._notices.extend(read_notices([text.decode(errors="replace")]))
            else:
                self._unreadable_numbers.append(number)

    def stacks(self, report: Report) -> StacksLine | None:
        return stacks_of_run_in(report, reversed(self._stacks))

    def schedule_notices(self, selection: RunFilter) -> Sequence[ScheduleNoticeLine]:
        return select_notices(self._notices, selection)


def source_name(source: str) -> str:
    """Name the source in a sentence."""
    return "standard input" if source == STANDARD_INPUT else source


def _open_lines(source: str) -> tuple[Iterator[bytes], LineFile]:
    """The lines of a file or standard input, or the messages in the AWS CLI's JSON, and where
    they are kept. Raises OSError.
    """
    if source == STANDARD_INPUT:
        return record_messages(_lines_of_stream(standard_input())), LineFile()
    stream = Path(source).open("rb")  # noqa: SIM115  it is read again
    beginning, found_messages = _take_first_lines(_lines_of_stream(stream))
    if found_messages or not stream.seekable():
        return _lines_then_close(stream, found_messages or beginning), LineFile()
    return chain(beginning, stream), LineFile(stream)


def _lines_of_stream(stream: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file. Only JSON can have a first line of more than 64 MB: that of a device may
    never end.
    """
    first = stream.readline(MAX_TEXT_BYTES + 1)
    if len(first) > MAX_TEXT_BYTES and not _is_long_non_json(first):
        first += stream.readline()
    return chain((first,), stream)


def _is_long_non_json(line: bytes) -> bool:
    return len(line) > MAX_TEXT_BYTES and not line_text(line).startswith((b"{", b"["))


def _lines_if_records(lines: Iterable[bytes], source: str) -> Iterator[bytes]:
    """The lines. Raises TaskProfilerError if the first one shows that the file has none."""
    is_first = True
    for line in lines:
        if is_first:
            _check_format(line, source)
        is_first = False
        yield line


def _check_format(beginning: bytes, source: str) -> None:
    """Raise TaskProfilerError for a file of another format."""
    name = source_name(source)
    if _is_long_non_json(beginning):
        raise TaskProfilerError(
            f"{name} has more than 64 MB without a line's end: name a file of record lines."
        )
    if beginning.startswith(_SQLITE):
        file = "FILE" if source == STANDARD_INPUT else source
        raise TaskProfilerError(
            f"{name} is an SQLite database, as a history is: write history:{file}."
        )
    for magic, program in _COMPRESSED.items():
        if beginning.startswith(magic):
            raise TaskProfilerError(
                f"{name} is compressed: unpack it, and name the file that comes out, or - with a "
                f"pipe from {program}."
            )
    if beginning.startswith(_TAR, _TAR_PLACE):
        raise TaskProfilerError(
            f"{name} is an archive: unpack it, and name the file that comes out, or - with a pipe "
            "from tar -xO."
        )
    if beginning.startswith(_UTF_16):
        raise TaskProfilerError(
            f"{name} is text in UTF-16: convert it to UTF-8, as with iconv -f UTF-16 -t UTF-8."
        )


def _lines_then_close(stream: IO[bytes], beginning: Iterable[bytes]) -> Iterator[bytes]:
    with stream:
        yield from beginning
        yield from stream


def _lines_added_to(lines: Iterable[bytes], kept: LineFile) -> Iterator[bytes]:
    for line in lines:
        kept.add_line(line)
        yield line


def _similar_files_sentence(source: str) -> str:
    """The files of its folder that may be meant, as a sentence after a space; "" without any."""
    path = Path(source)
    try:
        names = [one.name for one in islice(path.parent.iterdir(), _MAX_COMPARED)]
    except OSError:
        return ""
    return did_you_mean([path.name], names)


@contextmanager
def _reading_errors_named(source: str) -> Iterator[None]:
    """Raise TaskProfilerError for errors of reading."""
    try:
        yield
    except FileNotFoundError as error:
        raise TaskProfilerError(
            f"There is no file {source}: for a log group in CloudWatch, write logs:{source}."
            f"{_similar_files_sentence(source)}"
        ) from error
    except MemoryError:
        raise TaskProfilerError(
            f"{source_name(source)} does not fit into memory: name a file of record lines, or a "
            "part of it."
        ) from None
    except OSError as error:
        raise TaskProfilerError(
            f"{source_name(source)} cannot be read ({error.strerror}): name a file of record lines."
        ) from error


def record_messages(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield record lines: those of a file, or those in JSON that begins with an unfinished line."""
    remaining = iter(lines)
    beginning, found_messages = _take_first_lines(remaining)
    yield from found_messages or beginning
    yield from remaining


def _take_first_lines(remaining: Iterator[bytes]) -> tuple[list[bytes], list[bytes]]:
    """The first lines, which are taken from ``remaining``; what counts in place of them, if they
    are JSON that has record lines or records.
    """
    beginning: list[bytes] = []
    for line in remaining:
        beginning.append(line)
        if line.strip():
            break
    first = line_text(beginning[-1]) if beginning else b""
    found_messages = _messages_in_document(first)
    if found_messages or not (first in (b"{", b"[") or first.startswith(b"[{")):
        return beginning, found_messages
    beginning += remaining
    return beginning, _messages_in_document(b"".join(beginning)) or [*_joined_documents(beginning)]


def _joined_documents(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines, each indented document of them in one line, or as the messages that it has.

    Empty lines keep the numbers of what follows an object.
    """
    document: list[bytes] = []
    for line in lines:
        if document and line[:1].isspace() and line.strip():
            document.append(line)
            continue
        text = line_text(line)
        if document and line_text(document[0]) + text in (b"{}", b"[]"):
            yield from _joined_lines([*document, line])
            document = []
            continue
        yield from document
        document = []
        if text in (b"{", b"["):
            document.append(line)
        else:
            yield line
    yield from document


def _joined_lines(document: Sequence[bytes]) -> Sequence[bytes]:
    text = b" ".join(map(line_text, document))
    if found_messages := _messages_in_document(text):
        return found_messages
    if text.startswith(b"["):
        return document
    with suppress(msgspec.DecodeError):  # indented, a line is longer than it was
        text = msgspec.json.format(text, indent=-1)
    return [text + b"\n", *[b"\n"] * (len(document) - 1)]


def _messages_in_document(text: bytes) -> list[bytes]:
    """The messages of the AWS CLI's JSON, and the records of an array; none of another text."""
    match decoded_or_none(msgspec.json.decode, line_text(text)):
        case {"record": _}:
            return []
        case {"events": [*rows]} | {"results": [*rows]} | [*rows]:
            return _messages_in_rows(rows)
    return []


def _messages_in_rows(rows: Sequence[object]) -> list[bytes]:
    """The messages of events, of rows of fields, and of lists of texts; the lines of records."""
    found_messages: list[bytes] = []
    for row in rows:
        match row:
            case list():
                found_messages += _messages_in_rows(row)
            case str(text) | {"message": str(text)}:
                found_messages.append(text.encode(errors="replace"))
            case {"record": {}} | {"type": str()}:
                found_messages.append(msgspec.json.encode(row))
            case {"field": "@message", **fields}:
                value = str(fields.get("value", ""))
                found_messages.append(value.encode(errors="replace"))
    return found_messages

"""The record lines of a file, which stay there: of a million runs, their places take 50 MB of
memory, and their lines 2 GB.
"""

import weakref
from array import array
from bisect import bisect_left
from collections.abc import Callable, Container, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from tempfile import SpooledTemporaryFile
from typing import IO, Final

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.errors import TaskProfilerError
from profiler.record.family_identity import FamilyKey, family_key
from profiler.record.record_model import CHECKPOINT, Record
from profiler.record.report_head import RecordHead, ReportHead
from profiler.runs.past_runs.past_run import report_start_ns, run_key
from profiler.runs.past_runs.record_lines import RunLine, group_lines, line_text, read_run_line
from profiler.runs.past_runs.run_source import RunFilter
from profiler.sizing.job_grouping import RunKinds, RunsOf

# More of what cannot be read again goes to the disk.
_MEMORY_BYTES: Final = 16 * 1024 * 1024
# A task's id can be escaped in JSON in one way only if it has none of these.
_ESCAPABLE_CHARACTERS: Final = frozenset('"\\/')


class LineFile:
    """Lines by their numbers from 1 on, in the file where they are, or in a temporary one.

    ``file`` is closed with this object. Without one, lines are written to a temporary file.
    """

    def __init__(self, file: IO[bytes] | None = None) -> None:
        self._is_own = file is not None
        self._file: IO[bytes]
        if file is None:
            self._file = SpooledTemporaryFile(max_size=_MEMORY_BYTES)  # noqa: SIM115  see below
        else:
            self._file = file
        weakref.finalize(self, self._file.close)
        self._ends = array("q", [0])

    def add_line(self, line: bytes) -> int:
        """Add the next line, with its newline if it has one; returns its number.

        Raises TaskProfilerError if the temporary file is full.
        """
        if not self._is_own:
            try:
                self._file.write(line)
            except OSError as error:
                raise TaskProfilerError(
                    f"The lines cannot be kept in the temporary folder ({error.strerror}): set "
                    "TMPDIR to a folder with more space."
                ) from error
        self._ends.append(self._ends[-1] + len(line))
        return len(self._ends) - 1

    def read_line(self, number: int) -> bytes:
        """The text of the line. Raises OSError."""
        begin = self._ends[number - 1]
        self._file.seek(begin)
        line = line_text(self._file.read(self._ends[number] - begin))
        if not self._is_own:
            self._file.seek(self._ends[-1])
        return line


class _RunKind(Struct, frozen=True, kw_only=True):
    """What many runs have in common of what filters read."""

    head: ReportHead
    family: FamilyKey
    counts_with: RunsOf
    is_checkpoint: bool

    def can_match(self, selection: RunFilter) -> bool:
        """Whether a run of this kind can match, whatever its id, tags, labels and time are."""
        general = replace(selection, run="", tags=(), labels=(), since_ns=None, until_ns=None)
        if self.is_checkpoint:
            general = replace(general, statuses=())  # it may be lost
        return general.matches(self.head)


class LineIndex:
    """Where the lines of each run are; the runs in the order of time.

    All lines are added before the first run is asked for.
    """

    def __init__(self, lines: LineFile) -> None:
        self._lines = lines
        # Of each line: a digest of its run's identity, its start, its number, its kind.
        self._digests = array("q")
        self._starts_ns = array("q")
        self._numbers = array("I")
        self._kinds = array("I")
        self._job_kinds = RunKinds()
        self._known_kinds: dict[tuple[object, ...], int] = {}
        self._kind_list: list[_RunKind] = []
        # The lines in the order of their digests; of each run, the place of its first line there.
        self._by_run = array("I")
        self._newest_first = array("I")
        self._run_starts_ns = array("q")

    def add_line(self, line: RunLine) -> None:
        self._digests.append(hash(run_key(line.head)))
        self._starts_ns.append(report_start_ns(line.head))
        self._numbers.append(line.number)
        self._kinds.append(self._kind_index_of(line.head))

    def kind_of_runs(self, record: Record | RecordHead) -> RunsOf:
        """The other runs with which the run of a record counts."""
        return self._job_kinds.kind_of_run(record)

    def _kind_index_of(self, head: ReportHead) -> int:
        record = head.record
        counts_with = self.kind_of_runs(record)
        values = (
            head.type,
            counts_with,
            record.family,
            record.account_id,
            record.region,
            record.cluster,
            record.status,
            record.container.name,
        )
        kind = self._known_kinds.get(values)
        if kind is not None:
            return kind
        kind = len(self._kind_list)
        self._known_kinds[values] = kind
        own = ("task_arn", "started_at", "finished_at", "tags", "labels", "batch")
        general = replace(record, task_id="", **dict.fromkeys(own))
        self._kind_list.append(
            _RunKind(
                head=replace(head, record=general),
                family=family_key(record),
                counts_with=counts_with,
                is_checkpoint=head.type == CHECKPOINT,
            )
        )
        return kind

    def sort_runs(self) -> None:
        """Find the lines of each run, and sort the runs: those of one start in the lines' order."""
        digests = self._digests
        self._by_run = array("I", sorted(range(len(digests)), key=digests.__getitem__))
        starts_ns = array("q", bytes(8 * len(digests)))
        firsts: list[int] = []
        for place, line in enumerate(self._by_run):
            if place == 0 or digests[line] != digests[self._by_run[place - 1]]:
                firsts.append(place)
                starts_ns[place] = self._start_time_of(place)
        firsts.sort(key=self._by_run.__getitem__)
        firsts.sort(key=starts_ns.__getitem__, reverse=True)
        self._run_starts_ns = starts_ns
        self._newest_first = array("I", firsts)

    def _start_time_of(self, place: int) -> int:
        """The start of a run: without one, the time of its report, else of its last checkpoint."""
        lines = self._lines_at(place)
        if len(lines) == 1:
            return self._starts_ns[lines[0]]
        reports_ns: list[int] = []
        checkpoints_ns: list[int] = []
        for line in lines:
            kind = self._kind_list[self._kinds[line]]
            starts_ns = checkpoints_ns if kind.is_checkpoint else reports_ns
            starts_ns.append(self._starts_ns[line])
        return max(reports_ns or checkpoints_ns)

    def _lines_at(self, place: int) -> Sequence[int]:
        """The lines of the run whose first one is at this place."""
        digests = self._digests
        by_run = self._by_run
        end = place + 1
        digest = digests[by_run[place]]
        while end < len(by_run) and digests[by_run[end]] == digest:
            end += 1
        return by_run[place:end]

    def lines_of_runs(
        self,
        selection: RunFilter,
        add_invalid: Callable[[int], None],
        left_out: Container[RunsOf] = (),
    ) -> Iterator[list[RunLine]]:
        """The lines of each run that can match, newest first: see :func:`group_lines`.

        ``add_invalid`` gets the number of a line that changed since. ``left_out``: of these, no
        further run is read; it may grow. Raises OSError.
        """
        kinds = self._kind_list
        can_match = [kind.can_match(selection) for kind in kinds]
        names_family = [
            not selection.run or fnmatchcase(kind.family.name, selection.run) for kind in kinds
        ]
        for place in self._places_in_time(selection):
            lines = self._lines_at(place)
            kinds_of_run = [self._kinds[line] for line in lines]
            if not any(
                can_match[kind] and kinds[kind].counts_with not in left_out for kind in kinds_of_run
            ):
                continue
            numbers = [self._numbers[line] for line in lines]
            texts = [self._lines.read_line(number) for number in numbers]
            is_named = any(names_family[kind] for kind in kinds_of_run)
            if not is_named and not _may_have_id(texts, selection.run):
                continue
            run_lines: list[RunLine] = []
            for number, text in zip(numbers, texts, strict=True):
                line = read_run_line(text, number)
                if line is None:
                    add_invalid(number)
                else:
                    run_lines.append(line)
            # Two runs of the same digest, of which there are none among billions, are separated.
            yield from group_lines(run_lines)

    def _places_in_time(self, selection: RunFilter) -> Iterator[int]:
        """The runs within the time of a filter, newest first."""
        starts_ns = self._run_starts_ns
        begin = 0
        if selection.until_ns is not None:
            begin = bisect_left(
                self._newest_first, 1 - selection.until_ns, key=lambda place: -starts_ns[place]
            )
        for place in islice(self._newest_first, begin, None):
            if selection.since_ns is not None and starts_ns[place] < selection.since_ns:
                return
            yield place


def _may_have_id(texts: Sequence[bytes], run: str | None) -> bool:
    """Whether a line of a run may have an id that begins so: to decode them takes longer."""
    beginning = (run or "").partition("/")[0]
    if (
        not beginning.isascii()
        or not beginning.isprintable()
        or _ESCAPABLE_CHARACTERS & set(beginning)
    ):
        return True
    return any(beginning.encode() in text for text in texts)

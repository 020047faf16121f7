"""The local history: past runs, each with the line that was printed and its series.

A run is known by its task id and its start: inside an ECS task, several runs share the task's id.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from profiler.clock import Clock
from profiler.errors import TaskProfilerError
from profiler.points import Point, decode_points, encode_points
from profiler.record import Report, Status, decode
from profiler.sinks import DeliveryFailure
from profiler.sinks.history_file import MIGRATIONS, HistoryDatabase

# Read in portions, so that a slow reader (a pager) keeps no lock on the file.
_PAGE_SIZE = 200
_FIRST_CURSOR = ("~", 0)  # sorts after every time


class StoredRun(Struct, frozen=True, kw_only=True):
    """A past run: its line as it was printed, and what that says."""

    line: bytes
    report: Report


class HistoryStore:
    """One history file. ``unreadable_count`` counts the lines that ``runs`` had to skip so far."""

    def __init__(self, path: Path, clock: Clock, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
        self._file = HistoryDatabase(path, clock, migrations)
        self.unreadable_count = 0

    def add(self, line: bytes, points: Iterable[Point], *, max_runs: int) -> DeliveryFailure | None:
        """Keep a run; the oldest others beyond ``max_runs`` go. A run that is kept already is not added again."""
        report = decode(line)
        record = report.record
        row = (
            record.task_id,
            _start(report),
            record.family,
            record.status,
            line.decode(),
            encode_points(points).decode(),
        )
        try:
            with self._file.write_transaction() as connection:
                connection.execute(
                    "INSERT INTO run (task_id, started_at, family, status, record, points) VALUES (?, ?, ?, ?, ?, ?)"
                    " ON CONFLICT (task_id, started_at) DO NOTHING",
                    row,
                )
                connection.execute(
                    "DELETE FROM run WHERE id IN (SELECT id FROM run"
                    " WHERE id <> (SELECT id FROM run WHERE task_id = ? AND started_at = ?)"
                    " ORDER BY started_at DESC, id DESC LIMIT -1 OFFSET ?)",
                    (*row[:2], max_runs - 1),
                )
        except TaskProfilerError as error:
            return DeliveryFailure(str(error))
        return None

    def runs(self, *, families: Sequence[str] = (), statuses: Sequence[Status] = ()) -> Iterator[StoredRun]:
        """Past runs, newest first: of families that match one of the shell patterns, with one of the statuses.

        Raises TaskProfilerError if the file cannot be read; a missing one holds no runs.
        """
        condition, values = _condition(families, statuses)
        query = (
            "SELECT started_at, id, CAST(record AS BLOB) FROM run"  # noqa: S608  made of constants
            f" WHERE (started_at, id) < (?, ?){condition} ORDER BY started_at DESC, id DESC LIMIT {_PAGE_SIZE}"
        )
        with self._file.open_for_reading() as connection:
            last: tuple[str, int] = _FIRST_CURSOR
            while connection is not None:
                page = connection.execute(query, (*last, *values)).fetchall()
                for _, _, line in page:
                    report = _report(line)
                    if report is None:
                        self.unreadable_count += 1
                    else:
                        yield StoredRun(line=line, report=report)
                if len(page) < _PAGE_SIZE:
                    return
                last = page[-1][:2]

    def points(self, report: Report) -> tuple[Point, ...]:
        """The series of a run; empty if it has none, or is not here (any more)."""
        with self._file.open_for_reading() as connection:
            if connection is None:
                return ()
            row = connection.execute(
                "SELECT CAST(points AS BLOB) FROM run WHERE task_id = ? AND started_at = ?",
                (report.record.task_id, _start(report)),
            ).fetchone()
        try:
            return () if row is None else decode_points(row[0])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ()


def _start(report: Report) -> str:
    """RFC 3339 in UTC with milliseconds, so that the order of the texts is that of the times."""
    return report.record.started_at or report.time


def _report(line: bytes) -> Report | None:
    try:
        return decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _condition(families: Sequence[str], statuses: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    # SQLite negates a set of characters by ^, the shell by !.
    patterns = tuple(family.replace("[!", "[^") for family in families)
    parts = ("family GLOB ?", patterns), ("status = ?", tuple(statuses))
    text = "".join(f" AND ({' OR '.join([part] * len(values))})" for part, values in parts if values)
    return text, (*patterns, *statuses)

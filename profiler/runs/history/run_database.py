"""The local history: past runs in an SQLite database, each with its record line and its time
series.
"""

import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from profiler.core.clock import Clock
from profiler.core.errors import TaskProfilerError
from profiler.core.files import absolute_path, create_private_folders
from profiler.core.text import without_surrogates
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, format_ms, span_ms
from profiler.readers.linux import proc
from profiler.record.model_base import absent_if_empty
from profiler.record.record_model import (
    NO_MONITOR,
    NOT_MEASURED,
    Distribution,
    Interval,
    Report,
    decode,
)
from profiler.runs.history.history_file import HISTORY_VARIABLE, LOCK_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from profiler.record.stacks_line import StacksLine
    from profiler.runs.past_runs.run_source import RunFilter
    from profiler.runs.step_series import StepSeries

_APPLICATION_ID = 0x5450_4846  # "TPHF": distinguishes our files from databases of other programs
_VERSION = 4  # of the schema
_SCHEMA = (
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_VERSION}",
    """CREATE TABLE run (
        id INTEGER PRIMARY KEY, task_id TEXT NOT NULL, started_at TEXT NOT NULL, family TEXT,
        status TEXT NOT NULL, record TEXT NOT NULL, points TEXT NOT NULL, command TEXT, stacks BLOB,
        UNIQUE (task_id, started_at)
    )""",
    # The runs in progress, each with the process of its profiler. If that has ended without adding
    # the run, it was killed: whoever finds the row adds it to the runs.
    """CREATE TABLE running (
        task_id TEXT NOT NULL, started_at TEXT NOT NULL, pid INTEGER NOT NULL,
        pid_started INTEGER NOT NULL, record TEXT NOT NULL, points TEXT NOT NULL, command TEXT,
        UNIQUE (task_id, started_at)
    )""",
    "CREATE INDEX run_by_start ON run (started_at)",
    # Runs without stacks are not in the index.
    "CREATE INDEX run_with_stacks ON run (started_at) WHERE stacks IS NOT NULL",
)
# The newest runs with stacks keep them. A line of 200 KB takes some 20 KB.
MAX_RUNS_WITH_STACKS = 1000
# The longest line of stacks has 200 KB; a damaged one could be of any length.
_MAX_STACKS_BYTES = 16 * 2**20
# Runs are read in pages, so that a slow reader (a pager) does not lock the file.
_PAGE_SIZE = 200
# No index has the family. The bound keeps the search short, because the user waits for it.
_LAST_SUCCESSES = """SELECT CAST(record AS BLOB) FROM run
    WHERE family = ? AND status = 'success' AND started_at < ? AND started_at >= coalesce(
        (SELECT started_at FROM run ORDER BY started_at DESC LIMIT 1 OFFSET 2000), '')
    ORDER BY started_at DESC, id DESC"""


class HistoryStore:
    """The runs of one file.

    Failures are TaskProfilerErrors. ``max_wait_seconds``: for all locks of a transaction.
    ``named_by``: what names another file, in the sentences of errors.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        clock: Clock,
        max_wait_seconds: float = LOCK_TIMEOUT_SECONDS,
        *,
        named_by: str = HISTORY_VARIABLE,
    ) -> None:
        self.unreadable_count = 0
        self._named_by = named_by
        self.path = os.fspath(path)
        self._clock = clock
        self._max_wait_ns = round(max_wait_seconds * NS_PER_SECOND)

    @contextmanager
    def _write_transaction(self) -> Iterator[sqlite3.Connection]:
        """A write transaction.

        Creates a missing file and its tables; without the commit, nothing is changed.
        """
        deadline_ns = self._clock.monotonic_ns() + self._max_wait_ns
        with self._as_profiler_errors():
            create_private_folders(os.path.dirname(absolute_path(self.path)))
            with suppress(FileExistsError):
                # Only a missing file is opened: closing a file that SQLite has open in this process
                # would release its locks.
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            with self._connect() as connection:
                self._set_busy_timeout(deadline_ns, connection)
                connection.execute("BEGIN IMMEDIATE")
                if self._is_new(connection):
                    for statement in _SCHEMA:
                        connection.execute(statement)
                yield connection
                self._set_busy_timeout(deadline_ns, connection)
                connection.execute("COMMIT")

    @contextmanager
    def _open_for_reading(self) -> Iterator[sqlite3.Connection]:
        """The open file; a database without runs if it is missing or empty."""
        deadline_ns = self._clock.monotonic_ns() + self._max_wait_ns
        with self._as_profiler_errors():
            try:
                os.lstat(self.path)  # in a folder that may not be searched, the file may be there
            except FileNotFoundError:
                with _empty_database() as connection:
                    yield connection
                return
            with self._connect() as connection:
                self._set_busy_timeout(deadline_ns, connection)
                # One snapshot: another process may be creating the file.
                connection.execute("BEGIN")
                is_new = self._is_new(connection)
                connection.execute("COMMIT")
                if not is_new:
                    yield connection
            if is_new:
                with _empty_database() as connection:
                    yield connection

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        if not stat.S_ISREG(os.stat(self.path).st_mode):
            raise TaskProfilerError(f"{self.path} is not a file: name another by {self._named_by}.")
        # SQLite never takes an absolute path for a URI or one of its special names.
        with closing(sqlite3.connect(absolute_path(self.path), isolation_level=None)) as connection:
            yield connection

    def _is_new(self, connection: sqlite3.Connection) -> bool:
        """Whether the file is empty. Raises for files of other programs and of newer versions."""
        # SQLite treats a file of a few bytes as empty, and pads an incomplete last page.
        if os.stat(self.path).st_size % _query_int(connection, "PRAGMA page_size"):
            raise TaskProfilerError(
                f"{self.path} {_describe_corruption('it ends in the middle of a page')}"
            )
        version = _query_int(connection, "PRAGMA user_version")
        ours = _query_int(connection, "PRAGMA application_id") == _APPLICATION_ID and version > 0
        if not ours and (
            version != 0 or _query_int(connection, "SELECT count(*) FROM sqlite_master")
        ):
            raise TaskProfilerError(
                f"{self.path} is another program's database and was left untouched: name another "
                f"file by {self._named_by}."
            )
        if version > _VERSION:
            raise TaskProfilerError(
                f"{self.path} was written by a newer Task Profiler (its format is {version}, this "
                f"one knows {_VERSION}) and was left untouched: update Task Profiler, or name "
                f"another file by {self._named_by}."
            )
        return version == 0

    def _set_busy_timeout(self, deadline_ns: int, connection: sqlite3.Connection) -> None:
        """Limit the wait for the next lock to the time left: SQLite's timeout applies to each
        lock separately.
        """
        rest_ms = max(deadline_ns - self._clock.monotonic_ns(), 0) // NS_PER_MS
        connection.execute(f"PRAGMA busy_timeout = {rest_ms}")

    @contextmanager
    def _as_profiler_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise TaskProfilerError(
                f"{self.path} {_describe_error(error, self._named_by)}"
            ) from error
        except OSError as error:
            remedy = f"name another file by {self._named_by}."
            if not isinstance(error, NotADirectoryError):
                remedy = f"make its folder writable, or {remedy}"
            raise TaskProfilerError(
                f"{self.path} cannot be opened ({error.strerror or error}): {remedy}"
            ) from error

    def keep_running(
        self, line: bytes, report: Report, points: bytes, command: str | None = None
    ) -> None:
        """Write down a run in progress of this process, in case that the process is killed."""
        started_ticks = proc.read_stat("/proc/self").started_ticks
        key = report.record.task_id, _sortable_start(report)
        with self._write_transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO running VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*key, os.getpid(), started_ticks, line.decode(), points.decode(), command),
            )

    def add_abandoned_runs(self) -> None:
        """Add the runs of killed profilers, as far as they were written down.

        A failure leaves them for later.
        """
        with suppress(TaskProfilerError):
            for line, report, points, command, is_alive in self._runs_in_progress():
                if not is_alive:
                    self.add_run(line, report, points, command, max_runs=None)

    def _runs_in_progress(self) -> list[tuple[bytes, Report, bytes, str | None, bool]]:
        """The runs in progress: what was written down of each, and whether its profiler is
        alive.
        """
        query = (
            "SELECT CAST(record AS BLOB), CAST(points AS BLOB), command, pid, pid_started FROM "
            "running"
        )
        with self._open_for_reading() as connection:
            rows = connection.execute(query).fetchall()
        runs: list[tuple[bytes, Report, bytes, str | None, bool]] = []
        if rows:
            from profiler.readers.linux.program_names import read_live_name  # mostly none is there
        for line, points, command, pid, pid_started in rows:
            report = _decode_report(line)
            if report is not None:
                is_alive = read_live_name(pid, pid_started) is not None
                runs.append((line, report, points, command, is_alive))
        return runs

    def add_run(
        self,
        line: bytes,
        report: Report,
        points: bytes,
        command: str | None = None,
        *,
        max_runs: int | None,
        stacks_line: bytes | None = None,
    ) -> bool:
        """Add or replace a run, and delete the oldest beyond ``max_runs``; returns whether others
        are in progress, perhaps abandoned.

        None: a stored run stays, and none goes.
        """
        record = report.record
        key = (report.record.task_id, _sortable_start(report))
        stacks = None
        if stacks_line is not None:
            import zlib  # most runs have no stacks

            stacks = zlib.compress(stacks_line)
        values = (
            *key,
            record.family,
            record.status,
            line.decode(),
            points.decode(errors="replace"),
            command,
            stacks,
        )
        on_conflict = "IGNORE" if max_runs is None else "REPLACE"
        with self._write_transaction() as connection:
            insertion = f"INSERT OR {on_conflict} INTO run"
            connection.execute(f"{insertion} VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            connection.execute("DELETE FROM running WHERE task_id = ? AND started_at = ?", key)
            if stacks_line is not None:
                connection.execute(
                    "UPDATE run SET stacks = NULL WHERE id IN (SELECT id FROM run WHERE stacks "
                    "IS NOT NULL ORDER BY started_at DESC, id DESC LIMIT -1 OFFSET ?)",
                    (MAX_RUNS_WITH_STACKS,),
                )
            if max_runs is not None:
                connection.execute(
                    "DELETE FROM run WHERE id IN (SELECT id FROM run"
                    " WHERE id <> (SELECT id FROM run WHERE task_id = ? AND started_at = ?)"
                    " ORDER BY started_at DESC, id DESC LIMIT -1 OFFSET ?)",
                    (*key, max_runs - 1),
                )
            return bool(_query_int(connection, "SELECT EXISTS (SELECT 1 FROM running)"))

    def delete_runs(self, ids: Iterable[str]) -> int:
        """Delete runs by their ids or beginnings of them, or none if one is unknown or ambiguous.

        Returns how many.
        """
        count = 0
        if not os.path.lexists(self.path):
            raise TaskProfilerError(f"There is no history {self.path}: nothing was deleted.")
        with self._write_transaction() as connection:
            for text in map(without_surrogates, ids):
                query = (
                    "SELECT DISTINCT task_id FROM run WHERE instr(task_id, ?) = 1 ORDER BY "
                    "task_id <> ? LIMIT 2"
                )
                task_ids: list[str] = []
                if text:
                    task_ids = _first_column(connection.execute(query, (text, text)))
                if not task_ids:
                    raise TaskProfilerError(f"No run {text!r} in {self.path}: nothing was deleted.")
                if len(task_ids) > 1 and task_ids[0] != text:
                    raise TaskProfilerError(
                        f"The ids of several runs in {self.path} begin with {text!r}: give more "
                        "of the id. Nothing was deleted."
                    )
                deleted = connection.execute("DELETE FROM run WHERE task_id = ?", task_ids[:1])
                count += deleted.rowcount
        return count

    def candidate_rows(self, selection: "RunFilter") -> Iterator[tuple[bytes, Report, str | None]]:
        """Past runs, newest first: lines, reports, redacted commands.

        The caller filters by what the table lacks.
        """
        condition, words = _sql_conditions(selection)
        # SQLite cannot compare bytes that are not UTF-8, and no text in the history has any.
        values = tuple(map(without_surrogates, words))
        query = (
            # Made of constants.
            "SELECT started_at, id, CAST(record AS BLOB), command FROM run"  # noqa: S608
            f" WHERE (started_at, id) < (?, ?){condition}"
            f" ORDER BY started_at DESC, id DESC LIMIT {_PAGE_SIZE}"
        )
        with self._open_for_reading() as connection:
            last: tuple[str, int] = ("~", 0)  # this text sorts after every time
            while True:
                page = connection.execute(query, (*last, *values)).fetchall()
                for _, _, line, command in page:
                    report = _decode_report(line)
                    if report is None:
                        self.unreadable_count += 1
                    else:
                        yield line, report, command
                if len(page) < _PAGE_SIZE:
                    return
                last = page[-1][:2]

    def runs_in_progress(self) -> Iterator[tuple[Report, str | None]]:
        """The runs in progress on this machine, as checkpoints, and their redacted command
        lines.
        """
        for _, report, _, command, is_alive in self._runs_in_progress():
            if is_alive:
                yield _as_checkpoint(report, self._clock.wall_ns()), command

    def family_names_and_run_ids(self, beginning: str, most: int) -> tuple[list[str], list[str]]:
        """The families and the ids of runs with this beginning: the newest, at most ``most`` of
        each.
        """
        of_families = (
            "SELECT family FROM run WHERE instr(family, ?) = 1 GROUP BY family"
            " ORDER BY max(started_at) DESC LIMIT ?"
        )
        of_ids = (
            "SELECT task_id FROM run WHERE instr(task_id, ?) = 1 ORDER BY started_at DESC LIMIT ?"
        )
        with self._open_for_reading() as connection:
            families = _first_column(connection.execute(of_families, (beginning, most)))
            ids = _first_column(connection.execute(of_ids, (beginning, most)))
        return families, ids

    def last_successes(self, family: str, before: str) -> Iterator[Report]:
        """The successes of a family that started before a time, newest first, among the newest
        2,000 runs.
        """
        with self._open_for_reading() as connection:
            for (line,) in connection.execute(_LAST_SUCCESSES, (family, before)):
                report = _decode_report(line)
                if report is not None:
                    yield report

    def last_metrics(self, family: str, before: str) -> Mapping[str, object] | None:
        """The metrics of the newest of :meth:`last_successes` as they were written, perhaps
        impossible ones; None if they are not known.

        The first report takes 3 ms to decode; without its types, a line takes none.
        """
        with self._open_for_reading() as connection:
            row = connection.execute(_LAST_SUCCESSES, (family, before)).fetchone()
        if row is None:
            return None
        with suppress(msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError):
            metrics = msgspec.json.decode(row[0])["record"]["metrics"]
            return metrics if isinstance(metrics, dict) else None
        return None

    def steps(self, reports: Iterable[Report]) -> "Iterator[StepSeries]":
        """The time series of each run; empty if it is not stored (any more)."""
        from profiler.runs.step_series import StepSeries, decode_steps  # not to add a run

        for text in self._column_of_runs("points", reports):
            steps = StepSeries()
            if text is not None:
                with suppress(msgspec.DecodeError, UnicodeDecodeError):
                    steps = decode_steps(text)
            yield steps

    def stacks(self, report: Report) -> "StacksLine | None":
        """The call stacks of a run; None if the run has none (any more), or if they are damaged."""
        import zlib

        from profiler.record.stacks_line import decode_stacks_line  # most runs have none

        (compressed,) = self._column_of_runs("stacks", [report])
        if compressed is None:
            return None
        with suppress(zlib.error):
            return decode_stacks_line(
                zlib.decompressobj().decompress(compressed, _MAX_STACKS_BYTES)
            )
        return None

    def _column_of_runs(self, name: str, reports: Iterable[Report]) -> Iterator[bytes | None]:
        # Our own names.
        selection = f"SELECT CAST({name} AS BLOB) FROM run"  # noqa: S608
        query = f"{selection} WHERE task_id = ? AND started_at = ?"
        with self._open_for_reading() as connection:
            for report in reports:
                key = (report.record.task_id, _sortable_start(report))
                row = connection.execute(query, key).fetchone()
                yield row[0] if row else None


@contextmanager
def _empty_database() -> Iterator[sqlite3.Connection]:
    """A database in memory."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in _SCHEMA:
            connection.execute(statement)
        yield connection


def _first_column(rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [row[0] for row in rows]


def _decode_report(line: bytes) -> Report | None:
    from profiler.core.json_fields import decoded_or_none  # not to add a run

    return decoded_or_none(decode, line)


def _query_int(connection: sqlite3.Connection, question: str) -> int:
    return int(connection.execute(question).fetchone()[0])


def _describe_corruption(how: str) -> str:
    return (
        f"is damaged or not a history ({how}) and was left untouched: move it away, and the next "
        "run creates a new one."
    )


def _describe_error(error: sqlite3.Error, named_by: str) -> str:
    # The lowest byte is the primary code. Errors of the Python module itself have no code.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return _describe_corruption(str(error))
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return (
            f"was kept locked by another process for {LOCK_TIMEOUT_SECONDS} s: end that process, "
            "or try again later."
        )
    if code == sqlite3.SQLITE_FULL:
        return (
            f"has no room ({error}): free some space on its disk, or name a file on another by "
            f"{named_by}."
        )
    if code == sqlite3.SQLITE_IOERR:
        return (
            f"cannot be written or read ({error}): check its disk and the largest size of a file "
            f"(ulimit -f), or name a file on another disk by {named_by}."
        )
    return (
        f"cannot be used ({error}): make it and its folder writable, or name another file by "
        f"{named_by}."
    )


def _sortable_start(report: Report) -> str:
    """The start in UTC with milliseconds (RFC 3339), so that the text order is the time order."""
    return report.record.started_at or report.time


def _as_checkpoint(report: Report, now_ns: int) -> Report:
    """The run of a killed profiler, as far as it was written down, as a checkpoint."""
    record = report.record
    monitor = replace(record.monitor, warnings=record.monitor.warnings[:-1])  # "was killed"
    metrics = replace(record.metrics, duration_ms=span_ms(record.started_ns, now_ns))
    interval = Interval()
    if record.series is not None:
        interval = Interval(
            vcpu_used=_newest_value(record.series.vcpu_used),
            memory_used_mb=_newest_value(record.series.memory_used_mb),
        )
    record = replace(
        record,
        status="running",
        finished_at=None,
        monitor=absent_if_empty(monitor, NO_MONITOR),
        metrics=metrics,
        interval=interval,
    )
    return replace(report, type="task.checkpoint", record=record)


def _newest_value(values: Sequence[float | None] | None) -> Distribution:
    for value in reversed(values or ()):
        if value is not None:
            return Distribution(avg=value)
    return NOT_MEASURED


def _sql_conditions(selection: "RunFilter") -> tuple[str, tuple[str, ...]]:
    """The SQL after the first condition, and its values."""
    text = ""
    values: list[str] = []
    if selection.families:
        text += f" AND ({' OR '.join(['family GLOB ?'] * len(selection.families))})"
        values += map(_sqlite_glob, selection.families)
    # A status of a newer version counts as unknown, and is stored unchanged.
    if selection.statuses and "unknown" not in selection.statuses:
        text += f" AND ({' OR '.join(['status = ?'] * len(selection.statuses))})"
        values += selection.statuses
    if selection.since_ns is not None:
        text += " AND started_at >= ?"
        values.append(format_ms(selection.since_ns))
    if selection.until_ns is not None:
        text += " AND started_at < ?"
        values.append(format_ms(-(-selection.until_ns // NS_PER_MS) * NS_PER_MS))
    if selection.run:
        text += " AND (instr(task_id, ?) = 1 OR family GLOB ? OR instr(record, ?) > 0)"
        # The part after the slash is a container, which is not a column; nor is a job's id.
        job_id = f'"jobId":"{selection.run}'
        values += (selection.run.partition("/")[0], _sqlite_glob(selection.run), job_id)
    return text, tuple(values)


def _sqlite_glob(pattern: str) -> str:
    """A shell pattern for SQLite, which negates a character set with ^, the shell with !."""
    return pattern.replace("[!", "[^")

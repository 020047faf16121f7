"""The history's file: an SQLite database that may be shared, missing, locked, old, new or broken.

The rollback journal is kept on purpose (no write-ahead log): it works on network file systems,
where WAL's shared memory does not, and leaves a single file behind. Every write is one short
transaction that begins by taking the write lock, so concurrent writers queue up.

sqlite3 is imported with this module, so this module is imported when the history is needed.
"""

import os
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from profiler.clock import Clock
from profiler.errors import TaskProfilerError
from profiler.times import NS_PER_MS, NS_PER_SECOND

_LOCK_TIMEOUT_SECONDS = 5
_APPLICATION_ID = 0x5450_4846  # "TPHF": tells our files from other programs' databases
# One entry a version: what leads to it from the version before. Never change an entry that was released.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        f"PRAGMA application_id = {_APPLICATION_ID}",
        """CREATE TABLE run (
            id INTEGER PRIMARY KEY,
            task_id TEXT NOT NULL,
            started_at TEXT NOT NULL,
            family TEXT,
            status TEXT NOT NULL,
            record TEXT NOT NULL,
            points TEXT NOT NULL,
            UNIQUE (task_id, started_at)
        )""",
        "CREATE INDEX run_by_start ON run (started_at)",
    ),
)
_PRIMARY_CODE_MASK = 0xFF
_CORRUPT_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_LOCKED_CODES = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_INACCESSIBLE_CODES = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM})


class HistoryDatabase:
    """Opens the file. All trouble is a TaskProfilerError: a sentence that says what to do."""

    def __init__(self, path: Path, clock: Clock, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
        self._path = path
        self._clock = clock
        self._migrations = migrations

    @contextmanager
    def write_transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction on the file, which is made if it is missing. Waits at most 5 s for others, in all."""
        deadline_ns = self._clock.monotonic_ns() + _LOCK_TIMEOUT_SECONDS * NS_PER_SECOND
        with self._as_profiler_errors():
            _create_private(self._path)
            with self._connect() as connection:
                self._begin_write(connection, deadline_ns)
                yield connection
                self._set_busy_timeout(deadline_ns, connection)
                connection.execute("COMMIT")

    @contextmanager
    def open_for_reading(self) -> Iterator[sqlite3.Connection | None]:
        """The file as it is, brought up to date first if it is an older version's; None if it is missing."""
        deadline_ns = self._clock.monotonic_ns() + _LOCK_TIMEOUT_SECONDS * NS_PER_SECOND
        with self._as_profiler_errors():
            if _is_missing(self._path):
                yield None
                return
            with self._connect() as connection:
                self._set_busy_timeout(deadline_ns, connection)
                connection.execute("BEGIN")  # one view of the file: somebody may be making it just now
                version = self._version(connection)
                connection.execute("COMMIT")
                if version < len(self._migrations):
                    self._begin_write(connection, deadline_ns)
                    connection.execute("COMMIT")
                yield connection

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        if not stat.S_ISREG(self._path.stat().st_mode):
            raise TaskProfilerError(f"{self._path} is not a file: name another with --history.")
        # An absolute path is never taken for a URI or for SQLite's special names.
        with closing(sqlite3.connect(self._path.absolute(), isolation_level=None)) as connection:
            yield connection

    def _begin_write(self, connection: sqlite3.Connection, deadline_ns: int) -> None:
        """Take the write lock and bring the schema up to date. What is not committed is undone by closing."""
        self._set_busy_timeout(deadline_ns, connection)
        connection.execute("BEGIN IMMEDIATE")
        version = self._version(connection)
        for statements in self._migrations[version:]:
            for statement in statements:
                connection.execute(statement)
        if version < len(self._migrations):
            connection.execute(f"PRAGMA user_version = {len(self._migrations)}")

    def _version(self, connection: sqlite3.Connection) -> int:
        """The file's version, 0 if it is empty. Another program's and a newer version's file is left alone."""
        # SQLite takes a few bytes for an empty file, and fills up a last page that was cut.
        if self._path.stat().st_size % _query_int(connection, "PRAGMA page_size"):
            raise TaskProfilerError(f"{self._path} {_describe_corruption('it ends in the middle of a page')}")
        version = _query_int(connection, "PRAGMA user_version")
        ours = _query_int(connection, "PRAGMA application_id") == _APPLICATION_ID and version > 0
        if not ours and (version != 0 or _query_int(connection, "SELECT count(*) FROM sqlite_master")):
            raise TaskProfilerError(
                f"{self._path} is another program's database and was left untouched: name another file with --history."
            )
        if version > len(self._migrations):
            raise TaskProfilerError(
                f"{self._path} was written by a newer Task Profiler (its version is {version}, this one knows "
                f"{len(self._migrations)}) and was left untouched: update Task Profiler, or name another file with "
                "--history."
            )
        return version

    def _set_busy_timeout(self, deadline_ns: int, connection: sqlite3.Connection) -> None:
        """SQLite waits anew at every lock; this makes it one wait for all."""
        rest_ms = max(deadline_ns - self._clock.monotonic_ns(), 0) // NS_PER_MS
        connection.execute(f"PRAGMA busy_timeout = {rest_ms}")

    @contextmanager
    def _as_profiler_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise TaskProfilerError(f"{self._path} {_describe_error(error)}") from error
        except OSError as error:
            raise TaskProfilerError(
                f"{self._path} cannot be opened ({error.strerror or error}): make its folder writable, or name another "
                "file with --history."
            ) from error


def _is_missing(path: Path) -> bool:
    """Nothing has that name. A link to nowhere has, and a folder that may not be searched is trouble (OSError)."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    return False


def _create_private(path: Path) -> None:
    """Make the file and the folders that are missing, for this user alone."""
    for folder in reversed([folder for folder in path.absolute().parents if not folder.exists()]):
        folder.mkdir(mode=0o700, exist_ok=True)
    with suppress(FileExistsError):
        # Only when it is missing: closing a file that SQLite has open in this process would drop its locks.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _query_int(connection: sqlite3.Connection, question: str) -> int:
    return int(connection.execute(question).fetchone()[0])


def _describe_corruption(how: str) -> str:
    return f"is damaged or no history ({how}) and was left untouched: move it away, and the next run begins anew."


def _describe_error(error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", None)  # Python's own complaints have none
    primary = None if code is None else code & _PRIMARY_CODE_MASK
    if primary in _CORRUPT_CODES:
        return _describe_corruption(str(error))
    if primary in _LOCKED_CODES:
        return (
            f"was kept locked by another process for {_LOCK_TIMEOUT_SECONDS} s: end that process, or try again later."
        )
    if primary in _INACCESSIBLE_CODES:
        return (
            f"cannot be opened or written ({error}): make it and its folder writable, or name another with --history."
        )
    if primary == sqlite3.SQLITE_FULL:
        return f"cannot grow ({error}): make room, or name a file elsewhere with --history."
    return f"cannot be used ({error}): name another file with --history."

"""Runs in progress: each has a file in a folder next to the history, so that a killed profiler does not lose the run.

The profiler replaces its file from time to time and removes it when the run is in the history. It holds a lock on the
file meanwhile. A file without a lock belongs to a profiler that was killed: whoever finds it adds the run to the
history.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock

from msgspec import Struct

from profiler.core.files import create_private_folders

_FOLDER_SUFFIX = ".running"
_FILE_SUFFIX = ".run"
_NEW_SUFFIX = ".new"
_FILE_MODE = 0o600
_MAX_FILE_BYTES = 16 * 2**20


class WrittenRun(Struct, frozen=True):
    """The written part of a run: its record line, and the encoded points of its time series."""

    line: bytes
    points: bytes


def running_folder(history: str) -> str:
    """The folder of the runs in progress of a history file."""
    return history + _FOLDER_SUFFIX


class RunJournal:
    """The file of one run in progress. Methods raise OSError; a failure leaves the last complete file in place."""

    def __init__(self, folder: str, run_id: str) -> None:
        self._folder = folder
        self._path = f"{folder}/{run_id}{_FILE_SUFFIX}"
        self._descriptor: int | None = None

    def write(self, run: WrittenRun) -> None:
        """Replace the file as a whole. The new file is locked before it has the name that others look for."""
        create_private_folders(self._folder)
        new_path = self._path + _NEW_SUFFIX
        descriptor = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE_MODE)
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
            data = memoryview(run.line + b"\n" + run.points)
            while data:
                data = data[os.write(descriptor, data) :]
            os.rename(new_path, self._path)
        except OSError:
            os.close(descriptor)
            with suppress(OSError):
                os.unlink(new_path)
            raise
        self._close()
        self._descriptor = descriptor

    def remove(self) -> None:
        """Remove the file, and the folder if it is empty."""
        if self._descriptor is not None:
            os.unlink(self._path)
            self._close()
            with suppress(OSError):
                os.rmdir(self._folder)

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def abandoned_runs(folder: str) -> Iterator[tuple[str, WrittenRun | None]]:
    """The files of killed profilers, for the caller to remove, with their runs; None: the file holds no run.

    No other process can use the same file at the same time.
    """
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        if name.endswith((_FILE_SUFFIX, _NEW_SUFFIX)):
            path = f"{folder}/{name}"
            with _claim(path) as descriptor:
                if descriptor is not None:
                    yield path, _read(descriptor) if name.endswith(_FILE_SUFFIX) else None


def living_runs(folder: str) -> Iterator[WrittenRun]:
    """The runs whose profiler still runs, as far as they were stored."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(_FILE_SUFFIX))
    except OSError:
        return
    for name in names:
        with _claim(f"{folder}/{name}") as unused:
            if unused is not None:
                continue
        with suppress(OSError), open(f"{folder}/{name}", "rb", buffering=0) as file:
            run = _read(file.fileno())
            if run is not None:
                yield run


@contextmanager
def _claim(path: str) -> Iterator[int | None]:
    """Lock a file; None if its profiler runs. Between opening and locking, the profiler may have replaced the file."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        yield None
        return
    try:
        yield descriptor if _is_unlocked(descriptor, path) else None
    finally:
        os.close(descriptor)


def _is_unlocked(descriptor: int, path: str) -> bool:
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def _read(descriptor: int) -> WrittenRun | None:
    try:
        line, newline, points = os.read(descriptor, _MAX_FILE_BYTES).partition(b"\n")
    except OSError:
        return None
    return WrittenRun(line, points) if newline else None

"""The file of ``run --output``: opened before the command starts, written after its end."""

import os
from stat import S_ISREG

from profiler.core.deadline_writer import Output
from profiler.core.errors import UsageError
from profiler.core.files import STANDARD_OUTPUT, dup_above_standard_streams, open_or_none

# Without O_NONBLOCK, opening a pipe without a reader would block forever.
_APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
_STDOUT = 1
_STDOUT_PATH = "/dev/stdout"


class ReportFile:
    """A wrong path is refused before the command starts: raises UsageError.

    The command may remove or replace the file, as ``make clean`` does. Then the report is appended
    to the file that has its name at the end, which is made if there is none.

    A hyphen is standard output, which the command shares: the report follows its output.
    """

    def __init__(self, path: str, patience_seconds: float) -> None:
        self._path = _STDOUT_PATH if path == STANDARD_OUTPUT else path
        self._patience_seconds = patience_seconds
        try:
            self._descriptor = _open(self._path)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise UsageError(
                f"--output {path} cannot be written ({reason}): choose another file."
            ) from error

    def append(self, lines: bytes) -> str | None:
        """Write whole lines at the end; returns why that failed, as part of a sentence."""
        if self._is_replaced():
            try:
                replacement = _open(self._path)
            except OSError as error:
                return (
                    "was removed or moved by the command, and cannot be created again "
                    f"({error.strerror or error})"
                )
            os.close(self._descriptor)
            self._descriptor = replacement
        begin = b"\n" if self._ends_within_a_line() else b""
        return Output(self._descriptor, self._patience_seconds).write(begin + lines)

    def _is_replaced(self) -> bool:
        opened = os.fstat(self._descriptor)
        if not S_ISREG(opened.st_mode):
            return False
        try:
            named = os.stat(self._path)  # noqa: PTH116  `run` does not import pathlib
            return not os.path.samestat(opened, named)
        except OSError:
            return True

    def _ends_within_a_line(self) -> bool:
        """Whether another writer was killed before it had written its line to the end."""
        status = os.fstat(self._descriptor)
        if not S_ISREG(status.st_mode) or not status.st_size:
            return False
        reading = open_or_none(self._path)
        if reading is None:  # a file that may be written, and not read
            return False
        try:
            return os.pread(reading, 1, status.st_size - 1) not in (b"\n", b"")
        finally:
            os.close(reading)


def _open(path: str) -> int:
    if path == _STDOUT_PATH:  # opened anew, it would have a position of its own in its file
        return dup_above_standard_streams(os.dup(_STDOUT))
    opened = os.open(path, _APPENDING, 0o666)
    os.set_blocking(opened, True)
    return dup_above_standard_streams(opened)

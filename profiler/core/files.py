"""Files: descriptors that stay open, atomic writes, and the data folders of the package."""

import errno
import os
import sys
from contextlib import suppress
from fcntl import F_DUPFD_CLOEXEC, fcntl
from stat import S_IMODE
from typing import TYPE_CHECKING

from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import known_values

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import BinaryIO

# No person and no API writes a longer text, and a device may never end.
MAX_TEXT_BYTES = 64 * 2**20
STANDARD_OUTPUT = "-"  # as the name of a file
_LAST_STANDARD_STREAM = 2
# The wheel ships these folders of the repository as ``profiler/shipped/NAME``.
_IN_REPOSITORY = {"forwarder": "lambda", "image": "taskdef", "kibana": "kibana"}


def dup_above_standard_streams(descriptor: int) -> int:
    """A descriptor of the file above the standard streams, which the caller may have closed: the
    given one, or a duplicate instead of it.
    """
    if descriptor > _LAST_STANDARD_STREAM:
        return descriptor
    try:
        return fcntl(descriptor, F_DUPFD_CLOEXEC, _LAST_STANDARD_STREAM + 1)
    finally:
        os.close(descriptor)


def open_or_none(path: "str | Path", flags: int = os.O_RDONLY) -> int | None:
    """Open a file that stays open; None if it cannot be opened."""
    try:
        return dup_above_standard_streams(os.open(path, flags))
    except OSError:
        return None


def standard_input() -> "BinaryIO":
    """The bytes of standard input. Raises OSError if the caller has closed it."""
    if sys.stdin is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return sys.stdin.buffer


def read_text_file(file: "BinaryIO", name: str, content: str) -> bytes:
    """Read a file of this content. Raises TaskProfilerError if it is too large, as a device that
    never ends; OSError.
    """
    data = file.read(MAX_TEXT_BYTES + 1)
    if len(data) > MAX_TEXT_BYTES:
        raise TaskProfilerError(f"{name} has more than 64 MB: name the file of {content}.")
    return data


def close_files(descriptors: "Iterable[int | None]") -> None:
    """Close the files of :func:`open_or_none`, as far as they could be opened."""
    for descriptor in known_values(descriptors):
        os.close(descriptor)


def find_program(name: str, first_folder: str, search_path: str | None) -> str | None:
    """The path of an executable file in a folder, else in the absolute folders of
    ``search_path`` (as in PATH).
    """
    folders = (first_folder, *(search_path or "").split(os.pathsep))
    paths = (f"{folder.rstrip('/')}/{name}" for folder in folders if folder.startswith("/"))
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)


def absolute_path(path: str) -> str:
    """The path from the root, without a look at the current folder if it begins there: that folder
    may have been removed.

    Raises OSError.
    """
    return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)


def create_private_folders(folder: str) -> None:
    """Create a folder and the missing ones above it, accessible for this user only.

    Raises OSError.
    """
    missing = []
    current = absolute_path(folder)
    while not os.path.exists(current):
        missing.append(current)
        current = os.path.dirname(current)
    for path in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)


def write_atomically(path: "Path", data: bytes, *, mode: int | None = None) -> None:
    """Replace the contents of a file with ``data``, entirely or not at all; write to a pipe.

    ``mode`` None: an existing file keeps its permissions; a new one has those of the user's umask.
    Raises OSError.
    """
    from pathlib import Path  # slow to import, as the next one, and `run` imports this module
    from tempfile import NamedTemporaryFile

    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as stream:
        try:
            stream.write(data)
            stream.flush()
            Path(stream.name).chmod(_permissions(path) if mode is None else mode)
            Path(stream.name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(stream.name).unlink()
            raise


def _permissions(path: "Path") -> int:
    """The permissions of a file; of one that does not exist, those that the umask leaves."""
    try:
        return S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        umask = os.umask(0o077)  # it cannot be read otherwise
        os.umask(umask)
        return 0o666 & ~umask


def package_data_folder(name: str, *, what: str) -> "Path":
    """Find a data folder, in an installation or in the repository.

    Raises TaskProfilerError, which begins: ``what``.
    """
    from pathlib import Path  # not for `run`

    package = Path(__file__).resolve().parents[1]
    for folder in (package / "shipped" / name, package.parent / _IN_REPOSITORY[name]):
        if folder.is_dir():
            return folder
    raise TaskProfilerError(f"{what} missing from this installation: install the package again.")

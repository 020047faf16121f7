"""Files: descriptors above the standard streams, atomic replacement, and the data folders of the package."""

import os
from contextlib import suppress
from fcntl import F_DUPFD_CLOEXEC, fcntl
from pathlib import Path

from profiler.core.errors import TaskProfilerError

_FIRST_NON_STANDARD = 3
# The wheel ships these folders of the repository as ``profiler/shipped/NAME``.
_IN_REPOSITORY = {"forwarder": "lambda/forwarder", "kibana": "kibana"}


def dup_above_standard_streams(descriptor: int) -> int:
    """The same open file, not under the number of a standard stream: one that the caller closed stays closed."""
    try:
        return fcntl(descriptor, F_DUPFD_CLOEXEC, _FIRST_NON_STANDARD)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes, *, mode: int) -> None:
    """Put ``data`` in the file's place, with the permissions ``mode``; pipes and devices are written to.

    Raises OSError.
    """
    from tempfile import NamedTemporaryFile  # heavy, and `run` imports this module

    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as stream:
        try:
            stream.write(data)
            stream.flush()
            Path(stream.name).chmod(mode)
            Path(stream.name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(stream.name).unlink()
            raise


def package_data_folder(name: str, *, what: str) -> Path:
    """Find the folder ``name`` in an installation or in the repository.

    Args:
        name: ``forwarder``, the forwarder's package, or ``kibana``.
        what: Subject and verb of the error sentence.

    Raises:
        TaskProfilerError: if the installation lacks the folder.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "shipped" / name, package.parent / _IN_REPOSITORY[name]):
        if folder.is_dir():
            return folder
    raise TaskProfilerError(f"{what} missing from this installation: install the package again.")

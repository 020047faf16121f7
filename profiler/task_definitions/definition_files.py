"""Files with task definitions: reads and writes them."""

import stat
from pathlib import Path

from profiler.core.errors import TaskProfilerError
from profiler.core.files import write_atomically


def read_bytes(path: Path) -> bytes:
    """Read the file. Raises TaskProfilerError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise TaskProfilerError(
            f"{path} cannot be read ({error.strerror}): name the file of a task definition."
        ) from error


def write_definition(path: Path, content: bytes, *, remedy: str) -> None:
    """Replace the file, with its permissions, also behind a link. Raises TaskProfilerError with the remedy."""
    try:
        target = path.resolve()
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o644
        write_atomically(target, content, mode=mode)
    except OSError as error:
        raise TaskProfilerError(f"{path} cannot be written ({error.strerror}): {remedy}.") from error

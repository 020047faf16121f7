"""A file that is replaced as a whole: whoever reads the old one keeps it, and no half of a new one is ever seen."""

from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile


def write_atomically(path: Path, data: bytes, *, mode: int) -> None:
    """Put ``data`` in the file's place, with the permissions ``mode``; pipes and devices are written to.

    Raises OSError.
    """
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

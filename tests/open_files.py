"""The files that this process has open, for tests of what is closed again."""

from contextlib import suppress
from pathlib import Path


def open_files(start: Path | str = "") -> set[tuple[str, str]]:
    """The descriptors whose link starts with this, with their links: those of other tests may
    close at any time.
    """
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the listing itself
            found.add((entry.name, str(entry.readlink())))
    return {(descriptor, link) for descriptor, link in found if link.startswith(str(start))}

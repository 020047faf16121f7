"""A pipe that a test leaves unread."""

import os
from contextlib import suppress
from typing import Self


class Pipe:
    """A pipe with both ends in this process."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        self._filled = 0

    def fill(self) -> None:
        """Write until a further byte would block."""
        os.set_blocking(self.write_end, False)
        try:
            while True:
                self._filled += os.write(self.write_end, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(self.write_end, True)

    def drop_filling(self) -> None:
        """Read what :meth:`fill` has written."""
        while self._filled:
            self._filled -= len(os.read(self.read_end, self._filled))

    def read_lines(self) -> list[bytes]:
        """Read what is in the pipe."""
        os.set_blocking(self.read_end, False)
        found = b""
        with suppress(BlockingIOError):
            while chunk := os.read(self.read_end, 1 << 20):
                found += chunk
        return found.splitlines()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        os.close(self.read_end)
        os.close(self.write_end)

"""Pipes that a test leaves unread, programs on new terminals, and what these show."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Self

from profiler.cli.styled_text import Line
from tools.waiting import LIMIT_SECONDS


class Pipe:
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


def texts(lines: Iterable[Line]) -> list[str]:
    return ["".join(span.text for span in one).rstrip() for one in lines]


def open_terminal(columns: int = 80) -> tuple[int, int]:
    """Both ends of a new terminal with 24 rows."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    return ours, theirs


def shown_on_terminal(
    words: Sequence[str],
    environment: Mapping[str, str],
    *,
    stdout: int | None = None,
    columns: int = 80,
) -> tuple[str, int]:
    """What a terminal shows that is standard error, and standard output unless that is given;
    and the exit code.
    """
    ours, theirs = open_terminal(columns)
    process = subprocess.Popen(
        words,
        stdin=theirs,
        stdout=theirs if stdout is None else stdout,
        stderr=theirs,
        env=environment,
    )
    os.close(theirs)
    text = read_all(ours)
    os.close(ours)
    return text.decode().replace("\r\n", "\n"), process.wait()


def fork_on_terminal(words: tuple[str, ...], inherited: int | None = None) -> tuple[int, int]:
    """A program as the leader and foreground job of a new terminal: its process id and the
    terminal.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        if inherited is not None:
            os.set_inheritable(inherited, True)  # noqa: FBT003
        os.execv(words[0], words)
    return pid, terminal


def is_readable(descriptor: int, seconds: float) -> bool:
    """Wait until a terminal or a pipe can be read, also one above 1023, where select(2) ends."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


def read_until(descriptor: int, wanted: bytes) -> bytes:
    """What a terminal or a pipe shows up to that."""
    seen = b""
    deadline = time.monotonic() + LIMIT_SECONDS
    while wanted not in seen:
        assert is_readable(descriptor, max(deadline - time.monotonic(), 0)), seen
        text = os.read(descriptor, 1)
        assert text, seen
        seen += text
    return seen


def read_all(terminal: int) -> bytes:
    """What a terminal shows until the last process has closed it."""
    seen = b""
    with suppress(OSError):  # the last process has closed the terminal
        while text := os.read(terminal, 65536):
            seen += text
    return seen

"""Programs on new terminals, and what these show."""

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

from profiler.cli.styled_text import Line

_LIMIT_SECONDS = 60


def texts(lines: Iterable[Line]) -> list[str]:
    """The lines without their styles."""
    return ["".join(span.text for span in one).rstrip() for one in lines]


def open_terminal(columns: int = 80) -> tuple[int, int]:
    """Both ends of a new terminal with 24 rows."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    return ours, theirs


def shown_on_terminal(
    words: Sequence[str], environment: Mapping[str, str], *, columns: int = 80, stdout: int | None = None
) -> tuple[str, int]:
    """What a terminal shows that is standard error, and standard output unless that is given; and the exit code."""
    ours, theirs = open_terminal(columns)
    process = subprocess.Popen(
        words, stdin=theirs, stdout=theirs if stdout is None else stdout, stderr=theirs, env=environment
    )
    os.close(theirs)
    text = read_all(ours)
    os.close(ours)
    return text.decode().replace("\r\n", "\n"), process.wait()


def fork_on_terminal(words: tuple[str, ...], inherited: int | None = None) -> tuple[int, int]:
    """A program as the leader and foreground job of a new terminal: its process id and the terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        if inherited is not None:
            os.set_inheritable(inherited, True)  # noqa: FBT003
        os.execv(words[0], words)
    return pid, terminal


def read_until(descriptor: int, wanted: bytes) -> bytes:
    """What a terminal or a pipe shows up to that."""
    seen = b""
    deadline = time.monotonic() + _LIMIT_SECONDS
    while wanted not in seen:
        ready, _, _ = select.select([descriptor], [], [], max(deadline - time.monotonic(), 0))
        assert ready, seen
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

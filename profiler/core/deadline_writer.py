"""Output that may have no reader: standard output and standard error, files and terminals.

A full pipe blocks every writer, for example while a log driver hangs. Descriptors that are shared
with other processes cannot be made non-blocking. So a thread writes, and its caller waits for it
only briefly.
"""

import os
import signal
import threading
from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct

from profiler.core.background_call import start_thread

if TYPE_CHECKING:
    import select

_NOT_READ = "takes no more bytes because nothing reads it"
# On a busy machine a writer can get its processor late although the output is read.
_MAX_LATE_SECONDS = 2.0
_LOOK_SECONDS = 0.05


class _Block(Struct):
    """Bytes to write together. ``reason`` is why they were not written."""

    data: bytes
    is_kept: bool
    is_done: bool = False
    reason: str | None = None


class Output:
    """Writes blocks of bytes in their order.

    Threads may share it; none of its methods raises an OSError.

    A caller waits at most ``patience_seconds`` for an output that takes no bytes. A block that was
    begun is completed when the output is read again.
    """

    def __init__(self, descriptor: int, patience_seconds: float = 0.25) -> None:
        self._descriptor = descriptor
        self._patience_seconds = patience_seconds
        self._blocks: deque[_Block] = deque()
        self._changed = threading.Condition()
        self._is_writing = False
        self._is_stalled = False
        self._is_at_line_start = True
        self._kept = 0
        self.dropped = 0

    def write(self, data: bytes) -> str | None:
        """Write the block, or drop and count it while nothing reads the output; returns why, as
        part of a sentence.
        """
        with self._changed:
            if self._is_stalled:
                self.dropped += 1
                return _NOT_READ
        return self._add(_Block(data, is_kept=False))

    def keep(self, data: bytes) -> str | None:
        """Write the block, which is not dropped; returns the reason if it is not written yet, or
        cannot be.
        """
        return self._add(_Block(data, is_kept=True))

    def drain(self, max_seconds: float) -> bool:
        """Wait until the blocks of :meth:`keep` are written; returns False if that takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._kept, max(max_seconds, 0))

    def _add(self, block: _Block) -> str | None:
        with self._changed:
            self._blocks.append(block)
            self._kept += block.is_kept
            is_to_start = not self._is_writing
            self._is_writing = True
        if is_to_start and not start_thread(
            threading.Thread(target=self._write_blocks, name="output", daemon=True)
        ):
            self._write_blocks()
        with self._changed:
            if not self._wait_for(block):
                self._is_stalled = True
                return _NOT_READ
        return block.reason

    def _wait_for(self, block: _Block) -> bool:
        """Wait for the block while the output may be read; returns False if it is not done."""
        if self._is_stalled:
            return block.is_done
        is_done = self._changed.wait_for(lambda: block.is_done, self._patience_seconds)
        if not is_done:
            poll = self._poll()
            for _ in range(round(_MAX_LATE_SECONDS / _LOOK_SECONDS)):
                if is_done or not poll.poll(0):
                    break
                is_done = self._changed.wait_for(lambda: block.is_done, _LOOK_SECONDS)
        return is_done

    def _poll(self) -> "select.poll":
        """Tells whether the output takes bytes."""
        import select  # rarely used, and `run` imports this module

        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return poll

    def _write_blocks(self) -> None:
        # In the background of a terminal with `stty tostop`, writing would stop this process.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTTOU,))
        while True:
            with self._changed:
                if not self._blocks:
                    self._is_writing = False
                    return
                block = self._blocks.popleft()
            reason = self._write_all(block.data)
            with self._changed:
                block.reason = reason
                block.is_done = True
                self._is_stalled = False
                self._kept -= block.is_kept
                self._changed.notify_all()

    def _write_all(self, data: bytes) -> str | None:
        rest = memoryview(data if self._is_at_line_start else b"\n" + data)
        length = len(rest)
        try:
            while rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except BlockingIOError:
                    # The caller of this program made the descriptor non-blocking.
                    self._poll().poll()
        except OSError as error:
            if 0 < len(rest) < length and _has_removed_end(self._descriptor, length - len(rest)):
                return f"cannot be written ({error.strerror or error})"
            # What follows a block that was cut off begins a new line.
            self._is_at_line_start = self._is_at_line_start and len(rest) == length
            return f"cannot be written ({error.strerror or error})"
        self._is_at_line_start = True
        return None


def _has_removed_end(descriptor: int, size: int) -> bool:
    """Remove the last bytes that this process appended to a file, as on a full disk; False where
    the output is something else, or another process that has opened the file has written since.

    A process that has inherited the descriptor shares its position: what it writes between the
    two writes of this process does not show.
    """
    import fcntl  # rarely used, and `run` imports this module

    try:
        if not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND:
            return False
        end = os.lseek(descriptor, 0, os.SEEK_CUR)
        if os.fstat(descriptor).st_size != end:
            return False
        os.ftruncate(descriptor, end - size)
    except OSError:  # a pipe has no end
        return False
    return True


def standard_outputs() -> tuple[Output, Output]:
    """Standard output and standard error: one object if both are one file, so that their lines
    do not mix.
    """
    output = Output(1)
    try:
        is_one_file = os.path.sameopenfile(1, 2)
    except OSError:  # one of them is closed
        is_one_file = False
    return output, (output if is_one_file else Output(2))

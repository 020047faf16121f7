"""A pause that ends early when a process ends, or when somebody asks for it."""

import os
import select
from collections.abc import Collection


class ExitAlarm:
    """Waits in one thread; :meth:`ring` may be called from any.

    That a process has ended is told by its pidfd (Linux 5.3), which anybody who sees the process
    may have. Where there is none, the pause is only as long as it is.
    """

    def __init__(self) -> None:
        self._bell: int | None = None
        self._processes: dict[int, int] = {}

    def open(self) -> None:
        """Make what is waited on; before this, nothing rings."""
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def watch(self, pids: Collection[int]) -> None:
        """Wake up for these processes, and for no others."""
        for pid in self._processes.keys() - set(pids):
            os.close(self._processes.pop(pid))
        for pid in set(pids) - self._processes.keys():
            try:
                self._processes[pid] = os.pidfd_open(pid)
            except OSError:
                continue

    def wait(self, seconds: float) -> bool:
        """Pause for so long at most; says whether a process has ended. Each wakes up once."""
        poll = select.poll()
        numbers = {descriptor: pid for pid, descriptor in self._processes.items()}
        for descriptor in (*numbers, *(() if self._bell is None else (self._bell,))):
            poll.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(max(seconds, 0) * 1000)]
        for descriptor in ready:
            if descriptor == self._bell:
                os.eventfd_read(descriptor)
            else:
                os.close(self._processes.pop(numbers[descriptor]))
        return any(descriptor in numbers for descriptor in ready)

    def ring(self) -> None:
        """End the pause, or the next one if there is none now."""
        if self._bell is not None:
            os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        """Let go of everything; called from the thread that waits, as its last act."""
        self.watch(())
        bell, self._bell = self._bell, None
        if bell is not None:
            os.close(bell)

"""A pause that ends early when a process ends, or when somebody asks for it."""

import os
import select
from collections.abc import Collection


class ProcessExitWaiter:
    """Waits in one thread; :meth:`wake` may be called from any.

    That a process has ended is told by its pidfd (Linux 5.3), which anybody who sees the process
    may have. Where there is none, the pause is only as long as it is.
    """

    def __init__(self) -> None:
        self._eventfd: int | None = None
        self._pidfds: dict[int, int] = {}

    def open(self) -> None:
        """Make what is waited on; before this, nothing rings."""
        self._eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def watch(self, pids: Collection[int]) -> None:
        """Wake up for these processes, and for no others."""
        for pid in self._pidfds.keys() - set(pids):
            os.close(self._pidfds.pop(pid))
        for pid in set(pids) - self._pidfds.keys():
            try:
                self._pidfds[pid] = os.pidfd_open(pid)
            except OSError:
                continue

    def wait(self, seconds: float) -> bool:
        """Pause for so long at most; says whether a process has ended. Each wakes up once."""
        poll = select.poll()
        numbers = {descriptor: pid for pid, descriptor in self._pidfds.items()}
        for descriptor in (*numbers, *(() if self._eventfd is None else (self._eventfd,))):
            poll.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(max(seconds, 0) * 1000)]
        for descriptor in ready:
            if descriptor == self._eventfd:
                os.eventfd_read(descriptor)
            else:
                os.close(self._pidfds.pop(numbers[descriptor]))
        return any(descriptor in numbers for descriptor in ready)

    def wake(self) -> None:
        """End the pause, or the next one if there is none now."""
        if self._eventfd is not None:
            os.eventfd_write(self._eventfd, 1)

    def close(self) -> None:
        """Let go of everything; called from the thread that waits, as its last act."""
        self.watch(())
        bell, self._eventfd = self._eventfd, None
        if bell is not None:
            os.close(bell)

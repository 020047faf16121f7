"""The most that the threads of a process did after one wait, since any look."""

from collections import deque

from msgspec import Struct, field

# Of so many waits, the last ones, it is known what followed them.
_MAX_WAITS = 16


class _Work(Struct, frozen=True, gc=False):
    """What a thread did after a wait, which the look ``begun`` saw first."""

    work_ns: int
    thread: int
    begun: int


class MostWork(Struct, eq=False):
    """The waits of a process that more work followed than every later one."""

    waits: deque[_Work] = field(default_factory=lambda: deque(maxlen=_MAX_WAITS))

    def add(self, work_ns: int, *, thread: int, begun: int) -> None:
        """Add what followed a wait."""
        while self.waits and self.waits[-1].work_ns <= work_ns:
            self.waits.pop()
        self.waits.append(_Work(work_ns, thread, begun))

    def has_as_much(self, work_ns: int, *, other_than: int, since: int) -> bool:
        """Whether another thread did at least so much after a wait since this look."""
        return any(
            each.work_ns >= work_ns and each.thread != other_than and each.begun >= since
            for each in self.waits
        )

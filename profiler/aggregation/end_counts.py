"""How the waits of a thread have ended so far."""

from msgspec import Struct

# Who waits for times is seldom woken, and who is told by others seldom just at its timeout.
_TIMES_AS_MANY_DUE = 3


class EndCounts(Struct, frozen=True, gc=False):
    """How many waits of a thread for something else than threads are over so far, and how many of
    these ended with waits of threads of its process that work.
    """

    ends: int = 0
    with_workers: int = 0


NO_ENDS = EndCounts()


class TimedEnds(Struct, eq=False):
    """How many waits of a thread for others for a limited time are over so far after which it
    worked as their timeouts ended (``due``), or before (``woken``).
    """

    due: int = 0
    woken: int = 0

    @property
    def are_for_times(self) -> bool:
        """Whether the thread waits for times to come, and hardly ever for others."""
        return self.due > _TIMES_AS_MANY_DUE * self.woken

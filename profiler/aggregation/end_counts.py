"""How the waits of a thread have ended so far."""

from msgspec import Struct

# Who waits for times is seldom woken, and who is told by others seldom just at its timeout.
_TIMES_AS_MANY_DUE = 3
# With more arrivals than this for each timeout, work does not follow timeouts.
_TIMES_AS_MANY_ARRIVALS = 4


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

    @property
    def are_for_others(self) -> bool:
        """Whether others mostly tell the thread before its timeouts."""
        return self.woken > _TIMES_AS_MANY_DUE * self.due


class PollEnds(Struct, eq=False):
    """How many polls of a thread, after which it worked, timeouts certainly ended so far
    (``timeouts``), and how many something that came (``arrivals``): of those for an owed answer, or
    of the others.
    """

    timeouts: int = 0
    arrivals: int = 0

    @property
    def are_arrivals(self) -> bool:
        """Whether hardly any of them was ended by a timeout."""
        return self.arrivals >= max(_TIMES_AS_MANY_ARRIVALS * self.timeouts, 1)

    @property
    def part_of_timeouts(self) -> float | None:
        """The part that timeouts ended; None if hardly any of them, or perhaps all."""
        if self.are_arrivals or not self.arrivals:
            return None
        return self.timeouts / (self.timeouts + self.arrivals)

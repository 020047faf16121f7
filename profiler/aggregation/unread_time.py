"""In which stretches processes ran that nobody read, by the totals of all that have ended."""

from collections.abc import Sequence

from profiler.aggregation.settled_looks import OpenLook
from profiler.aggregation.stretch import Stretch, fill_able_stretches, spread_unread
from profiler.core.timestamps import NS_PER_MS

# CPU time of ended processes is counted in ticks of 10 ms: so much may be counted later or earlier.
_MAX_EARLY_NS = 50 * NS_PER_MS


class UnreadTime:
    """Adds to the stretches of the looks that are not settled what ran in processes that ended
    unread. Until ``total_ns``, this is known.
    """

    def __init__(self, open_looks: Sequence[OpenLook]) -> None:
        self._open = open_looks
        self.total_ns = 0
        self._ended_cpu_ns: int | None = None
        self._early_ns = 0
        self._read_beyond_totals_ns = 0  # of ended processes

    def add_total(self, read_ns: int, ended_cpu_ns: int, read_ended_ns: int, until_ns: int) -> None:
        """Add the CPU time of all processes that have ended so far, and what was read of those that
        have ended since the last call; ``until_ns`` is the last look.
        """
        if self._ended_cpu_ns is None:
            self._ended_cpu_ns = 0
        grown_ns = ended_cpu_ns - self._ended_cpu_ns
        self._ended_cpu_ns = max(ended_cpu_ns, self._ended_cpu_ns)
        unread_ns = self._early_ns + grown_ns - read_ended_ns
        self._early_ns = max(unread_ns, -_MAX_EARLY_NS)
        self._read_beyond_totals_ns += self._early_ns - min(unread_ns, self._early_ns)
        if unread_ns > 0:
            self._early_ns = self._spread_and_return_rest_ns(unread_ns, read_ns, until_ns)
        self.total_ns = read_ns

    def add_unread(self, cpu_ns: int, since_ns: int, until_ns: int) -> None:
        """Add CPU time of processes that nobody read, and that no total has: it ran between these
        moments.
        """
        read_ns = min(cpu_ns, self._read_beyond_totals_ns)
        self._read_beyond_totals_ns -= read_ns
        cpu_ns -= read_ns
        stretches = [look.stretch for look in self._open if look.stretch.end_ns > since_ns]
        left_ns = fill_able_stretches(stretches, cpu_ns)
        spread_unread(stretches, Stretch(until_ns, until_ns), left_ns)

    def _spread_and_return_rest_ns(self, unread_ns: int, read_ns: int, until_ns: int) -> int:
        """Spread what ran in ended processes over the time since the last total, and what finds no
        room there to the stretches before, as that of threads which were rarely read; returns
        what belongs to the next stretch.
        """
        since: list[Stretch] = []
        before: list[Stretch] = []
        for look in self._open:
            stretches = since if look.stretch.end_ns > self.total_ns else before
            stretches.append(look.stretch)
        cpus = self._open[-1].stretch.cpus if self._open else 1
        after = Stretch(until_ns, max(read_ns, until_ns), cpus)
        left_ns = spread_unread(since, after, unread_ns)
        late_ns = left_ns - _MAX_EARLY_NS
        for stretch in reversed(before):
            if late_ns <= 0:
                break
            late_ns = spread_unread((stretch,), Stretch(until_ns, until_ns), late_ns)
        return after.unread_ns + min(left_ns, _MAX_EARLY_NS)

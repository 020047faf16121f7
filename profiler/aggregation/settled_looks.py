"""The looks that are not settled, and the sums of those that are.

A look divides the blocked time before it. One that found a thread able to run says nothing about
it: that time belongs to the nearest look that does.
"""

from collections.abc import Collection, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aggregation.blocked_time import UndividedTime
from profiler.aggregation.changed_waits import ChangedWaits
from profiler.aggregation.gpu_idle_breakdown import IdleTimeByPlace
from profiler.aggregation.recent_waits import RecentWaits
from profiler.aggregation.stretch import Stretch
from profiler.aggregation.thread_wait import ThreadWait
from profiler.aggregation.time_percentages import TimeParts
from profiler.aggregation.wait_attribution import LookDivision, same_certain_wait
from profiler.readers.linux.wait_types import STOPPED, Wait

# So many looks' parts of blocked time wait for the next look: the counters and the looks count the
# same time, but not at the same moments.
_MAX_PARTS_LEFT = 2
# What is left of these at the end of a run is divided as so many of its latest looks are.
_MAX_LATEST = 16


class OpenLook(Struct, eq=False):
    """A look that is not settled, and the stretch before it. It stands for ``part_ns``.

    ``number`` is that of the look, ``shares`` its division as of the last question, None if more
    is known since. ``misses_able``: a thread that could run at the look before was not read.
    """

    stretch: Stretch
    covered_ns: int
    part_ns: int
    change: ChangedWaits
    children: Mapping[int, Collection[int]]
    number: int
    is_stopped: bool = False
    misses_able: bool = False
    shares: Mapping[Wait, float] | None = None

    @property
    def says_nothing(self) -> bool:
        """Whether it says nothing about blocked time."""
        return self.stretch.is_uninformative or self.misses_able


class SettledSums(Struct):
    """What is settled: of the whole time, and of that in which all GPUs were idle.

    ``last`` is the division of the last look that found only blocked threads, or of any look as
    long as there is no such one.
    """

    parts: TimeParts = field(default_factory=TimeParts)
    idle: IdleTimeByPlace = field(default_factory=IdleTimeByPlace)
    recent: RecentWaits = field(default_factory=RecentWaits)
    undivided: UndividedTime = field(default_factory=UndividedTime)
    last: Mapping[Wait, float] = {}
    latest: tuple[tuple[int, Mapping[Wait, float]], ...] = ()
    left_ns: float = 0.0
    has_quiet: bool = False

    def copy(self) -> "SettledSums":
        return replace(
            self,
            parts=self.parts.copy(),
            idle=self.idle.copy(),
            recent=self.recent.copy(),
            undivided=replace(self.undivided),
        )

    def add_look(
        self, look: OpenLook, waits: Collection[ThreadWait], gpu_idle_share: float
    ) -> None:
        """Add a look at which these were the waits, and the stretch before it."""
        is_able = look.says_nothing
        if look.shares is None and not (is_able and self.has_quiet):
            look.shares = _shares_of_look(look, waits)
        shares = look.shares or {}
        if look.stretch.length_ns:
            self._add_stretch(look, gpu_idle_share)
        if not (is_able and self.has_quiet):
            self._end_gaps(shares)
        if shares and not is_able:
            self._divide_blocked_time(look, shares)
        elif shares and not self.has_quiet:
            self.last = shares

    def _add_stretch(self, look: OpenLook, idle_part: float) -> None:
        """Add the stretch before a look; of a gap, what no look covers is of unknown kind, unless
        the next look that says something shows the same as the last one.
        """
        stretch = look.stretch
        known = look.covered_ns / stretch.length_ns
        self.parts.covered_ns += look.covered_ns
        self.undivided.add_blocked_time(self.parts.busy.add_part_of_interval(stretch), known)
        self.idle.add_stretch(stretch, look.covered_ns, idle_part, known)

    def _end_gaps(self, shares: Mapping[Wait, float]) -> None:
        """A look says this about the blocked time of the gaps before it; before the first look,
        nobody knows.
        """
        is_same = bool(self.last) and shares.keys() == self.last.keys()
        self.undivided.assign_gaps(is_same=is_same)
        self.idle.undivided.assign_gaps(is_same=is_same)

    def _divide_blocked_time(self, look: OpenLook, shares: Mapping[Wait, float]) -> None:
        """Give a look its part of the blocked time: all looks have the same, however near to each
        other they lie, as long as no more is left than two such parts.
        """
        left_ns = self.undivided.left.total_ns(self.parts.busy.open_share)
        wanted_ns = max(look.part_ns, left_ns - _MAX_PARTS_LEFT * look.part_ns)
        share = min(wanted_ns / left_ns, 1.0) if left_ns else 1.0
        self.parts.divide_blocked_time(self.undivided.take_share(share), shares)
        self.idle.divide_among_waits(look.stretch, share, shares)
        waits = {wait: round(part * share * left_ns) for wait, part in shares.items()}
        self.recent.add_waits(look.stretch.start_ns, look.stretch.end_ns, waits)
        self.last = shares
        if look.part_ns:  # the first look of a run that was found later stands for no time
            self.latest = (*self.latest[-_MAX_LATEST + 1 :], (look.part_ns, shares))
        self.left_ns = (1 - share) * left_ns
        self.has_quiet = True

    def end_with_latest_looks(self) -> None:
        """Give the last look what is later, and the latest ones what they left: of that, one alone
        says little.
        """
        left_ns = self.undivided.left.total_ns(self.parts.busy.open_share)
        if left_ns and self.latest:
            share = min(self.left_ns / left_ns, 1.0)
            left = self.undivided.take_share(share)
            self.parts.divide_blocked_time(left, _mean_shares(self.latest))
        self.parts.divide_blocked_time(self.undivided.left, self.last)
        self.idle.end_with_last_look(self.last)


def _mean_shares(looks: Collection[tuple[int, Mapping[Wait, float]]]) -> Mapping[Wait, float]:
    """The mean of the divisions of looks, each by the part for which it stands."""
    total_ns = sum([part_ns for part_ns, _ in looks])
    mean: dict[Wait, float] = {}
    for part_ns, shares in looks:
        for wait, share in shares.items():
            mean[wait] = mean.get(wait, 0.0) + share * part_ns / total_ns
    return mean


def _shares_of_look(look: OpenLook, waits: Collection[ThreadWait]) -> Mapping[Wait, float]:
    """The division of a look; empty if no thread was blocked."""
    if look.is_stopped:
        return {STOPPED.wait: 1.0}
    wait = same_certain_wait(waits)
    if wait is not None:
        return {wait: 1.0}
    return LookDivision(waits, look.children).share_of_each_wait()

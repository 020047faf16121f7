"""What a run did while its GPUs were idle, by the place in the run: before their work, and between
its beginning and its end, which are known only later.
"""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aggregation.blocked_time import UndividedTime
from profiler.aggregation.stretch import Stretch
from profiler.aggregation.time_percentages import TimeParts
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers.linux.wait_types import Wait

_MAX_PLACES = 48
_FIRST_LENGTH_NS = NS_PER_SECOND // 4
# A division of less than this part of a time says nothing about it.
_MIN_COVERED_SHARE = 0.5


class IdleGpus(Protocol):
    """The idle time of all GPUs of a run, on the clock of its start.

    ``idle_ns`` is between two moments of the last minute, known until ``known_until_ns``, which is
    None without a GPU.
    """

    def idle_ns(self, start_ns: int, end_ns: int) -> int: ...
    def known_until_ns(self) -> int | None: ...


class IdleTimeByPlace(Struct):
    """The parts of the idle time in equal places of the run, in constant memory: their length
    doubles as the run goes on.
    """

    started_ns: int | None = None
    length_ns: int = _FIRST_LENGTH_NS
    places: list[TimeParts] = field(default_factory=list)
    undivided: UndividedTime = field(default_factory=UndividedTime)

    def add_stretch(self, stretch: Stretch, covered_ns: float, idle: float, known: float) -> None:
        """Add the idle share of a stretch, of whose blocked time the share ``known`` is divided."""
        if self.started_ns is None:
            self.started_ns = stretch.start_ns
        if not idle:
            return
        place = self._parts_of_place(stretch)
        place.covered_ns += idle * covered_ns
        self.undivided.add_blocked_time(place.busy.add_part_of_interval(stretch, idle), known)

    def divide_among_waits(
        self, stretch: Stretch, share: float, shares: Mapping[Wait, float]
    ) -> None:
        """Give a look its share of the blocked time."""
        taken = self.undivided.take_share(share)
        if self.places:
            self._parts_of_place(stretch).divide_blocked_time(taken, shares)

    def end_with_last_look(self, shares: Mapping[Wait, float]) -> None:
        """Give what is left to the last look."""
        if self.places:
            self.places[-1].divide_blocked_time(self.undivided.left, shares)

    def _parts_of_place(self, stretch: Stretch) -> TimeParts:
        middle_ns = (stretch.start_ns + stretch.end_ns) // 2
        index = max(middle_ns - (self.started_ns or 0), 0) // self.length_ns
        while index >= _MAX_PLACES:
            self._merge_pairs()
            index //= 2
        while len(self.places) <= index:
            self.places.append(TimeParts())
        return self.places[index]

    def _merge_pairs(self) -> None:
        merged = self.places[::2]
        for first, second in zip(merged, self.places[1::2], strict=False):
            first.merge(second)
        self.places = merged
        self.length_ns *= 2

    def copy(self) -> "IdleTimeByPlace":
        places = [place.copy() for place in self.places]
        return replace(self, places=places, undivided=replace(self.undivided))

    def idle_parts_before_and_between(
        self, first_ns: int, last_ns: int
    ) -> tuple[TimeParts | None, TimeParts | None]:
        """The idle time before the GPUs' work, and between its beginning and its end; None where it
        is unknown.
        """
        if self.started_ns is None:
            return None, None
        return self._parts_within(self.started_ns, first_ns), self._parts_within(first_ns, last_ns)

    def _parts_within(self, start_ns: int, end_ns: int) -> TimeParts | None:
        """The places that lie within a time; None if they are a small part of it."""
        total = TimeParts()
        covered_ns = 0
        for index, place in enumerate(self.places):
            begin_ns = (self.started_ns or 0) + index * self.length_ns
            if start_ns <= begin_ns and begin_ns + self.length_ns <= end_ns:
                covered_ns += self.length_ns
                total.merge(place)
        return total if covered_ns > _MIN_COVERED_SHARE * (end_ns - start_ns) else None

"""What happens beside the waits of a thread for others of its process, and what of it ends them.

Something comes on a connection of the process, another thread has slept, a child has ended, or a
timeout of a loop has. Who tells the thread is not known: what happens at most ends of its waits,
and seldom in vain, is what it waits for.
"""

import math
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from profiler.readers.linux.poll_outcome import ARRIVAL_SLACK_NS

# The addresses of a connection on which something came, the id of a thread that waited for nobody
# else, the end of a child, or the timeout of a loop.
Event = bytes | int | str
ANY_CONNECTION = b""
END_OF_CHILD = "child"
TIMEOUT_OF_LOOP = "timeout"
# Of all connections, children and loops of a process, what happened to any of them.
_OF_ALL = (ANY_CONNECTION, END_OF_CHILD, TIMEOUT_OF_LOOP)
# What happened before so many looks of a process is remembered, and of so many connections and
# threads: of those of a large pool, none is the one that is mostly waited for.
_MAX_LOOKS = 64
_MAX_EVENTS = 8
# With fewer ends, it is not known what is not awaited.
_MIN_ENDS = 4


class ProcessEvents(Struct, eq=False):
    """What happened in a process lately: before which looks, and how long."""

    looks: dict[Event, dict[int, float]] = {}

    def note(self, event: Event, look: int, before_ns: float = math.inf) -> None:
        """Note that something happened so long before this look."""
        looks = self.looks.get(event)
        if looks is None:
            if len(self.looks) >= _MAX_EVENTS and event not in _OF_ALL:
                return
            looks = self.looks[event] = {}
        looks[look] = max(before_ns, looks.get(look, 0))
        if len(looks) > _MAX_LOOKS:
            del looks[next(iter(looks))]

    def before(self, look: int, work_ns: int) -> Collection[Event]:
        """What happened before this look, and before so much work."""
        least_ns = work_ns - ARRIVAL_SLACK_NS
        return [
            event for event, looks in self.looks.items() if looks.get(look, -math.inf) >= least_ns
        ]

    def may_have_come(self, look: int, begin_before_ns: int) -> bool:
        """Whether something may have come at the moment so long before this look."""
        before_ns = self.looks.get(ANY_CONNECTION, {}).get(look)
        if before_ns is None or math.isinf(before_ns):
            return before_ns is not None
        return abs(before_ns - begin_before_ns) <= ARRIVAL_SLACK_NS


def _count_between(looks: Mapping[int, float], between: range) -> int:
    """How many of these looks, in their order, are in a range."""
    count = 0
    for look in reversed(looks):
        if look < between.start:
            break
        count += look < between.stop
    return count


class EventCounts(Struct, eq=False):
    """How often something happened beside the waits of a thread for others: before so many of the
    looks at which it had worked (``ends``), and before so many of those at which it went on
    waiting.
    """

    ends: int = 0
    ends_with_event: int = 0
    looks_in_vain: int = 0
    events_in_vain: int = 0

    @property
    def is_at_most_ends(self) -> bool:
        """Whether it happened as the thread mostly began to work, at least twice as often as in
        vain.
        """
        return 2 * self.ends_with_event > self.ends and self._is_rare_in_vain

    @property
    def is_no_chance(self) -> bool:
        """Whether it happened as the thread began to work at least twice as often as in vain, and
        more often than by chance.
        """
        by_chance = self.ends * (self.events_in_vain + 1) / (self.looks_in_vain + 1)
        most_by_chance = by_chance + 2 * math.sqrt(by_chance)
        return self._is_rare_in_vain and self.ends_with_event >= 1 + most_by_chance

    @property
    def is_for_others(self) -> bool:
        """Whether it happened hardly more often as the thread began to work than in vain. Where it
        happens all the time, nobody knows.
        """
        if self.ends < _MIN_ENDS or 2 * self.events_in_vain > self.looks_in_vain:
            return False
        in_vain = self.events_in_vain * self.ends
        return 2 * self.ends_with_event * self.looks_in_vain <= 3 * in_vain

    @property
    def _is_rare_in_vain(self) -> bool:
        in_vain = self.events_in_vain * self.ends
        return self.ends_with_event * self.looks_in_vain >= 2 * in_vain


class AwaitedEvents(Struct, eq=False):
    """The counts of all that happens beside the waits of one thread."""

    counts: dict[Event, EventCounts] = {}

    def count_wait(
        self,
        events: ProcessEvents,
        looks_in_vain: range,
        ended_with: Collection[Event] | None,
        *,
        own: Event,
    ) -> None:
        """Count what happened beside one wait: before the looks at which it went on, and as it
        ended; ``ended_with`` is None if the thread did not work then. What its ``own`` waits do
        says nothing.
        """
        length = len(looks_in_vain)
        for event, looks in events.looks.items():
            if event == own:
                continue
            counts = self.counts.get(event)
            if counts is None:
                counts = self.counts[event] = EventCounts()
            if ended_with is not None:
                counts.ends += 1
                counts.ends_with_event += event in ended_with
            if length:
                counts.looks_in_vain += length
                counts.events_in_vain += _count_between(looks, looks_in_vain)

    def are_arrivals(self, ended_with: Collection[Event] | None) -> bool:
        """Whether the thread waited for something that came on a connection of its process, if its
        wait ended with this; for None, whether it mostly does.
        """
        if ended_with is not None and ANY_CONNECTION not in ended_with:
            return False
        any_counts = self.counts.get(ANY_CONNECTION)
        if any_counts is None or any_counts.ends_with_event < self._most_ends_with_thread:
            return False
        if ended_with is not None:
            awaited = [
                event
                for event, counts in self.counts.items()
                if event != ANY_CONNECTION and isinstance(event, bytes) and counts.is_no_chance
            ]
            if awaited:
                return any(event in ended_with for event in awaited)
        return any_counts.is_at_most_ends

    @property
    def are_ends_of_children(self) -> bool:
        """Whether the ends of children mostly end the waits of the thread."""
        return END_OF_CHILD in self.counts and self.counts[END_OF_CHILD].is_at_most_ends

    @property
    def are_timeouts(self) -> bool:
        """Whether timeouts of loops mostly end the waits of the thread, not as there is hardly a
        look between these.
        """
        counts = self.counts.get(TIMEOUT_OF_LOOP)
        return bool(counts and counts.looks_in_vain > counts.ends and counts.is_at_most_ends)

    @property
    def has_others_arrivals(self) -> bool:
        """Whether what comes on connections of the process is not what the thread waits for."""
        return ANY_CONNECTION in self.counts and self.counts[ANY_CONNECTION].is_for_others

    @property
    def _most_ends_with_thread(self) -> int:
        """With how many ends of the thread's waits another one had slept, if mostly the same."""
        return max(
            [
                counts.ends_with_event
                for event, counts in self.counts.items()
                if isinstance(event, int) and self._mostly_ends_with([event])
            ],
            default=0,
        )

    def likely_places(self, ends: Sequence[Collection[Event]]) -> Sequence[int]:
        """Which of the waits that may have ended that of the thread most likely did, by what was
        to happen in each: if its waits mostly end with one of them, not those with which they
        seldom do.
        """
        places = range(len(ends))
        if not any(self._mostly_ends_with(events) for events in ends):
            return places
        return [place for place in places if not self._seldom_ends_with(ends[place])]

    def _mostly_ends_with(self, events: Collection[Event]) -> bool:
        return any(counts.is_at_most_ends for counts in self._known(events))

    def _seldom_ends_with(self, events: Collection[Event]) -> bool:
        known = self._known(events)
        return bool(known) and not any(counts.is_at_most_ends for counts in known)

    def _known(self, events: Collection[Event]) -> Sequence[EventCounts]:
        found = [self.counts[event] for event in events if event in self.counts]
        return [counts for counts in found if counts.ends >= _MIN_ENDS]

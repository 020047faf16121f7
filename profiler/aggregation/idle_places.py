"""What a run did while its GPUs were idle, by the place in the run: before their work, and between
its beginning and its end, which are known only later.
"""

from collections import deque
from typing import Protocol

from profiler.aggregation.time_parts import ShownWait, TimeParts, TimeStep
from profiler.core.timestamps import NS_PER_SECOND

_MAX_PLACES = 48
_FIRST_LENGTH_NS = NS_PER_SECOND // 4
# The work of a GPU is read up to 10 s late.
_MAX_UNKNOWN_STEPS = 2000
# A division of less than this part of a time says nothing about it.
_MIN_COVERED_SHARE = 0.5


class IdleGpus(Protocol):
    """The idle time of all GPUs of a run, on the clock of its start.

    ``idle_ns`` is between two moments of the last minute, known until ``known_until_ns``, which is
    None without a GPU. ``work_span`` is from when to when they worked for the run.
    """

    def idle_ns(self, start_ns: int, end_ns: int) -> int: ...
    def known_until_ns(self) -> int | None: ...
    def work_span(self) -> tuple[int, int] | None: ...


class IdlePlaces:
    """The parts of the idle time in equal places of the run, in constant memory: their length
    doubles as the run goes on.
    """

    def __init__(self, started_ns: int | None) -> None:
        self._started_ns = started_ns
        self._length_ns = _FIRST_LENGTH_NS
        self._places: list[TimeParts] = []

    def add(
        self, step: TimeStep, idle_ns: int, before: ShownWait | None, after: ShownWait | None
    ) -> None:
        """Add the idle part of a step; ``before`` and ``after`` are the samples around it."""
        if self._started_ns is None:
            self._started_ns = step.start_ns
        middle_ns = (step.start_ns + step.end_ns) // 2
        index = max(middle_ns - self._started_ns, 0) // self._length_ns
        while index >= _MAX_PLACES:
            self._merge_pairs()
            index //= 2
        while len(self._places) <= index:
            place = TimeParts()
            if self._places:  # what the next sample decides
                place.undecided_ns = self._places[-1].undecided_ns
                self._places[-1].undecided_ns = 0
            self._places.append(place)
        self._places[index].add(step, idle_ns, before, after)

    def _merge_pairs(self) -> None:
        merged = self._places[::2]
        for first, second in zip(merged, self._places[1::2], strict=False):
            first.merge(second)
        self._places = merged
        self._length_ns *= 2

    def copy(self) -> "IdlePlaces":
        copied = IdlePlaces(self._started_ns)
        copied._length_ns = self._length_ns
        copied._places = [place.copy() for place in self._places]
        return copied

    def within(self, start_ns: int, end_ns: int) -> TimeParts | None:
        """The parts of the places that are within a time; None if they are a small part of it."""
        total = TimeParts()
        covered_ns = 0
        for index, place in enumerate(self._places):
            begin_ns = (self._started_ns or 0) + index * self._length_ns
            if start_ns <= begin_ns and begin_ns + self._length_ns <= end_ns:
                covered_ns += self._length_ns
                total.merge(place)
        return total if covered_ns > _MIN_COVERED_SHARE * (end_ns - start_ns) else None

    @property
    def started_ns(self) -> int:
        return self._started_ns or 0


class IdleSteps:
    """The steps whose idle time is not known yet, and the places of the others."""

    def __init__(self, started_ns: int | None, gpus: IdleGpus | None) -> None:
        self._gpus = gpus
        self._places = IdlePlaces(started_ns)
        self._unknown: deque[TimeStep] = deque(maxlen=_MAX_UNKNOWN_STEPS)
        self._waiting: deque[tuple[TimeStep, ShownWait | None, ShownWait | None]] = deque()

    @property
    def are_watched(self) -> bool:
        """Whether there is a GPU."""
        return self._gpus is not None and self._gpus.known_until_ns() is not None

    def begin(self, step: TimeStep) -> None:
        """Remember a step, whose idle time is looked up later."""
        if self._gpus is not None:
            self._unknown.append(step)

    def look_up(self) -> None:
        """Look up the idle time of the steps for which it is known by now."""
        if self._gpus is None:
            return
        known_ns = self._gpus.known_until_ns()
        if known_ns is None:
            self._unknown.clear()
            self._waiting.clear()
            return
        while self._unknown and self._unknown[0].end_ns <= known_ns:
            step = self._unknown.popleft()
            step.gpu_idle_ns = self._idle_ns(step)
        while self._waiting and (
            self._waiting[0][0].gpu_idle_ns is not None or len(self._waiting) > _MAX_UNKNOWN_STEPS
        ):
            step, before, after = self._waiting.popleft()
            self._places.add(step, step.gpu_idle_ns or 0, before, after)

    def _idle_ns(self, step: TimeStep) -> int:
        if self._gpus is None:
            return 0
        return min(self._gpus.idle_ns(step.start_ns, step.end_ns), step.length_ns)

    def add(self, step: TimeStep, before: ShownWait | None, after: ShownWait | None) -> None:
        """Add a step whose division is final."""
        if self._gpus is not None:
            self._waiting.append((step, before, after))

    def divisions(
        self, open_steps: list[tuple[TimeStep, ShownWait | None, ShownWait | None]]
    ) -> tuple[TimeParts | None, TimeParts | None]:
        """The idle time before the GPUs' work, and between its beginning and its end, with the
        steps that are not final; None where it is unknown.
        """
        span = None if self._gpus is None else self._gpus.work_span()
        if span is None:
            return None, None
        places = self._places.copy()
        for step, before, after in (*self._waiting, *open_steps):
            idle_ns = step.gpu_idle_ns
            if idle_ns is None:
                idle_ns = self._idle_ns(step)  # as far as it is known
            places.add(step, idle_ns, before, after)
        return places.within(places.started_ns, span[0]), places.within(*span)

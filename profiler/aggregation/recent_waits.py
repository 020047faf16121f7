"""What a run waited for since a moment that is known only later."""

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aggregation.sorted_waits import HIDDEN
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers.linux.wait_types import Wait

_MIN_SPAN_NS = 10 * NS_PER_SECOND
_MAX_SPANS = 64
_MAX_WAITS = 8
_UNNAMED = ("other", HIDDEN.kind)


class _WaitSpan(Struct):
    """A part of the run with the nanoseconds of each wait."""

    start_ns: int
    end_ns: int
    waits: Counter[Wait] = field(default_factory=Counter)

    def add_waits(self, end_ns: int, waits: Mapping[Wait, int]) -> None:
        self.end_ns = end_ns
        self.waits.update(waits)
        if len(self.waits) > 2 * _MAX_WAITS:
            self.waits = Counter(dict(self.waits.most_common(_MAX_WAITS)))


class RecentWaits(Struct):
    """What a run waited for since a moment that is known only later: in spans, the older the
    longer.
    """

    _spans: list[_WaitSpan] = field(default_factory=list)

    def add_waits(self, start_ns: int, end_ns: int, waits: Mapping[Wait, int]) -> None:
        """Add the nanoseconds of each wait in a step; merges two spans if there are too many."""
        spans = self._spans
        if not spans or end_ns - spans[-1].start_ns > _MIN_SPAN_NS:
            spans.append(_WaitSpan(start_ns, end_ns))
        spans[-1].add_waits(end_ns, waits)
        if len(spans) > _MAX_SPANS:
            age_ns = [end_ns - span.start_ns for span in spans]
            first = min(
                range(len(spans) - 2), key=lambda index: 1 - age_ns[index + 2] / age_ns[index]
            )
            spans[first].add_waits(spans[first + 1].end_ns, spans[first + 1].waits)
            del spans[first + 1]

    def copy(self) -> "RecentWaits":
        return RecentWaits([replace(span, waits=span.waits.copy()) for span in self._spans])

    def longest_wait_since(self, since_ns: int) -> Wait | None:
        """The kind of the longest wait since then, with the target of most of this time, if any;
        None if unknown.
        """
        waits: Counter[Wait] = Counter()
        kinds: Counter[str] = Counter()
        for span in self._spans:
            part_ns = span.end_ns - max(span.start_ns, since_ns)
            if part_ns <= 0:
                continue
            for wait, time_ns in span.waits.items():
                waits[wait] += time_ns * part_ns // (span.end_ns - span.start_ns)
        for wait, time_ns in waits.items():
            kinds[wait.kind] += time_ns
        ((kind, time_ns),) = kinds.most_common(1) or (("other", 0),)
        if kind in _UNNAMED or not time_ns:
            return None
        return next(
            (wait for wait in waits if wait.kind == kind and 2 * waits[wait] > time_ns), Wait(kind)
        )

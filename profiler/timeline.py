"""The series of one run, for charts: a point for every sample, and never more than a fixed number of them. Pure.

When all places are taken, neighbours are merged two by two, and from then on every point takes
twice as many samples: the resolution is the same over the whole run, however long it gets.
"""

from msgspec import Struct

from profiler.figures import VCPU_DIGITS
from profiler.points import Point
from profiler.series import Counter
from profiler.sources.container_stats import ContainerSample
from profiler.times import NS_PER_MS

MOST_POINTS = 10_000


class _Mark(Struct, frozen=True, gc=False):
    """The end of a point's step: the CPU counter when it was last known, and the step's most memory.

    As the counter is kept rather than a rate, merging loses no CPU time and rounds nothing.
    """

    end_ns: int
    cpu_at_ns: int | None
    cpu_total_ns: int | None
    memory_bytes: int | None


class Timeline:
    """Collects samples; ``add`` is the listener that ``profiler.run.run`` takes."""

    def __init__(self, most_points: int = MOST_POINTS) -> None:
        self._most_points = most_points
        self._marks: list[_Mark] = []
        self._samples_a_mark = 1
        self._samples_in_last = 1
        self._cpu_ns = Counter()

    def add(self, sample: ContainerSample) -> None:
        """Take a sample; one that is not later than the last is a duplicate."""
        if self._marks and sample.read_ns <= self._marks[-1].end_ns:
            return
        mark = self._mark(sample)
        if self._samples_in_last >= self._samples_a_mark and len(self._marks) >= self._most_points:
            self._halve()
        if self._marks and self._samples_in_last < self._samples_a_mark:
            self._marks[-1] = _merged(self._marks[-1], mark)
            self._samples_in_last += 1
        else:
            self._marks.append(mark)
            self._samples_in_last = 1

    def points(self, started_ns: int) -> tuple[Point, ...]:
        """The series of a run that began at ``started_ns``, when its CPU counter was 0."""
        points = []
        at_ns, total_ns = started_ns, 0
        for mark in self._marks:
            vcpu = None
            if mark.cpu_at_ns is not None and mark.cpu_total_ns is not None and mark.cpu_at_ns > at_ns:
                vcpu = round((mark.cpu_total_ns - total_ns) / (mark.cpu_at_ns - at_ns), VCPU_DIGITS)
                at_ns, total_ns = mark.cpu_at_ns, mark.cpu_total_ns
            elapsed_ms = max(round((mark.end_ns - started_ns) / NS_PER_MS), 0)
            points.append(Point(elapsed_ms=elapsed_ms, vcpu_used=vcpu, memory_used_bytes=mark.memory_bytes))
        return tuple(points)

    def _mark(self, sample: ContainerSample) -> _Mark:
        if sample.cpu_ns is not None:
            self._cpu_ns.add(sample.cpu_ns)
        known = sample.cpu_ns is not None
        return _Mark(
            sample.read_ns,
            sample.read_ns if known else None,
            self._cpu_ns.total if known else None,
            sample.memory_used_bytes,
        )

    def _halve(self) -> None:
        marks = self._marks
        pairs = [_merged(first, second) for first, second in zip(marks[::2], marks[1::2], strict=False)]
        left_over = marks[-1:] if len(marks) % 2 else []
        self._marks = pairs + left_over
        self._samples_in_last = self._samples_a_mark if left_over else 2 * self._samples_a_mark
        self._samples_a_mark *= 2


def _merged(first: _Mark, second: _Mark) -> _Mark:
    latest_cpu = first if second.cpu_at_ns is None else second
    memory = [mark.memory_bytes for mark in (first, second) if mark.memory_bytes is not None]
    return _Mark(second.end_ns, latest_cpu.cpu_at_ns, latest_cpu.cpu_total_ns, max(memory, default=None))

"""Whether task stats and the batch's processes tell the same. Pure, and of constant size.

Both are asked about the same moments: a sample of the stats is held against the two readings of
the processes around it.
"""

from collections import deque

from msgspec import Struct

from profiler.figures import MIB
from profiler.sources.container_stats import ContainerSample
from profiler.times import NS_PER_SECOND

# On Fargate the stats are up to 10 s old when they come.
_MAX_PENDING = 64
_CPU_TOLERANCE, _CPU_TOLERANCE_SECONDS = 0.05, 0.5
_MEMORY_TOLERANCE, _MEMORY_TOLERANCE_BYTES = 0.10, 32 * MIB
_MIN_COMPARISONS = 3


class Reading(Struct, frozen=True, gc=False):
    """What the processes had used by a moment of the wall clock, and what they held then."""

    read_ns: int
    cpu_ns: int | None
    memory_bytes: int | None


class SourceComparison:
    """Compares CPU time over the run, and memory at most moments: a spike shows in one source only.

    True while nothing speaks against it: with too few samples the two cannot be compared.
    """

    def __init__(self) -> None:
        self._readings: deque[Reading] = deque(maxlen=_MAX_PENDING)
        self._pending: deque[ContainerSample] = deque(maxlen=_MAX_PENDING)
        self._first_cpu_ns: tuple[int, int] | None = None
        self._last_cpu_ns: tuple[int, int] | None = None
        self._comparisons = 0
        self._comparisons_above = 0
        self._comparisons_below = 0
        self._stats_bytes = 0
        self._excess_bytes = 0

    def on_sample(self, sample: ContainerSample) -> None:
        """Take a sample of the task stats."""
        self._pending.append(sample)

    def on_reading(self, reading: Reading) -> None:
        """Take a reading of the processes, later than the last."""
        if self._readings and reading.read_ns <= self._readings[-1].read_ns:
            self._readings.clear()
        self._readings.append(reading)
        while self._pending and self._pending[0].read_ns <= reading.read_ns:
            self._compare(self._pending.popleft())

    @property
    def cpu_agrees(self) -> bool:
        """Whether the CPU time agrees, to 5 % or half a second."""
        stats_ns, processes_ns = self._cpu_growth_ns()
        return abs(processes_ns - stats_ns) <= max(_CPU_TOLERANCE * stats_ns, _CPU_TOLERANCE_SECONDS * NS_PER_SECOND)

    @property
    def memory_agrees(self) -> bool:
        """Whether the memory agrees at half of the moments, to 10 % or 32 MiB."""
        return not (self.counts_shared_memory_twice or self._is_majority(self._comparisons_below))

    @property
    def counts_shared_memory_twice(self) -> bool:
        """Whether the processes hold more together than there is: pages that they share, counted at each."""
        return self._is_majority(self._comparisons_above)

    def warnings(self) -> tuple[str, ...]:
        """Where they differ, as sentences."""
        found = []
        if not self.cpu_agrees:
            stats_ns, processes_ns = self._cpu_growth_ns()
            found.append(
                f"Task stats and the batch's processes differ on CPU time: {stats_ns / NS_PER_SECOND:.1f} s "
                f"against {processes_ns / NS_PER_SECOND:.1f} s over the same time; the course is that of the stats."
            )
        if not self.memory_agrees:
            stats_bytes = self._stats_bytes // self._comparisons
            processes_bytes = stats_bytes + self._excess_bytes // self._comparisons
            reason = (
                "memory that they share"
                if self.counts_shared_memory_twice
                else "page cache in use, tmpfs or kernel memory"
            )
            found.append(
                f"Task stats and the batch's processes differ on memory: {stats_bytes // MIB} MB against "
                f"{processes_bytes // MIB} MB on the average ({reason}); the course is that of the stats."
            )
        return tuple(found)

    def _compare(self, sample: ContainerSample) -> None:
        later = next((reading for reading in self._readings if reading.read_ns >= sample.read_ns), None)
        earlier = next((reading for reading in reversed(self._readings) if reading.read_ns <= sample.read_ns), None)
        if earlier is None or later is None:
            return
        if sample.cpu_ns is not None and earlier.cpu_ns is not None and later.cpu_ns is not None:
            pair = sample.cpu_ns, _between(earlier, later, sample.read_ns, earlier.cpu_ns, later.cpu_ns)
            self._first_cpu_ns = self._first_cpu_ns or pair
            self._last_cpu_ns = pair
        if sample.memory_used_bytes is not None and earlier.memory_bytes is not None and later.memory_bytes is not None:
            low, high = sorted((earlier.memory_bytes, later.memory_bytes))
            nearest = min(max(sample.memory_used_bytes, low), high)
            self._comparisons += 1
            self._stats_bytes += sample.memory_used_bytes
            excess_bytes = nearest - sample.memory_used_bytes
            self._excess_bytes += excess_bytes
            tolerance_bytes = max(_MEMORY_TOLERANCE * sample.memory_used_bytes, _MEMORY_TOLERANCE_BYTES)
            self._comparisons_above += excess_bytes > tolerance_bytes
            self._comparisons_below += -excess_bytes > tolerance_bytes

    def _cpu_growth_ns(self) -> tuple[int, int]:
        if self._first_cpu_ns is None or self._last_cpu_ns is None:
            return 0, 0
        first, last = self._first_cpu_ns, self._last_cpu_ns
        return last[0] - first[0], last[1] - first[1]

    def _is_majority(self, moments: int) -> bool:
        return self._comparisons >= _MIN_COMPARISONS and 2 * moments > self._comparisons


def _between(earlier: Reading, later: Reading, at_ns: int, first: int, last: int) -> int:
    """A counter's value at a moment between two readings of it."""
    step_ns = later.read_ns - earlier.read_ns
    return first if step_ns == 0 else first + (last - first) * (at_ns - earlier.read_ns) // step_ns

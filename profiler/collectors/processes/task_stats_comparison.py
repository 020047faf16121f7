"""Compares the CPU time and the memory of a batch's processes with the task stats."""

import math
from collections import deque
from collections.abc import Iterator

from msgspec.structs import replace

from profiler.aggregation.process_tree_usage import counts_too_little
from profiler.core.optional_math import all_known, difference, first_known
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers.container_sample import ContainerSample

# Readings that are kept for task stats, which on Fargate are up to 10 s old on arrival.
MAX_PENDING = 64
_CPU_TOLERANCE = 0.05
_CPU_TOLERANCE_SECONDS = 0.5


class SourceComparison:
    """Compares the readings of the processes with the task stats: the CPU time, and what the
    processes lack of the memory.

    They lack shared memory, tmpfs, the kernel's memory and the pages that forks copied. So the
    memory at a reading is that of the processes, plus what they lacked at the next stats, as far as
    the sum is within these stats. On a machine of its own, the batch's memory changes by as much as
    the machine's, which counts all but the kernel's at each reading.
    """

    def __init__(self) -> None:
        self._readings: deque[ContainerSample] = deque()  # since the last one before the last stats
        self._machine_bytes: dict[int, int] = {}  # by time of reading
        self._outside_bytes: int | None = None  # what is not the batch's
        self._ended_ns = 0
        self._pending: deque[ContainerSample] = deque(maxlen=MAX_PENDING)
        self._last_cpu_ns: tuple[int, int] | None = None
        self._stats_cpu_ns = 0
        self._processes_cpu_ns = 0
        self._stats_bytes = 0
        self.lacking_bytes = 0

    def on_sample(self, sample: ContainerSample) -> None:
        """Note task stats, which are compared when the processes were read after them."""
        self._pending.append(sample)

    def on_reading(
        self, reading: ContainerSample, machine_bytes: int | None = None
    ) -> Iterator[ContainerSample]:
        """Add a reading of all processes, later than the last one; yields readings with their
        final memory.
        """
        self._readings.append(reading)
        if machine_bytes is not None:
            self._machine_bytes[reading.read_ns] = machine_bytes
            outside_bytes = machine_bytes - (reading.memory_used_bytes or 0)
            self._outside_bytes = first_known(self._outside_bytes, outside_bytes)
        while self._pending and self._pending[0].read_ns <= reading.read_ns:
            sample = self._pending.popleft()
            self._compare(sample)
            yield from self.readings_until(sample.read_ns)
            while len(self._readings) > 1 and self._readings[1].read_ns <= sample.read_ns:
                self._machine_bytes.pop(self._readings.popleft().read_ns, None)
        if len(self._readings) > MAX_PENDING:
            yield from self.readings_until(self._readings[0].read_ns)
            self._machine_bytes.pop(self._readings.popleft().read_ns, None)

    def readings_until(self, until_ns: float = math.inf) -> Iterator[ContainerSample]:
        """The readings until then that were not returned yet, as the last stats complete them."""
        for reading in self._readings:
            if reading.read_ns > until_ns:
                break
            if reading.read_ns > self._ended_ns:
                self._ended_ns = reading.read_ns
                yield self._with_missing_memory(reading)

    @property
    def cpu_agrees(self) -> bool:
        """Whether both differ by at most 5 %, or half a second, over the same time."""
        tolerance_ns = max(
            _CPU_TOLERANCE * self._stats_cpu_ns, _CPU_TOLERANCE_SECONDS * NS_PER_SECOND
        )
        return abs(self._processes_cpu_ns - self._stats_cpu_ns) <= tolerance_ns

    def warnings(self) -> Iterator[str]:
        if not self.cpu_agrees:
            yield (
                "Task stats and the batch's processes differ on CPU time: "
                f"{self._stats_cpu_ns / NS_PER_SECOND:.1f} s against "
                f"{self._processes_cpu_ns / NS_PER_SECOND:.1f} s over the same time; the time "
                "series is from the task stats."
            )

    def _with_missing_memory(self, reading: ContainerSample) -> ContainerSample:
        """The reading with what the processes lack of the memory.

        The machine's memory counts instead where it shows notably more or less.
        """
        held_bytes = reading.memory_used_bytes
        if held_bytes is None:
            return reading
        total_bytes = held_bytes + min(self.lacking_bytes, max(self._stats_bytes - held_bytes, 0))
        least_bytes = held_bytes
        if self.lacking_bytes < 0:  # the processes never overrule what the container is charged
            least_bytes = min(held_bytes, self._stats_bytes)
        total_bytes = max(total_bytes, least_bytes)
        machine_bytes = self._machine_bytes.get(reading.read_ns)
        of_machine_bytes = difference(machine_bytes, self._outside_bytes)
        own_bytes = max(least_bytes, first_known(of_machine_bytes, total_bytes))
        # Other programs use a few MB more or less.
        if counts_too_little(*sorted((total_bytes, own_bytes))):
            return replace(reading, memory_used_bytes=own_bytes)
        return replace(reading, memory_used_bytes=max(total_bytes, 0))

    def _compare(self, sample: ContainerSample) -> None:
        """Compare the stats with the readings before and after them; the latter is the newest
        reading at most.
        """
        earlier = None
        later = self._readings[-1]
        for reading in self._readings:
            if reading.read_ns <= sample.read_ns:
                earlier = reading
            if reading.read_ns >= sample.read_ns:
                later = reading
                break
        if earlier is None:
            return
        if sample.cpu_ns is not None:
            step_ns = max(later.read_ns - earlier.read_ns, 1)
            before_ns = earlier.cpu_ns or 0
            grown_ns = (
                ((later.cpu_ns or 0) - before_ns) * (sample.read_ns - earlier.read_ns) // step_ns
            )
            processes_ns = before_ns + grown_ns
            last = self._last_cpu_ns
            if last is not None and sample.cpu_ns >= last[0]:  # else the container was restarted
                self._stats_cpu_ns += sample.cpu_ns - last[0]
                self._processes_cpu_ns += processes_ns - last[1]
            self._last_cpu_ns = sample.cpu_ns, processes_ns
        sizes = all_known(
            sample.memory_used_bytes, earlier.memory_used_bytes, later.memory_used_bytes
        )
        if sizes is not None:
            used_bytes, before, after = sizes
            low, high = sorted((before, after))
            self._stats_bytes = used_bytes
            # A step, such as that of an exit, leaves a range.
            self.lacking_bytes = min(
                max(min(self.lacking_bytes, 0), used_bytes - high), used_bytes - low
            )
            machine = all_known(
                self._machine_bytes.get(earlier.read_ns),
                self._machine_bytes.get(later.read_ns),
                self._outside_bytes,
            )
            if machine is None:
                return
            *around, outside_bytes = machine
            low, high = sorted(around)
            self._outside_bytes = min(max(used_bytes + outside_bytes, low), high) - used_bytes

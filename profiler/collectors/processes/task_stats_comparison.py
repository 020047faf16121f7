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

    ``unread_cpu_ns`` is the least that the task stats have of CPU time beside the processes: those
    whose parent had ended have handed it over to a process outside, and those whose parent ignores
    its children's ends to nobody.
    """

    def __init__(self) -> None:
        self._readings: deque[ContainerSample] = deque()  # since the last one before the last stats
        self._machine_bytes: dict[int, int] = {}  # by time of reading
        self._outside_bytes: int | None = None  # what is not the batch's
        self._ended_ns = 0
        self._pending: deque[ContainerSample] = deque(maxlen=MAX_PENDING)
        self._pending_cpu: deque[ContainerSample] = deque(maxlen=MAX_PENDING)
        self._last_cpu_ns: tuple[int, int] | None = None
        self._first_cpu_ns = (0, 0)  # of the stats, and of the processes at the reading before
        self._unread_before_ns = 0  # that restart of the container
        self.unread_cpu_ns = 0
        self._taken_cpu_ns = 0
        self._unread_since_ns = self._unread_until_ns = 0
        self._stats_cpu_ns = 0
        self._processes_cpu_ns = 0
        self._stats_bytes = 0
        self.lacking_bytes = 0

    def on_sample(self, sample: ContainerSample) -> None:
        """Note task stats, which are compared when the processes were read after them; their memory
        at the next reading.
        """
        self._pending.append(sample)
        self._pending_cpu.append(sample)
        self._compare_cpu()

    def on_reading(
        self, reading: ContainerSample, machine_bytes: int | None = None
    ) -> Iterator[ContainerSample]:
        """Add a reading of all processes, later than the last one; yields readings with their
        final memory.
        """
        self._readings.append(reading)
        self._compare_cpu()
        if machine_bytes is not None:
            self._machine_bytes[reading.read_ns] = machine_bytes
            outside_bytes = machine_bytes - (reading.memory_used_bytes or 0)
            self._outside_bytes = first_known(self._outside_bytes, outside_bytes)
        while self._pending and self._pending[0].read_ns <= reading.read_ns:
            sample = self._pending.popleft()
            self._compare_memory(sample)
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

    def take_unread_cpu(self) -> tuple[int, int]:
        """What ``unread_cpu_ns`` has grown by since the last call, and since when that ran."""
        grown_ns = self.unread_cpu_ns - self._taken_cpu_ns
        since_ns = self._unread_since_ns
        if grown_ns:
            self._taken_cpu_ns = self.unread_cpu_ns
            self._unread_since_ns = self._unread_until_ns
        return grown_ns, since_ns

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

    def _readings_around(
        self, sample: ContainerSample
    ) -> tuple[ContainerSample, ContainerSample] | None:
        """The readings before and after these stats, the latter is the newest one at most; None if
        there is none before.
        """
        earlier = None
        later = self._readings[-1]
        for reading in self._readings:
            if reading.read_ns <= sample.read_ns:
                earlier = reading
            if reading.read_ns >= sample.read_ns:
                later = reading
                break
        return None if earlier is None else (earlier, later)

    def _compare_cpu(self) -> None:
        """Compare the CPU time of the stats after which the processes were read."""
        while (
            self._pending_cpu
            and self._readings
            and self._pending_cpu[0].read_ns <= self._readings[-1].read_ns
        ):
            sample = self._pending_cpu.popleft()
            around = self._readings_around(sample)
            if around is not None and sample.cpu_ns is not None:
                self._compare_cpu_time(sample.read_ns, sample.cpu_ns, *around)

    def _compare_cpu_time(
        self, read_ns: int, cpu_ns: int, earlier: ContainerSample, later: ContainerSample
    ) -> None:
        step_ns = max(later.read_ns - earlier.read_ns, 1)
        before_ns, after_ns = earlier.cpu_ns or 0, later.cpu_ns or 0
        processes_ns = before_ns + (after_ns - before_ns) * (read_ns - earlier.read_ns) // step_ns
        last = self._last_cpu_ns
        self._last_cpu_ns = cpu_ns, processes_ns
        if last is None or cpu_ns < last[0]:  # the container was restarted
            self._first_cpu_ns = cpu_ns, before_ns
            self._unread_before_ns = self.unread_cpu_ns
            self._unread_since_ns = read_ns
            return
        self._stats_cpu_ns += cpu_ns - last[0]
        self._processes_cpu_ns += processes_ns - last[1]
        stats_ns, own_ns = cpu_ns - self._first_cpu_ns[0], after_ns - self._first_cpu_ns[1]
        unread_ns = self._unread_before_ns + stats_ns - own_ns
        if unread_ns > self.unread_cpu_ns:
            self.unread_cpu_ns = unread_ns
            self._unread_until_ns = read_ns

    def _compare_memory(self, sample: ContainerSample) -> None:
        readings = self._readings_around(sample)
        if readings is None:
            return
        earlier, later = readings
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

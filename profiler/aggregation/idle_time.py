"""Finds how long a batch has been idle: that it used next to no CPU, network and disk, and
polled nothing.
"""

from collections import deque

from msgspec import Struct

from profiler.core.optional_math import first_known
from profiler.core.timestamps import LONG_AGO_NS, NS_PER_SECOND
from profiler.record.mention_limits import QUIET_VCPU

QUIET_BYTES_PER_SECOND = 1024
# The steps in which polls are searched, and the number of steps that define the usual level. In
# shorter steps, a poll is a high rate.
_BURST_STEP_NS = 9 * NS_PER_SECOND  # Fargate's steps of 10 s vary in length
_USUAL_STEPS = 180
# A burst exceeds what is usual, the rate that three quarters of the steps reach, by this rate and
# factor. If a tenth of the steps has next to no bytes, such steps are usual, and the rate alone
# counts.
_BURST_BYTES_PER_SECOND = 30
_BURST_FACTOR = 5
_SILENT_BYTES_PER_SECOND = 10
# A request takes more CPU time than this, 0.05 ms in 10 s; waiting takes none.
_BURST_VCPU = 5e-6
# If a line of the monitor hides its bytes, a request is a step with this many times the CPU time of
# any other idle step. Health checks and garbage collections take as much in other steps, too.
_HIDDEN_BURST_FACTOR = 2
# A line of the monitor passes through the network within this time.
_OWN_LINE_NS = 20 * NS_PER_SECOND
# The end of the idle time must be free of the monitor's lines: a poll may come at the same time as
# each of them.
_SILENCE_NS = 150 * NS_PER_SECOND


class NoticeReading(Struct, frozen=True, kw_only=True, gc=False):
    """The counters and sizes of a batch at a moment; None is unknown.

    ``at_ns`` is by the clock of the run's start. The counters never decrease: CPU time, bytes
    received and sent, bytes read from block devices and written. ``own_line_ns`` is the time of the
    monitor's last line if its lines are part of the network counters. Memory is in bytes, without
    what the kernel can drop.
    """

    at_ns: int
    cpu_ns: int | None = None
    network_bytes: int | None = None
    block_bytes: int | None = None
    own_line_ns: int | None = None
    memory_used_bytes: int | None = None
    memory_size_bytes: float | None = None
    disk_used_mb: float | None = None
    disk_size_mb: float | None = None


class _NoticeCounters(Struct, frozen=True, gc=False):
    """The counters of a reading that has all of them; between two readings, what they grew by."""

    time_ns: float
    cpu_ns: int
    network_bytes: int
    block_bytes: int

    def growth_since(self, before: "_NoticeCounters") -> "_NoticeCounters":
        return _NoticeCounters(
            self.time_ns - before.time_ns,
            self.cpu_ns - before.cpu_ns,
            self.network_bytes - before.network_bytes,
            self.block_bytes - before.block_bytes,
        )


_NO_COUNTERS = _NoticeCounters(LONG_AGO_NS, 0, 0, 0)


class _QuietSteps(Struct):
    """Quiet steps in a row that are judged as one; ``used_bytes``: of network and disk."""

    length_ns: float = 0
    used_bytes: int = 0
    cpu_ns: int = 0

    @property
    def bytes_per_second(self) -> float:
        return NS_PER_SECOND * self.used_bytes / self.length_ns

    @property
    def vcpu(self) -> float:
        return self.cpu_ns / self.length_ns


class IdleDetector:
    """The time for which a batch has been idle, from its counters, in constant memory.

    A step is quiet if the batch used less than 1 % of a vCPU, and less than 1 KB/s of network and
    of disk. A poll of a few hundred bytes in a step of 10 s is below that: so bytes for which the
    batch used CPU time also count, and so do bytes clearly above the amount in most other steps.
    Other bytes do not: in awsvpc mode, all containers of the task share the network counters.

    ``since_ns`` is None without readings: a gap, a time above ``max_step_ns`` between two of them,
    is never idleness. ``vcpu``, ``network`` and ``block`` are the largest values of any step since
    then.
    """

    def __init__(self, window_ns: int, *, max_step_ns: int) -> None:
        self._window_ns = window_ns
        self._max_step_ns = max_step_ns
        self._silence_ns = min(_SILENCE_NS, window_ns // 2)
        # Even with a short window, lines wait only for a batch that has been idle for a few
        # readings.
        self._silence_from_ns = max(
            window_ns - self._silence_ns - _OWN_LINE_NS - 2 * _BURST_STEP_NS,
            window_ns // 2,
            _OWN_LINE_NS + _BURST_STEP_NS,
        )
        self._before = _NO_COUNTERS
        self._steps = _QuietSteps()
        self._usual: deque[float] = deque(maxlen=_USUAL_STEPS)
        self._usual_vcpu: deque[float] = deque(maxlen=_USUAL_STEPS)
        # The end of the last step whose network the monitor's own lines hide.
        self._unseen_ns = LONG_AGO_NS
        self.since_ns: int | None = None
        self.vcpu = 0.0
        self.network = 0.0
        self.block = 0.0

    def add_reading(self, reading: NoticeReading) -> bool:
        """Add the counters of a moment; returns whether the batch is stuck."""
        at_ns = reading.at_ns
        own_line_ns = first_known(reading.own_line_ns, LONG_AGO_NS)
        cpu_ns = reading.cpu_ns
        network_bytes = reading.network_bytes
        block_bytes = reading.block_bytes
        if cpu_ns is None or network_bytes is None or block_bytes is None:
            self._before = _NO_COUNTERS
            self.since_ns = None
            return False
        before = self._before
        if at_ns <= before.time_ns:
            return False
        now = _NoticeCounters(at_ns, cpu_ns, network_bytes, block_bytes)
        self._before = now
        if at_ns - before.time_ns > self._max_step_ns:
            self._restart(at_ns)
        else:
            is_seen = own_line_ns + _OWN_LINE_NS <= before.time_ns
            if not is_seen:
                self._unseen_ns = at_ns
            if not self._is_quiet_step(now.growth_since(before), is_seen=is_seen):
                self._restart(at_ns)
        if self.since_ns is None or at_ns - self.since_ns < self._window_ns:
            return False
        return at_ns - self._unseen_ns >= self._silence_ns

    def wants_silence(self, now_ns: int) -> bool:
        """Whether the batch is nearly stuck, so that the monitor's lines should wait."""
        if self.since_ns is None:
            return False
        if now_ns - self._before.time_ns > self._max_step_ns:
            return False
        return now_ns - self.since_ns >= self._silence_from_ns

    def _restart(self, at_ns: int) -> None:
        self.since_ns = at_ns
        self.vcpu = 0.0
        self.network = 0.0
        self.block = 0.0
        self._steps = _QuietSteps()

    def _is_quiet_step(self, step: _NoticeCounters, *, is_seen: bool) -> bool:
        """Whether the batch was idle in a step. ``is_seen``: no line of the monitor hides its
        network.
        """
        vcpu = step.cpu_ns / step.time_ns
        if vcpu >= QUIET_VCPU:
            return False
        network_bytes = step.network_bytes if is_seen else 0
        network = NS_PER_SECOND * network_bytes / step.time_ns
        block = NS_PER_SECOND * step.block_bytes / step.time_ns
        if max(network, block) >= QUIET_BYTES_PER_SECOND:
            return False
        self.vcpu = max(self.vcpu, vcpu)
        self.network = max(self.network, network)
        self.block = max(self.block, block)
        steps = self._steps
        steps.length_ns += step.time_ns
        steps.used_bytes += network_bytes + step.block_bytes
        steps.cpu_ns += step.cpu_ns
        if steps.length_ns < _BURST_STEP_NS:
            return True
        self._steps = _QuietSteps()
        if is_seen:
            self._usual.append(steps.bytes_per_second)
        if self._has_request(steps, is_seen=is_seen):
            return False
        if is_seen:
            self._usual_vcpu.append(steps.vcpu)
        return True

    def _has_request(self, steps: _QuietSteps, *, is_seen: bool) -> bool:
        """Whether the steps have a request: more bytes, or hidden ones with more CPU time, than
        usual.
        """
        rate = steps.bytes_per_second
        vcpu = steps.vcpu
        if vcpu > _BURST_VCPU:
            if rate > _BURST_BYTES_PER_SECOND:
                return True
            if not is_seen and vcpu > _HIDDEN_BURST_FACTOR * max(self._usual_vcpu, default=0.0):
                return True
        if rate <= _BURST_BYTES_PER_SECOND or not self._usual:
            return False
        rates = sorted(self._usual)
        usual = rates[len(rates) // 10]
        if usual >= _SILENT_BYTES_PER_SECOND:
            usual = _BURST_FACTOR * rates[len(rates) // 4]
        return rate > _BURST_BYTES_PER_SECOND + usual

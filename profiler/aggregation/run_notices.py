"""Finds what a running batch may need attention for: that it is stuck, overdue, or about to exhaust memory or disk."""

from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import inf, isfinite
from typing import TYPE_CHECKING

from msgspec import Struct

from profiler.core.timestamps import NS_PER_MINUTE, NS_PER_MS, NS_PER_SECOND, format_ms
from profiler.record.record_model import RaisedNotice
from profiler.record.units import MIB, VCPU_DIGITS, format_count, format_duration, format_memory
from profiler.record.worth_a_word import QUIET_VCPU, wait_in_words

if TYPE_CHECKING:
    from profiler.readers.linux.waited_target import Wait
    from profiler.record.notice_model import Notice, NoticeKind

_MIN_USED = 0.7
_MINUTES_LEFT = 15.0
MIN_RUN_NS = 20 * 60 * NS_PER_SECOND
_STEPS = 128
_FIRST_STEP_NS = 10 * NS_PER_SECOND
_RECENT_STEP_NS = 15 * NS_PER_SECOND
_RECENT_STEPS = 60
_PARTS = 4
# Each part grows by at least this share of the mean growth of the parts.
_MIN_PART = 0.3
# How far above everything before the quarter the lowest recent value is, as a share of the size.
_NEW_HIGH = 0.01
_QUIET_BYTES_PER_SECOND = 1024
# The steps in which polls are searched, and the number of steps that define the usual level. In shorter steps, a poll
# is a high rate.
_BURST_STEP_NS = 9 * NS_PER_SECOND  # Fargate's steps of 10 s vary in length
_USUAL_STEPS = 180
# A burst exceeds what is usual, the rate that three quarters of the steps reach, by this rate and factor.
# If a tenth of the steps has next to no bytes, such steps are usual, and the rate alone counts.
_BURST_BYTES_PER_SECOND = 30
_BURST_FACTOR = 5
_SILENT_BYTES_PER_SECOND = 10
# A request takes more CPU time than this, 0.05 ms in 10 s; waiting takes none.
_BURST_VCPU = 5e-6
# If a line of the monitor hides its bytes, a request is a step with this many times the CPU time of any other idle
# step. Health checks and garbage collections take as much in other steps, too.
_HIDDEN_BURST_FACTOR = 2
# A line of the monitor passes through the network within this time.
_OWN_LINE_NS = 20 * NS_PER_SECOND
# The end of the idle time must be free of the monitor's lines: a poll may come at the same time as each of them.
_SILENCE_NS = 150 * NS_PER_SECOND
# Stats are refreshed every 20 s at least; a longer time between two readings is a gap, unless the interval is longer.
_MAX_STEP_NS = 30 * NS_PER_SECOND
_MAX_INTERVALS = 2.5


class Growth(Struct, frozen=True):
    """The growth of the last quarter of the run, which began at ``since_ns``."""

    since_ns: int
    used: float
    size: float
    per_minute: float
    minutes_left: float


class GrowthToLimit:
    """Finds a quantity that grows towards its limit, in constant memory.

    Growth is the rise of the lowest values over the last quarter of the run. The lowest values of a garbage collector's
    sawtooth do not rise. The growth must continue in all parts of the last 15 minutes, and exceed all earlier values. A
    step up, a plateau, and a quantity that was as high before do not count.
    """

    def __init__(self, started_ns: int) -> None:
        self._started_ns = started_ns
        self._step_ns = _FIRST_STEP_NS
        self._lows = array("d")
        self._highs = array("d")
        self._recent: dict[int, float] = {}
        self._next_check_ns = started_ns + MIN_RUN_NS

    def add(self, at_ns: int, used: float, size: float | None) -> Growth | None:
        """Add a reading; returns the growth if it reaches the size soon."""
        index = max(at_ns - self._started_ns, 0) // self._step_ns
        while index >= _STEPS:  # merge the steps in pairs
            self._step_ns *= 2
            for values, pick in ((self._lows, min), (self._highs, max)):
                values[:] = array("d", [pick(values[place : place + 2]) for place in range(0, len(values), 2)])
            index = max(at_ns - self._started_ns, 0) // self._step_ns
        lows, highs = self._lows, self._highs
        if index >= len(lows):
            lows.extend((inf,) * (index + 1 - len(lows)))
            highs.extend((-inf,) * (index + 1 - len(highs)))
        lows[index] = min(lows[index], used)
        highs[index] = max(highs[index], used)
        step = at_ns // _RECENT_STEP_NS
        self._recent[step] = min(used, self._recent.get(step, inf))
        if len(self._recent) > _RECENT_STEPS:
            del self._recent[next(iter(self._recent))]
        if not size or used < _MIN_USED * size or at_ns < self._next_check_ns:
            return None
        self._next_check_ns = at_ns + _RECENT_STEP_NS
        return self._find(at_ns, used, size)

    def _find(self, at_ns: int, used: float, size: float) -> Growth | None:
        quarter_ns = (at_ns - self._started_ns) // 4
        first = len(self._lows) - max(round(quarter_ns / self._step_ns), _PARTS)
        since_ns = self._started_ns + first * self._step_ns
        last = at_ns // _RECENT_STEP_NS
        recent_count = min(_RECENT_STEPS, quarter_ns // _RECENT_STEP_NS)
        recent_first = last + 1 - recent_count
        values = [self._recent.get(step, inf) for step in range(recent_first, last + 1)]
        bounds = [part * len(values) // _PARTS for part in range(_PARTS + 1)]
        recent_lows = [min(values[first:end], default=inf) for first, end in pairwise(bounds)]
        rise_ns = at_ns - since_ns - recent_count * _RECENT_STEP_NS // _PARTS  # up to the last part
        per_minute = min(
            (recent_lows[-1] - min(self._lows[first:])) * NS_PER_MINUTE / rise_ns,
            _growth((*recent_lows, used), at_ns - recent_first * _RECENT_STEP_NS),
        )
        before = max(self._highs[:first])
        if per_minute <= 0 or not isfinite(before) or recent_lows[-1] < before + _NEW_HIGH * size:
            return None
        minutes_left = max(size - used, 0) / per_minute
        return Growth(since_ns, used, size, per_minute, minutes_left) if minutes_left <= _MINUTES_LEFT else None


def _growth(levels: Sequence[float], length_ns: int) -> float:
    """The growth per minute over the levels of the parts' starts and the end; 0 if a part shrinks or is unknown."""
    if not all(map(isfinite, levels)):
        return 0
    steps = [after - before for before, after in pairwise(levels)]
    mean = sum(steps) / len(steps)
    return sum(steps) * NS_PER_MINUTE / length_ns if mean > 0 and min(steps) >= _MIN_PART * mean else 0


class NoticeReading(Struct, frozen=True, kw_only=True, gc=False):
    """The counters and sizes of a batch at a moment; None is unknown.

    ``at_ns`` is by the clock of the run's start. The counters never decrease: CPU time, bytes received and sent, bytes
    read from block devices and written. ``own_line_ns`` is the time of the monitor's last line if its lines are part of
    the network counters. Memory is in bytes, without the page cache that no process maps.
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


class IdleTime:
    """The time for which a batch has been idle, from its counters, in constant memory.

    A step is quiet if the batch used less than 1 % of a vCPU, and less than 1 KB/s of network and of disk. The
    statistics spread a poll of a few hundred bytes over a step of up to 10 s, which is below that: so bytes for which
    the batch used CPU time also count as activity, and so do bytes clearly above the amount in most other steps.
    Traffic below the limits that costs the batch no CPU time does not count: in awsvpc mode, all containers of the task
    share the network counters.

    ``since_ns`` is None before the first reading, and after readings are missing: they are never idleness. ``vcpu``,
    ``network`` and ``block`` are the largest values of any step since then. A batch that is idle for ``window_ns`` is
    stuck; a time above ``max_step_ns`` between two readings is a gap.
    """

    def __init__(self, window_ns: int, *, max_step_ns: int) -> None:
        self._window_ns = window_ns
        self._max_step_ns = max_step_ns
        self._silence_ns = min(_SILENCE_NS, window_ns // 2)
        # Even with a short window, lines wait only for a batch that has been idle for a few readings.
        self._silence_from_ns = max(
            window_ns - self._silence_ns - _OWN_LINE_NS - 2 * _BURST_STEP_NS,
            window_ns // 2,
            _OWN_LINE_NS + _BURST_STEP_NS,
        )
        self._before: tuple[int, int, int, int] | None = None
        self._burst_ns = self._burst_bytes = self._burst_cpu_ns = 0
        self._usual: deque[float] = deque(maxlen=_USUAL_STEPS)
        self._usual_vcpu: deque[float] = deque(maxlen=_USUAL_STEPS)
        self._unseen_ns: int | None = None  # the end of the last step whose network the monitor's own lines hide
        self.since_ns: int | None = None
        self.vcpu = self.network = self.block = 0.0

    def add(self, reading: NoticeReading) -> bool:
        """Add the counters of a moment; returns whether the batch is stuck."""
        at_ns, own_line_ns = reading.at_ns, reading.own_line_ns
        cpu_ns, network_bytes, block_bytes = reading.cpu_ns, reading.network_bytes, reading.block_bytes
        if cpu_ns is None or network_bytes is None or block_bytes is None:
            self._before = self.since_ns = None
            return False
        before, now = self._before, (at_ns, cpu_ns, network_bytes, block_bytes)
        if before is not None and at_ns <= before[0]:
            return False
        self._before = now
        if before is None or at_ns - before[0] > self._max_step_ns:
            self._restart(at_ns)
        else:
            is_seen = own_line_ns is None or own_line_ns + _OWN_LINE_NS <= before[0]
            if not is_seen:
                self._unseen_ns = at_ns
            if not self._is_quiet(before, now, is_seen=is_seen):
                self._restart(at_ns)
        if self.since_ns is None or at_ns - self.since_ns < self._window_ns:
            return False
        return self._unseen_ns is None or at_ns - self._unseen_ns >= self._silence_ns

    def wants_silence(self, now_ns: int) -> bool:
        """Whether the batch is nearly stuck, so that the monitor's lines should wait."""
        if self.since_ns is None or self._before is None or now_ns - self._before[0] > self._max_step_ns:
            return False
        return now_ns - self.since_ns >= self._silence_from_ns

    def _restart(self, at_ns: int) -> None:
        self.since_ns = at_ns
        self.vcpu = self.network = self.block = 0.0
        self._burst_ns = self._burst_bytes = self._burst_cpu_ns = 0

    def _is_quiet(self, before: tuple[int, int, int, int], now: tuple[int, int, int, int], *, is_seen: bool) -> bool:
        step_ns, vcpu = now[0] - before[0], (now[1] - before[1]) / (now[0] - before[0])
        if vcpu >= QUIET_VCPU:
            return False
        network_bytes, block_bytes = now[2] - before[2] if is_seen else 0, now[3] - before[3]
        network, block = NS_PER_SECOND * network_bytes / step_ns, NS_PER_SECOND * block_bytes / step_ns
        if max(network, block) >= _QUIET_BYTES_PER_SECOND:
            return False
        self.vcpu, self.network, self.block = max(self.vcpu, vcpu), max(self.network, network), max(self.block, block)
        self._burst_ns += step_ns
        self._burst_bytes += network_bytes + block_bytes
        self._burst_cpu_ns += now[1] - before[1]
        if self._burst_ns < _BURST_STEP_NS:
            return True
        rate, vcpu = NS_PER_SECOND * self._burst_bytes / self._burst_ns, self._burst_cpu_ns / self._burst_ns
        self._burst_ns = self._burst_bytes = self._burst_cpu_ns = 0
        if is_seen:
            self._usual.append(rate)
        if self._is_burst(rate, vcpu, is_seen=is_seen):
            return False
        if is_seen:
            self._usual_vcpu.append(vcpu)
        return True

    def _is_burst(self, rate: float, vcpu: float, *, is_seen: bool) -> bool:
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


class Finding(Struct, frozen=True, kw_only=True):
    """A condition that was met from ``since_ns`` on, in words, and in numbers: the fields of NoticeEvidence.

    ``waited_since_ns``: what the run has waited for since then is to be named; None for growth.
    """

    kind: "NoticeKind"
    since_ns: int
    at_ns: int
    message: str
    evidence: Mapping[str, float]
    waited_since_ns: int | None = None


class RunNotices:
    """The notices of one run, in constant memory. Each kind is found once.

    A batch is stuck after ``stuck_minutes`` without work (0: never), and overdue after ``expected_seconds``.
    """

    def __init__(
        self,
        started_ns: int,
        *,
        stuck_minutes: float = 30.0,
        expected_seconds: float | None = None,
        interval_ns: int = NS_PER_SECOND,
    ) -> None:
        self._started_ns = started_ns
        self._expected_seconds = expected_seconds
        window_ns = round(stuck_minutes * 60 * NS_PER_SECOND)
        max_step_ns = max(_MAX_STEP_NS, round(_MAX_INTERVALS * interval_ns))
        self._idle = IdleTime(window_ns, max_step_ns=max_step_ns) if window_ns else None
        self._memory: GrowthToLimit | None = GrowthToLimit(started_ns)
        self._disk: GrowthToLimit | None = GrowthToLimit(started_ns)
        self.raised: tuple[RaisedNotice, ...] = ()

    def add(self, reading: NoticeReading) -> list[Finding]:
        """Add a reading; returns the conditions that are met for the first time."""
        findings: list[Finding] = []
        at_ns, idle, memory, disk = reading.at_ns, self._idle, self._memory, self._disk
        used, used_mb = reading.memory_used_bytes, reading.disk_used_mb
        if idle is not None and idle.add(reading) and idle.since_ns is not None:
            self._idle = None
            findings.append(_stuck(idle, idle.since_ns, at_ns))
        if memory and used is not None and (growth := memory.add(at_ns, used, reading.memory_size_bytes)):
            self._memory = None
            findings.append(_growing("memory", growth, at_ns, MIB))
        if disk and used_mb is not None and (growth := disk.add(at_ns, used_mb, reading.disk_size_mb)):
            self._disk = None
            findings.append(_growing("disk", growth, at_ns, 1))
        return findings

    def overdue(self, now_ns: int) -> Finding | None:
        """The finding, returned once, that the run takes longer than expected. No reading is necessary."""
        expected_seconds, elapsed_ns = self._expected_seconds, now_ns - self._started_ns
        if expected_seconds is None or elapsed_ns <= expected_seconds * NS_PER_SECOND:
            return None
        self._expected_seconds = None
        return Finding(
            kind="overdue",
            since_ns=self._started_ns + round(expected_seconds * NS_PER_SECOND),
            at_ns=now_ns,
            message=f"The run has taken {format_duration(elapsed_ns / NS_PER_MS)}; "
            f"{format_duration(1000 * expected_seconds)} were expected",
            evidence={"elapsed_seconds": round(elapsed_ns / NS_PER_SECOND, 1), "expected_seconds": expected_seconds},
            waited_since_ns=self._started_ns,
        )

    def wants_silence(self, now_ns: int) -> bool:
        """Whether the batch is nearly stuck, so that the monitor's lines should wait for a few minutes."""
        return self._idle is not None and self._idle.wants_silence(now_ns)

    def describe(self, finding: Finding, longest_wait: "Callable[[int], Wait | None]") -> "Notice":
        """The notice, which is added to the raised ones; ``longest_wait`` returns the longest wait since a time."""
        from profiler.record.notice_model import Notice, NoticeEvidence  # most runs have no notice

        wait = None if finding.waited_since_ns is None else longest_wait(finding.waited_since_ns)
        message, words = finding.message, None
        if wait is not None:
            words = f"{wait.kind} {wait.target}" if wait.target else wait_in_words(wait.kind)
            message += f"; it has waited mostly for {words}"
        self.raised = (*self.raised, RaisedNotice(kind=finding.kind, at=format_ms(finding.at_ns)))
        return Notice(
            kind=finding.kind,
            message=f"{message}.",
            since=format_ms(finding.since_ns),
            evidence=NoticeEvidence(waiting_for=words, **finding.evidence),
        )


def _stuck(idle: IdleTime, since_ns: int, at_ns: int) -> Finding:
    minutes = (at_ns - since_ns) / NS_PER_MINUTE
    return Finding(
        kind="stuck",
        since_ns=since_ns,
        at_ns=at_ns,
        message=f"The run used less than {QUIET_VCPU:g} vCPU and {_QUIET_BYTES_PER_SECOND // 1024} KB/s of network and "
        f"disk for {_minutes(minutes)}",
        evidence={
            "minutes": round(minutes, 1),
            "vcpu_used": round(idle.vcpu, VCPU_DIGITS),
            "network_bytes_per_second": round(idle.network),
            "block_bytes_per_second": round(idle.block),
        },
        waited_since_ns=since_ns,
    )


def _growing(kind: "NoticeKind", growth: Growth, at_ns: int, per_mb: float) -> Finding:
    minutes = (at_ns - growth.since_ns) / NS_PER_MINUTE
    used, size, per_minute = growth.used / per_mb, growth.size / per_mb, growth.per_minute / per_mb
    return Finding(
        kind=kind,
        since_ns=growth.since_ns,
        at_ns=at_ns,
        message=f"The run uses {format_memory(used)} of {format_memory(size)} of "
        f"{'memory' if kind == 'memory' else 'ephemeral storage'} ({100 * growth.used / growth.size:.0f} %), and has "
        f"grown by {per_minute:.1f} MB a minute for {_minutes(minutes)}: at this rate, it reaches the limit in "
        f"{_minutes(growth.minutes_left)}",
        evidence={
            "minutes": round(minutes, 1),
            "used_mb": round(used, 1),
            "size_mb": round(size, 1),
            "growth_mb_per_minute": round(per_minute, 3),
            "minutes_left": round(growth.minutes_left, 1),
        },
    )


def _minutes(count: float) -> str:
    return format_duration(60_000 * count) if count < 1 else format_count(round(count), "minute")

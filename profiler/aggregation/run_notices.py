"""Finds what a running batch may need attention for: that it is stuck, overdue, or about to
exhaust memory or disk.
"""

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import inf, isfinite
from typing import TYPE_CHECKING

from msgspec import Struct

from profiler.aggregation.idle_time import QUIET_BYTES_PER_SECOND, IdleDetector, NoticeReading
from profiler.core.optional_math import first_known
from profiler.core.timestamps import NS_PER_MINUTE, NS_PER_MS, NS_PER_SECOND, format_ms
from profiler.record.mention_limits import NEAR_FULL_SHARE, QUIET_VCPU, wait_words
from profiler.record.record_model import RaisedNotice
from profiler.record.units import (
    MIB,
    VCPU_DIGITS,
    format_duration,
    format_memory,
    format_minutes,
    format_share,
)

if TYPE_CHECKING:
    from profiler.readers.linux.wait_types import Wait
    from profiler.record.family_statistics import HighestPeak
    from profiler.record.notice_model import Notice, NoticeKind

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
# A run whose memory fills passes so many steps at most, as shares of the size.
_FULLER_STEP = 0.02
# Stats are refreshed every 20 s at least; a longer time between two readings is a gap, unless the
# interval is longer.
_MAX_STEP_NS = 30 * NS_PER_SECOND
_MAX_INTERVALS = 2.5


class GrowthFit(Struct, frozen=True):
    """The growth of the last quarter of the run, which began at ``since_ns``."""

    since_ns: int
    used: float
    size: float
    per_minute: float
    minutes_left: float


class LimitGrowthFinder:
    """Finds a quantity that grows towards its limit, in constant memory.

    Growth is the rise of the lowest values over the last quarter of the run: those of a garbage
    collector's sawtooth do not rise. It must continue in all parts of the last 15 minutes, and
    exceed all earlier values.
    """

    def __init__(self, started_ns: int) -> None:
        self._started_ns = started_ns
        self._step_ns = _FIRST_STEP_NS
        self._lows = array("d")
        self._highs = array("d")
        self._recent: dict[int, float] = {}
        self._next_check_ns = started_ns + MIN_RUN_NS

    def add_reading(self, at_ns: int, used: float, size: float | None) -> GrowthFit | None:
        """Add a reading; returns the growth if it reaches the size soon."""
        index = max(at_ns - self._started_ns, 0) // self._step_ns
        while index >= _STEPS:  # merge the steps in pairs
            self._step_ns *= 2
            for values, pick in ((self._lows, min), (self._highs, max)):
                values[:] = array(
                    "d", [pick(values[place : place + 2]) for place in range(0, len(values), 2)]
                )
            index = max(at_ns - self._started_ns, 0) // self._step_ns
        lows = self._lows
        highs = self._highs
        if index >= len(lows):
            lows.extend((inf,) * (index + 1 - len(lows)))
            highs.extend((-inf,) * (index + 1 - len(highs)))
        lows[index] = min(lows[index], used)
        highs[index] = max(highs[index], used)
        step = at_ns // _RECENT_STEP_NS
        self._recent[step] = min(used, self._recent.get(step, inf))
        if len(self._recent) > _RECENT_STEPS:
            del self._recent[next(iter(self._recent))]
        if not size or used < NEAR_FULL_SHARE * size or at_ns < self._next_check_ns:
            return None
        self._next_check_ns = at_ns + _RECENT_STEP_NS
        return self._find_growth(at_ns, used, size)

    def _find_growth(self, at_ns: int, used: float, size: float) -> GrowthFit | None:
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
            _growth_per_minute((*recent_lows, used), at_ns - recent_first * _RECENT_STEP_NS),
        )
        before = max(self._highs[:first])
        if per_minute <= 0 or not isfinite(before) or recent_lows[-1] < before + _NEW_HIGH * size:
            return None
        minutes_left = max(size - used, 0) / per_minute
        if minutes_left <= _MINUTES_LEFT:
            return GrowthFit(since_ns, used, size, per_minute, minutes_left)
        return None


def _growth_per_minute(levels: Sequence[float], length_ns: int) -> float:
    """The growth per minute over the levels of the parts' starts and the end; 0 if a part
    shrinks or is unknown.
    """
    if not all(map(isfinite, levels)):
        return 0
    steps = [after - before for before, after in pairwise(levels)]
    mean = sum(steps) / len(steps)
    if mean > 0 and min(steps) >= _MIN_PART * mean:
        return sum(steps) * NS_PER_MINUTE / length_ns
    return 0


class NoticeFinding(Struct, frozen=True, kw_only=True):
    """A condition met from ``since_ns`` on.

    What was waited for since ``waited_since_ns`` is to be named.
    """

    kind: "NoticeKind"
    since_ns: int
    at_ns: int
    message: str
    evidence: Mapping[str, float]
    waited_since_ns: int | None = None


class RunNotices:
    """The notices of one run, in constant memory, each kind once.

    ``is_fuller``: since the last line, the memory in use has passed a step that it had not reached
    before, so that who knows the family should see it now.

    ``stuck_minutes`` are without work; 0: never. ``earlier_peak`` is asked from most of the memory
    in use on: what the family's earlier successes reached, as soon as that is known; it is then
    decisive, in place of the forecast.
    """

    def __init__(
        self,
        started_ns: int,
        *,
        stuck_minutes: float = 30.0,
        expected_seconds: float | None = None,
        interval_ns: int = NS_PER_SECOND,
        earlier_peak: "Callable[[], HighestPeak | None]" = lambda: None,
    ) -> None:
        self._earlier_peak = earlier_peak
        self._started_ns = started_ns
        self._expected_seconds = first_known(expected_seconds, math.inf)
        window_ns = round(stuck_minutes * 60 * NS_PER_SECOND)
        max_step_ns = max(_MAX_STEP_NS, round(_MAX_INTERVALS * interval_ns))
        self._idle: IdleDetector | None = None
        if window_ns:
            self._idle = IdleDetector(window_ns, max_step_ns=max_step_ns)
        self._memory: LimitGrowthFinder | None = LimitGrowthFinder(started_ns)
        self._disk: LimitGrowthFinder | None = LimitGrowthFinder(started_ns)
        self.raised: tuple[RaisedNotice, ...] = ()
        self.is_fuller = False
        self._fullest_share = NEAR_FULL_SHARE - _FULLER_STEP

    def add_reading(self, reading: NoticeReading) -> list[NoticeFinding]:
        """Add a reading; returns the conditions that are met for the first time."""
        findings: list[NoticeFinding] = []
        at_ns = reading.at_ns
        idle = self._idle
        disk = self._disk
        used_mb = reading.disk_used_mb
        if idle is not None and idle.add_reading(reading) and idle.since_ns is not None:
            self._idle = None
            findings.append(_stuck_finding(idle, idle.since_ns, at_ns))
        self._write_checkpoint_if_fuller(reading)
        memory = self._memory_finding(reading)
        if memory is not None:
            self._memory = None
            findings.append(memory)
        if (
            disk
            and used_mb is not None
            and (growth := disk.add_reading(at_ns, used_mb, reading.disk_size_mb))
        ):
            self._disk = None
            findings.append(_growth_finding("disk", growth, at_ns, 1))
        return findings

    def _write_checkpoint_if_fuller(self, reading: NoticeReading) -> None:
        if reading.memory_used_bytes is None or not reading.memory_size_bytes:
            return
        share = reading.memory_used_bytes / reading.memory_size_bytes
        if share >= self._fullest_share + _FULLER_STEP:
            self._fullest_share = share
            self.is_fuller = True

    def _memory_finding(self, reading: NoticeReading) -> NoticeFinding | None:
        """The forecast or, where earlier runs are known, that the run is above all of them."""
        used = reading.memory_used_bytes
        size = reading.memory_size_bytes
        if self._memory is None or used is None:
            return None
        growth = self._memory.add_reading(reading.at_ns, used, size)
        if not size or used < NEAR_FULL_SHARE * size:
            return None
        peak = self._earlier_peak()
        if peak is not None:
            return _above_all_finding(reading.at_ns, used / MIB, size / MIB, growth, peak)
        if growth is not None:
            return _growth_finding("memory", growth, reading.at_ns, MIB)
        return None

    def find_if_overdue(self, now_ns: int) -> list[NoticeFinding]:
        """The finding, returned once, that the run takes longer than expected.

        No reading is necessary.
        """
        expected_seconds = self._expected_seconds
        elapsed_ns = now_ns - self._started_ns
        if elapsed_ns <= expected_seconds * NS_PER_SECOND:
            return []
        self._expected_seconds = math.inf
        finding = NoticeFinding(
            kind="overdue",
            since_ns=self._started_ns + round(expected_seconds * NS_PER_SECOND),
            at_ns=now_ns,
            message=f"The run has taken {format_duration(elapsed_ns / NS_PER_MS)}; "
            f"{format_duration(1000 * expected_seconds)} were expected",
            evidence={
                "elapsed_seconds": round(elapsed_ns / NS_PER_SECOND, 1),
                "expected_seconds": expected_seconds,
            },
            waited_since_ns=self._started_ns,
        )
        return [finding]

    def wants_silence(self, now_ns: int) -> bool:
        """Whether the batch is nearly stuck, so that the monitor's lines should wait for a few
        minutes.
        """
        return self._idle is not None and self._idle.wants_silence(now_ns)

    def raise_notice(
        self, finding: NoticeFinding, longest_wait: "Callable[[int], Wait | None]"
    ) -> "Notice":
        """The notice, which is added to the raised ones; ``longest_wait`` returns the longest
        wait since a time.
        """
        from profiler.record.notice_model import Notice, NoticeEvidence  # most runs have no notice

        wait = None
        if finding.waited_since_ns is not None:
            wait = longest_wait(finding.waited_since_ns)
        message = finding.message
        words = None
        if wait is not None:
            words = wait_words(wait.kind, wait.target or "")
            message += f"; it has waited mostly for {words}"
        self.raised = (*self.raised, RaisedNotice(kind=finding.kind, at=format_ms(finding.at_ns)))
        return Notice(
            kind=finding.kind,
            message=f"{message}.",
            since=format_ms(finding.since_ns),
            evidence=NoticeEvidence(waiting_for=words, **finding.evidence),
        )


def _stuck_finding(idle: IdleDetector, since_ns: int, at_ns: int) -> NoticeFinding:
    minutes = (at_ns - since_ns) / NS_PER_MINUTE
    return NoticeFinding(
        kind="stuck",
        since_ns=since_ns,
        at_ns=at_ns,
        message=f"The run used less than {QUIET_VCPU:g} vCPU and {QUIET_BYTES_PER_SECOND // 1024} "
        f"KB/s of network and disk for {format_minutes(minutes)}",
        evidence={
            "minutes": round(minutes, 1),
            "vcpu_used": round(idle.vcpu, VCPU_DIGITS),
            "network_bytes_per_second": round(idle.network),
            "block_bytes_per_second": round(idle.block),
        },
        waited_since_ns=since_ns,
    )


def _above_all_finding(
    at_ns: int, used_mb: float, size_mb: float, growth: GrowthFit | None, peak: "HighestPeak"
) -> NoticeFinding | None:
    """The run uses more than all earlier successes; None if that is no news."""
    from profiler.record.memory_news import MemoryNow, memory_news_text  # most runs have no notice

    minutes_left = None if growth is None else growth.minutes_left
    now = MemoryNow(used_mb=used_mb, size_mb=size_mb, minutes_left=minutes_left)
    text = memory_news_text(now, peak)
    if not text:
        return None
    evidence = {
        "used_mb": round(used_mb, 1),
        "size_mb": round(size_mb, 1),
        "earlier_peak_mb": peak.peak_mb,
        "earlier_runs": peak.runs,
    }
    if minutes_left is not None:
        evidence["minutes_left"] = round(minutes_left, 1)
    return NoticeFinding(
        kind="memory", since_ns=at_ns, at_ns=at_ns, message=text, evidence=evidence
    )


def _growth_finding(
    kind: "NoticeKind", growth: GrowthFit, at_ns: int, per_mb: float
) -> NoticeFinding:
    minutes = (at_ns - growth.since_ns) / NS_PER_MINUTE
    used = growth.used / per_mb
    size = growth.size / per_mb
    per_minute = growth.per_minute / per_mb
    share = format_share(growth.used, growth.size)
    return NoticeFinding(
        kind=kind,
        since_ns=growth.since_ns,
        at_ns=at_ns,
        message=f"The run uses {format_memory(used)} of {format_memory(size)} of "
        f"{'memory' if kind == 'memory' else 'ephemeral storage'} "
        f"({share}), and has grown by {per_minute:.1f} MB a "
        f"minute for {format_minutes(minutes)}: at this rate, it reaches the limit in "
        f"{format_minutes(growth.minutes_left)}",
        evidence={
            "minutes": round(minutes, 1),
            "used_mb": round(used, 1),
            "size_mb": round(size, 1),
            "growth_mb_per_minute": round(per_minute, 3),
            "minutes_left": round(growth.minutes_left, 1),
        },
    )

"""Finds what a running batch may need attention for: that it is stuck, overdue, or about to exhaust memory or disk."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from profiler.aggregation.growth import Growth, GrowthToLimit
from profiler.aggregation.idle_time import QUIET_BYTES_PER_SECOND, IdleTime
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, format_ms
from profiler.record.record_model import RaisedNotice
from profiler.record.units import MIB, VCPU_DIGITS, format_count, format_duration, format_memory
from profiler.record.worth_a_word import QUIET_VCPU, wait_in_words

if TYPE_CHECKING:
    from profiler.readers.linux.waited_target import Wait
    from profiler.record.notice_model import Notice, NoticeKind

# Stats are refreshed every 20 s at least; a longer time between two readings is a gap, unless the interval is longer.
_MAX_STEP_NS = 30 * NS_PER_SECOND
_MAX_INTERVALS = 2.5


class NoticeSettings(Struct, frozen=True, kw_only=True):
    """After how many idle minutes a batch is stuck (0: never), and after how many seconds it is overdue."""

    stuck_minutes: float = 30.0
    expected_seconds: float | None = None


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


class Finding(Struct, frozen=True, kw_only=True):
    """A condition that was met from ``since_ns`` on. ``growth`` is in the unit of the reading."""

    kind: "NoticeKind"
    since_ns: int
    at_ns: int
    vcpu: float = 0.0
    network: float = 0.0
    block: float = 0.0
    expected_seconds: float = 0.0
    growth: Growth | None = None


class RunNotices:
    """The notices of one run, in constant memory. Each kind is found once."""

    def __init__(self, settings: NoticeSettings, started_ns: int, *, interval_ns: int = NS_PER_SECOND) -> None:
        self._started_ns = started_ns
        self._expected_seconds = settings.expected_seconds
        window_ns = round(settings.stuck_minutes * 60 * NS_PER_SECOND)
        max_step_ns = max(_MAX_STEP_NS, round(_MAX_INTERVALS * interval_ns))
        self._idle = IdleTime(window_ns, max_step_ns=max_step_ns) if window_ns else None
        self._memory: GrowthToLimit | None = GrowthToLimit(started_ns)
        self._disk: GrowthToLimit | None = GrowthToLimit(started_ns)
        self.raised: tuple[RaisedNotice, ...] = ()

    def add(self, reading: NoticeReading) -> list[Finding]:
        """Add a reading; returns the conditions that are met for the first time."""
        findings, at_ns, idle = [], reading.at_ns, self._idle
        if (
            idle is not None
            and idle.add(at_ns, reading.cpu_ns, reading.network_bytes, reading.block_bytes, reading.own_line_ns)
            and idle.since_ns is not None
        ):
            self._idle = None
            findings.append(
                Finding(
                    kind="stuck",
                    since_ns=idle.since_ns,
                    at_ns=at_ns,
                    vcpu=idle.vcpu,
                    network=idle.network,
                    block=idle.block,
                )
            )
        if self._memory is not None and reading.memory_used_bytes is not None:
            growth = self._memory.add(at_ns, reading.memory_used_bytes, reading.memory_size_bytes)
            if growth is not None:
                self._memory = None
                findings.append(Finding(kind="memory", since_ns=growth.since_ns, at_ns=at_ns, growth=growth))
        if self._disk is not None and reading.disk_used_mb is not None:
            growth = self._disk.add(at_ns, reading.disk_used_mb, reading.disk_size_mb)
            if growth is not None:
                self._disk = None
                findings.append(Finding(kind="disk", since_ns=growth.since_ns, at_ns=at_ns, growth=growth))
        return findings

    def overdue(self, now_ns: int) -> Finding | None:
        """The finding, returned once, that the run takes longer than expected. No reading is necessary."""
        expected_seconds = self._expected_seconds
        if expected_seconds is None or now_ns - self._started_ns <= expected_seconds * NS_PER_SECOND:
            return None
        self._expected_seconds = None
        since_ns = self._started_ns + round(expected_seconds * NS_PER_SECOND)
        return Finding(kind="overdue", since_ns=since_ns, at_ns=now_ns, expected_seconds=expected_seconds)

    def wants_silence(self, now_ns: int) -> bool:
        """Whether the batch is nearly stuck, so that the monitor's lines should wait for a few minutes."""
        return self._idle is not None and self._idle.wants_silence(now_ns)

    def describe(self, finding: Finding, longest_wait: "Callable[[int], Wait | None]") -> "Notice":
        """The notice, which is added to the raised ones; ``longest_wait`` returns the longest wait since a time."""
        self.raised = (*self.raised, RaisedNotice(kind=finding.kind, at=format_ms(finding.at_ns)))
        # For an overdue run, the waits of its whole time count.
        wait = longest_wait(self._started_ns if finding.kind == "overdue" else finding.since_ns)
        words = None
        if wait is not None:
            words = f"{wait.kind} {wait.target}" if wait.target else wait_in_words(wait.kind)
        return describe(finding, self._started_ns, words)


def describe(finding: Finding, started_ns: int, waiting_for: str | None) -> "Notice":
    """The notice as a sentence and numbers."""
    from profiler.record.notice_model import Notice, NoticeEvidence  # most runs have no notice

    growth = finding.growth
    since_minutes = round((finding.at_ns - finding.since_ns) / (60 * NS_PER_SECOND), 1)
    since = _minutes((finding.at_ns - finding.since_ns) / (60 * NS_PER_SECOND))
    if growth is not None:
        per_mb = MIB if finding.kind == "memory" else 1
        used, size, per_minute = growth.used / per_mb, growth.size / per_mb, growth.per_minute / per_mb
        what = "memory" if finding.kind == "memory" else "ephemeral storage"
        message = (
            f"The run uses {format_memory(used)} of {format_memory(size)} of {what} "
            f"({100 * growth.used / growth.size:.0f} %), and has grown by {per_minute:.1f} MB a minute for {since}: "
            f"at this rate, it reaches the limit in {_minutes(growth.minutes_left)}"
        )
        evidence = NoticeEvidence(
            minutes=since_minutes,
            used_mb=round(used, 1),
            size_mb=round(size, 1),
            growth_mb_per_minute=round(per_minute, 3),
            minutes_left=round(growth.minutes_left, 1),
        )
    elif finding.kind == "overdue":
        elapsed_ns = finding.at_ns - started_ns
        message = (
            f"The run has taken {format_duration(elapsed_ns / NS_PER_MS)}; "
            f"{format_duration(1000 * finding.expected_seconds)} were expected"
        )
        evidence = NoticeEvidence(
            elapsed_seconds=round(elapsed_ns / NS_PER_SECOND, 1),
            expected_seconds=finding.expected_seconds,
            waiting_for=waiting_for,
        )
    else:
        message = (
            f"The run used less than {QUIET_VCPU:g} vCPU and {QUIET_BYTES_PER_SECOND // 1024} KB/s of network and disk "
            f"for {since}"
        )
        evidence = NoticeEvidence(
            minutes=since_minutes,
            vcpu_used=round(finding.vcpu, VCPU_DIGITS),
            network_bytes_per_second=round(finding.network),
            block_bytes_per_second=round(finding.block),
            waiting_for=waiting_for,
        )
    if evidence.waiting_for is not None:
        message += f"; it has waited mostly for {evidence.waiting_for}"
    at = format_ms(finding.since_ns)
    return Notice(kind=finding.kind, message=f"{message}.", since=at, evidence=evidence)


def _minutes(count: float) -> str:
    return format_duration(60_000 * count) if count < 1 else format_count(round(count), "minute")

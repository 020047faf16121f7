"""Divides the wall time of a run: on a CPU, waiting for a CPU, and blocked by what the run
waited for.

The time of each step is divided by the counters of the kernel, and its blocked part belongs to the
kind that the sample at its end shows. Of threads that wait for a CPU at the same time, the longest
wait counts, and also the wait of one that began in the step, which may follow another. Idle time of
the GPUs has the same share of each part of a step.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aggregation.recent_waits import RecentWaits
from profiler.aggregation.run_evidence import Activity
from profiler.aggregation.time_series import RunSeries
from profiler.aggregation.unread_time import UnreadTime
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.readers.linux.cpu_pressure import CpuPressure, CpuWaitLimits
from profiler.readers.linux.thread_times import ThreadGrowth, ThreadSample
from profiler.readers.linux.waited_target import TIMER, Wait
from profiler.record.activity_model import TimeBreakdown, WaitTarget
from profiler.record.record_model import Record
from profiler.record.units import format_percent
from profiler.record.worth_a_word import is_cpu_wait_partial

# The first of these kinds that any thread shows counts. A thread that waits for other threads is
# the weaker evidence.
_KINDS = ("disk", "network", "sleep", "pipe", "lock", "child", "other")
# A thread that waits for a futex for a limited time may be what others wait for, or a bystander.
_ORDER = ("disk", "network", "sleep", "pipe", TIMER.kind, "lock", "child", "other")
# They show nothing in a partial sample: another thread may have shown more.
_WEAK_KINDS = (TIMER.kind, "lock", "child", "other")
# Others show nothing while a thread is on a CPU: what that thread waits for before or after counts,
# and not a thread that only waits, such as a progress bar that sleeps, or a shell that waits for a
# job's output.
_STRONG_KINDS = ("disk", "network")
_SEEN_WITHOUT_PRIVILEGE = ("disk", "other")
_OTHER = "other"
# A sample covers up to this many intervals before it, and this time in any case. The rest is a gap:
# a pause that limits the profiler's cost, or a late reading.
_COVERED_INTERVALS = 1.5
_MIN_COVERED_NS = NS_PER_SECOND // 4
# Steps whose division may still change: by a wait for a CPU that ends later, or by a later sample
# that is nearer.
_MAX_OPEN_STEPS = 64
# Where threads that were not read had a larger share of a CPU in a step, they may also have waited
# for one for long.
_MAX_UNREAD_SHARE = 0.05
# System calls that could not be read for a longer part of the run hide too much.
_MAX_HIDDEN_SHARE = 0.05
# The most threads whose last wait for a CPU is remembered: a thread may begin the next one in the
# same step.
_MAX_REMEMBERED = 512
# Linux 6.18 sometimes counts the time in which a thread was blocked as a wait for a CPU, on a
# machine with much to do. So where many threads have waited, the wait of a thread that has hardly
# run does not count if it is this many times as long as the wait of nine in ten threads.
_MIN_THREADS = 16
_MAX_TIMES_OTHERS = 4
_MAX_WAIT_PER_RUN = 1000
# The most values of readings that wait to be added.
_MAX_BUFFERED = 2000
_MAX_TARGETS_SHOWN = 8
_MAX_TARGETS_KEPT = 64
_REST = (_OTHER, _OTHER)
_PERCENT_DIGITS = 1
_UNITS = 1000  # 100 % in tenths
IdleBetween = Callable[[int, int], int]


class _Shown(Struct, frozen=True, gc=False):
    """The kind that the sample at ``at_ns`` shows, and how many of the threads of this kind wait
    for which target.
    """

    at_ns: int
    kind: str
    targets: tuple[tuple[str | None, int], ...] = ()
    is_hidden: bool = False

    def is_like(self, other: "_Shown") -> bool:
        """Whether both show the same wait; the number of threads may differ."""
        return self.kind == other.kind and dict(self.targets).keys() == dict(other.targets).keys()

    def divide(self, time_ns: int) -> Iterator[tuple[Wait, int]]:
        threads = sum(count for _, count in self.targets)
        return (
            (Wait(self.kind, target), time_ns * count // threads) for target, count in self.targets
        )


def _shown(sample: ThreadSample, at_ns: int) -> _Shown | None:
    """What the sample shows; None if no thread is blocked, or another thread's wait counts."""
    kinds = {wait.kind for wait in sample.waits}
    kind = next((kind for kind in _ORDER if kind in kinds), None)
    if kind is None or (sample.is_partial and kind in _WEAK_KINDS):
        return None
    if sample.has_running and kind not in _STRONG_KINDS:
        return None
    targets = tuple(
        (wait.target, count) for wait, count in sample.waits.items() if wait.kind == kind
    )
    if kind == TIMER.kind:
        kind = "sleep"
    return _Shown(at_ns, kind, targets, is_hidden=sample.has_refused and kind == _OTHER)


class _Step(Struct):
    """A step of the run, until its division is final.

    ``covered_ns`` is the part that the sample at its end covers, ``unknown_ns`` the part of which
    it shows nothing. ``longest_ns`` is the longest wait of a thread for a CPU, ``brief_ns`` the
    wait of a thread that began in the step. ``has_unread``: threads have ended unread, while
    threads waited for a CPU within the limits of ``cpu_wait``; ``shows_work`` is of the sample at
    its end.
    """

    start_ns: int
    end_ns: int
    run_ns: int
    covered_ns: int
    unknown_ns: int
    shown: _Shown | None
    longest_ns: int = 0
    brief_ns: int = 0
    has_unread: bool = False
    shows_work: bool = False
    cpu_wait: CpuWaitLimits = CpuWaitLimits()

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def wait_ns(self) -> int:
        return self.longest_ns + self.brief_ns


class _Parts(Struct):
    """The sums over steps. ``undecided_ns`` is the blocked time that no sample explains so far."""

    length_ns: int = 0
    undecided_ns: int = 0
    on_cpu_ns: int = 0
    waiting_ns: int = 0
    covered_ns: int = 0
    hidden_ns: int = 0
    blocked_ns: Counter[str] = field(default_factory=Counter)
    targets_ns: Counter[tuple[str, str]] = field(default_factory=Counter)
    unread: UnreadTime = field(default_factory=UnreadTime)

    def add(self, step: _Step, part_ns: int, before: _Shown | None, after: _Shown | None) -> None:
        """Add ``part_ns`` of the time of a step; ``before`` and ``after`` are the samples around
        it.

        Blocked time that no sample covers belongs to what the samples around it show, if that is
        the same.
        """
        shown = step.shown
        if self.undecided_ns and shown is not None:
            self.add_blocked(self.undecided_ns, shown)
            self.undecided_ns = 0
        if not part_ns:  # as the idle part of each step without a GPU
            return
        on_cpu_ns = min(step.length_ns, step.run_ns)
        waiting_ns = min(step.length_ns - on_cpu_ns, step.wait_ns)
        on_cpu_ns = on_cpu_ns * part_ns // step.length_ns
        waiting_ns = waiting_ns * part_ns // step.length_ns
        self.length_ns += part_ns
        self.on_cpu_ns += on_cpu_ns
        self.waiting_ns += waiting_ns
        self.covered_ns += step.covered_ns * part_ns // step.length_ns
        if step.has_unread:
            self._add_unread(step, part_ns, on_cpu_ns + waiting_ns)
            return
        blocked_ns = part_ns - on_cpu_ns - waiting_ns
        end = shown or after
        if step.unknown_ns and (before is None or (end is not None and not before.is_like(end))):
            unknown_ns = blocked_ns * step.unknown_ns // step.length_ns
            self.blocked_ns[_OTHER] += unknown_ns
            blocked_ns -= unknown_ns
        if shown is None and (
            known := [sample for sample in (before, after) if sample is not None]
        ):
            middle_ns = (step.start_ns + step.end_ns) // 2
            shown = min(known, key=lambda sample: abs(sample.at_ns - middle_ns))
        if shown is None:
            self.undecided_ns += blocked_ns
        else:
            self.add_blocked(blocked_ns, shown)

    def _add_unread(self, step: _Step, part_ns: int, known_ns: int) -> None:
        """Add a step of whose threads some were not read; what its sample does not cover is
        unknown.
        """
        sampled_ns = step.length_ns - step.unknown_ns
        gap_ns = (part_ns - known_ns) * step.unknown_ns // step.length_ns
        self.blocked_ns[_OTHER] += gap_ns
        length_ns = part_ns * sampled_ns // step.length_ns
        possible_ns = step.cpu_wait.most_ns
        if possible_ns is not None:
            possible_ns = max(possible_ns - step.wait_ns, 0) * part_ns // step.length_ns
        certain_ns = max(step.cpu_wait.least_ns - step.wait_ns, 0) * part_ns // step.length_ns
        self.unread.add(
            length_ns=length_ns,
            known_ns=length_ns - (part_ns - known_ns - gap_ns),
            possible_ns=possible_ns,
            certain_ns=certain_ns,
        )
        if step.shows_work:
            self.unread.add_working_sample()
        elif step.shown is not None:
            self.unread.add_blocked_sample(dict(step.shown.divide(length_ns)))
            self.hidden_ns += part_ns - known_ns if step.shown.is_hidden else 0

    def divide_unread(self) -> None:
        """Add the parts of the steps with unread threads, and forget the steps."""
        parts = self.unread.parts()
        self.unread = UnreadTime()
        self.waiting_ns += parts.waiting_ns
        self.blocked_ns[_OTHER] += parts.unknown_ns
        self.covered_ns = max(self.covered_ns - parts.unknown_ns, 0)
        for wait, blocked_ns in parts.blocked_ns.items():
            self.blocked_ns[wait.kind] += blocked_ns
            if wait.target is not None and blocked_ns:
                self.targets_ns[wait.kind, wait.target] += blocked_ns

    def add_blocked(self, blocked_ns: int, shown: _Shown) -> None:
        """Add blocked time, divided among the threads of the kind that counts."""
        self.hidden_ns += blocked_ns if shown.is_hidden else 0
        self.blocked_ns[shown.kind] += blocked_ns
        for wait, time_ns in shown.divide(blocked_ns):
            if wait.target is not None and blocked_ns:
                self.targets_ns[wait.kind, wait.target] += time_ns
        if len(self.targets_ns) > _MAX_TARGETS_KEPT:
            kept = Counter(dict(self.targets_ns.most_common(_MAX_TARGETS_KEPT // 2)))
            kept[_REST] += self.targets_ns.total() - kept.total()
            self.targets_ns = kept

    def copy(self) -> "_Parts":
        return replace(
            self,
            blocked_ns=self.blocked_ns.copy(),
            targets_ns=self.targets_ns.copy(),
            unread=self.unread.copy(),
        )

    def breakdown(
        self, *, sees_calls: bool, has_waits: bool, duration_ns: int | None
    ) -> TimeBreakdown:
        """The sums in percent. ``otherPercent`` is the time of unknown kind."""
        is_full = sees_calls and self.hidden_ns <= _MAX_HIDDEN_SHARE * self.length_ns
        kinds = [
            kind for kind in (_KINDS if is_full else _SEEN_WITHOUT_PRIVILEGE) if kind != _OTHER
        ]
        parts = {"on_cpu": self.on_cpu_ns}
        if has_waits:
            parts["waiting_for_cpu"] = self.waiting_ns
        parts.update({kind: self.blocked_ns[kind] for kind in kinds})
        parts[_OTHER] = self.length_ns - sum(parts.values())
        percents = percents_of(parts)
        covered = 100 * self.covered_ns / max(duration_ns or 0, self.length_ns)
        return TimeBreakdown(
            **{f"{name}_percent": percent for name, percent in percents.items()},
            waiting_for=self._waiting_for(percents) if is_full else (),
            covered_percent=round(covered, _PERCENT_DIGITS),
        )

    def _waiting_for(self, percents: Mapping[str, float]) -> tuple[WaitTarget, ...]:
        rest_ns = self.targets_ns[_REST]
        ordered = [(key, time_ns) for key, time_ns in self.targets_ns.most_common() if key != _REST]
        rest_ns += sum(time_ns for _, time_ns in ordered[_MAX_TARGETS_SHOWN:])
        rows = [
            WaitTarget(
                kind=kind, target=target, percent=min(self._percent(time_ns), percents[kind])
            )
            for (kind, target), time_ns in ordered[:_MAX_TARGETS_SHOWN]
        ]
        rows.append(WaitTarget(kind=_OTHER, target=_OTHER, percent=self._percent(rest_ns)))
        return tuple(row for row in rows if row.percent)

    def _percent(self, time_ns: int) -> float:
        return round(100 * time_ns / self.length_ns, _PERCENT_DIGITS)


def wait_warnings(record: Record) -> tuple[str, ...]:
    """A sentence if waits for a CPU are missing."""
    if record.sampling is None or not is_cpu_wait_partial(record):
        return ()
    missing = format_percent(100 - (record.sampling.cpu_wait_covered_percent or 0))
    return (
        (
            f"The time waiting for a CPU is a lower bound: threads ended before {missing} of the "
            "CPU time was read."
        ),
    )


def percents_of(parts: Mapping[str, int]) -> dict[str, float]:
    """Shares in percent with one decimal that add up to 100, by the method of the largest
    remainder.
    """
    total = sum(parts.values())
    units = {name: value * _UNITS // total for name, value in parts.items()}
    by_remainder = sorted(parts, key=lambda name: -(parts[name] * _UNITS % total))
    for name in by_remainder[: _UNITS - sum(units.values())]:
        units[name] += 1
    return {name: round(100 * value / _UNITS, _PERCENT_DIGITS) for name, value in units.items()}


class TimeAccount:
    """Divides the time of one run step by step, in constant memory; without ``started_ns``, from
    the first reading on.

    ``idle_ns`` returns for how long all GPUs were idle between two moments, on the clock of
    ``started_ns``.
    """

    def __init__(
        self, started_ns: int | None, interval_ns: int, idle_ns: IdleBetween | None = None
    ) -> None:
        self._until_ns = started_ns
        self._idle_ns = idle_ns
        self._max_covered_ns = max(round(_COVERED_INTERVALS * interval_ns), _MIN_COVERED_NS)
        self._cpu_ns = 0
        self._wait_ns = self._run_ns = 0  # of the threads that were read
        self._pressure: CpuPressure | None = None  # as of the last sample
        self._has_waits = False
        self._sees_calls = False
        self._is_sampled = False
        self._readings: list[tuple[int, int, ThreadSample]] = []
        self._buffered = 0
        self._steps: deque[_Step] = deque()
        self._last_waits: dict[int, tuple[int, int]] = {}
        self._for_series: deque[tuple[int, int, int, bool]] = deque(maxlen=2 * _MAX_OPEN_STEPS)
        self._parts = _Parts()
        self._idle_parts = _Parts()
        self.recent_waits = RecentWaits()  # as of the last :meth:`flush`
        self._last_shown: _Shown | None = None

    def add(
        self, read_ns: int, cpu_ns: int, sample: ThreadSample, series: RunSeries | None = None
    ) -> None:
        """Add a reading at the end of a step: the CPU time so far, and the threads.

        The series gets their waits.
        """
        self._readings.append((read_ns, cpu_ns, sample))
        self._buffered += 1 + len(sample.growth or ()) + len(sample.waits)
        if self._buffered > _MAX_BUFFERED:
            self.flush(series)

    def finish(
        self, read_ns: int, cpu_ns: int, last: ThreadSample, series: RunSeries | None = None
    ) -> None:
        """Add the end of the run.

        If no thread was readable any more, it waited for a CPU as in the step before.
        """
        self.flush(series)
        before = self._steps[-1] if self._steps else None
        step = self._add_step(read_ns, cpu_ns, last, series)
        if step is not None:
            step.has_unread = False  # no sample is left that could show more
        if step is not None and before is not None and not last.growth:
            idle_ns, idle_before_ns = (
                max(part.length_ns - part.run_ns, 0) for part in (step, before)
            )
            step.longest_ns = (
                idle_ns * min(before.wait_ns, idle_before_ns) // max(idle_before_ns, 1)
            )

    def activity(self, duration_ms: float | None, cpu_ns: int) -> Activity:
        """What the processes did, as of the last :meth:`flush`; ``cpu_ns`` is their CPU time."""
        duration_ns = None
        if duration_ms is not None:
            duration_ns = round(duration_ms * NS_PER_MS)
        return Activity(
            breakdown=self.breakdown(duration_ns),
            while_idle=self.breakdown(is_idle=True),
            cpu_wait_ns=self._wait_ns if self._has_waits else None,
            read_cpu_ns=self._run_ns,
            cpu_ns=cpu_ns,
        )

    def breakdown(
        self, duration_ns: int | None = None, *, is_idle: bool = False
    ) -> TimeBreakdown | None:
        """The division of the whole time, or of that in which all GPUs were idle, as of the last
        :meth:`flush`.
        """
        if not self._is_sampled:
            return None
        parts = (self._idle_parts if is_idle else self._parts).copy()
        last_shown = self._last_shown
        for index, step in enumerate(self._steps):
            part_ns = self._idle_part_ns(step) if is_idle else step.length_ns
            parts.add(step, part_ns, last_shown, self._following(index))
            last_shown = step.shown or last_shown
        parts.blocked_ns[_OTHER] += parts.undecided_ns
        parts.divide_unread()
        if not parts.length_ns:
            return None
        return parts.breakdown(
            sees_calls=self._sees_calls, has_waits=self._has_waits, duration_ns=duration_ns
        )

    def _idle_part_ns(self, step: _Step) -> int:
        if self._idle_ns:
            return min(self._idle_ns(step.start_ns, step.end_ns), step.length_ns)
        return 0

    def flush(self, series: RunSeries | None) -> None:
        """Add the readings that wait, also to the series.

        Many at once cost a third of one after the other.
        """
        for read_ns, cpu_ns, sample in self._readings:
            self._add_step(read_ns, cpu_ns, sample, series)
        self._readings.clear()
        self._buffered = 0

    def _add_step(
        self, read_ns: int, cpu_ns: int, sample: ThreadSample, series: RunSeries | None
    ) -> _Step | None:
        growth = sample.growth or ()
        self._is_sampled = True
        self._sees_calls = self._sees_calls or sample.sees_calls
        self._has_waits = self._has_waits or sample.growth is not None
        self._wait_ns += sum(grown.wait_ns for grown in growth)
        self._run_ns += sum(grown.run_ns for grown in growth)
        start_ns = self._until_ns
        run_ns = max(cpu_ns - self._cpu_ns, 0)
        if start_ns is not None and read_ns <= start_ns:
            return None
        self._until_ns = read_ns
        self._cpu_ns = cpu_ns
        if start_ns is None:
            return None
        covered_ns = min(read_ns - start_ns, self._max_covered_ns)
        shown = _shown(sample, read_ns)
        length_ns = read_ns - start_ns
        if shown is None and sample.is_partial and sample.waits:
            unknown_ns = length_ns
        else:
            unknown_ns = length_ns - covered_ns
        step = _Step(start_ns, read_ns, run_ns, covered_ns, unknown_ns, shown)
        read_run_ns = sum(grown.run_ns for grown in growth)
        if sample.is_behind or sample.growth is None:
            unread_ns = 0
        else:
            unread_ns = run_ns - read_run_ns
        step.has_unread = unread_ns > _MAX_UNREAD_SHARE * length_ns
        step.shows_work = sample.shows_work
        if sample.pressure is not None:
            step.cpu_wait = sample.pressure.limits_since(self._pressure)
        self._pressure = sample.pressure
        self._steps.append(step)
        self._add_waits(step, growth, series)
        if shown is not None and not (step.has_unread and step.shows_work):
            self.recent_waits.add(
                start_ns, read_ns, dict(shown.divide(max(covered_ns - run_ns, 0)))
            )
        if len(self._steps) > _MAX_OPEN_STEPS:
            following = self._following(0)
            first = self._steps.popleft()
            self._parts.add(first, first.length_ns, self._last_shown, following)
            self._idle_parts.add(first, self._idle_part_ns(first), self._last_shown, following)
            self._last_shown = first.shown or self._last_shown
        return step

    def _add_waits(
        self, step: _Step, growth: Sequence[ThreadGrowth], series: RunSeries | None
    ) -> None:
        """Add the waits to the step in which they ended.

        The excess of a wait belongs to the steps before.
        """
        # The longest wait in one step that the waits of the other threads make plausible.
        sum_ns = 0
        limit_ns = math.inf
        waits_ns = sorted([grown.wait_ns // grown.steps for grown in growth if grown.wait_ns])
        if len(waits_ns) >= _MIN_THREADS:
            limit_ns = _MAX_TIMES_OTHERS * waits_ns[len(waits_ns) * 9 // 10]
        late: list[tuple[ThreadGrowth, int]] = []
        for grown in growth:
            if grown.wait_ns > max(limit_ns * grown.steps, _MAX_WAIT_PER_RUN * grown.run_ns):
                continue
            if grown.steps > 1:
                self._spread_wait(grown)
                continue
            within_ns = min(grown.wait_ns, max(step.length_ns - grown.run_ns, 0))
            sum_ns += within_ns
            if grown.is_new:
                step.brief_ns = max(step.brief_ns, within_ns)
            else:
                step.longest_ns = max(step.longest_ns, within_ns)
            if grown.wait_ns > within_ns:
                late.append((grown, grown.wait_ns - within_ns))
        self._for_series.append((step.start_ns, step.end_ns, sum_ns, False))
        self._add_late(late)
        if len(self._last_waits) > _MAX_REMEMBERED:
            self._last_waits.clear()
        self._last_waits.update(
            (grown.thread, (step.end_ns, grown.wait_ns)) for grown in growth if grown.wait_ns
        )
        while series is not None and self._for_series:  # there is none before the second sample
            start_ns, end_ns, wait_ns, is_late = self._for_series.popleft()
            series.spread(series.cpu_wait, start_ns, end_ns, wait_ns, is_late=is_late)

    def _add_late(self, late: list[tuple[ThreadGrowth, int]]) -> None:
        """Add waits to the steps before the one in which they ended: they fill the last part of
        these steps.
        """
        before = islice(reversed(self._steps), 1, None)
        while late and (earlier := next(before, None)) is not None:
            sum_ns = 0
            left = []
            for grown, late_ns in late:
                part_ns = min(late_ns, earlier.length_ns)
                sum_ns += part_ns
                ended_ns, before_ns = self._last_waits.get(grown.thread, (0, 0))
                before_ns = before_ns if ended_ns == earlier.end_ns else 0
                earlier.longest_ns = max(
                    earlier.longest_ns, min(part_ns + before_ns, earlier.length_ns)
                )
                if late_ns > part_ns:
                    left.append((grown, late_ns - part_ns))
            self._for_series.append((earlier.start_ns, earlier.end_ns, sum_ns, True))
            late = left

    def _spread_wait(self, grown: ThreadGrowth) -> None:
        """Add the wait of a thread that was not read in each step."""
        steps = tuple(self._steps)[-grown.steps :]
        length_ns = sum(step.length_ns for step in steps)
        for step in steps:
            part_ns = grown.wait_ns * step.length_ns // length_ns
            step.longest_ns = max(step.longest_ns, part_ns)
            self._for_series.append((step.start_ns, step.end_ns, part_ns, True))

    def _following(self, index: int) -> _Shown | None:
        """The first sample after a step that shows a blocked thread."""
        later = (self._steps[position] for position in range(index + 1, len(self._steps)))
        return next((step.shown for step in later if step.shown is not None), None)

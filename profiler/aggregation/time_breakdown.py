"""Divides the wall time of a run: on a CPU, waiting for a CPU, and blocked by what the run waited for.

The time of each step is divided by the counters of the kernel, and its blocked part belongs to the kind that the sample
at its end shows.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.time_series import RunSeries
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.readers.linux.thread_times import ThreadGrowth, ThreadSample
from profiler.record.activity_model import TimeBreakdown, WaitTarget
from profiler.record.record_model import Record
from profiler.record.units import CPU_SECONDS_DIGITS

# Of all threads the first of these kinds counts. A thread that waits for others says less than one that does not.
_KINDS = ("disk", "network", "sleep", "pipe", "lock", "child", "other")
_SEEN_WITHOUT_PRIVILEGE = ("disk", "other")
_OTHER = "other"
# A sample covers a step of up to this many usual steps, and a step of this length in any case.
_MAX_USUAL_STEPS = 2.5
_MAX_SHORT_STEP_NS = NS_PER_SECOND // 4
# Steps whose division may still change: by a wait for a CPU that ends later, or by a later sample that is nearer.
_MAX_OPEN_STEPS = 64
# System calls that could not be read for a longer part of the run hide too much.
_MAX_HIDDEN_SHARE = 0.05
# The most values of readings that wait to be added.
_MAX_BUFFERED = 2000
_MAX_TARGETS_SHOWN = 8
_MAX_TARGETS_KEPT = 64
_REST = (_OTHER, _OTHER)
_PERCENT_DIGITS = 1
_UNITS = 1000  # 100 % in tenths


class _Shown(Struct, frozen=True, gc=False):
    """The kind that a sample shows, and how many of the threads of this kind wait for which target."""

    kind: str
    targets: tuple[tuple[str | None, int], ...] = ()
    is_hidden: bool = False


class _Step:
    """A step of the run, until its division is final. ``is_covered`` is False for a gap between two readings."""

    __slots__ = ("end_ns", "is_covered", "run_ns", "shown", "start_ns", "wait_ns")

    def __init__(self, start_ns: int, end_ns: int, run_ns: int, shown: _Shown | None, *, is_covered: bool) -> None:
        self.start_ns = start_ns
        self.end_ns = end_ns
        self.run_ns = run_ns
        self.wait_ns = 0
        self.shown = shown
        self.is_covered = is_covered

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


class _Parts:
    """The sums over steps."""

    def __init__(self) -> None:
        self.length_ns = 0
        self.on_cpu_ns = 0
        self.waiting_ns = 0
        self.covered_ns = 0
        self.hidden_ns = 0
        self.blocked_ns: Counter[str] = Counter()
        self.targets_ns: Counter[tuple[str, str]] = Counter()

    def add(self, step: _Step) -> int:
        """Add the time of a step, except what was blocked: that is returned."""
        on_cpu_ns = min(step.length_ns, step.run_ns)
        waiting_ns = min(step.length_ns - on_cpu_ns, step.wait_ns)
        self.length_ns += step.length_ns
        self.on_cpu_ns += on_cpu_ns
        self.waiting_ns += waiting_ns
        self.covered_ns += step.length_ns if step.is_covered else 0
        return step.length_ns - on_cpu_ns - waiting_ns

    def add_blocked(self, blocked_ns: int, shown: _Shown) -> None:
        """Add blocked time, divided among the threads of the kind that counts."""
        self.hidden_ns += blocked_ns if shown.is_hidden else 0
        self.blocked_ns[shown.kind] += blocked_ns
        threads = sum(count for _, count in shown.targets)
        for target, count in shown.targets:
            if target is not None and blocked_ns:
                self.targets_ns[shown.kind, target] += blocked_ns * count // threads
        if len(self.targets_ns) > _MAX_TARGETS_KEPT:
            kept = Counter(dict(self.targets_ns.most_common(_MAX_TARGETS_KEPT // 2)))
            kept[_REST] += self.targets_ns.total() - kept.total()
            self.targets_ns = kept

    def copy(self) -> "_Parts":
        copied = _Parts()
        for name, value in vars(self).items():
            setattr(copied, name, value.copy() if isinstance(value, Counter) else value)
        return copied

    def breakdown(self, *, sees_calls: bool, has_waits: bool, duration_ns: int | None) -> TimeBreakdown:
        """The sums in percent. What cannot be told is in ``otherPercent``."""
        is_full = sees_calls and self.hidden_ns <= _MAX_HIDDEN_SHARE * self.length_ns
        kinds = [kind for kind in (_KINDS if is_full else _SEEN_WITHOUT_PRIVILEGE) if kind != _OTHER]
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
        """The targets with the most time, and one row for the rest."""
        rest_ns = self.targets_ns[_REST]
        ordered = [(key, time_ns) for key, time_ns in self.targets_ns.most_common() if key != _REST]
        rest_ns += sum(time_ns for _, time_ns in ordered[_MAX_TARGETS_SHOWN:])
        rows = [
            WaitTarget(kind=kind, target=target, percent=min(self._percent(time_ns), percents[kind]))
            for (kind, target), time_ns in ordered[:_MAX_TARGETS_SHOWN]
        ]
        rows.append(WaitTarget(kind=_OTHER, target=_OTHER, percent=self._percent(rest_ns)))
        return tuple(row for row in rows if row.percent)

    def _percent(self, time_ns: int) -> float:
        return round(100 * time_ns / self.length_ns, _PERCENT_DIGITS)


def percents_of(parts: Mapping[str, int]) -> dict[str, float]:
    """Shares in percent with one decimal that add up to 100, by the method of the largest remainder."""
    total = sum(parts.values())
    units = {name: value * _UNITS // total for name, value in parts.items()}
    by_remainder = sorted(parts, key=lambda name: -(parts[name] * _UNITS % total))
    for name in by_remainder[: _UNITS - sum(units.values())]:
        units[name] += 1
    return {name: round(100 * value / _UNITS, _PERCENT_DIGITS) for name, value in units.items()}


class TimeAccount:
    """Divides the time of one run step by step, in constant memory.

    Args:
        started_ns: The start of the run; None if it is unknown: the first reading is then the start.
        interval_ns: The usual step.
    """

    def __init__(self, started_ns: int | None, interval_ns: int) -> None:
        self._until_ns = started_ns
        self._interval_ns = interval_ns
        self._last_length_ns = 0
        self._cpu_ns = 0
        self._wait_ns = 0
        self._has_waits = False
        self._sees_calls = False
        self._is_sampled = False
        self._readings: list[tuple[int, int, ThreadSample]] = []
        self._buffered = 0
        self._steps: deque[_Step] = deque()
        self._for_series: deque[tuple[int, int, int, bool]] = deque(maxlen=2 * _MAX_OPEN_STEPS)
        self._parts = _Parts()
        self._last_shown: tuple[int, _Shown] | None = None
        self._undecided_ns = 0

    def add(self, read_ns: int, cpu_ns: int, sample: ThreadSample, series: RunSeries | None = None) -> None:
        """Add a reading at the end of a step.

        Args:
            read_ns: The time of the reading, on the clock of ``started_ns``.
            cpu_ns: The CPU time of the run so far.
            sample: The threads since the last reading.
            series: Gets the waits for a CPU.
        """
        self._readings.append((read_ns, cpu_ns, sample))
        self._buffered += 1 + len(sample.growth or ()) + len(sample.waits)
        if self._buffered > _MAX_BUFFERED:
            self.flush(series)

    def finish(self, read_ns: int, cpu_ns: int, last: ThreadSample, series: RunSeries | None = None) -> None:
        """Add the end of the run.

        If no thread of it was readable any more, it is assumed to have waited for a CPU as much as in the step before.
        """
        self.flush(series)
        before = self._steps[-1] if self._steps else None
        step = self._add_step(read_ns, cpu_ns, last, series)
        if step is not None and before is not None and not last.growth:
            idle_ns, idle_before_ns = (max(part.length_ns - part.run_ns, 0) for part in (step, before))
            step.wait_ns = idle_ns * min(before.wait_ns, idle_before_ns) // max(idle_before_ns, 1)

    def added_to(self, record: Record, cpu_ns: int) -> Record:
        """Return the record with the division and the waits for a CPU, as of the last :meth:`flush`.

        ``cpu_ns`` is the CPU time of the run.
        """
        duration_ms = record.metrics.duration_ms
        breakdown = self._breakdown(None if duration_ms is None else round(duration_ms * NS_PER_MS))
        if breakdown is None or not self._has_waits:
            return replace(record, time_breakdown=breakdown)
        metrics = replace(
            record.metrics,
            cpu_wait_seconds=round(self._wait_ns / NS_PER_SECOND, CPU_SECONDS_DIGITS),
            cpu_wait_percent=round(100 * self._wait_ns / max(self._wait_ns + cpu_ns, 1), _PERCENT_DIGITS),
        )
        return replace(record, metrics=metrics, time_breakdown=breakdown)

    def _breakdown(self, duration_ns: int | None) -> TimeBreakdown | None:
        """The division so far; None without a sample. ``duration_ns`` is the length of the run, if it is known."""
        if not self._is_sampled:
            return None
        parts, last_shown, undecided_ns = self._parts.copy(), self._last_shown, self._undecided_ns
        for index, step in enumerate(self._steps):
            last_shown, more_ns = _settle(step, parts, last_shown, self._following(index))
            undecided_ns += more_ns
        if undecided_ns:
            following = self._following(-1)
            parts.add_blocked(undecided_ns, _Shown(_OTHER) if following is None else following[1])
        if not parts.length_ns:
            return None
        return parts.breakdown(sees_calls=self._sees_calls, has_waits=self._has_waits, duration_ns=duration_ns)

    def flush(self, series: RunSeries | None) -> None:
        """Add the readings that wait, also to the series. Many at once cost a third of one after the other."""
        for read_ns, cpu_ns, sample in self._readings:
            self._add_step(read_ns, cpu_ns, sample, series)
        self._readings.clear()
        self._buffered = 0

    def _add_step(self, read_ns: int, cpu_ns: int, sample: ThreadSample, series: RunSeries | None) -> _Step | None:
        growth = sample.growth or ()
        self._is_sampled = True
        self._sees_calls = self._sees_calls or sample.sees_calls
        self._has_waits = self._has_waits or sample.growth is not None
        self._wait_ns += sum(grown.wait_ns for grown in growth)
        start_ns, run_ns = self._until_ns, max(cpu_ns - self._cpu_ns, 0)
        if start_ns is not None and read_ns <= start_ns:
            return None
        self._until_ns, self._cpu_ns = read_ns, cpu_ns
        if start_ns is None:
            return None
        length_ns = read_ns - start_ns
        usual_ns = max(self._interval_ns, self._last_length_ns)
        is_covered = length_ns <= max(_MAX_USUAL_STEPS * usual_ns, _MAX_SHORT_STEP_NS)
        self._last_length_ns = length_ns
        step = _Step(start_ns, read_ns, run_ns, _shown_by(sample), is_covered=is_covered)
        self._steps.append(step)
        self._add_waits(step, growth, series)
        if len(self._steps) > _MAX_OPEN_STEPS:
            self._close_first_step()
        return step

    def _add_waits(self, step: _Step, growth: Iterable[ThreadGrowth], series: RunSeries | None) -> None:
        """Add the waits to the step in which they ended; what they exceed it by belongs to the steps before."""
        late: list[int] = []
        for grown in growth:
            if grown.steps > 1:
                self._spread_wait(grown)
                continue
            within_ns = min(grown.wait_ns, max(step.length_ns - grown.run_ns, 0))
            step.wait_ns += within_ns
            if grown.wait_ns > within_ns:
                late.append(grown.wait_ns - within_ns)
        self._for_series.append((step.start_ns, step.end_ns, step.wait_ns, False))
        for earlier in reversed(self._steps) if late else ():
            if earlier is step:
                continue
            part_ns = sum(min(late_ns, earlier.length_ns) for late_ns in late)
            late = [late_ns - earlier.length_ns for late_ns in late if late_ns > earlier.length_ns]
            earlier.wait_ns += part_ns
            self._for_series.append((earlier.start_ns, earlier.end_ns, part_ns, True))
            if not late:
                break
        while series is not None and self._for_series:  # there is none before the second sample
            start_ns, end_ns, wait_ns, is_late = self._for_series.popleft()
            series.add_cpu_wait(start_ns, end_ns, wait_ns, is_late=is_late)

    def _spread_wait(self, grown: ThreadGrowth) -> None:
        """Add the wait of a thread that was not read in each step."""
        steps = tuple(self._steps)[-grown.steps :]
        length_ns = sum(step.length_ns for step in steps)
        for step in steps:
            part_ns = grown.wait_ns * step.length_ns // length_ns
            step.wait_ns += part_ns
            if step is not steps[-1]:
                self._for_series.append((step.start_ns, step.end_ns, part_ns, True))

    def _close_first_step(self) -> None:
        following = self._following(0)
        step = self._steps.popleft()
        if self._undecided_ns and step.shown is not None:
            self._parts.add_blocked(self._undecided_ns, step.shown)
            self._undecided_ns = 0
        self._last_shown, undecided_ns = _settle(step, self._parts, self._last_shown, following)
        self._undecided_ns += undecided_ns

    def _following(self, index: int) -> tuple[int, _Shown] | None:
        """The first sample after a step that shows a blocked thread."""
        later = (self._steps[position] for position in range(index + 1, len(self._steps)))
        return next(((step.end_ns, step.shown) for step in later if step.shown is not None), None)


def _settle(
    step: _Step, parts: _Parts, before: tuple[int, _Shown] | None, after: tuple[int, _Shown] | None
) -> tuple[tuple[int, _Shown] | None, int]:
    """Add a step to the sums. The blocked time of a gap between two readings is ``other``.

    Returns:
        The last sample that shows a blocked thread, and the blocked time that no sample explains so far.
    """
    blocked_ns = parts.add(step)
    if step.shown is not None or not step.is_covered:
        shown = step.shown if step.is_covered else None
        parts.add_blocked(blocked_ns, shown or _Shown(_OTHER))
        return before if step.shown is None else (step.end_ns, step.shown), 0
    middle_ns = (step.start_ns + step.end_ns) // 2
    nearest = min(
        (sample for sample in (before, after) if sample is not None),
        key=lambda sample: abs(sample[0] - middle_ns),
        default=None,
    )
    if nearest is None:
        return before, blocked_ns
    parts.add_blocked(blocked_ns, nearest[1])
    return before, 0


def _shown_by(sample: ThreadSample) -> _Shown | None:
    """What the sample shows; None if no thread is blocked."""
    if not sample.waits:
        return None
    waits = Counter(sample.waits)
    kinds = {wait.kind for wait in waits}
    kind = next(kind for kind in _KINDS if kind in kinds)
    targets = [(wait.target, count) for wait, count in waits.items() if wait.kind == kind]
    return _Shown(kind, tuple(targets), is_hidden=sample.has_refused and kind == _OTHER)

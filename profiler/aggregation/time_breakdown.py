"""Divides the wall time of a run by its readings: the steps that are still open, and the waits for
a CPU, which may have begun before the step in which they end.

:mod:`profiler.aggregation.time_parts` divides each step. Idle time of the GPUs has the same share
of each part of a step.
"""

from collections import deque
from collections.abc import Sequence
from itertools import islice

from profiler.aggregation.idle_places import IdleGpus, IdleSteps
from profiler.aggregation.plausible_waits import plausible_waits
from profiler.aggregation.recent_waits import RecentWaits
from profiler.aggregation.run_evidence import Activity
from profiler.aggregation.time_parts import ShownWait, TimeParts, TimeStep, shown_wait
from profiler.aggregation.time_series import RunSeries
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.readers.linux.cpu_pressure import CpuPressure
from profiler.readers.linux.thread_counters import ThreadGrowth
from profiler.readers.linux.thread_times import ThreadSample
from profiler.record.activity_model import TimeBreakdown
from profiler.record.mention_limits import is_cpu_wait_partial
from profiler.record.record_model import Record
from profiler.record.units import format_percent

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
# The most threads whose last wait for a CPU is remembered: a thread may begin the next one in the
# same step.
_MAX_REMEMBERED = 512
# The most values of readings that wait to be added.
_MAX_BUFFERED = 2000
# With a GPU, whose idle time is kept for a minute, readings wait for this long at most.
_MAX_BUFFERED_NS = 20 * NS_PER_SECOND


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


class TimeAccount:
    """Divides the time of one run step by step, in constant memory; without ``started_ns``, from
    the first reading on.

    ``idle`` is the idle time of its GPUs, on the clock of ``started_ns``.
    """

    def __init__(
        self, started_ns: int | None, interval_ns: int, idle: IdleGpus | None = None
    ) -> None:
        self._until_ns = started_ns
        self._idle = IdleSteps(started_ns, idle)
        self._max_covered_ns = max(round(_COVERED_INTERVALS * interval_ns), _MIN_COVERED_NS)
        self._cpu_ns = 0
        self._wait_ns = 0  # of the threads that were read
        self._run_ns = 0
        self._pressure: CpuPressure | None = None  # as of the last sample
        self._has_waits = False
        self._sees_calls = False
        self._is_sampled = False
        self._readings: list[tuple[int, int, ThreadSample]] = []
        self._buffered = 0
        self._steps: deque[TimeStep] = deque()
        self._last_waits: dict[int, tuple[int, int]] = {}
        self._for_series: deque[tuple[int, int, int, bool]] = deque(maxlen=2 * _MAX_OPEN_STEPS)
        self._parts = TimeParts()
        self.recent_waits = RecentWaits()  # as of the last :meth:`flush`
        self._last_shown: ShownWait | None = None

    def add(
        self, read_ns: int, cpu_ns: int, sample: ThreadSample, series: RunSeries | None = None
    ) -> None:
        """Add a reading at the end of a step: the CPU time so far, and the threads.

        The series gets their waits.
        """
        self._readings.append((read_ns, cpu_ns, sample))
        self._buffered += 1 + len(sample.growth or ()) + len(sample.waits)
        is_late = read_ns - self._readings[0][0] > _MAX_BUFFERED_NS
        if self._buffered > _MAX_BUFFERED or (is_late and self._idle.are_watched):
            self.flush(series)

    def finish(
        self, read_ns: int, cpu_ns: int, last: ThreadSample, series: RunSeries | None = None
    ) -> None:
        """Add the end of the run.

        If no thread was readable any more, it waited for a CPU as in the step before.
        """
        self.flush(series)
        before = None
        if self._steps:
            before = self._steps[-1]
        step = self._add_step(read_ns, cpu_ns, last, series)
        if step is None:
            return
        step.has_unread = False  # no sample is left that could show more
        if before is not None and not last.growth:
            wait_ns = min(before.wait_ns, before.idle_ns)
            step.longest_ns = step.idle_ns * wait_ns // max(before.idle_ns, 1)

    def activity(self, duration_ms: float | None, cpu_ns: int) -> Activity:
        """What the processes did, as of the last :meth:`flush`; ``cpu_ns`` is their CPU time."""
        duration_ns = None
        if duration_ms is not None:
            duration_ns = round(duration_ms * NS_PER_MS)
        before, between = self._idle.divisions(self._open_steps())
        return Activity(
            breakdown=self.breakdown(duration_ns),
            while_idle=self._settled(between),
            before_work=self._settled(before),
            cpu_wait_ns=self._wait_ns if self._has_waits else None,
            read_cpu_ns=self._run_ns,
            cpu_ns=cpu_ns,
        )

    def breakdown(self, duration_ns: int | None = None) -> TimeBreakdown | None:
        """The division of the whole time, as of the last :meth:`flush`."""
        if not self._is_sampled:
            return None
        parts = self._parts.copy()
        for step, before, after in self._open_steps():
            parts.add(step, step.length_ns, before, after)
        return self._settled(parts, duration_ns)

    def _open_steps(self) -> list[tuple[TimeStep, ShownWait | None, ShownWait | None]]:
        """The steps that are not final, with the samples around them."""
        open_steps = []
        last_shown = self._last_shown
        for index, step in enumerate(self._steps):
            open_steps.append((step, last_shown, self._following(index)))
            last_shown = step.shown or last_shown
        return open_steps

    def _settled(
        self, parts: TimeParts | None, duration_ns: int | None = None
    ) -> TimeBreakdown | None:
        if parts is None or not self._is_sampled:
            return None
        parts.settle()
        if not parts.length_ns:
            return None
        return parts.breakdown(
            sees_calls=self._sees_calls, has_waits=self._has_waits, duration_ns=duration_ns
        )

    def flush(self, series: RunSeries | None) -> None:
        """Add the readings that wait, also to the series.

        Many at once cost a third of one after the other.
        """
        for read_ns, cpu_ns, sample in self._readings:
            self._add_step(read_ns, cpu_ns, sample, series)
        self._readings.clear()
        self._buffered = 0
        self._idle.look_up()

    def _add_step(
        self, read_ns: int, cpu_ns: int, sample: ThreadSample, series: RunSeries | None
    ) -> TimeStep | None:
        """Add the step that ends with a reading, and the waits in it; None without a new step.

        ``cpu_ns``: the CPU time since the start. With more than a few open steps, the oldest is
        summed up.
        """
        growth = sample.growth or ()
        self._is_sampled = True
        self._sees_calls = self._sees_calls or sample.sees_calls
        self._has_waits = self._has_waits or sample.growth is not None
        read_run_ns = 0
        for grown in growth:
            self._wait_ns += grown.wait_ns
            read_run_ns += grown.run_ns
        self._run_ns += read_run_ns
        start_ns = self._until_ns
        run_ns = max(cpu_ns - self._cpu_ns, 0)
        if start_ns is not None and read_ns <= start_ns:
            return None
        self._until_ns = read_ns
        self._cpu_ns = cpu_ns
        if start_ns is None:
            return None
        covered_ns = min(read_ns - start_ns, self._max_covered_ns)
        shown = shown_wait(sample, read_ns)
        length_ns = read_ns - start_ns
        if shown is None and sample.is_partial and sample.waits:
            unknown_ns = length_ns
        else:
            unknown_ns = length_ns - covered_ns
        step = TimeStep(start_ns, read_ns, run_ns, covered_ns, unknown_ns, shown)
        if not sample.is_behind and sample.growth is not None:
            step.has_unread = run_ns - read_run_ns > _MAX_UNREAD_SHARE * length_ns
        step.shows_work = sample.shows_work
        if step.has_unread and sample.pressure is not None:
            step.cpu_wait = sample.pressure.limits_since(self._pressure)
        self._pressure = sample.pressure
        self._steps.append(step)
        self._idle.begin(step)
        self._add_waits(step, growth)
        self._pass_waits_to(series)
        if shown is not None and not (step.has_unread and step.shows_work):
            self.recent_waits.add(
                start_ns, read_ns, dict(shown.divide(max(covered_ns - run_ns, 0)))
            )
        if len(self._steps) > _MAX_OPEN_STEPS:
            following = self._following(0)
            first = self._steps.popleft()
            self._parts.add(first, first.length_ns, self._last_shown, following)
            self._idle.add(first, self._last_shown, following)
            self._last_shown = first.shown or self._last_shown
        return step

    def _add_waits(self, step: TimeStep, growth: Sequence[ThreadGrowth]) -> None:
        """Add the waits to the step in which they ended.

        The excess of a wait belongs to the steps before.
        """
        sum_ns = 0
        late: list[tuple[ThreadGrowth, int]] = []
        for grown in plausible_waits(growth, step.length_ns):
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
        for grown in growth:
            if grown.wait_ns:
                self._last_waits[grown.thread] = (step.end_ns, grown.wait_ns)

    def _pass_waits_to(self, series: RunSeries | None) -> None:
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
                if ended_ns != earlier.end_ns:
                    before_ns = 0
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

    def _following(self, index: int) -> ShownWait | None:
        """The first sample after a step that shows a blocked thread."""
        for position in range(index + 1, len(self._steps)):
            shown = self._steps[position].shown
            if shown is not None:
                return shown
        return None

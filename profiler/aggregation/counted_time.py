"""In which stretches threads ran and waited for a CPU, by the kernel's counters.

The kernel counts a wait when it is over, and a run some ms late: what does not fit into a stretch
was in those before.
"""

from collections import deque
from collections.abc import Collection, Sequence
from itertools import islice

from msgspec import Struct

from profiler.aggregation.settled_looks import OpenLook
from profiler.aggregation.stretch import Stretch
from profiler.aggregation.thread_wait import ThreadWait
from profiler.aggregation.time_series import RunSeries
from profiler.readers.linux.thread_counters import ThreadTimeGrowth, with_plausible_waits

# What a thread used of a stretch is kept if it is more than a tenth of it, for so many threads and
# for so many of the last stretches: a wait for a CPU that ends later may have begun there.
_MAX_REMEMBERED = 512
_MIN_USED_DIVISOR = 10
MAX_USED = 10
# The most waits for a CPU that wait for a series.
_MAX_FOR_SERIES = 512


class _LateGrowth(Struct, frozen=True, gc=False):
    """What a thread ran and waited for a CPU before the stretch in which it was counted."""

    thread: int
    run_ns: int
    wait_ns: int


class CountedTime:
    """Adds to the stretches of the looks that are not settled what the counters say."""

    def __init__(self, open_looks: deque[OpenLook]) -> None:
        self._open = open_looks
        # What threads used of the last stretches, by when these began.
        self._used: dict[int, dict[int, int]] = {}
        self._for_series: deque[tuple[int, int, int, bool]] = deque(maxlen=_MAX_FOR_SERIES)

    def add_waits(self, stretch: Stretch, waiting: Collection[ThreadWait]) -> None:
        """Add the waits for a CPU of threads that could run at the last look, and have not run
        since: the kernel counts them when they are over.
        """
        length_ns = stretch.length_ns
        for wait in waiting:
            stretch.add_thread_time(0, length_ns)
            wait.counted_ns += length_ns
            self._note_used(wait.thread, stretch, length_ns)
        if waiting:
            sum_ns = len(waiting) * length_ns
            self._for_series.append((stretch.start_ns, stretch.end_ns, sum_ns, True))

    def add_growth(
        self, stretch: Stretch, growth: Sequence[ThreadTimeGrowth], over: Sequence[ThreadWait]
    ) -> None:
        """Add what the threads ran and waited for a CPU: what does not fit into the stretch was in
        those before. The kernel counts a wait when it is over, and a run some ms late.
        """
        length_ns = stretch.length_ns
        counted_ns = {wait.thread: wait.counted_ns for wait in over if wait.counted_ns}
        if not counted_ns and _have_all_used_little(growth, length_ns):
            sum_ns = stretch.add_short_times(growth)
            self._for_series.append((stretch.start_ns, stretch.end_ns, sum_ns, False))
            return
        late: list[_LateGrowth] = []
        rarely_read: dict[int, list[ThreadTimeGrowth]] = {}  # by how long they were not read
        sum_ns = 0
        for grown in with_plausible_waits(growth, length_ns):
            if grown.steps > 1:
                rarely_read.setdefault(grown.span_ns, []).append(grown)
                continue
            waited_ns = grown.wait_ns
            if counted_ns:
                waited_ns = max(waited_ns - counted_ns.get(grown.thread, 0), 0)
            run_ns, wait_ns = stretch.add_thread_time(grown.run_ns, waited_ns)
            sum_ns += wait_ns
            if grown.run_ns > run_ns or waited_ns > wait_ns:
                late.append(_LateGrowth(grown.thread, grown.run_ns - run_ns, waited_ns - wait_ns))
            if _MIN_USED_DIVISOR * (run_ns + wait_ns) > length_ns:
                self._note_used(grown.thread, stretch, run_ns + wait_ns)
        self._for_series.append((stretch.start_ns, stretch.end_ns, sum_ns, False))
        for span_ns, threads in rarely_read.items():
            self._spread_late_growth(span_ns, threads)
        self._add_late(late)

    def add_late_throttled(self, stretch: Stretch) -> None:
        """Move throttled time that does not fit into the stretch to those before it."""
        late_ns = stretch.take_late_throttled_ns()
        for look in islice(reversed(self._open), 1, None):
            if not late_ns:
                return
            part_ns = min(late_ns, look.stretch.room_on_all_cpus_ns)
            look.stretch.throttled_ns += part_ns
            late_ns -= part_ns

    def add_pause(self, start_ns: int, end_ns: int) -> None:
        """Add a time in which no thread had its turn."""
        if self._for_series and self._for_series[-1][1:] == (start_ns, 0, False):
            start_ns = self._for_series.pop()[0]
        self._for_series.append((start_ns, end_ns, 0, False))

    def pass_waits_to(self, series: RunSeries | None) -> None:
        """Pass the waits for a CPU on to the series."""
        while series is not None and self._for_series:  # there is none before the second sample
            start_ns, end_ns, wait_ns, is_late = self._for_series.popleft()
            series.spread_over_steps(series.cpu_wait, start_ns, end_ns, wait_ns, is_late=is_late)

    def _note_used(self, thread: int, stretch: Stretch, used_ns: int) -> None:
        used = self._used.get(thread)
        if used is None:
            if len(self._used) >= _MAX_REMEMBERED:
                self._used.clear()
            used = self._used[thread] = {}
        used[stretch.start_ns] = used.get(stretch.start_ns, 0) + used_ns
        if len(used) > MAX_USED:
            del used[min(used)]

    def _add_late(self, late: list[_LateGrowth]) -> None:
        """Add what threads ran and waited to the stretches before the one in which it was counted:
        it fills the last part of these stretches, in which the thread was able to run.
        """
        before = islice(reversed(self._open), 1, None)
        while late and (look := next(before, None)) is not None:
            stretch = look.stretch
            left: list[_LateGrowth] = []
            sum_ns = 0
            for each in late:
                used_ns = self._used.get(each.thread, {}).get(stretch.start_ns, 0)
                run_ns, wait_ns = stretch.add_thread_time(each.run_ns, each.wait_ns, used_ns)
                self._note_used(each.thread, stretch, run_ns + wait_ns)
                stretch.able_ns = max(stretch.able_ns, run_ns + wait_ns)
                sum_ns += wait_ns
                if each.run_ns > run_ns or each.wait_ns > wait_ns:
                    left.append(
                        _LateGrowth(each.thread, each.run_ns - run_ns, each.wait_ns - wait_ns)
                    )
            look.shares = None
            self._for_series.append((stretch.start_ns, stretch.end_ns, sum_ns, True))
            late = left

    def _spread_late_growth(self, span_ns: int, threads: Sequence[ThreadTimeGrowth]) -> None:
        """Add what threads ran and waited that were not read at each look: evenly, but when they
        ran is known of those that were left for later, by the clock of their process.
        """
        until_ns = self._open[-1].stretch.end_ns
        stretches = [
            look.stretch
            for look in self._open
            if look.stretch.end_ns > until_ns - span_ns and look.stretch.length_ns
        ]
        length_ns = max(sum([stretch.length_ns for stretch in stretches]), span_ns, 1)
        later_ns = sum([stretch.later_ns for stretch in stretches])
        times_ns = [(grown.run_ns, grown.wait_ns) for grown in threads]
        total_ns = sum([grown.run_ns for grown in threads])
        waited_ns = sum([grown.wait_ns for grown in threads])
        of_later = min(total_ns / later_ns, 1.0) if later_ns else 0.0
        of_total = of_later * later_ns / max(total_ns, 1)
        for stretch in stretches:
            part = min(stretch.length_ns / length_ns, 1.0)
            run_part = part
            if later_ns:
                run_part = of_total * stretch.later_ns / later_ns + (1 - of_total) * part
            stretch.add_parts_of_threads(times_ns, run_part, part)
            stretch.later_ns -= round(of_later * stretch.later_ns)
            stretch.counts_no_threads = True  # not all were asked
            wait_ns = round(part * waited_ns)
            self._for_series.append((stretch.start_ns, stretch.end_ns, wait_ns, True))


def _have_all_used_little(growth: Sequence[ThreadTimeGrowth], length_ns: int) -> bool:
    """Whether each thread certainly ran and waited for a CPU in this stretch, for a small part."""
    used_ns = [grown.run_ns + grown.wait_ns for grown in growth if grown.steps == 1]
    return len(used_ns) == len(growth) and _MIN_USED_DIVISOR * max(used_ns, default=0) <= length_ns

"""Divides the wall time of a run by looks at its threads, in four questions: could anything run,
did anything run (:mod:`busy_time`), whose wait held the run back (:mod:`wait_attribution`), and
what did it wait for (:mod:`sorted_waits`).

A look is settled once every thread in it has run again, and the time on its CPUs and the work of
the GPUs are known, else after a minute: what a thread runs next says what its wait held back. Idle
time of the GPUs has the same share of each part of a stretch between two looks.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import islice

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aggregation.busy_time import (
    Stretch,
    UndividedTime,
    fill_able_stretches,
    spread_unread,
)
from profiler.aggregation.changed_waits import ChangedWaits
from profiler.aggregation.current_waits import ThreadWaits
from profiler.aggregation.gpu_idle_breakdown import IdleGpus, IdleTimeByPlace
from profiler.aggregation.recent_waits import RecentWaits
from profiler.aggregation.record_evidence import ProcessActivity
from profiler.aggregation.thread_wait import ThreadWait
from profiler.aggregation.time_percentages import TimeParts
from profiler.aggregation.time_series import RunSeries
from profiler.aggregation.wait_attribution import LookDivision, same_certain_wait
from profiler.core.optional_math import first_known
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.readers.linux.cpu_pressure import CpuPressure
from profiler.readers.linux.look import ThreadsLook
from profiler.readers.linux.thread_counters import ThreadTimeGrowth, with_plausible_waits
from profiler.readers.linux.wait_types import STOPPED, Wait
from profiler.record.activity_model import NO_BREAKDOWN, TimeBreakdown
from profiler.record.cpu_wait import is_cpu_wait_partial
from profiler.record.record_model import Record
from profiler.record.units import format_duration, format_percent

# A look covers up to this many intervals before it for each reading of the processes for which it
# stands, and this time in any case. The rest is a gap: a pause that limits the profiler's cost, or
# a late reading.
_COVERED_INTERVALS = 1.5
_MIN_COVERED_NS = NS_PER_SECOND // 4
# A look is settled after this time, also if a thread has not run again since, or with so many looks
# or waits that are not settled.
_MAX_OPEN_NS = 60 * NS_PER_SECOND
_MAX_OPEN_LOOKS = 512
_MAX_OPEN_WAITS = 10_000
# Of so many threads it is remembered what they used of so many stretches, the last ones, which are
# not settled, if it is more than a tenth: a wait for a CPU that ends later may have begun there.
_MAX_REMEMBERED = 512
_MIN_USED_DIVISOR = 10
_MAX_USED = 10
# A look counts fewer threads than this that can run.
_MAX_COUNTED = 32
# So many threads that were asked stand for those that also ran, and were not.
_MIN_ASKED = 16
# So many looks' parts of blocked time wait for the next look: the counters and the looks count the
# same time, but not at the same moments.
_MAX_PARTS_LEFT = 2
# What is left of these at the end of a run is divided as so many of its latest looks are.
_MAX_LATEST = 16
# The most values of looks that wait to be added.
_MAX_WAITING = 500
# CPU time of ended processes is counted in ticks of 10 ms: so much may be counted later or earlier.
_MAX_EARLY_NS = 50 * NS_PER_MS


def wait_warnings(record: Record) -> tuple[str, ...]:
    """A sentence if waits for a CPU are missing, and one if the run was stopped."""
    warnings: list[str] = []
    if is_cpu_wait_partial(record):
        missing = format_percent(100 - (record.sampling.cpu_wait_covered_percent or 0))
        warnings.append(
            f"The time waiting for a CPU is a lower bound: threads ended before {missing} of the "
            "CPU time was read."
        )
    for row in record.time_breakdown.waiting_for:
        if (row.kind, row.target) == (STOPPED.wait.kind, STOPPED.wait.target):
            stopped = format_duration(row.percent / 100 * (record.metrics.duration_ms or 0))
            warnings.append(
                f"The run, or a process for which it waited, was stopped for {stopped} (Ctrl-Z, "
                "SIGSTOP or a frozen group): this time is not the program's."
            )
    return tuple(warnings)


class _LateGrowth(Struct, frozen=True, gc=False):
    """What a thread ran and waited for a CPU before the stretch in which it was counted."""

    thread: int
    run_ns: int
    wait_ns: int


class _OpenLook(Struct, eq=False):
    """A look that is not settled, and the stretch before it. It stands for ``part_ns``.

    ``number`` is that of the look, ``shares`` its division as of the last question, None if more
    is known since. ``misses_able``: a thread that could run at the look before was not read.
    """

    stretch: Stretch
    covered_ns: int
    part_ns: int
    change: ChangedWaits
    children: Mapping[int, Collection[int]]
    number: int
    is_stopped: bool = False
    misses_able: bool = False
    shares: Mapping[Wait, float] | None = None

    @property
    def says_nothing(self) -> bool:
        """Whether it says nothing about blocked time."""
        return self.stretch.is_uninformative or self.misses_able


class _PausedLooks(Struct):
    """Readings one after the other in which no thread had its turn: the first and the last one, and
    the peeks after the first.
    """

    first_ns: int
    last_ns: int
    peeks: int = 0
    able_peeks: int = 0


class _SettledSums(Struct):
    """What is settled: of the whole time, and of that in which all GPUs were idle.

    ``last`` is the division of the last look that found only blocked threads, or of any look as
    long as there is no such one.
    """

    parts: TimeParts = field(default_factory=TimeParts)
    idle: IdleTimeByPlace = field(default_factory=IdleTimeByPlace)
    recent: RecentWaits = field(default_factory=RecentWaits)
    undivided: UndividedTime = field(default_factory=UndividedTime)
    last: Mapping[Wait, float] = {}
    latest: tuple[tuple[int, Mapping[Wait, float]], ...] = ()
    left_ns: float = 0.0
    has_quiet: bool = False

    def copy(self) -> "_SettledSums":
        return replace(
            self,
            parts=self.parts.copy(),
            idle=self.idle.copy(),
            recent=self.recent.copy(),
            undivided=replace(self.undivided),
        )

    def add_stretch(self, look: _OpenLook, idle_part: float) -> None:
        """Add the stretch before a look; of a gap, what no look covers is of unknown kind, unless
        the next look that says something shows the same as the last one.
        """
        stretch = look.stretch
        known = look.covered_ns / stretch.length_ns
        self.parts.covered_ns += look.covered_ns
        self.undivided.add_blocked_time(self.parts.busy.add_part_of_interval(stretch), known)
        self.idle.add_stretch(stretch, look.covered_ns, idle_part, known)

    def end_gaps(self, shares: Mapping[Wait, float]) -> None:
        """A look says this about the blocked time of the gaps before it; before the first look,
        nobody knows.
        """
        is_same = bool(self.last) and shares.keys() == self.last.keys()
        self.undivided.assign_gaps(is_same=is_same)
        self.idle.undivided.assign_gaps(is_same=is_same)

    def divide_blocked_time(self, look: _OpenLook, shares: Mapping[Wait, float]) -> None:
        """Give a look its part of the blocked time: all looks have the same, however near to each
        other they lie, as long as no more is left than two such parts.
        """
        left_ns = self.undivided.left.total_ns(self.parts.busy.open_share)
        wanted_ns = max(look.part_ns, left_ns - _MAX_PARTS_LEFT * look.part_ns)
        share = min(wanted_ns / left_ns, 1.0) if left_ns else 1.0
        self.parts.divide_blocked_time(self.undivided.take_share(share), shares)
        self.idle.divide_among_waits(look.stretch, share, shares)
        waits = {wait: round(part * share * left_ns) for wait, part in shares.items()}
        self.recent.add_waits(look.stretch.start_ns, look.stretch.end_ns, waits)
        self.last = shares
        if look.part_ns:  # the first look of a run that was found later stands for no time
            self.latest = (*self.latest[-_MAX_LATEST + 1 :], (look.part_ns, shares))
        self.left_ns = (1 - share) * left_ns
        self.has_quiet = True

    def end_with_latest_looks(self) -> None:
        """Give the last look what is later, and the latest ones what they left: of that, one alone
        says little.
        """
        left_ns = self.undivided.left.total_ns(self.parts.busy.open_share)
        if left_ns and self.latest:
            share = min(self.left_ns / left_ns, 1.0)
            left = self.undivided.take_share(share)
            self.parts.divide_blocked_time(left, _mean_shares(self.latest))
        self.parts.divide_blocked_time(self.undivided.left, self.last)
        self.idle.end_with_last_look(self.last)


class TimeAccount:
    """Divides the time of one run look by look, in constant memory; without ``started_ns``, from
    the first look on.

    ``gpus`` is on the clock of ``started_ns``. ``loses_cpu_time``: nobody has the CPU time of
    processes that have ended. After a defect (``failure``), nothing more is added,
    and nothing is said.
    """

    def __init__(
        self, started_ns: int | None, interval_ns: int, gpus: IdleGpus | None = None
    ) -> None:
        self.failure: Exception | None = None
        self.loses_cpu_time = False
        self._waiting: list[Callable[[], None]] = []
        self._waiting_values = 0
        self._pause: _PausedLooks | None = None  # if it waits, and nothing after it
        self._until_ns = started_ns
        self._gpus = gpus
        self._max_covered_ns = max(round(_COVERED_INTERVALS * interval_ns), _MIN_COVERED_NS)
        self._wait_ns = 0  # of the threads that were read
        self._run_ns = 0
        self._pressure: CpuPressure | None = None  # as it was read last,
        self._pressure_ns: int | None = None  # at this moment
        self._has_waits = False
        self._sees_calls = False
        self._is_sampled = False
        self._total_ns = 0  # until when the CPU time of ended processes is known
        self._ended_cpu_ns: int | None = None
        self._early_ns = 0
        self._read_beyond_totals_ns = 0  # of ended processes
        self._threads = ThreadWaits()
        self._able: set[ThreadWait] = set()
        self._have_all_ended = True  # no thread lived at the last look
        self._open: deque[_OpenLook] = deque()
        self._open_waits = 0
        self._has_shares = False  # any of them, because it was asked for the time so far
        # The waits at the first open look, and those of them that are not known yet.
        self._head: dict[ThreadWait, None] = {}
        self._unknown: set[ThreadWait] = set()
        self._has_begun_head = False
        # What threads used of the last stretches, by when these began.
        self._used: dict[int, dict[int, int]] = {}
        self._for_series: deque[tuple[int, int, int, bool]] = deque(maxlen=_MAX_OPEN_LOOKS)
        self._sums = _SettledSums(idle=IdleTimeByPlace(started_ns))

    # What is read

    def add_look(
        self,
        read_ns: int,
        look: ThreadsLook,
        series: RunSeries | None = None,
        part_ns: int | None = None,
    ) -> None:
        """Add a look, which stands for ``part_ns``, or for the time since the last one. The series
        gets the waits for a CPU.
        """
        if look.is_nobodys_turn and part_ns is None:
            self._extend_pause(read_ns, look, series)
            return
        self._pause = None
        self._waiting.append(partial(self._add_look, read_ns, look, series, part_ns))
        self._waiting_values += 1 + len(look.growth or ()) + len(look.seen)
        if self._waiting_values > _MAX_WAITING:
            self._add_paused_looks()

    def _extend_pause(self, read_ns: int, look: ThreadsLook, series: RunSeries | None) -> None:
        pause = self._pause
        if pause is not None and 0 < read_ns - pause.last_ns <= self._max_covered_ns:
            pause.last_ns = read_ns
            pause.peeks += look.peeks
            pause.able_peeks += look.able_peeks
            return
        pause = self._pause = _PausedLooks(read_ns, read_ns)
        self._waiting.append(partial(self._add_pause, pause, look, series))
        self._waiting_values += 1

    def _add_pause(self, pause: _PausedLooks, look: ThreadsLook, series: RunSeries | None) -> None:
        self._add_look(pause.first_ns, look, series, None)
        if pause.last_ns > pause.first_ns:
            self._extend_last(pause.last_ns, pause.peeks, pause.able_peeks)

    def _add_paused_looks(self) -> None:
        """Add what waits: many looks at once cost a third of one after the other."""
        self._pause = None
        waiting = self._waiting
        self._waiting = []
        self._waiting_values = 0
        if self.failure is not None:
            return
        try:
            for add in waiting:
                add()
        except Exception as error:  # noqa: BLE001  a defect here must not cost the run
            self.failure = error

    def _add_look(
        self, read_ns: int, look: ThreadsLook, series: RunSeries | None, part_ns: int | None
    ) -> None:
        if look.have_all_ended and self._have_all_ended and not look.growth:
            return  # this time is no thread's
        self._have_all_ended = look.have_all_ended
        self._is_sampled = True
        self._sees_calls = self._sees_calls or look.sees_calls
        self._has_waits = self._has_waits or look.growth is not None
        if look.is_nobodys_turn and self._continues_at(read_ns):
            self._extend_last(read_ns, look.peeks, look.able_peeks)
            return
        for grown in look.growth or ():
            self._wait_ns += grown.wait_ns
            self._run_ns += grown.run_ns
        start_ns = self._until_ns
        if start_ns is None or read_ns <= start_ns:
            start_ns = read_ns
        self._until_ns = read_ns
        has_lost_waits = self._has_lost_waits(look)
        able_before = len(self._able)
        change = self._threads.add_look(look)
        self._note_changed_waits(change)
        stretch = self._new_stretch(start_ns, read_ns, look, able_before)
        stretch.has_lost_waits = has_lost_waits
        waiting: Collection[ThreadWait] = ()
        if not look.is_behind:
            waiting = [wait for wait in self._able if wait.begun < self._threads.number]
        if not waiting and self._continues_last(stretch, look, change):
            last = self._open[-1]
            last.covered_ns += stretch.length_ns
            last.part_ns += part_ns or stretch.length_ns
            last.stretch.end_ns = read_ns
            last.number = self._threads.number
        else:
            opened = self._append_open_look(stretch, change, part_ns, look.readings)
            opened.misses_able = self._was_able_thread_unread(look)
        self._open_waits += len(change.begun)
        self._add_growth(stretch, look.growth or (), change.over)
        self._add_waits(stretch, waiting)
        self._add_late_throttled(stretch)
        self._pass_waits_to(series)
        self._settle_looks(read_ns)

    def _has_lost_waits(self, look: ThreadsLook) -> bool:
        """Whether a thread that could run at the last look has ended, and was not read since."""
        if not (self._able and look.ended):
            return False
        lost = set(look.ended).difference([grown.thread for grown in look.growth or ()])
        return any(wait.thread in lost for wait in self._able)

    def _was_able_thread_unread(self, look: ThreadsLook) -> bool:
        """Whether a thread that could run at the last look was not read since."""
        if not (look.is_behind and look.sees_calls):
            return False
        last = self._threads.number - 1
        return any(wait.begun == last for wait in self._able)

    def _continues_at(self, read_ns: int) -> bool:
        """Whether a look in which no thread had its turn may continue the last one."""
        start_ns = self._until_ns
        if not self._open or start_ns is None or self._open[-1].is_stopped:
            return False
        return 0 < read_ns - start_ns <= self._max_covered_ns

    def _extend_last(self, read_ns: int, peeks: int, able_peeks: int) -> None:
        """Let the last look last until this one, in which no thread had its turn."""
        last = self._open[-1]
        last.stretch.peeks += peeks
        last.stretch.able_peeks += able_peeks
        start_ns = last.stretch.end_ns
        self._until_ns = read_ns
        last.covered_ns += read_ns - start_ns
        last.part_ns += read_ns - start_ns
        last.stretch.end_ns = read_ns
        if last.stretch.able_ns:
            last.stretch.able_ns += read_ns - start_ns
        if self._for_series and self._for_series[-1][1:] == (start_ns, 0, False):
            start_ns = self._for_series.pop()[0]
        self._for_series.append((start_ns, read_ns, 0, False))

    def end_threads(self) -> None:
        """All threads have ended: others follow, as after the restart of a container."""
        self._add_paused_looks()
        change = self._threads.end_all()
        self._note_changed_waits(change)
        if self._until_ns is not None:
            self._append_open_look(Stretch(self._until_ns, self._until_ns), change)

    def _note_changed_waits(self, change: ChangedWaits) -> None:
        able = [wait for wait in change.begun if wait.blocked is None and not wait.is_unasked]
        self._able.update(able)
        self._able.difference_update(change.over)
        self._unknown.difference_update(change.known)
        since = change.earliest_begin if self._has_shares else None
        if since is None:
            return
        for look in reversed(self._open):
            if look.number < since:
                break
            look.shares = None

    def add_stopped(self, start_ns: int, end_ns: int) -> None:
        """Add a time in which the whole run was stopped, and this process with it."""
        self._add_paused_looks()
        if self._until_ns is None or end_ns <= self._until_ns:
            return
        start_ns = max(start_ns, self._until_ns)
        if start_ns > self._until_ns:
            self._append_open_look(Stretch(self._until_ns, start_ns), ChangedWaits())
        self._until_ns = end_ns
        look = self._append_open_look(Stretch(start_ns, end_ns), ChangedWaits())
        look.covered_ns = look.stretch.length_ns
        look.is_stopped = True

    def _append_open_look(
        self,
        stretch: Stretch,
        change: ChangedWaits,
        part_ns: int | None = None,
        readings: int = 1,
    ) -> _OpenLook:
        look = _OpenLook(
            stretch,
            min(stretch.length_ns, readings * self._max_covered_ns),
            part_ns or stretch.length_ns,
            change,
            self._threads.children,
            self._threads.number,
        )
        self._open.append(look)
        return look

    def add_total(self, read_ns: int, ended_cpu_ns: int, read_ended_ns: int) -> None:
        """Add the CPU time of all processes that have ended so far, and what was read of those that
        have ended since the last call.

        The difference ran in processes that nobody read.
        """
        self._pause = None
        self._waiting.append(partial(self._add_total, read_ns, ended_cpu_ns, read_ended_ns))

    def _add_total(self, read_ns: int, ended_cpu_ns: int, read_ended_ns: int) -> None:
        if self._ended_cpu_ns is None:
            self._ended_cpu_ns = 0
        grown_ns = ended_cpu_ns - self._ended_cpu_ns
        self._ended_cpu_ns = max(ended_cpu_ns, self._ended_cpu_ns)
        unread_ns = self._early_ns + grown_ns - read_ended_ns
        self._early_ns = max(unread_ns, -_MAX_EARLY_NS)
        self._read_beyond_totals_ns += self._early_ns - min(unread_ns, self._early_ns)
        if unread_ns > 0:
            self._early_ns = self._spread_and_return_rest_ns(unread_ns, read_ns)
        self._total_ns = read_ns

    def add_unread(self, cpu_ns: int, since_ns: int) -> None:
        """Add CPU time of processes that nobody read, and that no total has: it ran since then."""
        self._pause = None
        self._waiting.append(partial(self._add_unread, cpu_ns, since_ns))

    def _add_unread(self, cpu_ns: int, since_ns: int) -> None:
        read_ns = min(cpu_ns, self._read_beyond_totals_ns)
        self._read_beyond_totals_ns -= read_ns
        cpu_ns -= read_ns
        stretches = [look.stretch for look in self._open if look.stretch.end_ns > since_ns]
        until_ns = first_known(self._until_ns, since_ns)
        left_ns = fill_able_stretches(stretches, cpu_ns)
        spread_unread(stretches, Stretch(until_ns, until_ns), left_ns)

    # What is asked

    @property
    def defect_warnings(self) -> tuple[str, ...]:
        """A sentence after a defect."""
        if self.failure is None:
            return ()
        name = type(self.failure).__name__
        return (
            f"The time is not divided because of an error in the profiler ({name}): report it.",
        )

    def activity_so_far(self, duration_ms: float | None, cpu_ns: int) -> ProcessActivity:
        """What the processes did so far; ``cpu_ns`` is their CPU time."""
        duration_ns = None
        if duration_ms is not None:
            duration_ns = round(duration_ms * NS_PER_MS)
        sums = self._sums_so_far()
        return ProcessActivity(
            breakdown=self._breakdown_of_parts(sums.parts, duration_ns),
            idle_parts=partial(self._idle_parts, sums.idle),
            cpu_wait_ns=self._wait_ns if self._has_waits else None,
            read_cpu_ns=self._run_ns,
            cpu_ns=cpu_ns,
        )

    def _idle_parts(
        self, places: IdleTimeByPlace, first_ns: int, last_ns: int
    ) -> tuple[TimeBreakdown, TimeBreakdown]:
        before, between = places.idle_parts_before_and_between(first_ns, last_ns)
        return self._breakdown_of_parts(before), self._breakdown_of_parts(between)

    def breakdown_so_far(self, duration_ns: int | None = None) -> TimeBreakdown:
        """The division of the whole time so far."""
        return self._breakdown_of_parts(self._sums_so_far().parts, duration_ns)

    def longest_wait(self, since_ns: int) -> Wait | None:
        """What the run waited for longest since then; None if unknown."""
        return self._sums_so_far().recent.longest_wait_since(since_ns)

    def held_back_ns(self) -> Mapping[int, float]:
        """The work that the present wait of each thread holds back; empty if nobody knows."""
        self._add_paused_looks()
        if not self._sees_calls or self.failure is not None:
            return {}
        return self._threads.held_back_ns()

    def _breakdown_of_parts(
        self, parts: TimeParts | None, duration_ns: int | None = None
    ) -> TimeBreakdown:
        if parts is None or not self._is_sampled or self.failure is not None:
            return NO_BREAKDOWN
        return parts.percent_breakdown(
            sees_calls=self._sees_calls, has_waits=self._has_waits, duration_ns=duration_ns
        )

    def _sums_so_far(self) -> _SettledSums:
        """The sums with the open looks, by what is known now."""
        self._add_paused_looks()
        sums = self._sums.copy()
        if self.failure is not None:
            return sums
        self._has_shares = True
        head = dict(self._head)
        has_begun = self._has_begun_head
        for look in self._open:
            if not has_begun:
                _restore_waits_at_look(look.change, head)
            has_begun = False
            self._add_to_sums(look, head, sums)
        sums.end_with_latest_looks()
        return sums

    # Stretches

    def _new_stretch(
        self, start_ns: int, end_ns: int, look: ThreadsLook, able_before: int
    ) -> Stretch:
        """A stretch with what its look, and the one before, say of it. A look that finds no thread
        any more says nothing: the one before is the nearest, which found ``able_before`` threads
        that could run.
        """
        stretch = Stretch(start_ns, end_ns, look.cpus, unread_ns=look.unread_run_ns)
        stretch.later_ns = look.later_run_ns
        stretch.peeks, stretch.able_peeks = look.peeks, look.able_peeks
        if look.pressure is not None:
            limits = look.pressure.cpu_wait_bounds_since(self._pressure)
            stretch.least_ns = limits.least_ns
            stretch.most_ns = limits.most_ns
            stretch.throttled_ns = limits.throttled_ns
            self._limit_waits(limits.most_ns)
            self._pressure, self._pressure_ns = look.pressure, end_ns
        able_threads = len(self._able)
        if look.have_all_ended:
            able_threads = able_before
        elif look.is_behind:  # a thread that could run may be blocked since, and was not read
            able_threads = sum([seen.blocked is None for seen in look.seen])
        stretch.able_threads = able_threads
        stretch.counts_no_threads = max(able_threads, len(look.growth or ())) >= _MAX_COUNTED
        if not (able_threads or look.have_all_ended):
            stretch.is_unsure = _are_too_few_asked(look)
        stretch.asked_share = look.asked_share
        stretch.able_on_machine = look.able_on_machine
        if able_threads:
            stretch.able_ns = stretch.length_ns
        return stretch

    def _limit_waits(self, most_ns: int | None) -> None:
        """Limit the waits in the stretches since the pressure was read before, as in this one."""
        since_ns = self._pressure_ns
        if most_ns is None or since_ns is None:
            return
        for look in reversed(self._open):
            if look.stretch.most_ns is not None or look.stretch.start_ns < since_ns:
                return
            look.stretch.most_ns = most_ns

    def _continues_last(self, stretch: Stretch, look: ThreadsLook, change: ChangedWaits) -> bool:
        """Whether nothing has happened since the last look, so that both are kept as one."""
        if (
            not self._open
            or stretch.able_ns
            or stretch.able_peeks
            or stretch.has_lost_waits
            or stretch.is_unsure
            or stretch.throttled_ns
            or look.growth
            or change.begun
            or change.over
        ):
            return False
        last = self._open[-1]
        if (
            last.is_stopped
            or stretch.unread_ns
            or stretch.length_ns > look.readings * self._max_covered_ns
        ):
            return False
        if look.is_behind and not look.sees_calls:
            return True  # threads that have their turn later
        is_still = not (last.stretch.bounded_run_ns or last.stretch.wait_ns or last.change.begun)
        return is_still and not last.change.over

    def _add_waits(self, stretch: Stretch, waiting: Collection[ThreadWait]) -> None:
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

    def _add_growth(
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

    def _note_used(self, thread: int, stretch: Stretch, used_ns: int) -> None:
        used = self._used.get(thread)
        if used is None:
            if len(self._used) >= _MAX_REMEMBERED:
                self._used.clear()
            used = self._used[thread] = {}
        used[stretch.start_ns] = used.get(stretch.start_ns, 0) + used_ns
        if len(used) > _MAX_USED:
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

    def _add_late_throttled(self, stretch: Stretch) -> None:
        """Add the throttled time for which there is no room to the stretches before."""
        late_ns = stretch.take_late_throttled_ns()
        for look in islice(reversed(self._open), 1, None):
            if not late_ns:
                return
            part_ns = min(late_ns, look.stretch.room_on_all_cpus_ns)
            look.stretch.throttled_ns += part_ns
            late_ns -= part_ns

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

    def _spread_and_return_rest_ns(self, unread_ns: int, read_ns: int) -> int:
        """Spread what ran in ended processes over the time since the last total, and what finds no
        room there to the stretches before, as that of threads which were rarely read; returns
        what belongs to the next stretch.
        """
        since: list[Stretch] = []
        before: list[Stretch] = []
        for look in self._open:
            stretches = since if look.stretch.end_ns > self._total_ns else before
            stretches.append(look.stretch)
        until_ns = first_known(self._until_ns, read_ns)
        cpus = self._open[-1].stretch.cpus if self._open else 1
        after = Stretch(until_ns, max(read_ns, until_ns), cpus)
        left_ns = spread_unread(since, after, unread_ns)
        late_ns = left_ns - _MAX_EARLY_NS
        for stretch in reversed(before):
            if late_ns <= 0:
                break
            late_ns = spread_unread((stretch,), Stretch(until_ns, until_ns), late_ns)
        return after.unread_ns + min(left_ns, _MAX_EARLY_NS)

    def pass_cpu_waits_on(self, series: RunSeries | None) -> None:
        """Pass the waits for a CPU on to the series."""
        self._add_paused_looks()
        self._pass_waits_to(series)

    def _pass_waits_to(self, series: RunSeries | None) -> None:
        while series is not None and self._for_series:  # there is none before the second sample
            start_ns, end_ns, wait_ns, is_late = self._for_series.popleft()
            series.spread_over_steps(series.cpu_wait, start_ns, end_ns, wait_ns, is_late=is_late)

    # Settling

    def _settle_looks(self, now_ns: int) -> None:
        """Sum up the looks that nothing can change any more."""
        gpus_known_ns = None if self._gpus is None else self._gpus.known_until_ns()
        while self._open:
            look = self._open[0]
            if not self._has_begun_head:
                _restore_waits_at_look(look.change, self._head)
                self._unknown.update([wait for wait in look.change.begun if not wait.is_known])
                self._unknown.difference_update(look.change.over)
                self._has_begun_head = True
            end_ns = look.stretch.end_ns
            is_known = not self._unknown and end_ns <= self._total_ns
            if gpus_known_ns is not None and end_ns > gpus_known_ns:
                is_known = False
            is_old = now_ns - end_ns >= _MAX_OPEN_NS
            is_too_much = len(self._open) > _MAX_OPEN_LOOKS or self._open_waits > _MAX_OPEN_WAITS
            if len(self._open) <= _MAX_USED or not (is_known or is_old or is_too_much):
                return
            self._open.popleft()
            self._open_waits -= len(look.change.begun)
            self._has_begun_head = False
            look.shares = None
            self._add_to_sums(look, self._head, self._sums)

    def _gpu_idle_share(self, stretch: Stretch) -> float:
        """The share of a stretch in which all GPUs were idle."""
        if self._gpus is None or not stretch.length_ns:
            return 0.0
        idle_ns = self._gpus.idle_ns(stretch.start_ns, stretch.end_ns)
        return min(idle_ns / stretch.length_ns, 1.0)

    def _add_to_sums(
        self, look: _OpenLook, waits: Collection[ThreadWait], sums: _SettledSums
    ) -> None:
        is_able = look.says_nothing
        if look.shares is None and not (is_able and sums.has_quiet):
            look.shares = _shares_of_look(look, waits)
        shares = look.shares or {}
        look.stretch.has_lost_runs = self.loses_cpu_time and look.stretch.has_lost_waits
        if look.stretch.length_ns:
            sums.add_stretch(look, self._gpu_idle_share(look.stretch))
        if not (is_able and sums.has_quiet):
            sums.end_gaps(shares)
        if shares and not is_able:
            sums.divide_blocked_time(look, shares)
        elif shares and not sums.has_quiet:
            sums.last = shares


def _mean_shares(looks: Collection[tuple[int, Mapping[Wait, float]]]) -> Mapping[Wait, float]:
    """The mean of the divisions of looks, each by the part for which it stands."""
    total_ns = sum([part_ns for part_ns, _ in looks])
    mean: dict[Wait, float] = {}
    for part_ns, shares in looks:
        for wait, share in shares.items():
            mean[wait] = mean.get(wait, 0.0) + share * part_ns / total_ns
    return mean


def _have_all_used_little(growth: Sequence[ThreadTimeGrowth], length_ns: int) -> bool:
    """Whether each thread certainly ran and waited for a CPU in this stretch, for a small part."""
    used_ns = [grown.run_ns + grown.wait_ns for grown in growth if grown.steps == 1]
    return len(used_ns) == len(growth) and _MIN_USED_DIVISOR * max(used_ns, default=0) <= length_ns


def _are_too_few_asked(look: ThreadsLook) -> bool:
    """Whether too few of the threads that ran were asked what they do now, or a child that somebody
    waits for.
    """
    if look.misses_child:
        return True
    if len(look.seen) >= _MIN_ASKED:
        return False
    asked = {seen.thread for seen in look.seen}
    asked.update(look.ended)
    run_ns = unasked_ns = 0
    for grown in look.growth or ():
        run_ns += grown.run_ns
        unasked_ns += 0 if grown.thread in asked else grown.run_ns
    return 2 * unasked_ns > run_ns


def _restore_waits_at_look(change: ChangedWaits, waits: dict[ThreadWait, None]) -> None:
    """Let the waits be those at the look. One that began with it may be over: its thread was asked,
    and could run when its state was read at the end of the look.
    """
    waits.update(dict.fromkeys(change.begun))
    for wait in change.over:
        waits.pop(wait, None)


def _shares_of_look(look: _OpenLook, waits: Collection[ThreadWait]) -> Mapping[Wait, float]:
    """The division of a look; empty if no thread was blocked."""
    if look.is_stopped:
        return {STOPPED.wait: 1.0}
    wait = same_certain_wait(waits)
    if wait is not None:
        return {wait: 1.0}
    return LookDivision(waits, look.children).share_of_each_wait()

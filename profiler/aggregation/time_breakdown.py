"""Divides the wall time of a run by looks at its threads, in four questions.

1. Could anything run? 2. Did anything run? The kernel's counters leave a range, in which the looks
decide, and mean numbers of threads where a look did not ask all: :mod:`busy_time`. Each look has
the :mod:`stretch` before it (:mod:`look_stretches`), to which the counters of threads are added
(:mod:`counted_time`), and what ended unread (:mod:`unread_time`). The rest is :mod:`blocked_time`.

3. Whose wait held the run back? The rest is divided among the threads that wait, by the work that
each wait held back, and handed on along chains: :mod:`wait_attribution`, :mod:`wait_chains`. That
work is what the thread used before and after (:mod:`thread_wait`, :mod:`work_between_waits`),
without what belongs to waits that no look saw (:mod:`unseen_waits`); a thread that nobody needs any
more held back nothing (:mod:`most_work`). Who may have ended a wait says :mod:`wait_order`.
:mod:`current_waits` follows all threads from look to look.

4. What did it wait for? A wait says so by itself, or is for somebody to come, or for others:
:mod:`sorted_waits`. Where others may end it, or a timeout, what ended it says more:
:mod:`wait_proofs`, by the moments at which work began and by what mostly ends the thread's waits
(:mod:`awaited_events`).

A look is settled (:mod:`settled_looks`) once every thread in it has run again, and the time on its
CPUs and the work of the GPUs are known, else after a minute: what a thread runs next says what its
wait held back. Idle time of the GPUs has the same share of each part of a stretch between two
looks.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial

from msgspec import Struct

from profiler.aggregation.changed_waits import ChangedWaits
from profiler.aggregation.counted_time import MAX_USED, CountedTime
from profiler.aggregation.current_waits import ThreadWaits
from profiler.aggregation.gpu_idle_breakdown import IdleGpus, IdleTimeByPlace
from profiler.aggregation.look_stretches import LookStretches
from profiler.aggregation.record_evidence import ProcessActivity
from profiler.aggregation.settled_looks import OpenLook, SettledSums
from profiler.aggregation.stretch import Stretch
from profiler.aggregation.thread_wait import ThreadWait
from profiler.aggregation.time_percentages import TimeParts
from profiler.aggregation.time_series import RunSeries
from profiler.aggregation.unread_time import UnreadTime
from profiler.core.optional_math import first_known
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.readers.linux.look import ThreadsLook
from profiler.readers.linux.wait_types import Wait
from profiler.record.activity_model import NO_BREAKDOWN, TimeBreakdown

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
# The most values of looks that wait to be added.
_MAX_WAITING = 500


class _PausedLooks(Struct):
    """Readings one after the other in which no thread had its turn: the first and the last one, and
    the peeks after the first.
    """

    first_ns: int
    last_ns: int
    peeks: int = 0
    able_peeks: int = 0


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
        self._has_waits = False
        self._sees_calls = False
        self._is_sampled = False
        self._threads = ThreadWaits()
        self._able: set[ThreadWait] = set()
        self._have_all_ended = True  # no thread lived at the last look
        self._open: deque[OpenLook] = deque()
        self._stretches = LookStretches(self._open)
        self._counted = CountedTime(self._open)
        self._unread = UnreadTime(self._open)
        self._open_waits = 0
        self._has_shares = False  # any of them, because it was asked for the time so far
        # The waits at the first open look, and those of them that are not known yet.
        self._head: dict[ThreadWait, None] = {}
        self._unknown: set[ThreadWait] = set()
        self._has_begun_head = False
        self._sums = SettledSums(idle=IdleTimeByPlace(started_ns))

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
        stretch = self._stretches.add_look(start_ns, read_ns, look, len(self._able), able_before)
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
        self._counted.add_growth(stretch, look.growth or (), change.over)
        self._counted.add_waits(stretch, waiting)
        self._counted.add_late_throttled(stretch)
        self._counted.pass_waits_to(series)
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
        self._counted.add_pause(start_ns, read_ns)

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
    ) -> OpenLook:
        look = OpenLook(
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
        until_ns = first_known(self._until_ns, read_ns)
        self._unread.add_total(read_ns, ended_cpu_ns, read_ended_ns, until_ns)

    def add_unread(self, cpu_ns: int, since_ns: int) -> None:
        """Add CPU time of processes that nobody read, and that no total has: it ran since then."""
        self._pause = None
        self._waiting.append(partial(self._add_unread, cpu_ns, since_ns))

    def _add_unread(self, cpu_ns: int, since_ns: int) -> None:
        until_ns = first_known(self._until_ns, since_ns)
        self._unread.add_unread(cpu_ns, since_ns, until_ns)

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

    def _sums_so_far(self) -> SettledSums:
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

    def pass_cpu_waits_on(self, series: RunSeries | None) -> None:
        """Pass the waits for a CPU on to the series."""
        self._add_paused_looks()
        self._counted.pass_waits_to(series)

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
            is_known = not self._unknown and end_ns <= self._unread.total_ns
            if gpus_known_ns is not None and end_ns > gpus_known_ns:
                is_known = False
            is_old = now_ns - end_ns >= _MAX_OPEN_NS
            is_too_much = len(self._open) > _MAX_OPEN_LOOKS or self._open_waits > _MAX_OPEN_WAITS
            if len(self._open) <= MAX_USED or not (is_known or is_old or is_too_much):
                return
            self._open.popleft()
            self._open_waits -= len(look.change.begun)
            self._has_begun_head = False
            look.shares = None
            self._add_to_sums(look, self._head, self._sums)

    def _add_to_sums(
        self, look: OpenLook, waits: Collection[ThreadWait], sums: SettledSums
    ) -> None:
        look.stretch.has_lost_runs = self.loses_cpu_time and look.stretch.has_lost_waits
        sums.add_look(look, waits, self._gpu_idle_share(look.stretch))

    def _gpu_idle_share(self, stretch: Stretch) -> float:
        """The share of a stretch in which all GPUs were idle."""
        if self._gpus is None or not stretch.length_ns:
            return 0.0
        idle_ns = self._gpus.idle_ns(stretch.start_ns, stretch.end_ns)
        return min(idle_ns / stretch.length_ns, 1.0)


def _restore_waits_at_look(change: ChangedWaits, waits: dict[ThreadWait, None]) -> None:
    """Let the waits be those at the look. One that began with it may be over: its thread was asked,
    and could run when its state was read at the end of the look.
    """
    waits.update(dict.fromkeys(change.begun))
    for wait in change.over:
        waits.pop(wait, None)

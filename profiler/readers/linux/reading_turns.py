"""Which threads a look leaves to the next ones, so that looks cost little: turns of threads whose
system calls are not readable, readings at which everybody slept, moments between looks in which
only the state of those that work is read, and the limit of the cost of one look.
"""

from collections.abc import Callable, Collection

from msgspec import Struct

from profiler.readers.linux.look import ThreadsLook
from profiler.readers.linux.process_threads import ProcessThreads
from profiler.readers.linux.process_tree import ProcessReading
from profiler.readers.linux.wait_reader import SLEEP_STATE

# A reading checks its cost after this many threads.
CHECKED_THREADS = 16
# The most threads whose system call is read at once. The others follow in the next readings.
MAX_ASKED = 64
# Peeks stand for all threads if those that they read use so many times what the others use, in the
# last looks. Without system calls, there are peeks only if those that work used more than this part
# of the time.
_SEEN_FACTOR = 3
NOTABLE_DIVISOR = 10
# Without system calls there is little to see: of processes that have several threads, each thread
# has its turn after a tenth of all readings so far, and at least every fortieth time, if there are
# not too many. As a reading costs much more than one more thread, so many are read together. After
# a wait for a disk, for so many readings, it is every twentieth time: how much of the time such
# waits take is known only by the looks that find them, while the counters lose nothing. More than
# so many threads are as many samples in fewer looks.
_AGE_PER_TURN = 10
_MAX_READINGS_PER_TURN = 40
_MAX_READINGS_AT_DISK = 20
_READINGS_AFTER_DISK = 400
_SAMPLED_AT_DISK = 16
_MAX_TOGETHER = 64


class LookBudget:
    """The limit of the cost of a part of a look, until it ``is_spent``.

    The first threads are always allowed.
    """

    def __init__(self, spent_ns: Callable[[], int], limit_ns: float) -> None:
        self._spent_ns = spent_ns
        self._limit_ns = limit_ns
        self._count = 0
        self.is_spent = False

    def allows_threads(self, threads: int = 1) -> bool:
        """Whether one more thread, or so many, may be read."""
        if self._count >= CHECKED_THREADS:
            self._count = 0
            self.is_spent = self.is_spent or self._spent_ns() >= self._limit_ns
        self._count += threads
        return not self.is_spent


class SkippedReading(Struct, frozen=True):
    """A reading of the processes that was not followed: ``look`` is None if the next look stands
    for it, too.
    """

    look: ThreadsLook | None = None


class ThreadTurns(Struct):
    """The turns of the threads of processes that have several, without their system calls.

    The last turn is that of look ``last_number``, the next one follows after so many ``readings``,
    of which some were ``skipped`` since the last look. ``left`` is how many threads still have
    their turn in this look; ``are_left_out``: none of those that have run. ``disk_number`` is the
    last look that found one in a wait for a disk. ``without_turn`` is what the readings since the
    last look say. So many looks ``between`` readings had no turns.
    """

    last_number: int = 0
    disk_number: int = -_READINGS_AFTER_DISK
    readings: int = 0
    left: int = 0
    skipped: int = 0
    are_left_out: bool = False
    without_turn: SkippedReading | None = None
    between: int = 0

    def are_due(self, number: int) -> bool:
        """Whether threads have their turn in the reading of this number."""
        return number - self.between - self.last_number >= self.readings

    def note_disk(self, number: int) -> None:
        """Note that a thread waits for a disk in the look after the one of this number."""
        self.disk_number = number - self.between

    def begin_if_due(self, threads: int, number: int) -> bool:
        """Begin the turn of look ``number`` if it is due, of as many of these threads as are read
        together; returns whether it was.
        """
        number -= self.between
        is_at_disk = number - self.disk_number < _READINGS_AFTER_DISK
        most = _MAX_READINGS_PER_TURN
        if is_at_disk:
            more = max(threads / _SAMPLED_AT_DISK, 1)
            most = min(round(more * _MAX_READINGS_AT_DISK), most)
        turn = min(max(number // _AGE_PER_TURN, 1), most)
        turn = max(turn, -(-threads // _MAX_TOGETHER))
        self.readings = turn
        together = min(threads, _MAX_TOGETHER)
        self.left = min(threads * (number - self.last_number) // turn, together)
        if self.left < together:
            return False
        self.last_number = number
        return True


class AsleepReadings(Struct):
    """The readings since the last look that found nobody who could run: so many ``readings``, the
    last one at ``at_ns``. ``processes`` are as of this one, or of the last look.

    ``regulars``, by their ids, have one thread, ran before the last look, and slept at it.
    """

    readings: int = 0
    at_ns: int = 0
    processes: Collection[ProcessReading] = ()
    regulars: dict[int, ProcessThreads] = {}

    def has_process_run_and_slept_again(
        self, reading: ProcessReading, between: ProcessReading
    ) -> bool:
        """Whether a process has run in each step since the last look, and sleeps as it did then;
        ``between`` is the reading before.

        One that was still for a step may have slept for long: only a look limits what the kernel
        may call its wait for a CPU.
        """
        process = self.regulars.get(reading.pid)
        if process is None or reading.state != SLEEP_STATE or reading.threads > 1:
            return False
        if reading is between or (self.readings and between is process.reading):
            return False
        before = process.reading
        return (reading.blocks_signals, reading.started_ticks) == (
            before.blocks_signals,
            before.started_ticks,
        )


class PeekResults(Struct):
    """What peeks, which read the state of the threads that work, have found since the last look:
    whether one of them could run.

    In the last looks, over ``looked_ns``, those that work used ``workers_ns``, and the others, also
    those that ended unread, ``rest_ns``; those that no peek would have read used ``missed_ns`` of
    both. Half of it counts at the next look, or the next one in which threads have their turn.
    ``is_steady``: no process has begun or ended at the last reading.
    """

    able: list[bool] = []
    looked_ns: int = 0
    workers_ns: int = 0
    rest_ns: int = 0
    missed_ns: int = 0
    is_steady: bool = False

    @property
    def find_those_that_run(self) -> bool:
        """Whether peeks would have read nearly all threads that ran."""
        seen_ns = self.workers_ns + self.rest_ns - self.missed_ns
        return self.is_steady and _SEEN_FACTOR * self.missed_ns < seen_ns

    @property
    def show_how_long_able(self) -> bool:
        """Whether those that work may have run together for a notable part of the time, or in turn:
        the counters do not say it.
        """
        return NOTABLE_DIVISOR * self.workers_ns > self.looked_ns

    def share_of_work(self, of_workers: float, of_others: float) -> float:
        """The share of the work of all threads, given those of the ones that work, and of the
        others.
        """
        work_ns = self.workers_ns + self.rest_ns
        part = self.workers_ns / work_ns if work_ns else 0.0
        return part * of_workers + (1 - part) * of_others

    def begin_look(self) -> None:
        self.looked_ns //= 2
        self.workers_ns //= 2
        self.rest_ns //= 2
        self.missed_ns //= 2

    def take_results(self) -> list[bool]:
        able = self.able
        self.able = []
        return able

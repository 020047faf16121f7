"""Which readings of all processes need not be followed, where system calls are not readable: the
threads of those that have run have no turn, or they sleep again as at the last look.
"""

from collections.abc import Callable, Collection

from profiler.readers.linux.known_waits import KnownWaits
from profiler.readers.linux.look import ThreadsLook
from profiler.readers.linux.process_tree import ProcessReading
from profiler.readers.linux.reading_turns import AsleepReadings, SkippedReading, ThreadTurns
from profiler.readers.linux.thread_counters import ReadingNumberAndTime
from profiler.readers.linux.watched_processes import WatchedProcesses
from profiler.readers.linux.working_threads import WorkingThreads

# The counters of processes that run in every step and sleep at every reading say the same if
# several steps are read as one: after a twentieth of all looks so far, and at least every fourth
# time. In 50 processes a look costs a third of the reading of the processes.
_LOOKS_PER_SLEEP = 20
_MAX_SLEEP_READINGS = 4
_ASLEEP = SkippedReading()


class ReadingSkipper:
    """Says which readings are skipped."""

    def __init__(
        self,
        processes: WatchedProcesses,
        turns: ThreadTurns,
        asleep: AsleepReadings,
        working: WorkingThreads,
        waits: KnownWaits,
    ) -> None:
        self._processes = processes
        self._turns = turns
        self._asleep = asleep
        self._working = working
        self._waits = waits

    def skip_if_all_asleep(
        self,
        readings: Collection[ProcessReading],
        last: ReadingNumberAndTime,
        now_ns: int,
        empty_look: Callable[[], ThreadsLook],
    ) -> SkippedReading | None:
        """What there is to say of a reading of all processes that need not be followed: none has
        begun or ended since the look ``last``, and of those that have changed, no thread has its
        turn, or those that run in every step sleep again. Returns None if it has to be followed.
        ``empty_look`` makes a look in which no thread has its turn.
        """
        if self._waits.to_ask or self._processes.ended_threads:
            return None
        if len(readings) != len(self._processes.readings):
            return None
        asleep = self._asleep
        has_regulars = bool(asleep.regulars)
        is_turn = self._turns.are_due(last.number + 1 + self._turns.skipped)
        is_asleep = False
        for reading, before, between in zip(
            readings, self._processes.readings, asleep.processes, strict=True
        ):
            if reading is before:
                continue
            if has_regulars and asleep.has_process_run_and_slept_again(reading, between):
                is_asleep = True
            elif is_turn or not self._are_threads_in_turns(reading):
                return None
        if is_asleep:
            return self._note_asleep(readings, last, now_ns)
        if is_turn:
            return None
        self._turns.skipped += 1
        return self._reading_without_turn(empty_look)

    def _reading_without_turn(self, empty_look: Callable[[], ThreadsLook]) -> SkippedReading:
        """A reading in which no thread has its turn; without peeks, all are the same object. To
        make one costs a tenth of the reading of a few processes.
        """
        turns = self._turns
        if self._working.peeks.able:
            return SkippedReading(empty_look())
        if turns.without_turn is None:
            turns.without_turn = SkippedReading(empty_look())
        return turns.without_turn

    def _are_threads_in_turns(self, reading: ProcessReading) -> bool:
        """Whether the threads of a process have turns."""
        process = self._processes.by_pid.get(reading.pid)
        if process is None or process.started_ticks != reading.started_ticks:
            return False
        return process.is_refused and reading.threads > 1

    def _note_asleep(
        self, readings: Collection[ProcessReading], last: ReadingNumberAndTime, now_ns: int
    ) -> SkippedReading | None:
        """Note a reading that found nobody who could run, unless it is time for a look."""
        asleep = self._asleep
        together = min((last.number - self._turns.between) // _LOOKS_PER_SLEEP, _MAX_SLEEP_READINGS)
        if asleep.readings + 1 >= together or self._turns.skipped or self._waits.able:
            return None
        asleep.readings += 1
        asleep.at_ns = now_ns
        asleep.processes = readings
        self._turns.last_number -= 1  # its turn comes after so many readings, not looks
        self._working.peeks.able.append(False)
        return _ASLEEP

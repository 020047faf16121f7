"""How long and how often a recording of a local run's stacks samples, at a bounded cost."""

from msgspec import Struct

from profiler.collectors.stacks.stacks_budget import StacksBudget
from profiler.core.timestamps import NS_PER_SECOND

MIN_RATE_HZ = 1
USUAL_RATE_HZ = 20
# Samples of all processes together: py-spy takes 0.2 ms for one.
_MAX_SAMPLES_HZ = 40
# With one CPU the command shares it with the sampler.
_MAX_SAMPLES_ON_ONE_CPU_HZ = 10
# A call of py-spy takes 10 ms, so recordings become longer. Short runs see their first samples
# soon, and a moment needs the stacks of waiting threads, which are read between two recordings.
_FIRST_NS = 4 * NS_PER_SECOND
_FIRST_SECONDS = 1
_FIRST_PERIOD_NS = 60 * NS_PER_SECOND
_EARLY_SECONDS = 4
_MOMENT_SECONDS = 2
_LATER_SECONDS = 20
# Until then, an interpreter is still starting.
_STARTUP_NS = NS_PER_SECOND // 5
_LEAST_STEP_NS = NS_PER_SECOND
# A shell may take a moment until it executes Python.
_EARLY_SEARCH_NS = NS_PER_SECOND // 10


class Recording(Struct, frozen=True, kw_only=True):
    """A recording: its length, and the samples a second of each process. ``is_of_moment``: it is
    one of a notable moment.
    """

    seconds: int
    rate_hz: int
    is_of_moment: bool = False


class RecordingRate:
    """The next recording of a run that began at ``started_ns`` (monotonic).

    ``rate_hz`` is the user's own word, which is kept. None: 20 a second, for at most two processes;
    after a minute, or half of the ``budget``, as many halves of that as are needed for recordings
    to take no more than what is left of the budget, by what the last ones took.
    """

    def __init__(self, started_ns: int, vcpu: float, rate_hz: int | None = None) -> None:
        self._started_ns = started_ns
        self._own_rate_hz = rate_hz
        self._max_samples_hz = _MAX_SAMPLES_HZ
        if vcpu < 2:  # noqa: PLR2004
            self._max_samples_hz = _MAX_SAMPLES_ON_ONE_CPU_HZ
        self._due_ns = self._paced_ns = started_ns + _STARTUP_NS
        # What all processes take: to read and to begin a recording, and a sample of this.
        self._call_ns = 0.0
        self._sample_ns = 0.0
        self._processes = 1
        self.budget = StacksBudget(started_ns)

    def next_ns(self, *, is_moment: bool = False) -> int:
        """The time of the next recording, which may be in the past. A notable moment does not wait
        until what is left of the budget lasts to its end.
        """
        return self._due_ns if is_moment else max(self._due_ns, self._paced_ns)

    def next_recording(self, now_ns: int, processes: int, *, is_moment: bool) -> Recording:
        """The recording to make now. ``processes`` is their number; ``is_moment``: it is of a
        notable moment.
        """
        for_each = max(processes, 1) / self._processes
        self._call_ns *= for_each
        self._sample_ns *= for_each
        self._processes = max(processes, 1)
        return Recording(
            seconds=self._seconds(now_ns, is_moment=is_moment),
            rate_hz=self._own_rate_hz or self._rate_hz(now_ns),
            is_of_moment=is_moment,
        )

    def _seconds(self, now_ns: int, *, is_moment: bool) -> int:
        is_early = self._is_early(now_ns)
        is_first = is_early and now_ns - self._started_ns < _FIRST_NS
        if is_first or not self.budget.last_cost_ns:  # what they take is not known
            return _FIRST_SECONDS
        if is_moment:
            return _MOMENT_SECONDS
        return _EARLY_SECONDS if is_early else _LATER_SECONDS

    def _is_early(self, now_ns: int) -> bool:
        return now_ns - self._started_ns < _FIRST_PERIOD_NS and not self.budget.is_half_spent

    def _rate_hz(self, now_ns: int) -> int:
        rate_hz = min(USUAL_RATE_HZ, self._max_samples_hz // self._processes)
        if self._is_early(now_ns):
            return max(rate_hz, MIN_RATE_HZ)
        most_ns = self.budget.share_left(now_ns) * _LATER_SECONDS * NS_PER_SECOND
        while rate_hz > MIN_RATE_HZ and self._cost_ns(_LATER_SECONDS, rate_hz) > most_ns:
            rate_hz //= 2
        return max(rate_hz, MIN_RATE_HZ)

    def _cost_ns(self, seconds: int, rate_hz: int) -> float:
        """What such a recording takes, as far as it is known."""
        return self._call_ns + seconds * rate_hz * self._sample_ns

    def add_recording(
        self,
        began_ns: int,
        ended_ns: int,
        spent_ns: int,
        recording: Recording | None,
        reading_cost_ns: int = 0,
    ) -> None:
        """Add a recording, and the CPU time that was spent until its end, of which the reading
        before it took ``reading_cost_ns``; None if there was no process to record.
        """
        self.budget.set_spent(spent_ns)
        step_ns = _LEAST_STEP_NS  # also after a recording that failed at once
        if recording is None and ended_ns - self._started_ns < _FIRST_NS:
            step_ns = _EARLY_SEARCH_NS
        self._due_ns = max(ended_ns, began_ns + step_ns)
        if recording is not None and self.budget.last_cost_ns:
            self._note_costs(recording, ended_ns - began_ns, reading_cost_ns)
        if self._own_rate_hz is not None:
            return
        is_moment = recording is not None and recording.is_of_moment
        cost_ns = 0
        for _ in range(2):  # the later, the longer
            seconds = self._seconds(self._due_ns, is_moment=is_moment)
            cost_ns = round(self._cost_ns(seconds, self._rate_hz(self._due_ns)))
            self._due_ns = max(self._due_ns, self.budget.affordable_ns(cost_ns))
        if recording is None or is_moment or self._is_early(ended_ns):
            return
        share_left = self.budget.share_left(ended_ns)
        if share_left > 0:
            self._paced_ns = began_ns + round(cost_ns / share_left)

    def _note_costs(self, recording: Recording, length_ns: int, reading_cost_ns: int) -> None:
        """Note what the recording took. To begin it costs as much as the reading before."""
        call_ns: float = 2 * reading_cost_ns
        seconds = min(length_ns / NS_PER_SECOND, recording.seconds)
        samples = max(seconds * recording.rate_hz, 1)  # fewer if it was interrupted
        sample_ns = max(self.budget.last_cost_ns - call_ns, 0) / samples
        if self._call_ns or self._sample_ns:
            call_ns = (self._call_ns + call_ns) / 2
            sample_ns = (self._sample_ns + sample_ns) / 2
        self._call_ns = call_ns
        self._sample_ns = sample_ns

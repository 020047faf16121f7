"""How long and how often a recording of a local run's stacks samples, at a bounded cost."""

from msgspec import Struct

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
# The share of one core after the first minute, and of all samples of a run of ten minutes or more.
_MAX_SHARE = 0.003
_MIN_RUN_NS = 600 * NS_PER_SECOND
# Until then, an interpreter is still starting.
_STARTUP_NS = NS_PER_SECOND // 5
_LEAST_STEP_NS = NS_PER_SECOND
# A shell may take a moment until it executes Python.
_EARLY_SEARCH_NS = NS_PER_SECOND // 10


class Recording(Struct, frozen=True, kw_only=True):
    """A recording: its length, and the samples a second of each process."""

    seconds: int
    rate_hz: int


class RecordingRate:
    """The next recording of a run that began at ``started_ns`` (monotonic).

    ``rate_hz`` is the user's own word, which is kept. None: 20 a second, for at most two processes;
    after a minute half of that as often as the last recording took more than its share of a core.
    """

    def __init__(self, started_ns: int, vcpu: float, rate_hz: int | None = None) -> None:
        self._started_ns = started_ns
        self._own_rate_hz = rate_hz
        self._max_samples_hz = _MAX_SAMPLES_HZ
        if vcpu < 2:  # noqa: PLR2004
            self._max_samples_hz = _MAX_SAMPLES_ON_ONE_CPU_HZ
        self._halvings = 0
        self._due_ns = started_ns + _STARTUP_NS
        self.spent_ns = 0

    def next_ns(self) -> int:
        """The time of the next recording, which may be in the past."""
        return self._due_ns

    def next_recording(self, now_ns: int, processes: int, *, is_moment: bool) -> Recording:
        """The recording to make now. ``processes`` is their number; ``is_moment``: it is of a
        notable moment.
        """
        elapsed_ns = now_ns - self._started_ns
        seconds = _LATER_SECONDS
        if elapsed_ns < _FIRST_NS:
            seconds = _FIRST_SECONDS
        elif is_moment:
            seconds = _MOMENT_SECONDS
        elif elapsed_ns < _FIRST_PERIOD_NS:
            seconds = _EARLY_SECONDS
        rate_hz = self._own_rate_hz
        if rate_hz is None:
            usual_hz = min(USUAL_RATE_HZ, self._max_samples_hz // max(processes, 1))
            rate_hz = max(usual_hz >> self._halvings, MIN_RATE_HZ)
        return Recording(seconds=seconds, rate_hz=rate_hz)

    def add_recording(
        self, began_ns: int, ended_ns: int, cost_ns: int, recording: Recording | None
    ) -> None:
        """Add a recording with its CPU time; None if there was no process to record."""
        self.spent_ns += cost_ns
        step_ns = _LEAST_STEP_NS  # also after a recording that failed at once
        if recording is None and ended_ns - self._started_ns < _FIRST_NS:
            step_ns = _EARLY_SEARCH_NS
        self._due_ns = max(ended_ns, began_ns + step_ns)
        if self._own_rate_hz is not None:
            return
        if self.spent_ns + cost_ns > _MAX_SHARE * _MIN_RUN_NS:
            affordable_ns = round((self.spent_ns + cost_ns) / _MAX_SHARE)
            self._due_ns = max(self._due_ns, self._started_ns + affordable_ns)
        if ended_ns - self._started_ns < _FIRST_PERIOD_NS or recording is None:
            return
        # Of a recording that ended early, most is the start of py-spy.
        share = cost_ns / (recording.seconds * NS_PER_SECOND)
        if share > _MAX_SHARE and recording.rate_hz > MIN_RATE_HZ:
            self._halvings += 1
        elif share < _MAX_SHARE / 2 and self._halvings:
            self._halvings -= 1

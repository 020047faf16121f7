"""The last seconds of one GPU, and the runs to which they belong: the ends of runs and the driver's
own samples are known late.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Literal

from profiler.aggregation.statistics import UseWindow
from profiler.collectors.nvidia.gpu_owners import Owns
from profiler.collectors.nvidia.run_use import GpuReading, ProcessListFacts, RunUse
from profiler.core.timestamps import NS_PER_SECOND

UseSource = Literal["driver-samples", "gpm", "once-a-second"]
# The best first: all work without gaps, kernels without gaps, one moment of each second.
_SOURCES: tuple[UseSource, ...] = ("driver-samples", "gpm", "once-a-second")
_PERCENT = 100
# The time of a run is divided by what it did up to so much later.
_KEPT_NS = 60 * NS_PER_SECOND


class GpuTimeline:
    """Keeps readings and windows for ``notice_ns``, then adds them to the runs. ``lists`` are
    those of the driver of all GPUs.
    """

    def __init__(self, notice_ns: int, lists: ProcessListFacts | None = None) -> None:
        self._notice_ns = notice_ns
        self._lists = lists or ProcessListFacts()
        self._readings: deque[GpuReading] = deque()
        self._windows: deque[UseWindow] = deque()  # that no run has yet
        self._recent_windows: deque[UseWindow] = deque()
        self.runs: dict[str, RunUse] = {}
        self.known_until_ns = 0
        self.source: UseSource | None = None
        self._rank = len(_SOURCES)

    def begin_run(self, run: str, started_ns: int, find_owner: Callable[[], Owns | None]) -> None:
        """Begin a run, or look again for its processes, which may not have been visible."""
        use = self.runs.get(run)
        if use is None:
            self.runs[run] = RunUse(started_ns, find_owner(), self._lists)
        elif use.owns is None:
            use.owns = find_owner()

    def add_reading(self, reading: GpuReading) -> None:
        self._readings.append(reading)
        self._lists.has_listed = self._lists.has_listed or bool(reading.processes)
        for use in self.runs.values():
            if reading.end_ns > use.started_ns:
                use.note_reading(reading)
        self._add_settled_to_runs(reading.end_ns)

    def _add_settled_to_runs(self, now_ns: int) -> None:
        """Add to the runs what is older than the notice of their ends."""
        while self._readings and self._readings[0].end_ns < now_ns - self._notice_ns:
            old = self._readings.popleft()
            for use in self.runs.values():
                use.add_reading(old)

    def add_windows(self, windows: Sequence[UseWindow], source: UseSource) -> None:
        """Add the work of the time since the last window; a better source replaces a worse one
        for good. What one moment of each second showed before is no work of the better source.
        """
        if not windows:
            return
        rank = _SOURCES.index(source)
        if rank < self._rank:
            if self.source == "once-a-second":
                self._windows.clear()
                self._recent_windows.clear()
            self._rank = rank
            self.source = source
            self._replace_from(windows[0].start_ns)
        if source != self.source:
            return
        for window in windows:
            if window.end_ns > self.known_until_ns:
                self._windows.append(window)
                self._recent_windows.append(window)
                self.known_until_ns = window.end_ns
        while self._recent_windows and (
            self._recent_windows[0].end_ns < self.known_until_ns - _KEPT_NS
        ):
            self._recent_windows.popleft()
        self._add_settled_to_runs(self.known_until_ns)
        # A list of processes counts for the time since the one before.
        waiting_ns = min(
            (reading.start_ns for reading in self._readings),
            default=self.known_until_ns - self._notice_ns,
        )
        while self._windows and self._windows[0].end_ns < waiting_ns - NS_PER_SECOND:
            old = self._windows.popleft()
            for use in self.runs.values():
                is_estimate = self.source == "once-a-second" and old.end_ns > use.started_ns
                use.has_estimates = use.has_estimates or is_estimate
                use.add_window(old)

    def _replace_from(self, start_ns: int) -> None:
        """Drop the windows of a worse source from this moment on."""
        for windows in (self._windows, self._recent_windows):
            while windows and windows[-1].end_ns > start_ns:
                last = windows.pop()
                if last.start_ns < start_ns:
                    windows.append(UseWindow(last.start_ns, start_ns, last.percent))
        self.known_until_ns = min(self.known_until_ns, start_ns)

    def idle_ns(self, start_ns: int, end_ns: int) -> int:
        """The time in which the GPU did not work between two moments of the last minute."""
        parts = self._parts_of_windows(start_ns, end_ns)
        return round(sum(part_ns * (1 - percent / _PERCENT) for part_ns, percent in parts))

    def known_ns(self, start_ns: int, end_ns: int) -> int:
        """The time in which its work is known between two moments of the last minute."""
        return sum(part_ns for part_ns, _ in self._parts_of_windows(start_ns, end_ns))

    def _parts_of_windows(self, start_ns: int, end_ns: int) -> Iterator[tuple[int, float]]:
        """The lengths of the windows between the moments, and how much the GPU worked in each."""
        for window in reversed(self._recent_windows):
            if window.end_ns <= start_ns:
                break
            part_ns = min(window.end_ns, end_ns) - max(window.start_ns, start_ns)
            if part_ns > 0:
                yield part_ns, window.percent

    def use_until(self, run: str, finished_ns: int | None) -> RunUse | None:
        """The use by a run with the last seconds; None if it has not begun."""
        if run not in self.runs:
            return None
        use = deepcopy(self.runs[run])
        for reading in self._readings:
            use.add_reading(reading, finished_ns)
        if finished_ns is not None:
            use.end_presence(finished_ns)
        for window in self._windows:
            use.add_window(window, finished_ns)
        if finished_ns is not None:
            use.repeat_last_window(finished_ns)
        return use

    def source_of(self, use: RunUse | None) -> UseSource | None:
        """The source of the work of a run: the worst one of those that it has."""
        return "once-a-second" if use is not None and use.has_estimates else self.source

    def windows_since(self, since_ns: int) -> list[UseWindow]:
        """The windows of the last minute that end after a moment."""
        return [window for window in self._recent_windows if window.end_ns > since_ns]

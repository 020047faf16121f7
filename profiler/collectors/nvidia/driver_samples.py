"""The driver's own samples of a GPU's utilization, one each 1/6 to 1 s (200 ms on an H100), of
which it keeps the last 10 to 20 s: without gaps if they are read in time.

A sample is the share of the time since the one before in which a kernel ran, or a copy engine
worked: also for the driver itself, which clears memory that is freed.
"""

from itertools import pairwise
from typing import Any

from profiler.aggregation.statistics import UseWindow
from profiler.collectors.impossible_readings import possible_percent
from profiler.collectors.nvidia.nvml_calls import ErrorAction, Failure, Nvml, call_nvml
from profiler.core.clock import Clock
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, NS_PER_US

# A longer step between two samples is a gap: the driver's window is at most 1 s.
_MAX_STEP_NS = 1200 * NS_PER_MS
_USUAL_STEP_NS = 200 * NS_PER_MS
# A sample that is older, or is not yet, was stamped before the wall clock was set.
_MAX_AGE_NS = 60 * NS_PER_SECOND
_MAX_AHEAD_NS = NS_PER_SECOND
# A reading takes 2 to 3 ms, and the driver of an H100 keeps 14 s.
_PERIOD_NS = 10 * NS_PER_SECOND
# The driver truncates: a GPU that worked all the time has 99 % (H100, driver 580).
_FULL_PERCENT = 99


class DriverSamples:
    """Reads the samples of one GPU, each once, on the monotonic clock; not ``is_available`` for
    one that MIG divides.

    ``impossible`` counts the values that cannot be.
    """

    # A pointer of the driver's.
    def __init__(
        self,
        nvml: Nvml,
        handle: Any,  # noqa: ANN401
        clock: Clock,
        *,
        is_available: bool = True,
    ) -> None:
        self._nvml = nvml
        self._handle = handle
        self._clock = clock
        self._last_us = 0
        self._last_ns: int | None = None
        self._due_ns = 0
        self._is_available = is_available
        self.impossible = 0

    def read(self, *, is_complete: bool) -> tuple[UseWindow, ...] | None:
        """The windows since the last reading, in order; None if no reading is due, or if the
        driver has had no samples of this GPU so far.
        """
        now_ns = self._clock.monotonic_ns()
        if not self._is_available or not (is_complete or now_ns >= self._due_ns):
            return None
        self._due_ns = now_ns + _PERIOD_NS
        if self._last_us * NS_PER_US > self._clock.wall_ns() + _MAX_AHEAD_NS:
            self._last_us = 0  # the clock was set back: the driver's newer stamps are smaller
        kind = self._nvml.NVML_GPU_UTILIZATION_SAMPLES
        answer = call_nvml(self._nvml, "nvmlDeviceGetSamples", self._handle, kind, self._last_us)
        if not isinstance(answer, Failure):
            _, samples = answer
            return self._windows({sample.timeStamp: sample.sampleValue.uiVal for sample in samples})
        if answer.action in (ErrorAction.UNSUPPORTED, ErrorAction.PERMISSION_DENIED):
            self._is_available = False
        # Else nothing is new: "not found". A driver that never has a sample says the same.
        return () if self._is_available and self._last_us else None

    def _windows(self, percents: dict[int, int]) -> tuple[UseWindow, ...]:
        """The windows that end at these stamps, in microseconds of the wall clock."""
        now_ns = self._clock.monotonic_ns()
        offset_ns = now_ns - self._clock.wall_ns()
        stamps = sorted(stamp for stamp in percents if stamp > self._last_us)
        steps_ns = [NS_PER_US * (second - first) for first, second in pairwise(stamps)]
        usual_ns = min(max(min(steps_ns, default=0), _USUAL_STEP_NS), NS_PER_SECOND)
        windows: list[UseWindow] = []
        for stamp in stamps:
            end_ns = stamp * NS_PER_US + offset_ns
            if end_ns > now_ns + _MAX_AHEAD_NS:
                break
            self._last_us = stamp
            before_ns = self._last_ns
            self._last_ns = None
            if now_ns - end_ns > _MAX_AGE_NS:
                continue
            self._last_ns = end_ns
            percent = possible_percent(percents[stamp])
            if percent is None:
                self.impossible += 1
                continue
            if percent >= _FULL_PERCENT:
                percent = 100.0
            if before_ns is None or not 0 < end_ns - before_ns <= _MAX_STEP_NS:
                before_ns = end_ns - usual_ns
            windows.append(UseWindow(before_ns, end_ns, percent))
        return tuple(windows)

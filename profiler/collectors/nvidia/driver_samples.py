"""The driver's own samples of a GPU's utilization, one each 1/6 to 1 s (200 ms on an H100), of
which it keeps the last 10 to 20 s: without gaps if they are read in time.

One call takes 2 to 3 ms, so they are read every 10 s and at the end. A sample is the share of the
time since the one before in which a kernel ran, or a copy engine worked: also for the driver
itself, which clears memory that is freed.
"""

from typing import Any

from profiler.collectors.nvidia.nvml_calls import ErrorAction, Failure, Nvml, call_nvml
from profiler.collectors.nvidia.visible_gpus import UseWindow
from profiler.core.clock import Clock
from profiler.core.timestamps import NS_PER_SECOND

_NS_PER_US = 1000
# A longer step between two samples is a gap: the driver's window is at most 1 s.
_MAX_STEP_NS = 1200 * NS_PER_SECOND // 1000
_USUAL_STEP_NS = NS_PER_SECOND // 5
_MAX_AGE_NS = 60 * NS_PER_SECOND
# The driver of an H100 keeps 14 s.
_PERIOD_NS = 10 * NS_PER_SECOND
# The driver truncates: a GPU that worked all the time has 99 % (H100, driver 580).
_FULL_PERCENT = 99


class DriverSamples:
    """Reads the samples of one GPU, each once, on the monotonic clock."""

    # A pointer of the driver's.
    def __init__(self, nvml: Nvml, handle: Any, clock: Clock) -> None:  # noqa: ANN401
        self._nvml = nvml
        self._handle = handle
        self._clock = clock
        self._last_us = 0
        self._last_ns: int | None = None
        self._due_ns: int | None = None
        self._is_available = True

    def read(self, *, is_complete: bool) -> tuple[UseWindow, ...] | None:
        """The windows since the last reading, in order; None if none is due, or if the driver has
        none for this GPU.
        """
        called_ns = self._clock.monotonic_ns()
        is_due = is_complete or self._due_ns is None or called_ns >= self._due_ns
        if not self._is_available or not is_due:
            return None
        self._due_ns = called_ns + _PERIOD_NS
        kind = getattr(self._nvml, "NVML_GPU_UTILIZATION_SAMPLES", 1)
        answer = call_nvml(self._nvml, "nvmlDeviceGetSamples", self._handle, kind, self._last_us)
        if isinstance(answer, Failure):
            if answer.action is ErrorAction.UNSUPPORTED:
                self._is_available = False
                return None
            return ()
        _, samples = answer
        # The driver stamps by the wall clock.
        offset_ns = self._clock.monotonic_ns() - self._clock.wall_ns()
        now_ns = self._clock.monotonic_ns()
        stamped = {sample.timeStamp: sample.sampleValue.uiVal for sample in samples}
        windows: list[UseWindow] = []
        stamps = sorted(stamp for stamp in stamped if stamp > self._last_us)
        steps = [second - first for first, second in zip(stamps, stamps[1:])]
        usual_ns = _USUAL_STEP_NS
        if steps:
            usual_ns = min(max(min(steps) * _NS_PER_US, _USUAL_STEP_NS), NS_PER_SECOND)
        for stamp in stamps:
            end_ns = stamp * _NS_PER_US + offset_ns
            self._last_us = stamp
            before_ns = self._last_ns
            self._last_ns = end_ns
            if abs(now_ns - end_ns) > _MAX_AGE_NS:  # the wall clock was set
                self._last_ns = None
                continue
            if before_ns is None or not 0 < end_ns - before_ns <= _MAX_STEP_NS:
                before_ns = end_ns - usual_ns
            percent = float(min(stamped[stamp], 100))
            windows.append(
                UseWindow(before_ns, end_ns, 100.0 if percent >= _FULL_PERCENT else percent)
            )
        return tuple(windows)

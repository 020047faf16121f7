"""The driver's own samples of a GPU's utilization, one each 1/6 to 1 s (200 ms on an H100), of
which it keeps the last 10 to 20 s: without gaps if they are read in time.

A sample is the share of the time since the one before in which a kernel ran, or a copy engine
worked: also for the driver itself, which clears memory that is freed.
"""

from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter
from statistics import median
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.statistics import UseWindow
from profiler.collectors.impossible_readings import possible_percent
from profiler.collectors.nvidia.nvml_calls import ErrorAction, Failure, Nvml, call_nvml
from profiler.core.clock import Clock
from profiler.core.optional_math import first_known
from profiler.core.timestamps import NEVER_NS, NS_PER_MS, NS_PER_SECOND, NS_PER_US

# A longer step between two samples is a gap: the driver's window is at most 1 s.
_MAX_STEP_NS = 1200 * NS_PER_MS
_USUAL_STEP_NS = 200 * NS_PER_MS
# A sample that is older, or is not yet, was stamped before the wall clock was set.
_MAX_AGE_NS = 60 * NS_PER_SECOND
_MAX_AHEAD_NS = NS_PER_SECOND
# A smaller step of the wall clock moves a window by less than its own length.
_MIN_SET_NS = 100 * NS_PER_MS
# The first sample after a step of the wall clock is usually there after a window.
_MAX_UNSETTLED_NS = 3 * NS_PER_SECOND
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
        # The wall clock less the monotonic one, of the last sample. After the clock was set, until
        # when the first sample of the new time is looked for.
        self._offset_ns: int | None = None
        self._unsettled_until_ns: float = NEVER_NS
        self._due_ns = 0
        self._is_available = is_available
        self.impossible = 0

    def read(self, *, is_complete: bool) -> tuple[UseWindow, ...] | None:
        """The windows since the last reading, in order; None if no reading is due, or if the
        driver has had no samples of this GPU so far.
        """
        now_ns = self._clock.monotonic_ns()
        set_ns = self._clock_was_set(now_ns)
        is_due = is_complete or now_ns >= self._due_ns
        is_unsettled = set_ns != 0 and now_ns <= self._unsettled_until_ns
        if not self._is_available or not (is_due or is_unsettled):
            return None
        self._due_ns = now_ns + _PERIOD_NS
        # The last one is asked for again: what follows it in the driver's order is new. Where the
        # clock was set back, the stamps of that are smaller.
        since_us = 0 if set_ns < 0 else max(self._last_us - 1, 0)
        kind = self._nvml.NVML_GPU_UTILIZATION_SAMPLES
        answer = call_nvml(self._nvml, "nvmlDeviceGetSamples", self._handle, kind, since_us)
        if not isinstance(answer, Failure):
            _, values = answer
            samples = [_Sample(one.timeStamp, 0, one.sampleValue.uiVal) for one in values]
            newer = self._newer(samples, round(set_ns / NS_PER_US))
            return self._windows(newer) if newer or self._last_us else None
        if answer.action in (ErrorAction.UNSUPPORTED, ErrorAction.PERMISSION_DENIED):
            self._is_available = False
        # Else nothing is new: "not found". A driver that never has a sample says the same.
        return () if self._is_available and self._last_us else None

    def _clock_was_set(self, now_ns: int) -> int:
        """By how much the wall clock was set since the last sample; 0 if it was not."""
        offset_ns = self._clock.wall_ns() - now_ns
        set_ns = offset_ns - first_known(self._offset_ns, offset_ns)
        if abs(set_ns) < _MIN_SET_NS:
            self._offset_ns = offset_ns
            self._unsettled_until_ns = NEVER_NS
            return 0
        if self._unsettled_until_ns == NEVER_NS:
            self._unsettled_until_ns = now_ns + _MAX_UNSETTLED_NS
        return set_ns

    def _newer(self, samples: Sequence["_Sample"], set_us: int) -> Sequence["_Sample"]:
        """The samples that follow the last one that was read; ``set_us``: how the wall clock was
        set meanwhile.
        """
        stamps = [sample.stamp_us for sample in samples]
        if self._last_us in stamps:
            samples = samples[len(stamps) - 1 - stamps[::-1].index(self._last_us) :]
            if set_us:
                return self._before_and_after(samples, set_us)
        elif set_us:
            self._offset_ns = None  # the last one is not kept any more, nor others of its clock
            return samples
        return [
            sample
            for sample in sorted(samples, key=attrgetter("stamp_us"))
            if sample.stamp_us > self._last_us
        ]

    def _before_and_after(self, samples: Sequence["_Sample"], set_us: int) -> Sequence["_Sample"]:
        """The samples after the first one, in the driver's order. The clock was set between two of
        them, or after all.
        """
        steps_us = [after.stamp_us - before.stamp_us for before, after in pairwise(samples)]
        usual_us = median(steps_us) if steps_us else 0
        # How badly a step is explained by the setting.
        errors_us = [abs(step - usual_us - set_us) for step in steps_us]
        place = len(steps_us)
        if steps_us:
            likely = errors_us.index(min(errors_us))
            step_us = steps_us[likely]
            ahead_us = samples[-1].stamp_us + set_us - self._clock.wall_ns() // NS_PER_US
            is_ahead = ahead_us * NS_PER_US > _MAX_AHEAD_NS
            if step_us < 0 or is_ahead or errors_us[likely] < abs(step_us - usual_us):
                place = likely
                self._offset_ns = None
        before = [replace(sample, set_us=set_us) for sample in samples[1 : place + 1]]
        return [*before, *samples[place + 1 :]]

    def _windows(self, samples: Sequence["_Sample"]) -> tuple[UseWindow, ...]:
        """The windows that end with these samples."""
        now_ns = self._clock.monotonic_ns()
        offset_ns = now_ns - self._clock.wall_ns()
        ends_us = [sample.stamp_us + sample.set_us for sample in samples]
        steps_ns = [NS_PER_US * (second - first) for first, second in pairwise(ends_us)]
        usual_ns = min(max(min(steps_ns, default=0), _USUAL_STEP_NS), NS_PER_SECOND)
        windows: list[UseWindow] = []
        for sample, end_us in zip(samples, ends_us, strict=True):
            end_ns = end_us * NS_PER_US + offset_ns
            if end_ns > now_ns + _MAX_AHEAD_NS:
                continue
            self._last_us = sample.stamp_us
            before_ns = self._last_ns
            self._last_ns = None
            if now_ns - end_ns > _MAX_AGE_NS:
                continue
            self._last_ns = end_ns
            percent = possible_percent(sample.percent)
            if percent is None:
                self.impossible += 1
                continue
            if percent >= _FULL_PERCENT:
                percent = 100.0
            if before_ns is None or not 0 < end_ns - before_ns <= _MAX_STEP_NS:
                before_ns = end_ns - usual_ns
            windows.append(UseWindow(before_ns, end_ns, percent))
        return tuple(windows)


class _Sample(Struct, frozen=True, gc=False):
    """A sample of the driver; ``set_us``: how the wall clock was set since its stamp."""

    stamp_us: int
    set_us: int
    percent: int

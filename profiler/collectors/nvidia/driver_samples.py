"""The driver's own samples of a GPU's utilization, one each 1/6 to 1 s (200 ms on an H100), of
which it keeps the last 10 to 20 s: without gaps if they are read in time.

A sample is the share of the time since the one before in which a kernel ran, or a copy engine
worked: also for the driver itself, which clears memory that is freed.
"""

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter
from statistics import median
from typing import Any

from msgspec import Struct

from profiler.aggregation.statistics import UseWindow
from profiler.collectors.impossible_readings import possible_percent
from profiler.collectors.nvidia.nvml_calls import ErrorAction, Failure, Nvml, call_nvml
from profiler.core.clock import Clock
from profiler.core.optional_math import first_known, known_values
from profiler.core.timestamps import NEVER_NS, NS_PER_MS, NS_PER_SECOND, NS_PER_US

# A longer step between two samples is a gap: the driver's window is at most 1 s.
_MAX_STEP_NS = 1200 * NS_PER_MS
_USUAL_STEP_NS = 200 * NS_PER_MS
# A sample that is older, or is not yet, was stamped before the wall clock was set.
_MAX_AGE_NS = 60 * NS_PER_SECOND
_MAX_AHEAD_NS = NS_PER_SECOND
# A smaller step of the wall clock moves a window by less than its own length.
_MIN_SET_NS = 100 * NS_PER_MS
# Two samples are further apart.
_SAME_NS = 50 * NS_PER_MS
# So many times between two settings of the wall clock are remembered.
_MAX_TIMES = 16
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
        self._times = _WallClockOffsets()
        self._due_ns = 0
        self._is_available = is_available
        self.impossible = 0

    def read_new_windows(self, *, is_complete: bool) -> tuple[UseWindow, ...] | None:
        """The windows since the last reading, in order; None if no reading is due, or if the
        driver has had no samples of this GPU so far.
        """
        now_ns = self._clock.monotonic_ns()
        self._times.add(now_ns, self._clock.wall_ns() - now_ns)
        if not self._is_available or not (is_complete or now_ns >= self._due_ns):
            return None
        self._due_ns = now_ns + _PERIOD_NS
        # The last one is asked for again: what follows it in the driver's order is new. Where the
        # clock was set, the stamps of that may be smaller.
        since_us = 0 if self._times.were_set else max(self._last_us - 1, 0)
        kind = self._nvml.NVML_GPU_UTILIZATION_SAMPLES
        answer = call_nvml(self._nvml, "nvmlDeviceGetSamples", self._handle, kind, since_us)
        if not isinstance(answer, Failure):
            _, values = answer
            samples = [_Sample(one.timeStamp, one.sampleValue.uiVal) for one in values]
            newer = self._newer_samples(samples)
            return self._windows(newer) if newer or self._last_us else None
        if answer.action in (ErrorAction.UNSUPPORTED, ErrorAction.PERMISSION_DENIED):
            self._is_available = False
        # Else nothing is new: "not found". A driver that never has a sample says the same.
        return () if self._is_available and self._last_us else None

    def _newer_samples(self, samples: Sequence["_Sample"]) -> Sequence["_Sample"]:
        """The samples that follow the last one that was read, as far as their stamps say so."""
        if self._times.were_set:
            return samples
        return [
            sample
            for sample in sorted(samples, key=attrgetter("stamp_us"))
            if sample.stamp_us > self._last_us
        ]

    def _windows(self, samples: Sequence["_Sample"]) -> tuple[UseWindow, ...]:
        """The windows that end with these samples."""
        now_ns = self._clock.monotonic_ns()
        ends_ns = self._times.monotonic_ends_ns(
            [NS_PER_US * one.stamp_us for one in samples], now_ns
        )
        known_ns = known_values(ends_ns)
        steps_ns = [second - first for first, second in pairwise(known_ns)]
        usual_ns = min(max(min(steps_ns, default=0), _USUAL_STEP_NS), NS_PER_SECOND)
        windows: list[UseWindow] = []
        # After the clock was set, samples that were read before are told by their times.
        earliest_ns = first_known(self._last_ns, -NEVER_NS) + (
            _SAME_NS if self._times.were_set else 0
        )
        for sample, end_ns in zip(samples, ends_ns, strict=True):
            if end_ns is None or not earliest_ns < end_ns <= now_ns + _MAX_AHEAD_NS:
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
        # Until then, the driver may hand out samples of the time before.
        self._times.forget(now_ns - _MAX_AGE_NS)
        return tuple(windows)


class _Sample(Struct, frozen=True, gc=False):
    """A sample of the driver."""

    stamp_us: int
    percent: int


class _OffsetPeriod(Struct, gc=False):
    """A time in which the wall clock was not set: its difference to the monotonic clock, and from
    when to when it may have been so.
    """

    offset_ns: int
    from_ns: int
    until_ns: float


class _WallClockOffsets:
    """The times between the settings of the wall clock, as far as samples may be of them."""

    def __init__(self) -> None:
        self._times: deque[_OffsetPeriod] = deque(maxlen=_MAX_TIMES)
        self._seen_ns = 0

    @property
    def were_set(self) -> bool:
        return len(self._times) > 1

    def add(self, now_ns: int, offset_ns: int) -> None:
        """Note the clocks' difference at a moment."""
        last = self._times[-1] if self._times else None
        if last is None:
            self._times.append(_OffsetPeriod(offset_ns, -_MAX_AGE_NS, NEVER_NS))
        elif abs(offset_ns - last.offset_ns) < _MIN_SET_NS:
            last.offset_ns = offset_ns  # the clock runs a little faster or slower
        else:
            last.until_ns = now_ns
            self._times.append(_OffsetPeriod(offset_ns, self._seen_ns, NEVER_NS))
        self._seen_ns = now_ns

    def forget(self, before_ns: int) -> None:
        """Forget the times that ended before a moment."""
        while self.were_set and self._times[0].until_ns <= before_ns:
            self._times.popleft()

    def monotonic_ends_ns(self, stamps_ns: Sequence[int], now_ns: int) -> list[int | None]:
        """When the samples with these stamps ended (monotonic), the driver's order; None where that
        is not known.

        From the newest to the oldest: each ends before the next one, and it is of the time in which
        it lies as far before it as samples usually do.
        """
        if not self.were_set:
            offset_ns = self._times[-1].offset_ns
            return [stamp_ns - offset_ns for stamp_ns in stamps_ns]
        steps_ns = [second - first for first, second in pairwise(stamps_ns)]
        usual_ns = median(steps_ns) if steps_ns else _USUAL_STEP_NS
        times = [*self._times]
        found: list[int | None] = []
        following_ns = now_ns + _MAX_AHEAD_NS
        expected_ns: float = now_ns
        for stamp_ns in reversed(stamps_ns):
            possible = [
                (abs(expected_ns - end_ns), -place, end_ns)
                for place, time in enumerate(times)
                if time.from_ns <= (end_ns := stamp_ns - time.offset_ns) <= time.until_ns
                and end_ns < following_ns
            ]
            if not possible:
                found.append(None)
                continue
            _, place, end_ns = min(possible)
            found.append(end_ns)
            del times[1 - place :]
            following_ns = end_ns
            expected_ns = end_ns - usual_ns
        return found[::-1]

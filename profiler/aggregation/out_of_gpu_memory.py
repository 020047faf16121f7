"""Whether a run failed for lack of GPU memory, by the memory that its processes held on a GPU.

The driver reports no such failure: the program gets an error of an allocation and ends with its own
exit code. What can be seen is memory that grows in steps up to the limit just before the end. A
program that takes a large share of the memory at once, at its start (JAX 75 %, TensorFlow, vLLM),
holds that much on purpose: that alone is no evidence.
"""

from collections import deque
from itertools import pairwise

from msgspec import Struct

from profiler.core.timestamps import NS_PER_SECOND

_AT_LIMIT_SHARE = 0.9
# The growth counts in this time before the last process of the run left the GPU.
_END_NS = 10 * NS_PER_SECOND
_KEPT_READINGS = 160
_MAX_STEP_NS = NS_PER_SECOND // 2
_STEP_SHARE = 0.002
# A single large step, before and after which nothing grows, is taken on purpose: a pool, a cache.
_POOL_SHARE = 0.2
_MIN_STEPS = 3
_MIN_GROWTH_SHARE = 0.05


class MemoryEvidenceOfGpu(Struct, frozen=True, kw_only=True):
    """What speaks for a lack of memory: how much the run and all programs held, of how much."""

    own_bytes: int
    used_bytes: int
    limit_bytes: int
    seconds_before_end: float


class MemoryGrowth:
    """The memory of a run's processes on one GPU, at the last readings with a process there."""

    def __init__(self) -> None:
        self._readings: deque[tuple[int, int, int | None]] = deque(maxlen=_KEPT_READINGS)

    def add(self, at_ns: int, own_bytes: int, used_bytes: int | None) -> None:
        """Add a reading: what the run's processes held, and what all programs held, if known."""
        self._readings.append((at_ns, own_bytes, used_bytes))

    def at_limit(self, limit_bytes: float | None) -> MemoryEvidenceOfGpu | None:
        """The evidence that the memory grew step by step up to ``limit_bytes``; None without."""
        if not limit_bytes or not self._readings:
            return None
        last_ns = self._readings[-1][0]
        recent = [reading for reading in self._readings if reading[0] >= last_ns - _END_NS]
        # What others hold is read once a second.
        others_bytes = 0
        for _, own, used in recent:
            if used is not None:
                others_bytes = max(used - own, 0)
        peak_ns, peak_bytes, _ = max(recent, key=lambda reading: (reading[1], -reading[0]))
        if peak_bytes + others_bytes < _AT_LIMIT_SHARE * limit_bytes:
            return None
        until_peak = [reading for reading in recent if reading[0] <= peak_ns]
        rises = [after[1] - before[1] for before, after in pairwise(until_peak)]
        spans_ns = sorted(after[0] - before[0] for before, after in pairwise(until_peak))
        if not spans_ns or spans_ns[len(spans_ns) // 2] > _MAX_STEP_NS:
            return None  # a pool cannot be told from growth
        step_bytes = _STEP_SHARE * limit_bytes
        steps: list[int] = []  # since the last one that was taken on purpose
        for index, rise in enumerate(rises):
            around = (*rises[max(index - 1, 0) : index], *rises[index + 1 : index + 2])
            if rise >= _POOL_SHARE * limit_bytes and max(around, default=0) < step_bytes:
                steps = []
            elif rise >= step_bytes:
                steps.append(rise)
        if len(steps) < _MIN_STEPS or sum(steps) < _MIN_GROWTH_SHARE * limit_bytes:
            return None
        return MemoryEvidenceOfGpu(
            own_bytes=peak_bytes,
            used_bytes=peak_bytes + others_bytes,
            limit_bytes=round(limit_bytes),
            seconds_before_end=(last_ns - peak_ns) / NS_PER_SECOND,
        )

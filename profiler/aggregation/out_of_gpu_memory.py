"""Whether a run failed for lack of GPU memory, by the memory that its processes held on a GPU.

The driver reports no such failure: the program gets an error of an allocation and ends with its own
exit code. What can be seen is memory that grows in steps up to the limit just before the end. A
program that takes a large share of the memory at once, at its start (JAX 75 %, TensorFlow, vLLM),
holds that much on purpose: that alone is no evidence.
"""

from collections import deque
from collections.abc import Mapping
from itertools import pairwise

from msgspec import Struct

from profiler.core.optional_math import first_known
from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.record_model import GpuMemoryEvidence
from profiler.record.units import bytes_to_mebibytes

_AT_LIMIT_SHARE = 0.9
# The growth counts in this time before the last process of the run left the GPU.
_END_NS = 10 * NS_PER_SECOND
_KEPT_READINGS = 160
# With longer steps between the readings, a pool cannot be told from growth.
_MAX_STEP_NS = NS_PER_SECOND // 2
_STEP_SHARE = 0.002
# A single large step, before and after which nothing grows, is taken on purpose: a pool, a cache.
_POOL_SHARE = 0.2
_MIN_STEPS = 3
_MIN_GROWTH_SHARE = 0.05


class GpuMemoryAtLimit(Struct, frozen=True, kw_only=True):
    """Growth up to the limit: how much the run and all programs held at the peak, of how much."""

    own_bytes: int
    used_bytes: int
    limit_bytes: int


class _Reading(Struct, frozen=True, gc=False):
    at_ns: int
    own_bytes: int
    used_bytes: int | None
    largest_bytes: int


class GpuMemoryGrowth:
    """The memory of a run's processes on one GPU, at the last readings with a process there."""

    def __init__(self) -> None:
        self._readings: deque[_Reading] = deque(maxlen=_KEPT_READINGS)

    def add_reading(
        self, at_ns: int, own_bytes: int, used_bytes: int | None, largest_bytes: int | None = None
    ) -> None:
        """Add a reading: what the run's processes held, what all programs held, if known, and the
        largest of the run's processes, if there are several.
        """
        largest_bytes = first_known(largest_bytes, own_bytes)
        self._readings.append(_Reading(at_ns, own_bytes, used_bytes, largest_bytes))

    def memory_at_process_limit(self, limit_bytes: int | None) -> GpuMemoryAtLimit | None:
        """The memory at a limit that each process has (MPS), as `memory_at_limit` returns it: what
        others hold does not count against it.
        """
        alone = GpuMemoryGrowth()
        for reading in self._readings:
            alone.add_reading(reading.at_ns, reading.largest_bytes, None)
        return alone.memory_at_limit(limit_bytes)

    def memory_at_limit(self, limit_bytes: int | None) -> GpuMemoryAtLimit | None:
        """The evidence that the memory grew step by step up to ``limit_bytes``; None without."""
        if not limit_bytes or not self._readings:
            return None
        begin_ns = self._readings[-1].at_ns - _END_NS
        recent = [reading for reading in self._readings if reading.at_ns >= begin_ns]
        # What others hold is read once a second.
        used = [reading for reading in recent if reading.used_bytes is not None]
        others_bytes = 0
        if used:
            others_bytes = max((used[-1].used_bytes or 0) - used[-1].own_bytes, 0)
        peak = max(recent, key=lambda reading: (reading.own_bytes, -reading.at_ns))
        if peak.own_bytes + others_bytes < _AT_LIMIT_SHARE * limit_bytes:
            return None
        until_peak = [reading for reading in recent if reading.at_ns <= peak.at_ns]
        if not _has_grown_stepwise(until_peak, limit_bytes):
            return None
        return GpuMemoryAtLimit(
            own_bytes=peak.own_bytes,
            used_bytes=peak.own_bytes + others_bytes,
            limit_bytes=limit_bytes,
        )


def _has_grown_stepwise(readings: list[_Reading], limit_bytes: int) -> bool:
    """Whether the memory rose in several steps, since the last one that was taken on purpose."""
    spans_ns = sorted(after.at_ns - before.at_ns for before, after in pairwise(readings))
    if not spans_ns or spans_ns[len(spans_ns) // 2] > _MAX_STEP_NS:
        return False
    rises = [after.own_bytes - before.own_bytes for before, after in pairwise(readings)]
    step_bytes = _STEP_SHARE * limit_bytes
    steps: list[int] = []
    for index, rise in enumerate(rises):
        around = (*rises[max(index - 1, 0) : index], *rises[index + 1 : index + 2])
        if rise >= _POOL_SHARE * limit_bytes and max(around, default=0) < step_bytes:
            steps = []
        elif rise >= step_bytes:
            steps.append(rise)
    return len(steps) >= _MIN_STEPS and sum(steps) >= _MIN_GROWTH_SHARE * limit_bytes


def evidence_of_growth(at_limit: Mapping[str, GpuMemoryAtLimit | None]) -> GpuMemoryEvidence | None:
    """The evidence that a failed run lacked memory of one of its GPUs, by their UUIDs; None
    without.
    """
    for uuid, found in at_limit.items():
        if found is not None:
            return GpuMemoryEvidence(
                kind="memory-at-limit",
                uuid=uuid,
                own_mb=bytes_to_mebibytes(found.own_bytes),
                used_mb=bytes_to_mebibytes(found.used_bytes),
                limit_mb=bytes_to_mebibytes(found.limit_bytes),
            )
    return None

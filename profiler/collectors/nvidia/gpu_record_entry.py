"""A GPU in a run: its entry in the record, from what was read of the device and what the run did
there.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.out_of_gpu_memory import GpuMemoryAtLimit
from profiler.collectors.nvidia.gpu_aggregates import GpuPeriod
from profiler.collectors.nvidia.gpu_work import GpuWork, WorkLimits
from profiler.collectors.nvidia.recent_gpu_samples import UseSource
from profiler.collectors.nvidia.run_use import RunUse
from profiler.collectors.nvidia.visible_gpus import GpuFacts, GpuLimits
from profiler.core.optional_math import first_known, known, product
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.record.record_model import NOT_MEASURED, Distribution, Gpu
from profiler.record.units import MIB, bytes_to_mebibytes

_PERCENT = 100
# With less, the uncovered time counts neither as use nor as idle.
_COVERED_SHARE = 0.95
# With less, nothing is said of the use.
_MIN_COVERED_SHARE = 0.5
# That no process of the run was there is known if somebody looked for so long.
_WATCHED_SHARE = 0.9
# The last reading of a run is up to so long before its end.
_MAX_UNREAD_NS = 2 * NS_PER_SECOND


class RunGpu(Struct, frozen=True, kw_only=True):
    """A GPU in a run: its entry in the record, and what the record does not say of it.

    ``is_own``: a process of the run was on it; None if that cannot be seen. ``has_unmatched``: a
    process was there whose owner cannot be seen, or the run's processes cannot. ``lacks_lists``:
    the driver did not list the processes, or not to the end. ``has_unlisted``: more memory was in
    use than that of the listed processes, and another container may hold it.
    """

    gpu: Gpu
    is_own: bool | None = None
    has_unmatched: bool = False
    lacks_lists: bool = False
    has_unlisted: bool = False
    at_limit: GpuMemoryAtLimit | None = None


class GpuInRun(Struct, frozen=True, kw_only=True):
    """One GPU over a run. ``duration_ms`` is None for one that goes on, and ``finished_ns``.

    ``lost_ns`` is when it was read for the last time, if its driver has lost it.
    """

    facts: GpuFacts
    period: GpuPeriod
    use: RunUse | None
    source: UseSource | None
    memory_size_bytes: int | None
    mps: GpuLimits
    duration_ms: float | None
    finished_ns: int | None
    lost_ns: int | None

    def record_entry(self) -> RunGpu:
        mps_bytes = self.mps.memory_bytes(self.facts.index)
        gpu = Gpu(
            uuid=self.facts.uuid,
            index=self.facts.index,
            name=self.facts.name,
            memory_size_mb=bytes_to_mebibytes(self.memory_size_bytes),
            memory_limit_mb=bytes_to_mebibytes(mps_bytes),
            compute_limit_percent=self.mps.compute_percent,
            **self.period.record_values(),
        )
        use = self.use
        if use is None:
            return RunGpu(gpu=gpu)
        is_seen = self._sees_processes(use)
        is_shared = use.is_shared or self.mps.is_mps
        is_open = use.has_unlisted and not is_shared
        is_of_all = is_shared or is_open or not is_seen
        values: dict[str, Any] = {
            "memory_used_mb": self._memory_of_run(use, is_shared=is_shared),
            "utilization_source": self.source,
            "shared": True,
            # Of a GPU that is shared, the device's work is not the run's.
            **self._work_fields(
                use, use.device_work if is_of_all else use.work, is_shared=is_shared
            ),
        }
        if not is_shared:
            values["shared"] = False if is_seen and not is_open else None
        values |= self.period.fields_hardly_known(self._duration_ns(use))
        return RunGpu(
            gpu=replace(gpu, **values),
            is_own=use.has_own if is_seen else None,
            has_unmatched=not use.sees_processes,
            lacks_lists=use.sees_processes and not is_seen and self._lacks_lists(use),
            has_unlisted=is_open,
            at_limit=(
                use.growth.memory_at_process_limit(mps_bytes)
                or use.growth.memory_at_limit(self.memory_size_bytes)
            ),
        )

    def _until_ns(self, use: RunUse) -> int:
        return first_known(self.finished_ns, max(use.windows_until_ns, use.started_ns))

    def _duration_ns(self, use: RunUse) -> int:
        measured_ns = known(round, product(self.duration_ms, NS_PER_MS))
        return max(first_known(measured_ns, self._until_ns(use) - use.started_ns), 1)

    def _sees_processes(self, use: RunUse) -> bool:
        if use.lists_nobody:
            return False
        present_ns = self._duration_ns(use)
        if self.lost_ns is not None:  # nobody can use it afterwards
            present_ns = min(present_ns, max(self.lost_ns - use.started_ns, 0))
        is_watched = use.listed_ns >= _WATCHED_SHARE * present_ns
        unread_ns = use.started_ns + present_ns - use.read_until_ns
        # The driver does not list the processes any more, or answers nothing.
        unseen_ns = max(unread_ns - _MAX_UNREAD_NS, 0) + use.unlisted_ns
        has_own = use.has_own and unseen_ns <= (1 - _WATCHED_SHARE) * present_ns
        return use.sees_processes and (has_own or is_watched)

    def _lacks_lists(self, use: RunUse) -> bool:
        return use.has_own or (use.watched_ns > 0 and not use.listed_ns)

    def _memory_of_run(self, use: RunUse, *, is_shared: bool) -> Distribution:
        """The memory of the run's processes; of the device where they cannot be seen, unless
        others hold a part of it.
        """
        is_seen = self._sees_processes(use)
        is_read = 2 * use.watched_ns >= self._duration_ns(use) or (is_seen and use.has_own)
        memory = None if is_shared else use.device_memory
        if is_seen and not use.lacks_memory and (use.has_own or is_shared):
            memory = use.own_memory
        if memory is None or not is_read:
            return NOT_MEASURED
        return memory.distribution(per=MIB)

    def _work_fields(self, use: RunUse, work: GpuWork, *, is_shared: bool) -> Mapping[str, Any]:
        """How much the GPU worked, and when, as far as that is known."""
        known_ns = self._known_ns(use)
        covered_share = work.covered_ns / known_ns
        is_partial = self.finished_ns is not None and covered_share < _COVERED_SHARE
        values: dict[str, Any] = {"utilization_percent": NOT_MEASURED}
        if is_partial and self.source is not None:
            values["utilization_covered_percent"] = round(_PERCENT * covered_share, 3)
            if covered_share < _MIN_COVERED_SHARE:
                return values
        values["utilization_percent"] = work.utilization.distribution()
        # One moment of each second is no lower bound of the rest.
        is_open = is_partial and self.source == "once-a-second"
        if is_shared or is_open or not work.covered_ns:
            return values
        idle_ns = _idle_ns(work, known_ns)
        values["idle_seconds"] = _rounded_seconds(idle_ns)
        values["idle_percent"] = round(_PERCENT * idle_ns / known_ns, 3)
        # Else it may have worked before, after or in between: one moment of each second misses
        # most pieces of work.
        if not is_partial and self.source != "once-a-second":
            values |= _work_values(use, work.work_limits_until(self._until_ns(use)), idle_ns)
        return values

    def _known_ns(self, use: RunUse) -> int:
        """The run's time, without that of impossible readings."""
        duration_ns = self._duration_ns(use)
        if self.source != "once-a-second":
            return duration_ns
        return max(duration_ns - self.period.unknown_utilization_ns, 1)


def _idle_ns(work: GpuWork, known_ns: int) -> float:
    """How long the GPU was idle; the little that was not covered was as the rest."""
    idle_ns = max(work.covered_ns - work.used_ns, 0.0)
    if work.covered_ns >= _COVERED_SHARE * known_ns:
        idle_ns *= known_ns / work.covered_ns
    return min(idle_ns, known_ns)


def _work_values(use: RunUse, limits: WorkLimits | None, idle_ns: float) -> Mapping[str, float]:
    """When the GPU worked, and how its idle time is divided by that."""
    if limits is None:
        return {}
    parts_ns = (limits.before_ns, limits.between_ns, limits.after_ns)
    scale = idle_ns / (sum(parts_ns) or 1)
    before, between, after = (_rounded_seconds(scale * part_ns) for part_ns in parts_ns)
    return {
        "first_used_seconds": _rounded_seconds(limits.first_ns - use.started_ns),
        "last_used_seconds": _rounded_seconds(limits.last_ns - use.started_ns),
        "idle_before_seconds": before,
        "idle_between_seconds": between,
        "idle_after_seconds": after,
    }


def _rounded_seconds(value_ns: float) -> float:
    return round(value_ns / NS_PER_SECOND, 3)

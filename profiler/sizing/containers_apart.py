"""What the containers of a task need one by one: ECS and AWS Batch refuse a task that has less than
its containers reserve together.

A record knows the limits of containers, not what they reserve. A reservation goes down to what its
container needs, as a limit does, but the monitor's stays.
"""

import math
from collections.abc import Iterable, Mapping

from msgspec import Struct

from profiler.core.ecs_terms import MONITOR_NAME, MONITOR_RESERVATION_MB
from profiler.core.optional_math import first_known, max_known, min_known
from profiler.record.record_model import Metrics, OtherContainer, Record
from profiler.record.task_needs import is_job, needed_memory_of, size_of
from profiler.sizing.memory_margin import MemoryMargin


class _Need(Struct, frozen=True, kw_only=True):
    """The most that a container used, and the least of its own limit; None without one.
    ``is_fixed``: it keeps what it has. ``reports``: it is a batch.
    """

    used_mb: float | None = None
    limit_mb: float | None = None
    is_fixed: bool = False
    reports: bool = False

    def with_other(self, other: "_Need") -> "_Need":
        return _Need(
            used_mb=max_known(self.used_mb, other.used_mb),
            limit_mb=max_known(self.limit_mb, other.limit_mb),
            is_fixed=self.is_fixed or other.is_fixed,
            reports=self.reports or other.reports,
        )

    def least_mb(self, margin: MemoryMargin) -> float:
        """The least that it may reserve."""
        if self.is_fixed:
            return first_known(self.limit_mb, self.used_mb) or 0
        above = margin if self.reports else margin.of_one_value
        return min((self.used_mb or 0) * above.factor, first_known(self.limit_mb, math.inf))


class ContainersApart(Struct, frozen=True):
    """What the containers of a family's tasks needed in each of the runs, by their names."""

    runs: tuple[Mapping[str, _Need], ...] = ()

    def least_mb(self, margin: MemoryMargin) -> float:
        """The least memory of a task that holds the reservations which each of the runs needed; 0
        for one container alone.
        """
        sums_mb = [
            sum(need.least_mb(margin) for need in run.values()) for run in self.runs if len(run) > 1
        ]
        return max(sums_mb, default=0)

    def most_mb(self, margin: MemoryMargin) -> float:
        """The same for reservations that hold the most which each container needed, in any run."""
        needs: dict[str, _Need] = {}
        for run in self.runs:
            for name, need in run.items():
                needs[name] = needs.get(name, _Need()).with_other(need)
        return sum(need.least_mb(margin) for need in needs.values()) if len(needs) > 1 else 0


def containers_apart(records: Iterable[Record]) -> ContainersApart:
    """What the containers of some runs needed."""
    runs = []
    for record in records:
        batch = _Need(
            used_mb=record.metrics.max_memory_used_mb,
            limit_mb=_own_limit_mb(record.metrics, record),
            reports=True,
        )
        others = {other.name: _need_of(other, record) for other in record.containers}
        runs.append(others | {record.container.name: batch})
    return ContainersApart(tuple(runs))


def _need_of(other: OtherContainer, record: Record) -> _Need:
    """What a container beside the batch needs. Those of a job keep what they have."""
    used_mb = needed_memory_of(other, record)
    limit_mb = _own_limit_mb(other.metrics or Metrics(), record)
    if is_job(record):
        return _Need(used_mb=used_mb, limit_mb=limit_mb, is_fixed=True)
    if other.name == MONITOR_NAME:
        reserved_mb = min_known(MONITOR_RESERVATION_MB, limit_mb)
        return _Need(used_mb=used_mb, limit_mb=reserved_mb, is_fixed=True)
    return _Need(used_mb=used_mb, limit_mb=limit_mb)


def _own_limit_mb(metrics: Metrics, record: Record) -> float | None:
    """The limit of a container; None if it has none below the task's."""
    limit_mb = metrics.memory_size_mb
    if limit_mb is None or limit_mb >= first_known(size_of(record).memory_mb, math.inf):
        return None
    return limit_mb

"""What the containers of a task need one by one: ECS and AWS Batch refuse a task that has less than
its containers reserve together.

A record knows the limits of containers, not what they reserve. A reservation goes down to what its
container needs, as a limit does, but the monitor's stays.
"""

import math

from msgspec import Struct

from profiler.core.ecs_terms import MONITOR_NAME, MONITOR_RESERVATION_MB
from profiler.core.optional_math import first_known, min_known
from profiler.record.record_model import Metrics, OtherContainer, Record
from profiler.record.task_needs import is_job, needed_memory_of, task_size_of
from profiler.sizing.memory_margin import MemoryMargin


class _ContainerNeed(Struct, frozen=True, kw_only=True):
    """What a container used, and its own limit; None without one. ``is_fixed``: it keeps what it
    has. ``reports``: it is a batch.
    """

    used_mb: float | None = None
    limit_mb: float | None = None
    is_fixed: bool = False
    reports: bool = False

    def least_reservation_mb(self, margin: MemoryMargin) -> float:
        """The least that it may reserve."""
        if self.is_fixed:
            return first_known(self.limit_mb, self.used_mb) or 0
        above = margin if self.reports else margin.margin_of_one_value
        return min((self.used_mb or 0) * above.factor, first_known(self.limit_mb, math.inf))


class ContainerNeeds(Struct, frozen=True):
    """What the containers of a task needed in one run."""

    needs: tuple[_ContainerNeed, ...] = ()

    def least_task_memory_mb(self, margin: MemoryMargin) -> float:
        """The least memory of a task that holds what they reserve together; 0 for one container
        alone.
        """
        total_mb = sum(need.least_reservation_mb(margin) for need in self.needs)
        return total_mb if len(self.needs) > 1 else 0


def container_needs_of(record: Record) -> ContainerNeeds:
    """What the containers of a run needed."""
    batch = _ContainerNeed(
        used_mb=record.metrics.max_memory_used_mb,
        limit_mb=_own_limit_mb(record.metrics, record),
        reports=True,
    )
    others = [
        _need_of_container(other, record)
        for other in record.containers
        if other.name != record.container.name
    ]
    return ContainerNeeds((batch, *others))


def _need_of_container(other: OtherContainer, record: Record) -> _ContainerNeed:
    """What a container beside the batch needs. Those of a job keep what they have."""
    used_mb = needed_memory_of(other, record)
    limit_mb = _own_limit_mb(other.metrics or Metrics(), record)
    if is_job(record):
        return _ContainerNeed(used_mb=used_mb, limit_mb=limit_mb, is_fixed=True)
    if other.name == MONITOR_NAME:
        reserved_mb = min_known(MONITOR_RESERVATION_MB, limit_mb)
        return _ContainerNeed(used_mb=used_mb, limit_mb=reserved_mb, is_fixed=True)
    return _ContainerNeed(used_mb=used_mb, limit_mb=limit_mb)


def _own_limit_mb(metrics: Metrics, record: Record) -> float | None:
    """The limit of a container; None if it has none below the task's."""
    limit_mb = metrics.memory_size_mb
    if limit_mb is None or limit_mb >= first_known(task_size_of(record).memory_mb, math.inf):
        return None
    return limit_mb

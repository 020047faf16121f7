"""The memory and CPU that a task needs for one run.

A run needs the most that the batch used plus the most that each other container of the task used in the same run. For
a container without measurements, its own limit counts.

The Lambda functions contain this module, so it imports only ``profiler.core`` and ``profiler.record``.
"""

from collections.abc import Iterator

from msgspec import Struct

from profiler.record.model import Distribution, Metrics, Number, OtherContainer, Record, TaskSize

_MAX_PLAUSIBLE = 1e12
_NO_DISTRIBUTION = Distribution()


class Requirements(Struct, frozen=True, kw_only=True):
    """What a task needs for one run: memory in MiB, and vCPUs as the sum of 95th percentiles.

    None if the batch was not measured. ``unbounded`` lists the containers with neither measurements nor a limit of
    their own; the sums do not include them.
    """

    memory_mb: float | None = None
    vcpu: float | None = None
    unbounded: tuple[str, ...] = ()


def requirements_of(record: Record) -> Requirements:
    """Return what the task needs for the run of this record."""
    size = plausible_task_size(record) or TaskSize()
    memory_mb = plausible(record.metrics.max_memory_used_mb)
    vcpu = vcpu_p95(record.metrics)
    others_memory = [_memory_mb(other, size) for other in record.containers]
    others_vcpu = [_vcpu(other, size) for other in record.containers]
    return Requirements(
        memory_mb=None if memory_mb is None else memory_mb + _sum(others_memory),
        vcpu=None if vcpu is None else vcpu + _sum(others_vcpu),
        unbounded=tuple(_unbounded(record.containers, others_memory, others_vcpu)),
    )


def other_containers_memory_mb(record: Record) -> float:
    """Return the memory in MiB that the other containers of the task need together."""
    size = plausible_task_size(record) or TaskSize()
    return _sum([_memory_mb(other, size) for other in record.containers])


def plausible(value: Number | None) -> Number | None:
    """Return ``value`` if it is between 0 and 1e12, else None.

    Log lines can come from any program, so calculations must not use impossible numbers.
    """
    return value if value is not None and 0 <= value <= _MAX_PLAUSIBLE else None


def plausible_task_size(record: Record) -> TaskSize | None:
    """Return the size of the task without implausible numbers."""
    size = record.task_size
    return None if size is None else TaskSize(vcpu=plausible(size.vcpu), memory_mb=plausible(size.memory_mb))


def vcpu_p95(metrics: Metrics) -> float | None:
    """Return the 95th percentile of the vCPUs in use."""
    return plausible((metrics.vcpu_used or _NO_DISTRIBUTION).p95)


def _memory_mb(container: OtherContainer, task: TaskSize) -> float | None:
    metrics = container.metrics or Metrics()
    used_mb = plausible(metrics.max_memory_used_mb)
    return used_mb if used_mb is not None else _own_limit(plausible(metrics.memory_size_mb), task.memory_mb)


def _vcpu(container: OtherContainer, task: TaskSize) -> float | None:
    metrics = container.metrics or Metrics()
    used = vcpu_p95(metrics)
    if used is not None:
        return used
    # Without a task size, the vCPU size is the number of the machine's CPUs, not a limit.
    return _own_limit(plausible(metrics.vcpu_size), task.vcpu) if task.vcpu is not None else None


def _own_limit(limit: Number | None, task_limit: Number | None) -> float | None:
    """Return a container's limit; None if the limit is the task's."""
    return None if limit is None or (task_limit is not None and limit >= task_limit) else limit


def _unbounded(
    containers: tuple[OtherContainer, ...], memories: list[float | None], vcpus: list[float | None]
) -> Iterator[str]:
    for container, memory_mb, vcpu in zip(containers, memories, vcpus, strict=True):
        if memory_mb is None or vcpu is None:
            yield container.name


def _sum(values: list[float | None]) -> float:
    return sum(value for value in values if value is not None)

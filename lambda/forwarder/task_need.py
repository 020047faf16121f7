"""What a run needed of its task: the batch and the other containers together. Pure.

``task-profiler recommend`` has the cluster look for the largest of these, which it could not add up
itself. ``profiler/sizing/needs.py`` says the same of a record; a test holds both together.
"""

from collections.abc import Iterable

from profiler.record import Distribution, Metrics, Number, Record, TaskSize

_UNKNOWN = Distribution()


def task_requirements(record: Record) -> dict[str, float | None]:
    """MiB, and vCPUs by their 95th percentiles; None where the batch was alone or was not measured.

    Of another container that was not measured, the limit that it has of its own counts.
    """
    if not record.containers:
        return {}
    size = record.task_size or TaskSize()
    others = [one.metrics or Metrics() for one in record.containers]
    memories = (_used(one.max_memory_used_mb, one.memory_size_mb, size.memory_mb) for one in others)
    vcpus = (_used(_p95(one), one.vcpu_size if size.vcpu is not None else None, size.vcpu) for one in others)
    return {
        "memory_mb": _total(record.metrics.max_memory_used_mb, memories),
        "vcpu_p95": _total(_p95(record.metrics), vcpus),
    }


def _p95(metrics: Metrics) -> float | None:
    return (metrics.vcpu_used or _UNKNOWN).p95


def _used(measured: Number | None, limit: Number | None, task_limit: Number | None) -> float:
    if measured is not None:
        return measured
    return limit if limit is not None and (task_limit is None or limit < task_limit) else 0


def _total(batch: Number | None, others: Iterable[float]) -> float | None:
    return None if batch is None else batch + sum(others)

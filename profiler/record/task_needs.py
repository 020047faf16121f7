"""What the task of a run needed: its batch and the other containers together."""

import math
from typing import TYPE_CHECKING

from profiler.core.ecs_terms import EC2, is_of_aws_batch
from profiler.core.optional_math import (
    difference,
    first_known,
    known_values,
    min_known,
    sum_known,
    sum_of_both,
)
from profiler.record.batch_job import NO_JOB
from profiler.record.measured import Number
from profiler.record.record_model import UNKNOWN_SIZE, Metrics, OtherContainer, Record, TaskSize

if TYPE_CHECKING:
    from profiler.record.report_head import RecordHead

_NEAR_LIMIT_FRACTION = 0.95


def task_size_of(record: "Record | RecordHead") -> TaskSize:
    """The size of the run's task, of which each part may be unknown; of a job without one, what its
    container asked for.
    """
    if record.task_size == UNKNOWN_SIZE and not is_cpu_limited(record):
        metrics = record.metrics
        return TaskSize(vcpu=metrics.vcpu_share, memory_mb=metrics.memory_size_mb)
    return record.task_size


def vcpu_limit(record: Record) -> Number | None:
    """The vCPUs that bound a task: its size, else the machine's or the container's."""
    vcpu = task_size_of(record).vcpu
    return first_known(vcpu, record.metrics.vcpu_size)


def is_job(record: "Record | RecordHead") -> bool:
    """Whether the run is an attempt of a job of AWS Batch."""
    return record.batch is not NO_JOB or is_of_aws_batch(record.cluster)


def is_cpu_limited(record: "Record | RecordHead") -> bool:
    """Whether the task can use no more vCPUs than its size: AWS Batch gives its jobs on EC2 a share
    of the instance's CPUs, and no limit.
    """
    return record.launch_type != EC2 or not is_job(record)


def measured_vcpu_limit(record: Record) -> Number | None:
    """The vCPUs that bounded the run, which a job's request does not."""
    if is_cpu_limited(record):
        return vcpu_limit(record)
    return record.metrics.vcpu_size


def vcpu_size(record: Record) -> Number | None:
    """The vCPU size of a run: the task's, else the machine's; of a job that nothing limits, what it
    asked for.
    """
    return record.metrics.vcpu_size if is_cpu_limited(record) else vcpu_limit(record)


def vcpu_p95(metrics: Metrics | None) -> float | None:
    """The vCPUs that a container used for 95 % of its time; None if that was not measured."""
    return None if metrics is None else metrics.vcpu_used.p95


def needed_memory_of(container: OtherContainer, record: Record) -> float | None:
    """The memory that a container used, else its limit, unless that is the task's."""
    metrics = container.metrics or Metrics()
    if metrics.max_memory_used_mb is not None:
        return metrics.max_memory_used_mb
    limit_mb = metrics.memory_size_mb
    task_mb = task_size_of(record).memory_mb
    if limit_mb is None or (task_mb is not None and limit_mb >= task_mb):
        return None
    return limit_mb


def others_memory_mb(record: Record) -> float | None:
    """The known memory that the other containers of the task need together; None if none is."""
    return sum_known(*(needed_memory_of(other, record) for other in record.containers))


def needed_memory_mb(record: Record) -> float | None:
    """The sum of the peaks of all containers; None if the batch was not measured."""
    used_mb = record.metrics.max_memory_used_mb
    if used_mb is None:
        return None
    return used_mb + (others_memory_mb(record) or 0)


def memory_with_files_mb(record: Record) -> float | None:
    """The most that all containers of the task together used and kept of mapped files, at most its
    size; None if the batch's files are not known.
    """
    if record.metrics.mapped_files_mb is None:
        return None
    with_files_mb = sum_known(
        used_with_files_mb(record.metrics, record.metrics.max_memory_used_mb),
        *(
            used_with_files_mb(other.metrics or Metrics(), needed_memory_of(other, record))
            for other in record.containers
        ),
    )
    if with_files_mb is None:
        return None
    size_mb = first_known(task_size_of(record).memory_mb, record.metrics.memory_size_mb)
    return min_known(with_files_mb, size_mb)


def used_with_files_mb(metrics: Metrics, used_mb: float | None) -> float | None:
    """What a container used and kept of mapped files at one moment, at most: the sum of both
    peaks, or the peak of the whole usage.
    """
    if used_mb is None:
        return None
    with_files_mb = used_mb + (metrics.mapped_files_mb or 0)
    usage_mb = metrics.memory_usage_peak_mb
    return with_files_mb if usage_mb is None else max(min(with_files_mb, usage_mb), used_mb)


def bound_memory_mb(record: Record) -> float | None:
    """The most that all containers together may have used; None if no peak is a lower bound."""
    others = (other.metrics for other in record.containers)
    doubtful = [
        metrics
        for metrics in (record.metrics, *known_values(others))
        if metrics.memory_used_bound_mb is not None
    ]
    if not doubtful:
        return None
    doubtful_mb = sum_known(
        *(
            difference(metrics.memory_used_bound_mb, metrics.max_memory_used_mb or 0)
            for metrics in doubtful
        )
    )
    return sum_of_both(needed_memory_mb(record), doubtful_mb)


def needed_vcpu(record: Record) -> float | None:
    """The sum of the containers' 95th percentiles, at most the limit; None if the batch was not
    measured.
    """
    vcpu = vcpu_p95(record.metrics)
    if vcpu is None:
        return None
    vcpus = (vcpu, *(vcpu_p95(container.metrics) for container in record.containers))
    limit = vcpu_limit(record) if is_cpu_limited(record) else None
    return min(sum_known(*vcpus) or 0, limit or math.inf)


def least_time_factor(saturated_share: float, vcpu: float, more_vcpu: float) -> float:
    """The lower bound of how long a run takes with more vCPUs: its saturated time is shorter in
    proportion to the sizes.
    """
    return 1 - min(saturated_share, 1) * (1 - vcpu / more_vcpu)


def uncached_peak_mb(metrics: Metrics) -> float | None:
    """The peak of the usage, less the largest cache; None without a peak."""
    return difference(metrics.memory_usage_peak_mb, metrics.memory_cache_mb.max or 0)


def may_have_lost_a_child(metrics: Metrics) -> bool:
    """Whether the usage came within 5 % of the limit, not by cache: a child may have been killed
    between samples.
    """
    peak_mb = uncached_peak_mb(metrics)
    size_mb = metrics.memory_size_mb
    if peak_mb is None or not size_mb:
        return False
    return peak_mb >= _NEAR_LIMIT_FRACTION * size_mb

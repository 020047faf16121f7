"""The memory and CPU that a task needs for one run, and the facts of the run that size recommendations use.

A run needs the most that the batch used plus the most that each other container of the task used in the same run. For
a container without measurements, its own limit counts.

The Lambda functions contain this module, so it imports only ``profiler.core`` and ``profiler.record``.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from profiler.core.timestamps import parse_ns
from profiler.record.accelerators import WHOLE_INSTANCE, is_idle
from profiler.record.family import FamilyKey, family_key
from profiler.record.model import (
    Distribution,
    Metrics,
    Number,
    OtherContainer,
    PeakSource,
    Record,
    Report,
    SlowdownBounds,
    TaskSize,
    known_peak_source,
    known_status,
    may_have_lost_a_child,
)

_MAX_PLAUSIBLE = 1e12
_NO_DISTRIBUTION = Distribution()
# More than any number of CPUs.
_MAX_SLOWDOWN = 1e6
_SLOWDOWN_DIGITS = 3
_WHOLE_PERCENT = 100


class Requirements(Struct, frozen=True, kw_only=True):
    """What a task needs for one run: memory in MiB, and vCPUs as the sum of 95th percentiles.

    None if the batch was not measured. ``unbounded`` lists the containers whose CPU was not measured, or that have
    neither a measurement nor a limit of their memory; the sums do not include what is unknown.
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
    others_vcpu = [vcpu_p95(other.metrics or Metrics()) for other in record.containers]
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


class Task(Struct, frozen=True, kw_only=True):
    """The resources of a run's task, and where the task ran.

    ``vcpu_size`` and ``memory_size_mb`` are the limits of the batch container, ``max_threads`` the most processes and
    threads that were seen in it.
    """

    size: TaskSize | None = None
    launch_type: str | None = None
    region: str | None = None
    cpu_architecture: str | None = None
    storage_mb: Number | None = None
    container: str | None = None
    vcpu_size: Number | None = None
    memory_size_mb: Number | None = None
    max_threads: int | None = None
    unbounded: tuple[str, ...] = ()
    has_other_containers: bool = False


class RunFacts(Struct, frozen=True, kw_only=True):
    """The facts of one run.

    ``peak_mb``, ``batch_vcpu`` and ``memory_p99_mb`` are the batch's own. ``slowdown`` has the bounds for each vCPU
    size at which the run would have been slower; it is None for records of schema 1.0 and without CPU measurements.
    ``saturated_percent`` is the share of the time in which the task used all of its vCPUs. ``oom_size_mb`` is the size
    that was too small if the run ran out of memory, ``reached_size_mb`` the size at which a child may have been killed.
    ``gpus_idle`` is None without GPUs that are known to belong to the batch.
    """

    key: tuple[str, str, str]
    family: FamilyKey
    began: str
    began_ns: int
    status: str
    task: Task
    requirements: Requirements
    peak_mb: float | None = None
    batch_vcpu: float | None = None
    memory_p99_mb: float | None = None
    slowdown: Mapping[float, SlowdownBounds] | None = None
    saturated_percent: float | None = None
    out_of_memory: bool = False
    oom_size_mb: float | None = None
    reached_size_mb: float | None = None
    peak_source: PeakSource | None = None
    stats_period_ms: int | None = None
    duration_ms: Number | None = None
    billed_ms: Number | None = None
    gpus_idle: bool | None = None

    @property
    def is_measured(self) -> bool:
        """Whether the run has a measurement that a size can be calculated from."""
        return self.requirements.memory_mb is not None or self.requirements.vcpu is not None


def facts_of(report: Report) -> RunFacts:
    """Return the facts of a final report. A run without a start time starts when its line was written."""
    record = report.record
    metrics = record.metrics
    began = record.started_at or report.time
    requirements = requirements_of(record)
    return RunFacts(
        key=(record.task_id, record.container.name, began),
        family=family_key(record),
        began=began,
        began_ns=parse_ns(began) or 0,
        status=known_status(record),
        task=task_of(record, requirements),
        requirements=requirements,
        peak_mb=plausible(metrics.max_memory_used_mb),
        batch_vcpu=vcpu_p95(metrics),
        memory_p99_mb=plausible((metrics.memory_used_mb or _NO_DISTRIBUTION).p99),
        slowdown=_slowdown(metrics),
        saturated_percent=_percent(metrics.vcpu_saturated_percent),
        out_of_memory=record.likely_out_of_memory is True,
        oom_size_mb=_oom_size_mb(record) if record.likely_out_of_memory else None,
        reached_size_mb=_memory_size_mb(record) if may_have_lost_a_child(metrics) else None,
        peak_source=known_peak_source(metrics),
        stats_period_ms=record.sampling.stats_period_ms if record.sampling is not None else None,
        duration_ms=plausible(metrics.duration_ms),
        billed_ms=plausible(metrics.billed_duration_ms),
        gpus_idle=_are_gpus_idle(record),
    )


def task_of(record: Record, requirements: Requirements) -> Task:
    """Return the task of a run."""
    return Task(
        size=plausible_task_size(record),
        launch_type=record.launch_type,
        region=record.region,
        cpu_architecture=record.cpu_architecture,
        storage_mb=plausible(record.metrics.ephemeral_storage_size_mb),
        container=record.container.name,
        vcpu_size=plausible(record.metrics.vcpu_size),
        memory_size_mb=plausible(record.metrics.memory_size_mb),
        max_threads=record.metrics.max_pids,
        unbounded=requirements.unbounded,
        has_other_containers=bool(record.containers),
    )


def _slowdown(metrics: Metrics) -> Mapping[float, SlowdownBounds] | None:
    if metrics.slowdown_at_vcpu is None:
        return None
    found = {}
    for name, bounds in metrics.slowdown_at_vcpu.items():
        try:
            vcpu = float(name)
        except ValueError:
            continue
        least = _bound(bounds.min)
        found[vcpu] = SlowdownBounds(min=least, max=max(_bound(bounds.max), least))
    return found


def _percent(value: float | None) -> float | None:
    return value if value is not None and 0 <= value <= _WHOLE_PERCENT else None


def _bound(factor: float) -> float:
    """No run is faster with fewer vCPUs."""
    return round(min(max(factor, 1.0), _MAX_SLOWDOWN), _SLOWDOWN_DIGITS)


def _memory_size_mb(record: Record) -> float | None:
    """Return the memory size of the task, else the batch's limit."""
    size = plausible_task_size(record) or TaskSize()
    return plausible(record.metrics.memory_size_mb) if size.memory_mb is None else size.memory_mb


def _oom_size_mb(record: Record) -> float | None:
    """Return the size that was too small: the task's memory, or the batch's own limit plus the other containers."""
    size = plausible_task_size(record) or TaskSize()
    limit_mb = plausible(record.metrics.memory_size_mb)
    if limit_mb is None:
        return size.memory_mb
    if size.memory_mb is None or limit_mb >= size.memory_mb:
        return limit_mb
    return min(limit_mb + other_containers_memory_mb(record), size.memory_mb)


def _are_gpus_idle(record: Record) -> bool | None:
    if not record.gpus or record.gpu_scope == WHOLE_INSTANCE:
        return None
    if any(gpu.utilization_percent is None for gpu in record.gpus):
        return None
    return all(is_idle(gpu) for gpu in record.gpus)

"""What one run says about the size of its task. Pure.

A run's need is what the batch used at most plus what the other containers of the task used at
most in the same run; of one that was not measured, the limit that it has of its own.
"""

from collections.abc import Iterator

from msgspec import Struct

from profiler.accelerators.gpu_advice import WHOLE_INSTANCE, is_idle
from profiler.record import Distribution, Metrics, Number, OtherContainer, PeakSource, Record, Report, TaskSize
from profiler.times import parse_ns

CPU_BOUND_SHARE = 0.95
_MAX_PLAUSIBLE = 1e12
_UNKNOWN = Distribution()


class Requirements(Struct, frozen=True, kw_only=True):
    """What a task has to have for one run: MiB, and vCPUs by their 95th percentiles.

    None where the batch was not measured. ``unbounded`` are the containers of which neither the
    use nor a limit of their own is known: they count for nothing.
    """

    memory_mb: float | None = None
    vcpu: float | None = None
    unbounded: tuple[str, ...] = ()


class Task(Struct, frozen=True, kw_only=True):
    """What a run's task was given, and where it ran. ``vcpu_size`` and ``memory_size_mb`` bounded the batch."""

    size: TaskSize | None = None
    launch_type: str | None = None
    region: str | None = None
    cpu_architecture: str | None = None
    storage_mb: Number | None = None
    container: str | None = None
    vcpu_size: Number | None = None
    memory_size_mb: Number | None = None
    unbounded: tuple[str, ...] = ()
    has_other_containers: bool = False


class RunFacts(Struct, frozen=True, kw_only=True):
    """One run, as far as sizes are concerned.

    ``peak_mb``, ``batch_vcpu`` and ``memory_p99_mb`` are the batch's own, ``cpu_bound_vcpu`` the
    vCPUs that bounded it if it was CPU-bound, ``oom_size_mb`` the size that was too small if it ran
    out of memory. ``gpus_idle`` is None without GPUs that are known to be the batch's.
    """

    key: tuple[str, str, str]
    family: str
    began: str
    began_ns: int
    status: str
    task: Task
    requirements: Requirements
    peak_mb: float | None = None
    batch_vcpu: float | None = None
    memory_p99_mb: float | None = None
    cpu_bound_vcpu: float | None = None
    out_of_memory: bool = False
    oom_size_mb: float | None = None
    peak_source: PeakSource | None = None
    stats_period_ms: int | None = None
    billed_ms: Number | None = None
    gpus_idle: bool | None = None

    @property
    def is_measured(self) -> bool:
        """Whether it tells anything about sizes."""
        return self.requirements.memory_mb is not None or self.requirements.vcpu is not None


def plausible(value: Number | None) -> Number | None:
    """A number that something can have used; lines come from anywhere, and nothing is worked out from others."""
    return value if value is not None and 0 <= value <= _MAX_PLAUSIBLE else None


def facts_of(report: Report) -> RunFacts:
    """What a final report says. A run without a start counts from when its line was written."""
    record = report.record
    metrics = record.metrics
    began = record.started_at or report.time
    requirements = requirements_of(record)
    return RunFacts(
        key=(record.task_id, record.container.name, began),
        family=record.family or record.container.name,
        began=began,
        began_ns=parse_ns(began) or 0,
        status=record.status,
        task=task_of(record, requirements),
        requirements=requirements,
        peak_mb=plausible(metrics.max_memory_used_mb),
        batch_vcpu=_p95(metrics),
        memory_p99_mb=plausible((metrics.memory_used_mb or _UNKNOWN).p99),
        cpu_bound_vcpu=_cpu_bound_vcpu(metrics),
        out_of_memory=record.likely_out_of_memory is True,
        oom_size_mb=_oom_size_mb(record) if record.likely_out_of_memory else None,
        peak_source=metrics.memory_peak_source,
        stats_period_ms=record.sampling.stats_period_ms if record.sampling is not None else None,
        billed_ms=plausible(metrics.billed_duration_ms),
        gpus_idle=_gpus_idle(record),
    )


def task_of(record: Record, requirements: Requirements) -> Task:
    """The task of a run."""
    return Task(
        size=_task_size(record),
        launch_type=record.launch_type,
        region=record.region,
        cpu_architecture=record.cpu_architecture,
        storage_mb=plausible(record.metrics.ephemeral_storage_size_mb),
        container=record.container.name,
        vcpu_size=plausible(record.metrics.vcpu_size),
        memory_size_mb=plausible(record.metrics.memory_size_mb),
        unbounded=requirements.unbounded,
        has_other_containers=bool(record.containers),
    )


def requirements_of(record: Record) -> Requirements:
    """The need of a run."""
    size = _task_size(record) or TaskSize()
    memory_mb = plausible(record.metrics.max_memory_used_mb)
    vcpu = _p95(record.metrics)
    others_memory = [_memory_mb(one, size) for one in record.containers]
    others_vcpu = [_vcpu(one, size) for one in record.containers]
    return Requirements(
        memory_mb=None if memory_mb is None else memory_mb + _sum(others_memory),
        vcpu=None if vcpu is None else vcpu + _sum(others_vcpu),
        unbounded=tuple(_unbounded(record.containers, others_memory, others_vcpu)),
    )


def _task_size(record: Record) -> TaskSize | None:
    size = record.task_size
    return None if size is None else TaskSize(vcpu=plausible(size.vcpu), memory_mb=plausible(size.memory_mb))


def _p95(metrics: Metrics) -> float | None:
    return plausible((metrics.vcpu_used or _UNKNOWN).p95)


def _memory_mb(container: OtherContainer, task: TaskSize) -> float | None:
    metrics = container.metrics or Metrics()
    used_mb = plausible(metrics.max_memory_used_mb)
    return used_mb if used_mb is not None else _own_limit(plausible(metrics.memory_size_mb), task.memory_mb)


def _vcpu(container: OtherContainer, task: TaskSize) -> float | None:
    metrics = container.metrics or Metrics()
    used = _p95(metrics)
    if used is not None:
        return used
    # Without a task size the machine's CPUs stand where a limit would.
    return _own_limit(plausible(metrics.vcpu_size), task.vcpu) if task.vcpu is not None else None


def _own_limit(limit: Number | None, task_limit: Number | None) -> float | None:
    """A container's limit; one that is the task's is none of its own."""
    return None if limit is None or (task_limit is not None and limit >= task_limit) else limit


def _unbounded(
    containers: tuple[OtherContainer, ...], memories: list[float | None], vcpus: list[float | None]
) -> Iterator[str]:
    for container, memory_mb, vcpu in zip(containers, memories, vcpus, strict=True):
        if memory_mb is None or vcpu is None:
            yield container.name


def _sum(values: list[float | None]) -> float:
    return sum(value for value in values if value is not None)


def _cpu_bound_vcpu(metrics: Metrics) -> float | None:
    used, size = _p95(metrics), plausible(metrics.vcpu_size)
    return size if size and used is not None and used >= CPU_BOUND_SHARE * size else None


def _oom_size_mb(record: Record) -> float | None:
    """What was not enough: the task's memory, or the batch's own limit and what the others need beside it."""
    size = _task_size(record) or TaskSize()
    limit_mb = plausible(record.metrics.memory_size_mb)
    if limit_mb is None:
        return size.memory_mb
    if size.memory_mb is None or limit_mb >= size.memory_mb:
        return limit_mb
    others_mb = _sum([_memory_mb(one, size) for one in record.containers])
    return min(limit_mb + others_mb, size.memory_mb)


def _gpus_idle(record: Record) -> bool | None:
    if not record.gpus or record.gpu_scope == WHOLE_INSTANCE:
        return None
    if any(gpu.utilization_percent is None for gpu in record.gpus):
        return None
    return all(is_idle(gpu) for gpu in record.gpus)

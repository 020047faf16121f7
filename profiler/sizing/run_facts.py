"""The facts of a run that size recommendations use: what its task needed, and how the run went.

A run needs the most that the batch used plus the most that each other container of the task used in the same run. For
a container without measurements, its own limit counts.

A run outside Fargate can count as if it had run there. The whole machine is then its current size, unless the task has
a size. A run that used GPUs or Neuron devices, which Fargate does not have, stays unchanged.
"""

import math
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.run_end import may_have_lost_a_child
from profiler.core.ecs_terms import FARGATE
from profiler.core.optional_math import sum_known
from profiler.core.timestamps import NS_PER_MS, parse_ns
from profiler.record.family_identity import FamilyKey, family_key
from profiler.record.hardware import WHOLE_INSTANCE, is_idle, short_processor_name
from profiler.record.record_model import (
    Cost,
    Distribution,
    Metrics,
    Number,
    OtherContainer,
    PeakSource,
    Record,
    Report,
    Sampling,
    SlowdownBounds,
    TaskSize,
    is_sampled_each_minute,
    known_peak_source,
    known_status,
)
from profiler.record.spot_price import is_on_spot
from profiler.record.units import billed_ms
from profiler.record.worth_a_word import counted_cpu_wait
from profiler.sizing.fargate import LEGAL_SIZES, Size
from profiler.sizing.prices import PriceOverrides, cost_of


class Task(Struct, frozen=True, kw_only=True):
    """The resources of a run's task, and where the task ran.

    ``vcpu_size`` and ``memory_size_mb`` are the limits of the batch container. ``max_threads`` are the most processes
    and threads that were seen in it. What the task needed does not include the containers ``unknown_memory``, which
    have neither a measurement nor a limit of their memory, and ``unknown_cpu``, whose CPU use was not measured.
    """

    size: TaskSize | None = None
    launch_type: str | None = None
    region: str | None = None
    cpu_architecture: str | None = None
    storage_mb: Number | None = None
    is_on_spot: bool = False
    container: str | None = None
    vcpu_size: Number | None = None
    memory_size_mb: Number | None = None
    max_threads: int | None = None
    unknown_memory: tuple[str, ...] = ()
    unknown_cpu: tuple[str, ...] = ()

    @property
    def vcpu(self) -> Number | None:
        """The vCPUs of the task."""
        return None if self.size is None else self.size.vcpu

    @property
    def vcpu_limit(self) -> Number | None:
        """The vCPUs that bound the task: its size, else the machine's or the container's."""
        return self.vcpu_size if self.vcpu is None else self.vcpu


class RunFacts(Struct, frozen=True, kw_only=True):
    """The facts of one run.

    Attributes:
        needed_memory_mb: The need of all containers of the task together; None if the batch was not measured.
        needed_vcpu: The same for vCPUs, as the sum of 95th percentiles, at most the size.
        peak_mb: The batch's own; ``memory_p99_mb`` alike.
        slowdown: The bounds for each vCPU size at which the run would have been slower; None for records of schema 1.0
            and without CPU measurements.
        saturated_percent: The share of the time in which the task used all of its vCPUs.
        cpu_wait_percent: How long threads waited for a CPU, as a share of this time and of the CPU time together; 0 if
            the wait is too short to count.
        oom_size_mb: The size that was too small if the run ran out of memory.
        reached_size_mb: The size at which a child may have been killed.
        init_ms: The time of the image pull and the start, before ``duration_ms``.
        is_by_minute: Only the means of whole minutes are known.
        is_moved: The run counts as if it had run on Fargate, although it ran elsewhere.
        gpus_idle: None without GPUs that are known to belong to the batch.
        idle_gpu_hours: The idle time of all GPUs; of the instance's if ``has_gpus_of_others`` is True.
    """

    key: tuple[str, str, str]
    family: FamilyKey
    began: str
    began_ns: int
    status: str
    task: Task
    needed_memory_mb: float | None = None
    needed_vcpu: float | None = None
    peak_mb: float | None = None
    memory_p99_mb: float | None = None
    slowdown: Mapping[float, SlowdownBounds] | None = None
    saturated_percent: float | None = None
    cpu_wait_percent: float | None = None
    processor: str | None = None
    out_of_memory: bool = False
    oom_size_mb: float | None = None
    reached_size_mb: float | None = None
    peak_source: PeakSource | None = None
    stats_period_ms: int | None = None
    duration_ms: Number | None = None
    billed_ms: Number | None = None
    init_ms: Number | None = None
    is_by_minute: bool = False
    is_moved: bool = False
    gpus_idle: bool | None = None
    idle_gpu_hours: float | None = None
    has_gpus_of_others: bool = False

    @property
    def task_id(self) -> str:
        """The run's task. Each container of a task may have a report."""
        return self.key[0]

    @property
    def is_measured(self) -> bool:
        """Whether the record has measurements of the batch's memory or CPU."""
        return self.needed_memory_mb is not None or self.needed_vcpu is not None


def facts_of(report: Report) -> RunFacts:
    """Return the facts of a final report. A run without a start time starts when its line was written."""
    record, metrics = report.record, report.record.metrics
    began = record.started_at or report.time
    peak_mb, vcpu = metrics.max_memory_used_mb, _vcpu_p95(metrics)
    vcpus = [vcpu, *(_vcpu_p95(container.metrics) for container in record.containers)]
    task = Task(
        size=record.task_size,
        launch_type=record.launch_type,
        region=record.region,
        cpu_architecture=record.cpu_architecture,
        storage_mb=metrics.ephemeral_storage_size_mb,
        is_on_spot=is_on_spot(record.cost),
        container=record.container.name,
        vcpu_size=metrics.vcpu_size,
        memory_size_mb=metrics.memory_size_mb,
        max_threads=metrics.max_pids,
        unknown_memory=tuple(other.name for other in record.containers if _memory_of(other, record) is None),
        unknown_cpu=tuple(other.name for other in record.containers if _vcpu_p95(other.metrics) is None),
    )
    task_mb = None if record.task_size is None else record.task_size.memory_mb
    reached_mb = metrics.memory_size_mb if task_mb is None else task_mb
    model = None if record.processor is None else record.processor.model
    sampling, is_by_minute = record.sampling or Sampling(), is_sampled_each_minute(record)
    has_gpus_of_others = record.gpu_scope == WHOLE_INSTANCE
    knows_gpus = bool(record.gpus) and all(gpu.utilization_percent is not None for gpu in record.gpus)
    return RunFacts(
        key=(record.task_id, record.container.name, began),
        family=family_key(record),
        began=began,
        began_ns=parse_ns(began) or 0,
        status=known_status(record),
        task=task,
        needed_memory_mb=None if peak_mb is None else peak_mb + _others_memory_mb(record),
        needed_vcpu=None if vcpu is None else min(sum_known(*vcpus) or 0, task.vcpu_limit or math.inf),
        peak_mb=peak_mb,
        memory_p99_mb=(metrics.memory_used_mb or Distribution()).p99,
        slowdown=_slowdown(metrics),
        saturated_percent=metrics.vcpu_saturated_percent,
        cpu_wait_percent=counted_cpu_wait(record),
        processor=short_processor_name(model) if model else None,
        out_of_memory=record.likely_out_of_memory is True,
        oom_size_mb=_oom_size_mb(record) if record.likely_out_of_memory else None,
        reached_size_mb=reached_mb if may_have_lost_a_child(metrics) else None,
        peak_source=known_peak_source(metrics),
        stats_period_ms=int(sampling.interval_ms or 0) if is_by_minute else sampling.stats_period_ms,
        duration_ms=metrics.duration_ms,
        billed_ms=metrics.billed_duration_ms,
        init_ms=metrics.init_duration_ms,
        is_by_minute=is_by_minute,
        gpus_idle=all(map(is_idle, record.gpus)) if knows_gpus and not has_gpus_of_others else None,
        idle_gpu_hours=None if record.gpu_idle is None else record.gpu_idle.gpu_hours,
        has_gpus_of_others=has_gpus_of_others,
    )


def _others_memory_mb(record: Record) -> float:
    """The known memory that the other containers of the task need together."""
    return sum_known(*(_memory_of(other, record) for other in record.containers)) or 0


def _memory_of(container: OtherContainer, record: Record) -> float | None:
    """The memory that a container used, else its limit, unless that is the task's."""
    metrics = container.metrics or Metrics()
    if metrics.max_memory_used_mb is not None:
        return metrics.max_memory_used_mb
    limit_mb, task_mb = metrics.memory_size_mb, (record.task_size or TaskSize()).memory_mb
    return None if limit_mb is None or (task_mb is not None and limit_mb >= task_mb) else limit_mb


def _vcpu_p95(metrics: Metrics | None) -> float | None:
    return None if metrics is None or metrics.vcpu_used is None else metrics.vcpu_used.p95


def _slowdown(metrics: Metrics) -> Mapping[float, SlowdownBounds] | None:
    if metrics.slowdown_at_vcpu is None:
        return None
    slowdowns = {}
    for name, bounds in metrics.slowdown_at_vcpu.items():
        try:
            vcpu = float(name)
        except ValueError:
            continue
        least = _bound(bounds.min)
        slowdowns[vcpu] = SlowdownBounds(min=least, max=max(_bound(bounds.max), least))
    return slowdowns


def _bound(factor: float) -> float:
    """No run is faster with fewer vCPUs, or slower by more than any number of CPUs."""
    return round(min(max(factor, 1.0), 1e6), 3)


def _oom_size_mb(record: Record) -> float | None:
    """Return the size that was too small: the task's memory, or the batch's own limit plus the other containers."""
    size = record.task_size or TaskSize()
    limit_mb = record.metrics.memory_size_mb
    if limit_mb is None:
        return size.memory_mb
    if size.memory_mb is None or limit_mb >= size.memory_mb:
        return limit_mb
    return min(limit_mb + _others_memory_mb(record), size.memory_mb)


def facts_on_fargate(report: Report, region: str | None) -> RunFacts:
    """The facts of a final report, as if its run had been on Fargate in this Region; None: as it was."""
    facts = facts_of(report)
    if region is None or facts.task.launch_type == FARGATE:
        return facts
    moved = replace(report, record=record_on_fargate(report.record, region))
    return replace(facts_of(moved), family=facts.family, is_moved=moved.record.launch_type == FARGATE)


def record_on_fargate(record: Record, region: str) -> Record:
    """The record, as if its run had been on Fargate. Its duration in whole seconds, at least 60, is billed."""
    # A GPU that may be another task's does not count.
    uses_gpus = record.gpu_scope != WHOLE_INSTANCE and any(not is_idle(gpu) for gpu in record.gpus)
    if record.launch_type == FARGATE or uses_gpus or (record.neuron is not None and record.neuron.cores):
        return record
    metrics, size = record.metrics, record.task_size or TaskSize()
    duration_ns = None if metrics.duration_ms is None else round(metrics.duration_ms * NS_PER_MS)
    known = TaskSize(
        vcpu=metrics.vcpu_size if size.vcpu is None else size.vcpu,
        memory_mb=metrics.memory_size_mb if size.memory_mb is None else size.memory_mb,
    )
    return replace(
        record,
        launch_type=FARGATE,
        region=region,
        task_size=None if known == TaskSize() else known,
        metrics=replace(
            metrics, billed_duration_ms=billed_ms(0, duration_ns), init_duration_ms=0, ephemeral_storage_size_mb=None
        ),
    )


def cost_on_fargate(record: Record, region: str | None, price_overrides: PriceOverrides) -> Cost | None:
    """The run's own cost. With a Region, a run outside Fargate has its hypothetical cost in this Region.

    A size that Fargate does not have has no price.
    """
    if region is None or record.launch_type == FARGATE:
        return record.cost
    moved = record_on_fargate(record, region)
    size = moved.task_size or TaskSize()
    is_legal = size.vcpu is not None and size.memory_mb is not None and Size(size.vcpu, size.memory_mb) in LEGAL_SIZES
    return cost_of(moved, price_overrides) if moved.launch_type == FARGATE and is_legal else None

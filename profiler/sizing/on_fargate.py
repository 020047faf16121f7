"""Runs outside Fargate as if they had run there: what they would have been billed, and where.

The whole machine counts as the current size, unless the task has a size. A run that used GPUs or Neuron devices, which
Fargate does not have, stays unchanged.
"""

from msgspec.structs import replace

from profiler.core.ecs_terms import FARGATE
from profiler.core.timestamps import NS_PER_MS
from profiler.record.hardware import WHOLE_INSTANCE, is_idle
from profiler.record.record_model import Cost, Record, Report, TaskSize
from profiler.record.units import billed_ms
from profiler.sizing.fargate import LEGAL_SIZES, Size
from profiler.sizing.prices import PriceOverrides, cost_of
from profiler.sizing.run_facts import RunFacts, facts_of


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

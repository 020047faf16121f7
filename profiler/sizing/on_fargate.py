"""Runs outside Fargate as if they had run there: what they would have been billed, and where.

The whole machine counts as the current size, unless the task has a size of its own.
"""

from msgspec.structs import replace

from profiler.core.ecs_terms import FARGATE
from profiler.core.timestamps import NS_PER_MS
from profiler.record.record_model import Cost, Record, Report, TaskSize
from profiler.record.units import billed_ms
from profiler.sizing.prices import PriceOverrides, cost_of
from profiler.sizing.run_facts import RunFacts, facts_of


def facts_on_fargate(report: Report, region: str | None) -> RunFacts:
    """The facts of a final report, as if its run had been on Fargate in this Region; None: as it was."""
    facts = facts_of(report)
    if region is None or facts.task.launch_type == FARGATE:
        return facts
    moved = replace(report, record=record_on_fargate(report.record, region))
    return replace(facts_of(moved), family=facts.family)


def record_on_fargate(record: Record, region: str) -> Record:
    """The record, as if its run had been on Fargate. Its duration in whole seconds, at least 60, is billed."""
    if record.launch_type == FARGATE:
        return record
    metrics = record.metrics
    duration_ns = None if metrics.duration_ms is None else round(metrics.duration_ms * NS_PER_MS)
    machine = TaskSize(vcpu=metrics.vcpu_size, memory_mb=metrics.memory_size_mb)
    return replace(
        record,
        launch_type=FARGATE,
        region=region,
        task_size=record.task_size or (None if machine == TaskSize() else machine),
        metrics=replace(metrics, billed_duration_ms=billed_ms(0, duration_ns), ephemeral_storage_size_mb=None),
    )


def cost_on_fargate(record: Record, region: str | None, price_overrides: PriceOverrides) -> Cost | None:
    """The run's own cost. With a Region, a run outside Fargate has the cost that it would have had there."""
    if region is None or record.launch_type == FARGATE:
        return record.cost
    return cost_of(record_on_fargate(record, region), price_overrides)

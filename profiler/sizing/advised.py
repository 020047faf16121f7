"""A run's cost, and what this one run says about the size of its task, onto its record. Pure.

The monitor imports this when a run has ended: before, its memory is the batch's.
"""

from msgspec.structs import replace

from profiler.accelerators.gpu_advice import WHOLE_INSTANCE, idle_advice
from profiler.fargate import Size, prices, run_cost
from profiler.figures import as_number
from profiler.record import Cost, Recommendation, Record, Report
from profiler.rightsizing import Policy
from profiler.sizing.advice import advise
from profiler.sizing.evidence import evidence_of_runs
from profiler.sizing.needs import Requirements, facts_of, plausible, task_of
from profiler.sizing.prices import PriceOverrides

_RUNNING = "running"


def with_recommendation(record: Record, price_overrides: PriceOverrides, *, time: str) -> Record:
    """The record with cost and recommendation, as far as they can be told; one of a run that goes on is left alone.

    What is said of idle GPUs, if they are known to be the batch's own, comes after what is said about the size.
    """
    if record.status == _RUNNING:
        return record
    advice = _recommendation(record, price_overrides, time)
    idle = None if record.gpu_scope == WHOLE_INSTANCE else idle_advice(record.gpus)
    if idle is not None:
        advice = advice or Recommendation()
        advice = replace(advice, reasons=(*advice.reasons, idle))
    return replace(record, cost=cost_of(record, price_overrides), recommendation=advice)


def cost_of(record: Record, price_overrides: PriceOverrides) -> Cost | None:
    """What the run cost; None where no price applies or its size or duration is not known."""
    task = task_of(record, Requirements())
    size = task.size
    found = prices(record.region, record.cpu_architecture, price_overrides)
    hour_usd = None
    if found is not None and size is not None and size.vcpu is not None and size.memory_mb is not None:
        hour_usd = found.hour_usd(Size(size.vcpu, size.memory_mb), task.storage_mb)
    return run_cost(
        launch_type=record.launch_type,
        billed_ms=plausible(record.metrics.billed_duration_ms),
        hour_usd=hour_usd,
        basis=None if found is None else found.basis,
        overrides=price_overrides,
    )


def _recommendation(record: Record, price_overrides: PriceOverrides, time: str) -> Recommendation | None:
    run = facts_of(Report(time=time, type="task.report", record=record))
    evidence = evidence_of_runs(run.family, [run])
    if evidence is None:
        return None
    advice = advise(evidence, Policy(), price_overrides)
    choice = advice.choice
    return Recommendation(
        vcpu=as_number(choice.size.vcpu),
        memory_mb=as_number(choice.size.memory_mb),
        saving_percent=choice.saving_percent,
        reasons=advice.reasons,
    )

"""A recommendation: the size, what it saves, and why; for a family, and for the record of one run."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from profiler.record.accelerators import WHOLE_INSTANCE, idle_advice
from profiler.record.model import Cost, Recommendation, Record, Report, TaskSize
from profiler.record.units import VCPU_DIGITS, as_number
from profiler.sizing.evidence import Evidence, evidence_of_runs
from profiler.sizing.fargate import Size, prices, run_cost
from profiler.sizing.policy import DeploymentTarget, Policy, SizeDecision, recommend_size
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.reasons import reasons
from profiler.sizing.requirements import Requirements, plausible
from profiler.sizing.run_facts import facts_of, task_of

_HIGH_CONFIDENCE_RUNS = 20
_FEW_RUNS = 5
_MAX_FINE_PERIOD_MS = 2000


class Advice(Struct, frozen=True, kw_only=True):
    """What is recommended for a family, and what it rests on."""

    evidence: Evidence
    choice: SizeDecision
    reasons: tuple[str, ...]

    @property
    def family(self) -> str:
        """The task definition's family."""
        return self.evidence.family

    @property
    def confidence(self) -> str:
        """``high`` from 20 runs on with peaks that cannot have been missed, ``low`` below 5 runs."""
        evidence = self.evidence
        if evidence.runs < _FEW_RUNS:
            return "low"
        saw_all = (
            evidence.peak_source == "kernel"
            or (evidence.stats_period_ms or _MAX_FINE_PERIOD_MS + 1) <= _MAX_FINE_PERIOD_MS
        )
        return "high" if evidence.runs >= _HIGH_CONFIDENCE_RUNS and saw_all else "medium"


def advise(
    evidence: Evidence, policy: Policy, price_overrides: PriceOverrides, target: DeploymentTarget | None = None
) -> Advice:
    """The recommendation for a family."""
    choice = recommend_size(evidence, policy, price_overrides, target)
    return Advice(evidence=evidence, choice=choice, reasons=reasons(evidence, choice))


def as_json(advice: Advice) -> Mapping[str, object]:
    """The object that ``recommend --json`` prints; what is not known is null."""
    evidence, choice = advice.evidence, advice.choice
    return {
        "family": advice.family,
        "runs": evidence.runs,
        "current": _size(choice.current),
        "recommended": _size(choice.size),
        "savingPercent": choice.saving_percent,
        "reasons": list(advice.reasons),
        "evidence": {
            "runs": evidence.runs,
            "failed": evidence.failed,
            "outOfMemory": evidence.out_of_memory,
            "ignored": evidence.ignored,
            "peakMB": as_number(evidence.required_memory_mb),
            "p95Vcpu": None if evidence.required_vcpu is None else round(evidence.required_vcpu, VCPU_DIGITS),
            "peakSource": evidence.peak_source,
            "statsPeriodMs": evidence.stats_period_ms,
            "from": evidence.first_started_at,
            "to": evidence.last_started_at,
        },
    }


def _size(size: TaskSize | None) -> Mapping[str, object] | None:
    return None if size is None else {"vcpu": size.vcpu, "memoryMB": size.memory_mb}


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

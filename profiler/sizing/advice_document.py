"""The line of ``recommend --json``: a family's recommended size with its evidence."""

from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from profiler.core.optional_math import first_known, known, rounded
from profiler.record.family_statistics import MonthBasis
from profiler.record.measured import AtLeast, Number, measured_from
from profiler.record.model_base import JsonLine
from profiler.record.record_model import PeakSource, SlowdownBounds, TaskSize
from profiler.record.units import VCPU_DIGITS, rounded_number, rounded_usd
from profiler.sizing.advice import Advice
from profiler.sizing.evidence import Evidence
from profiler.sizing.job_grouping import JobsRow
from profiler.sizing.size_options import SizeOption, idle_gpu_hours_per_month


class SizeDocument(JsonLine, frozen=True, kw_only=True):
    """A size of a task or a job."""

    vcpu: float | None
    memory_mb: float | None


class FactorDocument(JsonLine, frozen=True, kw_only=True):
    """The bounds of the duration at another size: how many times as long as now."""

    min: float
    max: float


class OptionDocument(JsonLine, frozen=True, kw_only=True):
    """Another size, and what a run would take and cost there."""

    vcpu: float | None
    memory_mb: float | None
    duration_factor: FactorDocument | None
    usd_per_run: float | None
    saving_percent: float | None
    acceptable: bool


class EvidenceDocument(JsonLine, frozen=True, kw_only=True):
    """The runs behind a recommendation.

    ``peakMB`` is the largest need of a run, ``p95Vcpu`` that of the vCPUs. ``failed`` has
    no run that ran out of memory. ``ignored`` runs say nothing about sizes. ``from`` and ``to`` are
    the starts of the first and the last run.
    """

    runs: int
    failed: int
    out_of_memory: int
    ignored: int
    peak_mb: float | None
    p95_vcpu: float | None
    saturated_percent: float | None
    peak_source: PeakSource | None
    stats_period_ms: int | None
    from_: str | None = msgspec.field(name="from")
    to: str | None


class AdviceDocument(JsonLine, frozen=True, kw_only=True):
    """The recommended size of a family, with the evidence and the reasons.

    ``recommended`` null: the runs do not suffice, and ``reasons`` say why. ``onFargate`` is the
    Region of ``--on-fargate``, ``requested`` what jobs of AWS Batch asked for. ``monthBasis`` says
    where the runs a month come from. ``atLeast`` names the numbers that may have been larger.
    """

    family: str
    account_id: str | None
    region: str | None
    on_fargate: str | UnsetType | None = UNSET
    runs: int
    requested: SizeDocument | UnsetType | None = UNSET
    current: SizeDocument | None
    recommended: SizeDocument | None
    saving_percent: float | None
    usd_per_month: float | None
    saving_usd_per_month: float | None
    runs_per_month: float | None
    month_basis: MonthBasis | None
    idle_gpu_hours_per_month: float | None
    at_least: tuple[str, ...]
    sizes: tuple[OptionDocument, ...]
    margin_percent: float | None
    reasons: tuple[str, ...]
    evidence: EvidenceDocument


def advice_document(advice: Advice) -> AdviceDocument:
    """The line of a family."""
    evidence = advice.evidence
    row = evidence.family
    choice = advice.choice
    return AdviceDocument(
        family=row.name,
        account_id=row.account_id,
        region=row.region,
        on_fargate=evidence.on_fargate if evidence.is_moved else UNSET,
        runs=evidence.outcomes.runs,
        requested=size_document(row.asked) if isinstance(row, JobsRow) else UNSET,
        current=size_document(choice.current),
        recommended=size_document(choice.size),
        saving_percent=choice.saving_percent,
        usd_per_month=rounded_usd_per_month(advice.usd_per_month),
        saving_usd_per_month=rounded_usd_per_month(advice.saving_usd_per_month),
        runs_per_month=rounded(advice.runs_per_month, 2),
        month_basis=known(attrgetter("basis"), advice.month),
        idle_gpu_hours_per_month=rounded(idle_gpu_hours_per_month(evidence).value, 6),
        at_least=tuple(_lower_bound_names(advice)),
        sizes=tuple(map(_option_document, choice.options)),
        margin_percent=rounded_percent(choice.margin.percent),
        reasons=advice.reasons,
        evidence=_evidence_document(evidence),
    )


def _lower_bound_names(advice: Advice) -> Iterator[str]:
    """The names of the numbers that may have been larger."""
    on_spot = advice.evidence.usage.on_spot
    saving_usd = advice.saving_usd_per_month
    # Of a size that costs more, the difference is not a least saving.
    is_saving = first_known(saving_usd, 0) > 0
    numbers = {
        "usdPerMonth": measured_from(advice.usd_per_month, is_least=on_spot),
        "savingUsdPerMonth": measured_from(saving_usd, is_least=on_spot and is_saving),
        "sizes.usdPerRun": measured_from(advice.usd_per_run, is_least=on_spot),
        "idleGpuHoursPerMonth": idle_gpu_hours_per_month(advice.evidence),
        "evidence.peakMB": advice.evidence.needed_memory,
    }
    for name, number in numbers.items():
        if isinstance(number, AtLeast):
            yield name


def advice_as_json(advice: Advice) -> Mapping[str, Any]:
    """The line of a family as an object."""
    fields: Mapping[str, Any] = msgspec.to_builtins(advice_document(advice))
    return fields


def _evidence_document(evidence: Evidence) -> EvidenceDocument:
    return EvidenceDocument(
        runs=evidence.outcomes.runs,
        failed=evidence.outcomes.failed,
        out_of_memory=evidence.outcomes.out_of_memory,
        ignored=evidence.outcomes.ignored,
        peak_mb=rounded_number(evidence.needs.required_memory_mb),
        p95_vcpu=known(_rounded_vcpu, evidence.needs.required_vcpu),
        saturated_percent=known(rounded_percent, evidence.usage.saturated_percent),
        peak_source=evidence.precision.peak_source,
        stats_period_ms=evidence.precision.stats_period_ms,
        from_=evidence.outcomes.first_started_at,
        to=evidence.outcomes.last_started_at,
    )


def _option_document(option: SizeOption) -> OptionDocument:
    return OptionDocument(
        vcpu=rounded_number(option.size.vcpu),
        memory_mb=rounded_number(option.size.memory_mb),
        duration_factor=known(factor_document, option.factor),
        usd_per_run=option.usd_per_run,
        saving_percent=option.saving_percent,
        acceptable=option.is_acceptable,
    )


def size_document(size: TaskSize) -> SizeDocument | None:
    """A size; None if nothing of it is known."""
    if size == TaskSize():
        return None
    return SizeDocument(vcpu=rounded_number(size.vcpu), memory_mb=rounded_number(size.memory_mb))


def factor_document(factor: SlowdownBounds) -> FactorDocument:
    """The bounds of a duration."""
    return FactorDocument(min=rounded_number(factor.min) or 0, max=rounded_number(factor.max) or 0)


def rounded_usd_per_month(usd: float | None) -> float | None:
    """An amount of a month as texts have it; one below a cent has more digits."""
    return known(rounded_usd, usd)


def _rounded_vcpu(vcpu: float) -> float:
    return round(vcpu, VCPU_DIGITS)


def rounded_percent(percent: float) -> Number | None:
    """A percentage with one digit."""
    return rounded_number(round(percent, 1))

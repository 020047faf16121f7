"""A recommendation as it is given: the size, what it saves, and why. Pure."""

from collections.abc import Mapping

from msgspec import Struct

from profiler.figures import VCPU_DIGITS, as_number
from profiler.record import TaskSize
from profiler.rightsizing import DeploymentTarget, Policy, SizeDecision, recommend_size
from profiler.sizing.evidence import Evidence
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.reasons import reasons

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

"""The recommended size of each family, and the duration and cost at every other size."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from profiler.html_report.page_runs import Run
from profiler.html_report.rounding import round_to
from profiler.html_report.run_fields import without_none
from profiler.record.family_identity import FamilyKey
from profiler.record.record_model import TaskSize
from profiler.sizing.advice import Advice, advise
from profiler.sizing.choose_size import Policy
from profiler.sizing.evidence import LAST_RUNS, Families
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.what_if import SizeOption, runs_per_month

_REPORT = "task.report"
_USD_DIGITS = 8


def size_rows(
    runs: Iterable[Run],
    labels: Mapping[FamilyKey, str],
    price_overrides: PriceOverrides,
    on_fargate: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Recommend a size for each family, those with the most runs first."""
    families = Families(LAST_RUNS, on_fargate)
    for run in runs:
        if run.past.report.type == _REPORT:
            families.add(run.past.report)
    measured = [evidence for evidence in families.evidence().values() if evidence is not None]
    measured.sort(key=lambda evidence: (-evidence.runs, evidence.family.order))
    for evidence in measured:
        yield _row(labels[evidence.family], advise(evidence, Policy(), price_overrides))


def _row(label: str, advice: Advice) -> dict[str, Any]:
    choice = advice.choice
    return without_none(
        {
            "family": label,
            "current": None if choice.current is None or choice.current == TaskSize() else _size(choice.current),
            "size": _size(choice.size),
            "changes": choice.changes,
            "fits": choice.is_right and advice.risk is None,
            "saving": choice.saving_percent,
            "risk": advice.risk,
            "runsPerMonth": round_to(runs_per_month(advice.evidence)),
            "maxSlowdown": round_to(choice.policy.max_slowdown_percent),
            "options": [_option(option) for option in choice.options] or None,
            "reasons": list(advice.reasons),
        }
    )


def _size(size: TaskSize) -> dict[str, Any]:
    return without_none({"vcpu": size.vcpu, "mb": size.memory_mb})


def _option(option: SizeOption) -> dict[str, Any]:
    factor = option.factor
    return without_none(
        {
            "vcpu": round_to(option.size.vcpu),
            "mb": round_to(option.size.memory_mb),
            "min": None if factor is None else round_to(factor.min),
            "max": None if factor is None else round_to(factor.max),
            "usd": round_to(option.usd_per_run, digits=_USD_DIGITS),
            "saving": option.saving_percent,
            "holdsMemory": option.holds_memory,
            "acceptable": option.acceptable,
        }
    )

"""What is recommended for each family in the page, as long as it may be. Pure."""

from collections.abc import Sequence
from typing import Any

from profiler.dashboard.embedded import to_script_json
from profiler.dashboard.runs import Run
from profiler.record import TaskSize
from profiler.rightsizing import Policy
from profiler.sizing.advice import Advice, advise
from profiler.sizing.evidence import LAST_RUNS, families_of
from profiler.sizing.prices import PriceOverrides

_REPORT = "task.report"
_COMMA = 1


def sizing(runs: Sequence[Run], price_overrides: PriceOverrides, max_bytes: int) -> list[dict[str, Any]]:
    """By family, those with the most runs first; what does not fit is left out."""
    families = families_of((run.report for run in runs if run.report.type == _REPORT), last=LAST_RUNS)
    found = [evidence for family in families.values() if (evidence := family.evidence()) is not None]
    rows: list[dict[str, Any]] = []
    left_bytes = max_bytes
    for evidence in sorted(found, key=lambda one: (-one.runs, one.family)):
        row = _row(advise(evidence, Policy(), price_overrides))
        left_bytes -= len(to_script_json(row)) + _COMMA
        if left_bytes < 0:
            break
        rows.append(row)
    return rows


def _row(advice: Advice) -> dict[str, Any]:
    choice = advice.choice
    row = {
        "family": advice.family,
        "size": _size(choice.size),
        "changes": choice.changes,
        "saving": choice.saving_percent,
        "reasons": list(advice.reasons),
    }
    return {name: value for name, value in row.items() if value is not None}


def _size(size: TaskSize) -> dict[str, Any]:
    known = {"vcpu": size.vcpu, "mb": size.memory_mb}
    return {name: value for name, value in known.items() if value is not None}

"""Windows of a family's runs, and the decisions on its size."""

from collections.abc import Iterable
from typing import Any

from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.record_model import Report
from profiler.sizing.family_window import FamilyWindow, WindowSpan
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.resize_policy import Resize, ResizePolicy
from profiler.sizing.resize_rules import decide
from profiler.sizing.run_facts import RunFacts, facts_of
from profiler.sizing.sized_revision import Circumstances, SizedRevision

NOWHERE = Circumstances()


def window_of(
    reports: Iterable[Report], *, days: int = 400, min_runs: int = 20, now_ns: int | None = None
) -> FamilyWindow:
    """The closed window of confirmed runs, an hour after the newest one's start."""
    return window_of_runs(map(facts_of, reports), days=days, min_runs=min_runs, now_ns=now_ns)


def window_of_runs(
    runs: Iterable[RunFacts], *, days: int = 400, min_runs: int = 20, now_ns: int | None = None
) -> FamilyWindow:
    listed = list(runs)
    newest_ns = max((run.began_ns for run in listed), default=0)
    span = WindowSpan(
        now_ns=newest_ns + 3_600 * NS_PER_SECOND if now_ns is None else now_ns,
        days=days,
        min_runs=min_runs,
    )
    window = FamilyWindow(span)
    for run in listed:
        window.add(run)
    window.close()
    return window


def decision_on(
    window: FamilyWindow,
    revision: SizedRevision,
    circumstances: Circumstances = NOWHERE,
    **policy: Any,
) -> Resize:
    return decide(window, revision, circumstances, ResizePolicy(**policy), PriceOverrides())

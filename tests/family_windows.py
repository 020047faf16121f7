"""Windows of a family's runs, and the decisions on its size."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from profiler.core.ecs_terms import FARGATE
from profiler.core.timestamps import NS_PER_SECOND, format_ms, parse_ns
from profiler.record.record_model import Report
from profiler.sizing.family_window import FamilyWindow, WindowSpan
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.resize_decision import decide_on_resize
from profiler.sizing.resize_limits import ResizeDecision, ResizePolicy
from profiler.sizing.run_facts import RunFacts
from profiler.sizing.sized_revision import FamilyCircumstances, SizedRevision
from profiler.sizing.window_advice import WindowAdvice
from tests.runs import reported_facts

NOWHERE = FamilyCircumstances()


def window_of(
    reports: Iterable[Report],
    *,
    days: int = 400,
    min_runs: int = 20,
    now_ns: int | None = None,
    launch_type: str = FARGATE,
) -> FamilyWindow:
    """The closed window of confirmed runs, an hour after the newest one's start."""
    return window_of_runs(
        map(reported_facts, reports),
        days=days,
        min_runs=min_runs,
        now_ns=now_ns,
        launch_type=launch_type,
    )


def window_of_runs(
    runs: Iterable[RunFacts],
    *,
    days: int = 400,
    min_runs: int = 20,
    now_ns: int | None = None,
    launch_type: str = FARGATE,
) -> FamilyWindow:
    listed = list(runs)
    newest_ns = max((run.began_ns for run in listed), default=0)
    span = WindowSpan(
        now_ns=newest_ns + 3_600 * NS_PER_SECOND if now_ns is None else now_ns,
        days=days,
        min_runs=min_runs,
    )
    window = FamilyWindow(span, launch_type)
    for run in listed:
        window.add_run(run)
    window.add_newest_before_span()
    return window


def lately(reports: Iterable[Report], now_ns: int) -> list[Report]:
    """The same runs of each family, of which the newest began an hour ago."""
    listed = list(reports)
    newest_ns: dict[str | None, int] = {}
    for one in listed:
        family = one.record.family
        newest_ns[family] = max(newest_ns.get(family, 0), parse_ns(one.record.started_at) or 0)
    later = []
    for one in listed:
        shift_ns = now_ns - 3_600 * NS_PER_SECOND - newest_ns[one.record.family]
        started_ns = (parse_ns(one.record.started_at) or 0) + shift_ns
        finished_ns = (parse_ns(one.record.finished_at) or 0) + shift_ns
        record = replace(
            one.record, started_at=format_ms(started_ns), finished_at=format_ms(finished_ns)
        )
        later.append(replace(one, time=format_ms(finished_ns), record=record))
    return later


def decision_on(
    window: FamilyWindow,
    revision: SizedRevision,
    circumstances: FamilyCircumstances = NOWHERE,
    **policy: Any,
) -> ResizeDecision:
    advised = WindowAdvice(window, ResizePolicy(**policy), PriceOverrides())
    return decide_on_resize(advised, revision, circumstances)

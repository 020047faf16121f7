"""Reports of runs with only what a test is about, as the monitor would write them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from profiler.core.ecs_terms import VCPU_SIZES
from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.record import record_model as model
from profiler.record.record_model import NOT_MEASURED, UNKNOWN_SIZE
from profiler.record.run_summary import Story, story_of
from profiler.record.stop_causes import outcome_of
from profiler.runs.history.run_database import HistoryStore
from profiler.sizing.evidence import Evidence
from profiler.sizing.run_collector import LAST_RUNS, FamilyRunCollector
from profiler.sizing.run_facts import RunFacts, run_facts_of
from tests.fakes import START_NS, FakeClock

DAY_SECONDS = 86_400


def report(
    number: int = 0,
    *,
    peak_mb: float | None = 400,
    p95: float | None = 0.2,
    size: tuple[float, float] | None = (1, 2048),
    others: Mapping[str, model.Metrics] | None = None,
    metrics: Mapping[str, Any] | None = None,
    **record: Any,
) -> model.Report:
    """The report of run ``number`` of the family nightly, on Fargate in us-east-1, one a day,
    ten minutes each.
    """
    started_ns = START_NS + number * DAY_SECONDS * NS_PER_SECOND
    limits: dict[str, Any] = (
        {} if size is None else {"vcpu_size": size[0], "memory_size_mb": size[1]}
    )
    if size is not None and p95 is not None:
        limits["cpu_utilization_percent"] = model.Distribution(p95=100 * p95 / size[0])
    known = model.Metrics(
        duration_ms=590_000,
        billed_duration_ms=600_000,
        max_memory_used_mb=peak_mb,
        vcpu_used=NOT_MEASURED if p95 is None else model.Distribution(p95=p95),
        memory_peak_source=None if peak_mb is None else "sampled",
        **limits,
    )
    made = model.Record(
        task_id=f"task-{number}",
        family="nightly",
        region="us-east-1",
        launch_type="FARGATE",
        cpu_architecture="X86_64",
        container=model.Container(name="batch"),
        status="success",
        exit_code=0,
        likely_out_of_memory=False,
        started_at=format_ms(started_ns),
        finished_at=format_ms(started_ns + 590 * NS_PER_SECOND),
        sampling=model.Sampling(samples=590, stats_period_ms=1000),
        metrics=replace(known, **(metrics or {})),
        containers=tuple(
            model.OtherContainer(name=name, metrics=of_it) for name, of_it in (others or {}).items()
        ),
        task_size=UNKNOWN_SIZE if size is None else model.TaskSize(vcpu=size[0], memory_mb=size[1]),
    )
    time = format_ms(started_ns + 591 * NS_PER_SECOND)
    return model.Report(time=time, type="task.report", record=replace(made, **record))


def slowdown(**bounds: tuple[float, float]) -> dict[str, model.SlowdownBounds]:
    """The bounds of the slowdown by vCPU size, ``slowdown(v0_5=(1.2, 1.5))``; a smaller size is
    not faster.
    """
    given = {
        float(name.removeprefix("v").replace("_", ".")): bound for name, bound in bounds.items()
    }
    found: dict[str, model.SlowdownBounds] = {}
    least = most = 1.0
    for vcpu in sorted(VCPU_SIZES, reverse=True):
        least, most = (
            max(pair) for pair in zip((least, most), given.get(vcpu, (1.0, 1.0)), strict=True)
        )
        if most > 1:
            found[f"{vcpu:g}"] = model.SlowdownBounds(min=least, max=most)
    return found


def checkpoint(of: model.Report) -> model.Report:
    """A line of the same run from before its end."""
    return replace(
        of, type="task.checkpoint", record=replace(of.record, status="running", exit_code=None)
    )


def reported_story(record: model.Record) -> Story:
    """The story of a run of which there is a report alone."""
    return story_of(record, outcome_of(record))


def lines(reports: Iterable[model.Report]) -> bytes:
    """As they stand in a file."""
    return b"".join(model.encode(one) + b"\n" for one in reports)


def history_of(path: Path, *reports: model.Report) -> HistoryStore:
    """A history with these runs."""
    store = HistoryStore(path, FakeClock())
    for one in reports:
        store.add_run(model.encode(one), one, b"[]", max_runs=100)
    return store


def reported_facts(report: model.Report, *, is_confirmed: bool = True) -> RunFacts:
    """The facts of a run of which there is a report alone."""
    return run_facts_of(report, outcome_of(report.record), is_confirmed=is_confirmed)


def add_reports(families: FamilyRunCollector, reports: Iterable[model.Report]) -> None:
    """Add runs of which there are reports alone."""
    for one in reports:
        families.add_run(one, outcome_of(one.record))


def evidence_of(
    reports: Iterable[model.Report], *, last: int = LAST_RUNS, on_fargate: str | None = None
) -> Evidence:
    """The evidence of the only family of these reports."""
    families = FamilyRunCollector(last, on_fargate)
    add_reports(families, reports)
    (evidence,) = families.evidence_by_row().values()
    assert evidence is not None
    return evidence

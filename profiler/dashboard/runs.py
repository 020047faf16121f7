"""From record lines to runs: a run's report and checkpoints belong together. Pure."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from profiler.dashboard.series import Step, steps_of_checkpoints
from profiler.errors import TaskProfilerError
from profiler.record import Report
from profiler.times import parse_ns


class Run(Struct, frozen=True, kw_only=True):
    """One run to be shown: its last word, and its course if that is known."""

    report: Report
    steps: tuple[Step, ...] = ()

    @property
    def began(self) -> str:
        """When it started, or at least when its line was written."""
        return self.report.record.started_at or self.report.time


class _Lines(Struct):
    report: Report
    checkpoints: list[Report]


def group_runs(reports: Iterable[Report]) -> tuple[Run, ...]:
    """The runs, newest first. A report counts before checkpoints, a later line before an earlier one."""
    found: dict[tuple[str, str, str], _Lines] = {}
    for report in reports:
        record = report.record
        key = (record.task_id, record.container.name, record.started_at or "")
        lines = found.setdefault(key, _Lines(report, []))
        if _rank(report) >= _rank(lines.report):
            lines.report = report
        if report.type == "task.checkpoint":
            lines.checkpoints.append(report)
    runs = [Run(report=lines.report, steps=steps_of_checkpoints(lines.checkpoints)) for lines in found.values()]
    return newest_first(runs)


def newest_first(runs: Iterable[Run]) -> tuple[Run, ...]:
    """By their start; runs whose times cannot be read come last."""
    return tuple(sorted(runs, key=lambda run: parse_ns(run.began) or 0, reverse=True))


def _rank(report: Report) -> tuple[bool, int]:
    return report.type == "task.report", parse_ns(report.time) or 0


def find_run(runs: Sequence[Run], name: str) -> Run:
    """The run with this task id (the newest one), or the only one whose id begins so."""
    same = [run for run in runs if run.report.record.task_id == name]
    if same:
        return same[0]
    alike = [run for run in runs if run.report.record.task_id.startswith(name)] if name else []
    if len(alike) == 1:
        return alike[0]
    if alike:
        raise TaskProfilerError(f"{len(alike)} runs have an id that begins with {name!r}: give more of it.")
    raise TaskProfilerError(f"There is no run with the id {name!r}: task-profiler history --json shows all ids.")

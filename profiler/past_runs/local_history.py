"""The runs of the local history. SQLite selects families, statuses and times."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from profiler.core.timestamps import NS_PER_MS, format_ms
from profiler.history.history_points import Point
from profiler.history.run_database import MAX_RUNS_WITH_STACKS, HistoryStore
from profiler.past_runs.run_source import PastRun, RunFilter, RunSource
from profiler.record.activity_model import StacksLine
from profiler.record.record_model import Report
from profiler.record.units import format_count


class LocalRuns(RunSource):
    """The runs in a history file."""

    remedy = (
        "make one with task-profiler run -- CMD, or name another source (--from FILE, --elasticsearch URL, "
        "--log-group GROUP)"
    )

    stacks_remedy = f"only the newest {MAX_RUNS_WITH_STACKS} runs with call stacks keep them"

    def __init__(self, path: Path, history: HistoryStore) -> None:
        self.place = str(path)
        self._history = history

    @property
    def notes(self) -> Sequence[str]:
        """How many lines could not be read, if any."""
        count = self._history.unreadable_count
        return (f"{self.place}: skipped {format_count(count, 'line')} that could not be read.",) if count else ()

    def runs(self, selection: RunFilter) -> Iterator[PastRun]:
        """Yield the matching runs page by page."""
        stored = self._history.runs(
            families=selection.family_patterns,
            # A word that only a newer version knows counts as unknown, and is stored as it is.
            statuses=() if "unknown" in selection.statuses else selection.statuses,
            since=None if selection.since_ns is None else format_ms(selection.since_ns),
            # Rounded up: the history compares texts with milliseconds. The filter below compares nanoseconds.
            until=None if selection.until_ns is None else format_ms(-(-selection.until_ns // NS_PER_MS) * NS_PER_MS),
            run=selection.run,
        )
        runs = (PastRun(report=run.report, line=run.line) for run in stored)
        return (run for run in runs if selection.matches(run.report))

    def points(self, run: PastRun) -> tuple[Point, ...]:
        """The time series that the history has of a run."""
        return self._history.points(run.report)

    def stacks(self, report: Report) -> StacksLine | None:
        """The call stacks that the history has of a run."""
        return self._history.stacks(report)

"""The runs of the local history. SQLite selects families, statuses and times."""

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import groupby

from profiler.record.record_model import Report
from profiler.record.stacks_line import StacksLine
from profiler.record.units import format_count
from profiler.runs.history.run_database import HistoryStore
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.run_source import ELSEWHERE, RunFilter, RunSource, newest_first
from profiler.runs.step_series import StepSeries


class LocalRuns(RunSource):
    """The runs in a history file."""

    is_of_this_machine = True
    remedy = f"make one with task-profiler run -- CMD, or {ELSEWHERE}"

    def __init__(self, history: HistoryStore) -> None:
        self.place = history.path
        self.history = history

    @property
    def remarks(self) -> Sequence[str]:
        count = self.history.unreadable_count
        if count:
            return (f"{self.place}: skipped {format_count(count, 'line')} that could not be read.",)
        return ()

    def runs(self, selection: RunFilter) -> Iterator[PastRun]:
        ended = self._ended_runs(selection)
        if not selection.reads_checkpoints:
            return ended
        runs = merge(ended, self.running(selection), key=lambda run: run.started_ns, reverse=True)
        # A run that ends at this moment is listed once.
        same_tasks = groupby(runs, key=lambda run: run.record.task_id)
        return (next(same_task) for _, same_task in same_tasks)

    def _ended_runs(self, selection: RunFilter) -> Iterator[PastRun]:
        for line, report, command in self.history.candidate_rows(selection):
            if selection.matches(report):
                yield PastRun(report=report, line=line, command=command)

    def running(self, selection: RunFilter) -> Sequence[PastRun]:
        running: list[PastRun] = []
        for report, command in self.history.runs_in_progress():
            if selection.matches(report):
                running.append(PastRun(report=report, command=command))
        return newest_first(running)

    def steps(self, runs: Sequence[PastRun]) -> Iterator[StepSeries]:
        return self.history.steps(run.report for run in runs)

    def stacks(self, report: Report) -> StacksLine | None:
        return self.history.stacks(report)

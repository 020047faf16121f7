"""The runs of several sources as one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from typing import TypeVar

from profiler.core.completeness import Completeness, Gap, joined_completeness
from profiler.core.errors import TaskProfilerError
from profiler.core.text import listed
from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.notice_model import ScheduleNoticeLine
from profiler.record.record_model import CHECKPOINT, Report
from profiler.record.stacks_line import StacksLine
from profiler.runs.past_runs.past_run import PastRun, RunKey, run_key
from profiler.runs.past_runs.run_source import RunFilter, RunSource, newest_first
from profiler.runs.step_series import StepSeries

T = TypeVar("T")
# The start of a task, which Container Insights has, and the start of its container are closer than
# this.
_MAX_DISTANCE_NS = 600 * NS_PER_SECOND


class JoinedRuns(RunSource):
    """The sources' runs, newest first, each once.

    A source that fails is reported; the last one raises its error. ``unopened``: the names of
    those that failed before.
    """

    def __init__(
        self,
        sources: Sequence[RunSource],
        report_failure: Callable[[TaskProfilerError], None],
        unopened: Sequence[str] = (),
    ) -> None:
        self._unopened = tuple(unopened)
        self._sources = list(sources)
        self._report_failure = report_failure
        self._failed: list[RunSource] = []
        self.place = listed(source.place for source in sources)
        self.remedy = sources[0].remedy
        self.leaves_out_older = any(source.leaves_out_older for source in sources)

    @property
    def remarks(self) -> Sequence[str]:
        remarks: list[str] = []
        for source in self._sources:
            remarks += source.remarks
        return tuple(remarks)

    @property
    def completeness(self) -> Completeness:
        unread = [*self._unopened, *(source.place for source in self._failed)]
        return joined_completeness(
            [
                Completeness(tuple(Gap(place=place) for place in unread)),
                *(source.completeness for source in (*self._sources, *self._failed)),
            ]
        )

    @property
    def unsearched(self) -> Sequence[str]:
        return [part for source in self._sources for part in source.unsearched]

    @property
    def reading(self) -> str | None:  # type: ignore[override]  # which sources know after the runs
        return " ".join(source.reading for source in self._sources if source.reading) or None

    def runs(self, selection: RunFilter) -> Iterator[PastRun]:
        def read_source(source: RunSource) -> Iterator[PastRun]:
            return source.runs(selection)

        runs_of_sources = [self._unless_failed(source, read_source) for source in self._sources]
        all_runs = merge(*runs_of_sources, key=lambda run: run.started_ns, reverse=True)
        return _without_copies(all_runs)

    def last_runs(self, selection: RunFilter, last: int) -> Iterator[PastRun]:
        all_runs = self._of_all_sources(lambda source: source.last_runs(selection, last))
        return _without_copies(newest_first(all_runs))

    def running(self, selection: RunFilter) -> Sequence[PastRun]:
        return self._of_all_sources(lambda source: source.running(selection))

    def family_source(self, run: PastRun) -> RunSource:
        sources = [source.family_source(run) for source in self._sources]
        return JoinedRuns(sources, self._report_failure)

    def checkpoints(self, run: PastRun) -> tuple[Report, ...]:
        return self._of_first_source(lambda source: source.checkpoints(run)) or ()

    def steps(self, runs: Sequence[PastRun]) -> Iterator[StepSeries]:
        steps_of_sources = [source.steps(runs) for source in self._sources]
        for steps_of_run in zip(*steps_of_sources, strict=True):
            yield max(steps_of_run, key=lambda steps: len(steps.ends_ms))

    def stacks(self, report: Report) -> StacksLine | None:
        return self._of_first_source(lambda source: source.stacks(report))

    def schedule_notices(self, selection: RunFilter) -> Sequence[ScheduleNoticeLine]:
        return self._of_all_sources(lambda source: source.schedule_notices(selection))

    def _of_all_sources(self, read: Callable[[RunSource], Iterable[T]]) -> list[T]:
        items: list[T] = []
        for source in tuple(self._sources):
            items += self._unless_failed(source, read)
        return items

    def _of_first_source(self, read: Callable[[RunSource], T | None]) -> T | None:
        """What the first source has that has anything; the others are not read."""

        def read_all(source: RunSource) -> Iterator[T | None]:
            yield read(source)

        for source in tuple(self._sources):
            for item in self._unless_failed(source, read_all):
                if item:
                    return item
        return None

    def _unless_failed(
        self, source: RunSource, read: Callable[[RunSource], Iterable[T]]
    ) -> Iterator[T]:
        """What the source yields. One that fails is left out from then on."""
        try:
            yield from read(source)
        except TaskProfilerError as error:
            if self._sources == [source]:
                raise
            self._sources.remove(source)
            self._failed.append(source)
            self._report_failure(error)


def _without_copies(runs: Iterable[PastRun]) -> Iterator[PastRun]:
    """Yield each run once: newest first, as the runs are.

    The runs of a task are held until no run can follow that is close to the first of them.
    """
    held: dict[str, _BestCopiesOfRuns] = {}
    for run in runs:
        for task_id, of_task in list(held.items()):
            if of_task.newest_ns - run.started_ns <= _MAX_DISTANCE_NS:
                break
            del held[task_id]
            yield from of_task.runs()
        task_id = run.record.task_id
        held.setdefault(task_id, _BestCopiesOfRuns()).add_copy(run)
    for of_task in held.values():
        yield from of_task.runs()


def _run_precedence(run: PastRun) -> tuple[bool, bool]:
    return run.is_confirmed, run.report.type != CHECKPOINT


class _BestCopiesOfRuns:
    """The runs of a task.

    What its source vouches for counts first, then a report before a checkpoint of the same run,
    and both before what Container Insights has of the task.
    """

    def __init__(self) -> None:
        self._by_key: dict[RunKey, PastRun] = {}
        self._from_insights: PastRun | None = None

    @property
    def newest_ns(self) -> int:
        return next(iter(self.runs())).started_ns

    def add_copy(self, run: PastRun) -> None:
        if run.record.is_sampled_each_minute:
            self._from_insights = self._from_insights or run
            return
        key = run_key(run.report)
        known = self._by_key.get(key)
        if known is None or _run_precedence(run) > _run_precedence(known):
            self._by_key[key] = run

    def runs(self) -> Iterable[PastRun]:
        if self._by_key or self._from_insights is None:
            return self._by_key.values()
        return (self._from_insights,)

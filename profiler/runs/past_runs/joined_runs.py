"""The runs of several sources as one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain
from typing import TypeVar

from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.activity_model import StacksLine
from profiler.record.notice_model import ScheduleNoticeLine
from profiler.record.record_model import CHECKPOINT, Report, is_sampled_each_minute
from profiler.runs.past_runs.run_source import PastRun, RunFilter, RunSource, newest_first, run_key
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
        self.place = " and ".join(source.place for source in sources)
        self.remedy = sources[0].remedy
        self.reads_families = all(source.reads_families for source in sources)

    @property
    def notes(self) -> Sequence[str]:
        return tuple(note for source in self._sources for note in source.notes)

    @property
    def unread_groups(self) -> frozenset[str]:  # type: ignore[override]  # as ``reading``
        each = (source.unread_groups for source in (*self._sources, *self._failed))
        return frozenset[str]().union(*each)

    @property
    def unread_sources(self) -> tuple[str, ...]:  # type: ignore[override]  # as ``reading``
        return (*self._unopened, *(source.place for source in self._failed))

    @property
    def reading(self) -> str | None:  # type: ignore[override]  # which sources know after the runs
        return " ".join(source.reading for source in self._sources if source.reading) or None

    def runs(self, selection: RunFilter) -> Iterator[PastRun]:
        each = [
            self._unless_failed(source, lambda one: one.runs(selection)) for source in self._sources
        ]
        return _without_copies(merge(*each, key=lambda run: run.started_ns, reverse=True))

    def last_runs(self, selection: RunFilter, last: int) -> Iterator[PastRun]:
        return _without_copies(
            newest_first(self._all(lambda source: source.last_runs(selection, last)))
        )

    def running(self, selection: RunFilter) -> Sequence[PastRun]:
        return self._all(lambda source: source.running(selection))

    def checkpoints(self, run: PastRun) -> tuple[Report, ...]:
        return self._first(lambda source: source.checkpoints(run)) or ()

    def steps(self, runs: Sequence[PastRun]) -> Iterator[StepSeries]:
        for found in zip(*(source.steps(runs) for source in self._sources), strict=True):
            yield max(found, key=lambda steps: len(steps.ends_ms))

    def stacks(self, report: Report) -> StacksLine | None:
        return self._first(lambda source: source.stacks(report))

    def schedule_notices(self, selection: RunFilter) -> Sequence[ScheduleNoticeLine]:
        return self._all(lambda source: source.schedule_notices(selection))

    def _all(self, read: Callable[[RunSource], Iterable[T]]) -> list[T]:
        return [
            item for source in tuple(self._sources) for item in self._unless_failed(source, read)
        ]

    def _first(self, read: Callable[[RunSource], T | None]) -> T | None:
        """What the first source has that has anything; the others are not read."""
        each = (
            self._unless_failed(source, lambda one: (read(one),)) for source in tuple(self._sources)
        )
        return next(filter(None, chain.from_iterable(each)), None)

    def _unless_failed(
        self, source: RunSource, read: Callable[[RunSource], Iterable[T]]
    ) -> Iterator[T]:
        try:
            yield from read(source)
        except TaskProfilerError as error:
            if self._sources == [source]:
                raise
            self._sources.remove(source)
            self._failed.append(source)
            self._report_failure(error)


def _without_copies(runs: Iterable[PastRun]) -> Iterator[PastRun]:
    """A report counts before a checkpoint of the same run, and both before what Container
    Insights has of the task.
    """
    held: dict[str, dict[tuple[str, ...], PastRun]] = {}
    for run in runs:
        for task_id in [*held]:
            if next(iter(held[task_id].values())).started_ns - run.started_ns <= _MAX_DISTANCE_NS:
                break
            yield from held.pop(task_id).values()
        known = held.setdefault(run.report.record.task_id, {})
        key = () if is_sampled_each_minute(run.report.record) else run_key(run.report)
        if key:
            known.pop((), None)
        if (key not in known and (key or not known)) or (
            key in known and known[key].report.type == CHECKPOINT
        ):
            known[key] = run
    for same_task in held.values():
        yield from same_task.values()

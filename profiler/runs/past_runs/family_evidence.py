"""The evidence for a size recommendation and the usual duration, by family, from any source of
past runs.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.completeness import WHOLE, Completeness, joined_completeness
from profiler.core.timestamps import NS_PER_DAY
from profiler.record.family_identity import FamilyKey
from profiler.record.family_statistics import LAST_SUCCESSES, USUAL_DAYS, Family, family_run_of
from profiler.record.record_model import CHECKPOINT, Metrics, Report
from profiler.record.task_needs import is_job
from profiler.record.units import format_count
from profiler.runs.past_runs.defined_jobs import EVERY_RUN, AllRunsByFamily
from profiler.runs.past_runs.log_places import ANY_PLACE, AnyLogPlace
from profiler.runs.past_runs.past_run import NO_TASK_EVENT, PastRun
from profiler.runs.past_runs.report_agreement import ALL_BELIEVED, BelievedLines, Word
from profiler.runs.past_runs.run_source import (
    RunFilter,
    RunSource,
    exact_patterns_of,
    filter_of,
    is_pattern,
)
from profiler.runs.past_runs.search_runs import IndexedRuns
from profiler.runs.past_runs.search_windows import IndexedWindows
from profiler.sizing.evidence import Evidence, UsageOfTasks
from profiler.sizing.family_window import FamilyWindow, WindowSpan
from profiler.sizing.job_grouping import KINDS_OF_JOBS, JobsBy
from profiler.sizing.run_collector import LAST_RUNS, FamilyRunCollector, ReadTaskCounts
from profiler.sizing.run_facts import run_facts_of

_USUAL_NS = USUAL_DAYS * NS_PER_DAY
# Each reading of a log group costs by its bytes.
_USUAL_OF_LOGS_NS = 14 * NS_PER_DAY


class FoundFamilies(Struct, frozen=True, kw_only=True):
    """The families in order with the evidence of their last runs (None: not measured); sentences
    about omissions; the tasks that the source gave, which may be more than the last ones; whether
    the source gave all runs.
    """

    families: Mapping[FamilyKey, Evidence | None]
    notes: Sequence[str]
    tasks_read: Mapping[FamilyKey, ReadTaskCounts]
    completeness: Completeness


def read_families(
    source: RunSource,
    selection: RunFilter,
    last: int,
    on_fargate: str | None = None,
    jobs_by: JobsBy | None = None,
) -> FoundFamilies:
    """The families and the rows of jobs of the matching runs, each with the evidence of its
    ``last`` newest matching runs.
    """
    families = FamilyRunCollector(last, on_fargate, jobs_by)
    unfinished = _add_runs(families, source, replace(selection, only_counting=True), last)
    evidence = families.evidence_by_row()
    notes = list(source.notes)
    if unfinished:
        notes.append(
            f"{source.place}: skipped {format_count(unfinished, 'run')} with checkpoints but no "
            "report."
        )
    return FoundFamilies(
        families=evidence,
        notes=tuple(notes),
        tasks_read=_tasks_read_by_family(families, evidence, source),
        completeness=source.completeness,
    )


def _tasks_read_by_family(
    families: FamilyRunCollector, evidence: Mapping[FamilyKey, Evidence | None], source: RunSource
) -> Mapping[FamilyKey, ReadTaskCounts]:
    """The tasks of each family that count for its month: of a source that gives hardly more than
    the last ones, these alone, because how many more it gives depends on its way of reading.
    """
    if not source.leaves_out_older:
        return families.tasks_read_by_row()
    read = {}
    for key, found in evidence.items():
        usage = UsageOfTasks() if found is None else found.usage
        read[key] = ReadTaskCounts(tasks=usage.window_tasks, first_ns=0, last_ns=usage.window_ns)
    return read


def read_windows(
    source: RunSource,
    selection: RunFilter,
    span: WindowSpan,
    *,
    reads_older: bool = True,
    places: AnyLogPlace = ANY_PLACE,
    ended: BelievedLines = ALL_BELIEVED,
    jobs: AllRunsByFamily = EVERY_RUN,
) -> Mapping[FamilyKey, FamilyWindow]:
    """The matching runs of each family within a span, and the newest ones of rarer families from
    before it, if the source has no time of its own (``reads_older``).

    Nobody vouches for a run that is in none of the ``places``, or that is none of the ``ended``
    tasks. Of ``jobs``, only their runs are read, by definition.
    """
    windows: dict[FamilyKey, FamilyWindow] = {}
    is_indexed = isinstance(source, IndexedRuns)

    def add_run(run: PastRun) -> None:
        named = (
            jobs.indexed_run_under_read_name(run) if is_indexed else jobs.run_under_read_name(run)
        )
        if named is not None:
            word: Word = ended.agreement_with(named) if places.is_in_its_place(named) else "nothing"
            _add_to_window(windows, named, span, word, jobs)

    since_ns = span.since_ns
    selected = replace(selection, since_ns=since_ns)
    if isinstance(source, IndexedRuns):
        IndexedWindows(source, selected, span, jobs).read_into_windows(windows, add_run)
    else:
        for run in source.runs(selected):
            add_run(run)
    if reads_older:
        for run in source.last_runs(replace(selection, until_ns=since_ns), span.min_runs):
            add_run(run)
    for window in windows.values():
        window.add_newest_before_span()
    return windows


def _add_to_window(
    windows: dict[FamilyKey, FamilyWindow],
    run: PastRun,
    span: WindowSpan,
    word: Word,
    jobs: AllRunsByFamily,
) -> None:
    """Add a run that has ended, and what is said of it."""
    report = final_report(run)
    if report is None or not _has_started(run, report):
        return
    is_confirmed = run.is_confirmed and word == "agrees"
    facts = run_facts_of(report, run.outcome, is_confirmed=is_confirmed)
    window = windows.get(facts.family)
    if window is None:
        window = jobs.new_window(facts.family, span)
        windows[facts.family] = window
    window.add_run(facts)
    window.contradicted += run.is_confirmed and word == "contradicts"


def evidence_of_family(
    run: PastRun, source: RunSource | None, on_fargate: str | None = None
) -> Evidence | None:
    """The evidence of a run's family, also of the run itself if it counts; without ``source``, of
    this run alone.
    """
    family = run.family
    families = FamilyRunCollector(LAST_RUNS, on_fargate)
    if source is not None:
        _add_runs(families, source, filter_of(family, only_counting=True), LAST_RUNS)
    if run.counts:
        _add_ended_run(families, run)
    return families.evidence_with(run.record)


def evidence_of_past_runs(
    runs: Iterable[PastRun], on_fargate: str | None = None
) -> Iterable[Evidence | None]:
    """The evidence of each family of these runs; None if none of its runs was measured."""
    families = EvidenceCollector(on_fargate)
    for run in runs:
        families.add_run(run)
    return families.evidence_of_families()


class EvidenceCollector:
    """Collects the evidence of runs as they are read, in bounded memory."""

    def __init__(self, on_fargate: str | None = None) -> None:
        self._families = FamilyRunCollector(LAST_RUNS, on_fargate)

    def add_run(self, run: PastRun) -> None:
        """Add a run, if it counts."""
        if run.counts:
            _add_ended_run(self._families, run)

    def evidence_of_families(self) -> Collection[Evidence | None]:
        """The evidence of each family; None if none of its runs was measured."""
        return self._families.evidence_by_row().values()

    def tasks_read(self, source: RunSource) -> Mapping[FamilyKey, ReadTaskCounts]:
        """The tasks of each family that were read, as ``recommend`` counts them."""
        return _tasks_read_by_family(self._families, self._families.evidence_by_row(), source)


def _add_runs(
    families: FamilyRunCollector, source: RunSource, selection: RunFilter, last: int
) -> int:
    """Add at least the ``last`` newest matching runs of each family; returns the number of
    unfinished runs.
    """
    is_one_name = len(selection.families) == 1 and not is_pattern(selection.families[0])
    is_one_family = is_one_name and len(selection.accounts) == len(selection.regions) == 1
    unfinished = 0
    ended = 0
    oldest_ns = 0  # the start of the oldest of the last runs
    for run in source.last_runs(selection, last):
        wanted = last * KINDS_OF_JOBS if is_job(run.record) else last
        if is_one_family and ended >= wanted and run.started_ns < oldest_ns:
            break
        if not _add_ended_run(families, run):
            unfinished += 1
            continue
        if ended < wanted:
            oldest_ns = run.started_ns
        ended += 1
    return unfinished


def _add_ended_run(families: FamilyRunCollector, run: PastRun) -> bool:
    """Add a run that has ended; returns False if it goes on.

    A task that never started does not count as a last run.
    """
    report = final_report(run)
    if report is not None and _has_started(run, report):
        families.add_run(report, run.outcome, is_confirmed=run.is_confirmed)
    return report is not None


def _has_started(run: PastRun, report: Report) -> bool:
    return run.has_record or report.record.started_at is not None


def final_report(run: PastRun) -> Report | None:
    """The report of an ended run; None for one with only checkpoints whose end is not known.

    If ECS's event brought its end, the numbers of its last checkpoint count only if it ran out of
    memory.
    """
    report = run.report
    if report.type != CHECKPOINT:
        return report
    record = report.record
    if run.event is NO_TASK_EVENT:
        return None
    if not run.outcome.ran_out_of_memory:
        record = replace(record, metrics=Metrics(), containers=())
    return replace(report, type="task.report", record=record)


def earlier_successes(run: PastRun, source: RunSource) -> tuple[PastRun, ...]:
    """The 50 newest successes of the run's family that started before the run, the newest first.

    Raises TaskProfilerError if the source cannot be read.
    """
    return tuple(islice(source.runs(_earlier_success_filter(run)), LAST_RUNS))


def _earlier_success_filter(run: PastRun) -> RunFilter:
    return filter_of(run.family, statuses=("success",), until_ns=run.started_ns, only_counting=True)


def last_success(run: PastRun, successes: Sequence[PastRun], source: RunSource) -> PastRun | None:
    """The newest of the run's earlier successes, which are in that order; one in the same ECS
    cluster is preferred, which the source is asked for only where it may have older ones.

    Raises TaskProfilerError if the source cannot be read.
    """
    cluster = run.record.cluster
    in_cluster = [success for success in successes if success.record.cluster == cluster]
    if not in_cluster and cluster is not None and len(successes) == LAST_RUNS:
        older = replace(_earlier_success_filter(run), clusters=(cluster,))
        in_cluster = [*islice(source.runs(older), 1)]
    return next(iter(in_cluster or successes), None)


def usual_since_ns(now_ns: int, *, reads_logs: bool) -> int:
    """Since when runs show what is usual for their family: 90 days, of log groups 14."""
    return now_ns - (_USUAL_OF_LOGS_NS if reads_logs else _USUAL_NS)


class FamilyCache:
    """Reads the last successes of families since a time, each family once; without a source,
    none is known.
    """

    def __init__(self, open_source: Callable[[], RunSource | None] | None, since_ns: int) -> None:
        self._open_source = open_source
        self._since_ns = since_ns
        self._known: dict[FamilyKey, Family] = {}
        self.completeness = WHOLE

    def known_family(self, family: FamilyKey) -> Family:
        """What is known of a family, which may be nothing."""
        return self._known.get(family, Family())

    def unread_families(self, families: Iterable[FamilyKey]) -> tuple[FamilyKey, ...]:
        """The families that :meth:`read_families` would read, each once."""
        if not self._open_source:
            return ()
        return tuple(family for family in dict.fromkeys(families) if family not in self._known)

    def read_families(self, families: Iterable[FamilyKey]) -> None:
        """Read the families that were not read yet.

        Raises TaskProfilerError, and does not try them again.
        """
        missing = self.unread_families(families)
        if not (self._open_source and missing):
            return
        self._known.update({family: Family() for family in missing})
        source = self._open_source()
        if source is None:
            return
        selection = RunFilter(
            families=exact_patterns_of(family.name for family in missing),
            statuses=("success",),
            since_ns=self._since_ns,
            only_counting=True,
        )
        self._add_until_full(source.last_runs(selection, LAST_SUCCESSES), set(missing))
        self.completeness = joined_completeness((self.completeness, source.completeness))

    def _add_until_full(self, runs: Iterable[PastRun], incomplete: set[FamilyKey]) -> None:
        """Add the runs of these families; further runs are not read once all are full."""
        for run in runs:
            family = run.family
            if family not in incomplete:
                continue
            known = self._known[family]
            known.add_run(family_run_of(run.report, run.outcome))
            if known.task_count >= LAST_SUCCESSES:
                incomplete.remove(family)
            if not incomplete:
                break

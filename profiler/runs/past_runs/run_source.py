"""Past runs and where they come from: one interface for history, files, the search cluster and
CloudWatch Logs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from profiler.core.completeness import WHOLE, Completeness
from profiler.core.optional_math import first_known
from profiler.core.timestamps import LONG_AGO_NS, NEVER_NS
from profiler.record.family_identity import FamilyKey, family_key, matches_any
from profiler.record.record_model import Record, Report, parse_status
from profiler.record.run_labels import label_values
from profiler.record.units import format_count
from profiler.runs.past_runs.past_run import PastRun, report_start_ns

if TYPE_CHECKING:
    from profiler.record.notice_model import ScheduleNoticeLine
    from profiler.record.report_head import RecordHead, ReportHead
    from profiler.record.stacks_line import StacksLine
    from profiler.runs.step_series import StepSeries

_MAX_RUNS_FOR_NAMES = 500
_WILDCARDS = frozenset("*?[")
ELSEWHERE = "name another source (--from FILE, https://HOST, logs:GLOB or insights:CLUSTER)"


def uncounted_note(place: str, runs: int) -> str:
    """The sentence about the runs that were left out, because nothing vouches for them."""
    return (
        f"{place}: {format_count(runs, 'unconfirmed run')} left out, because nothing proves whose "
        "task it was: task-profiler history lists them."
    )


def unconfirmed_note(count: int) -> str:
    """The sentence about so many listed runs that nothing vouches for; "" without any."""
    if not count:
        return ""
    whose = (
        "whose task it was, so it counts" if count == 1 else "whose tasks they were, so they count"
    )
    return f"{format_count(count, 'run')} unconfirmed: nothing proves {whose} in no advice."


def is_pattern(family: str) -> bool:
    """Whether the name has wildcards."""
    return bool(_WILDCARDS & set(family))


def exact_patterns_of(families: Iterable[str]) -> tuple[str, ...]:
    """The patterns that match the families of these names alone, sorted, each once: a name may have
    the characters of wildcards.
    """
    return tuple(sorted({_exact_pattern_of(family) for family in families}))


def _exact_pattern_of(family: str) -> str:
    return "".join(f"[{char}]" if char in _WILDCARDS else char for char in family)


class RunFilter(Struct, frozen=True, kw_only=True):
    """Which runs to read. Empty conditions match every run.

    A run has one value of each condition, but all of the tags and labels. ``families`` are shell
    patterns; None in ``accounts`` or ``regions`` is an unknown one. ``run`` is the beginning of
    ``TASK-ID/CONTAINER`` or of a job's id, or a pattern of families. With ``reads_checkpoints``,
    runs in progress and those that have only checkpoints are read, too. With ``only_counting``,
    runs that nothing vouches for are left out, and a note of the source counts them.
    """

    families: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    accounts: tuple[str | None, ...] = ()
    regions: tuple[str | None, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    statuses: tuple[str, ...] = ()
    since_ns: int | None = None
    until_ns: int | None = None
    run: str = ""
    reads_checkpoints: bool = False
    only_counting: bool = False

    def matches(self, report: "Report | ReportHead") -> bool:
        record = report.record
        family = family_key(record)
        at_ns = 0
        if self.since_ns is not None or self.until_ns is not None:
            at_ns = report_start_ns(report)  # to parse a time takes long
        tags = record.tags or {}
        return (
            self.matches_place_and_time(family, record.cluster, at_ns)
            and all(tags.get(name) == value for name, value in self.tags)
            and self._has_labels(record)
            and (not self.statuses or parse_status(record.status) in self.statuses)
            and self._names_run(record, family)
        )

    def _has_labels(self, record: "Record | RecordHead") -> bool:
        if not self.labels:
            return True
        labels = label_values(record)
        return all(labels.get(name) == value for name, value in self.labels)

    def _names_run(self, record: "Record | RecordHead", family: FamilyKey) -> bool:
        """Whether ``run`` names the run, its job or its family."""
        if not self.run:
            return True
        identity = f"{record.task_id}/{record.container.name}"
        job_id = record.batch.job_id or ""
        if identity.startswith(self.run) or job_id.startswith(self.run):
            return True
        from fnmatch import fnmatchcase  # not for `run`

        return fnmatchcase(family.name, self.run)

    def matches_place_and_time(self, family: FamilyKey, cluster: str | None, at_ns: int) -> bool:
        return (
            self.matches_family(family)
            and (not self.clusters or cluster in self.clusters)
            and first_known(self.since_ns, LONG_AGO_NS) <= at_ns
            and at_ns < first_known(self.until_ns, NEVER_NS)
        )

    def matches_family(self, family: FamilyKey) -> bool:
        return (
            matches_any(family.name, self.families)
            and (not self.accounts or family.account_id in self.accounts)
            and (not self.regions or family.region in self.regions)
        )

    @property
    def is_empty(self) -> bool:
        return self == RunFilter(
            reads_checkpoints=self.reads_checkpoints, only_counting=self.only_counting
        )


def filter_of(family: FamilyKey, **conditions: Any) -> RunFilter:  # noqa: ANN401  those of a filter
    """The filter that matches the runs of one family, under further conditions."""
    return RunFilter(
        families=exact_patterns_of([family.name]),
        accounts=(family.account_id,),
        regions=(family.region,),
        **conditions,
    )


class RunSource(ABC):
    """A source of past runs.

    ``place`` is its name in a sentence, ``remedy`` the advice if it has no run. ``reading`` is a
    sentence about the amount and the cost of the reading, which some sources have after the runs.
    ``complete_since_ns``: it has all runs since then, if that is known after the runs.
    ``leaves_out_older``: ``last_runs`` gives hardly more than the last runs.
    """

    place: str
    remedy: str
    reading: str | None = None
    complete_since_ns: int | None = None
    leaves_out_older = False
    is_of_this_machine = False

    @property
    def completeness(self) -> Completeness:
        """Whether what was read so far is all that was asked for."""
        return WHOLE

    @property
    def unsearched(self) -> Sequence[str]:
        """Parts of the source that nobody expects to be read, for who has found nothing."""
        return ()

    @property
    def remarks(self) -> Sequence[str]:
        """Sentences about limits and omissions so far that leave the runs whole."""
        return ()

    @property
    def notes(self) -> Sequence[str]:
        """The remarks, and why the runs are only a part; complete after the last run was read."""
        return (*self.remarks, *self.completeness.sentences)

    @abstractmethod
    def runs(self, selection: RunFilter) -> Iterator[PastRun]:
        """Yield the matching runs, newest start first.

        Raises TaskProfilerError if the source cannot be read.
        """

    def family_names(self) -> frozenset[str]:
        """The families of the newest runs, of which a wrong name may be similar to one.

        Raises TaskProfilerError.
        """
        runs = islice(self.runs(RunFilter(reads_checkpoints=True)), _MAX_RUNS_FOR_NAMES)
        return frozenset(run.family.name for run in runs)

    # For sources that know them.
    def running(self, selection: RunFilter) -> Sequence[PastRun]:  # noqa: ARG002
        """The matching runs in progress, newest start first; empty if the source does not know
        them.
        """
        return ()

    # For sources that can use it.
    def last_runs(self, selection: RunFilter, last: int) -> Iterator[PastRun]:  # noqa: ARG002
        """Yield the matching runs, at least the ``last`` newest ones of each family, and of each
        kind of jobs, that have ended.
        """
        return self.runs(selection)

    def family_source(self, run: PastRun) -> "RunSource":  # noqa: ARG002
        """Where the other runs of a run's family are read, if that is less than all of them."""
        return self

    def checkpoints(self, run: PastRun) -> tuple[Report, ...]:
        return run.checkpoints

    def steps(self, runs: Sequence[PastRun]) -> Iterator["StepSeries"]:
        """The time series of each run that the source has outside the record; empty without one."""
        from profiler.runs.step_series import StepSeries  # only for the report page

        return repeat(StepSeries(), len(runs))

    # For sources that have them.
    def stacks(self, report: Report) -> "StacksLine | None":  # noqa: ARG002
        """The call stacks of a run over time; None if the source does not have them."""
        return None

    # For sources that have them.
    def schedule_notices(
        self,
        selection: RunFilter,  # noqa: ARG002
    ) -> Sequence["ScheduleNoticeLine"]:
        """The notices about due times of schedules, after the runs were read; empty if the
        source has none.
        """
        return ()


def stacks_of_run_in(report: Report, lines: Iterable[bytes]) -> "StacksLine | None":
    """The first of these lines that has the call stacks of the report's run."""
    from profiler.record.stacks_line import decode_stacks_line  # most runs have none

    record = report.record
    text = msgspec.json.encode(record.task_id)
    for line in lines:
        if text not in line:  # to decode a line takes long
            continue
        stacks = decode_stacks_line(line)
        if stacks is not None and are_stacks_of_run(stacks, record):
            return stacks
    return None


def are_stacks_of_run(stacks: "StacksLine", record: Record) -> bool:
    """Whether the call stacks are those of the record's task and container."""
    return stacks.task_id == record.task_id and stacks.container == record.container.name


# While a long read lasts: shows the number of runs, and the share that was read (0: unknown).
OpenProgress = Callable[[], AbstractContextManager[Callable[[int, float], None]]]


def no_progress() -> AbstractContextManager[Callable[[int, float], None]]:
    """Show no progress."""
    return nullcontext(lambda runs, share: None)  # noqa: ARG005  as OpenProgress


def newest_first(runs: Iterable[PastRun]) -> list[PastRun]:
    """Sort by start. Runs whose time cannot be parsed come last."""
    return sorted(runs, key=lambda run: run.started_ns, reverse=True)

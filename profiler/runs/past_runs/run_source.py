"""Past runs and where they come from: one interface for history, files, the search cluster and
CloudWatch Logs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from profiler.core.completeness import WHOLE, Completeness
from profiler.core.ecs_terms import LogTarget
from profiler.core.json_fields import decoded_or_none
from profiler.core.optional_math import first_known, known_members
from profiler.core.timestamps import LONG_AGO_NS, NEVER_NS, parse_ns
from profiler.record.batch_job import NO_JOB
from profiler.record.family_identity import FamilyKey, family_key, matches_any
from profiler.record.model_base import json_name
from profiler.record.record_model import Record, Report, encode, parse_status
from profiler.record.run_labels import label_values
from profiler.record.run_outcome import Outcome
from profiler.record.run_summary import Story, story_of
from profiler.record.stop_causes import NO_EVENT, EventEnd, outcome_of
from profiler.record.units import format_count

if TYPE_CHECKING:
    from profiler.record.line_trust import Voucher
    from profiler.record.notice_model import ScheduleNoticeLine
    from profiler.record.report_head import RecordHead, ReportHead
    from profiler.record.stacks_line import StacksLine
    from profiler.runs.step_series import StepSeries

_MAX_RUNS_FOR_NAMES = 500
_WILDCARDS = frozenset("*?[")
# The fields of a record that ECS decides.
IDENTITY_NAMES = (
    "account_id",
    "region",
    "availability_zone",
    "cluster",
    "task_arn",
    "family",
    "revision",
    "launch_type",
    "batch",
)
ELSEWHERE = "name another source (--from FILE, https://HOST, logs:GLOB or insights:CLUSTER)"


class TaskEvent(Struct, frozen=True, kw_only=True):
    """ECS's data on the end of a task. ``end`` says nothing if only a retry was written."""

    end: EventEnd = NO_EVENT
    stop_code: str | None = None
    started_by: str | None = None
    retry_of: str | None = None
    retried_as: str | None = None


NO_TASK_EVENT: Final = TaskEvent()


class PastRun(Struct, frozen=True, kw_only=True, dict=True):
    """One run: its report, or the last checkpoint of a run without a report.

    Where ECS's event corrected identity, status or times, they differ from those in ``line``, the
    record line (None: the run left none). ``checkpoints`` are in no particular order. ``command``
    is redacted; only the local history has it. ``is_confirmed``: ECS's event, or the name of the
    log stream, vouches for the task and its family; a file is its reader's own word. ``counts``:
    whether it does in advice, comparisons and checks; else it is only listed, as unconfirmed.
    ``place``: the log stream in which CloudWatch Logs has the line; the record's own log stream is
    the line's word. ``voucher``: what vouches for a line of this stream. ``container_ids``:
    Docker's, of the batch and the monitor, from ECS's event.
    """

    report: Report
    line: bytes | None = None
    command: str | None = None
    checkpoints: tuple[Report, ...] = ()
    event: TaskEvent = NO_TASK_EVENT
    is_confirmed: bool = True
    counts: bool = True
    voucher: "Voucher | None" = None
    place: LogTarget | None = None
    container_ids: tuple[str, ...] = ()

    @property
    def record(self) -> Record:
        """The record of its report."""
        return self.report.record

    @property
    def family(self) -> FamilyKey:
        """The family of its record."""
        return family_key(self.record)

    @property
    def has_record(self) -> bool:
        """Whether a monitor or a profiler has written of the run."""
        return self.line is not None

    @cached_property
    def outcome(self) -> Outcome:
        """How the run ended, by its report and ECS's event."""
        return outcome_of(self.record, self.event.end, is_confirmed=self.is_confirmed)

    @cached_property
    def story(self) -> Story:
        """What outputs tell of the run."""
        return story_of(self.record, self.outcome)

    @property
    def has_end_of_event(self) -> bool:
        """Whether ECS's event says how the run ended: of a task's containers, only the batch's."""
        return self.event.end.cause != "unknown"

    @property
    def started_at(self) -> str:
        """The start, or the time of the line if the start is unknown."""
        return self.record.started_at or self.report.time

    @property
    def started_ns(self) -> int:
        """The start in nanoseconds since 1970; 0 if no time of the run can be parsed."""
        return report_start_ns(self.report)

    def with_record(self, record: Record) -> "PastRun":
        """The run with another record in its report."""
        return replace(self, report=replace(self.report, record=record))

    def json_line(self) -> bytes:
        """The record line, with the identity that ECS's event corrected; for a run without a
        record, a line with all known values.
        """
        if self.line is None:
            return encode(self.report)
        return _with_identity_of(self.record, self.line)


def _with_identity_of(record: Record, line: bytes) -> bytes:
    """The line with the record's identity. Everything else stays, also what is unknown here."""
    document = decoded_or_none(msgspec.json.decode, line)
    if not isinstance(document, dict) or not isinstance(document.get("record"), dict):
        return line
    written = document["record"]
    identity = known_members({name: getattr(record, name) for name in IDENTITY_NAMES})
    corrected = {
        **written,
        **{json_name(name): msgspec.to_builtins(value) for name, value in identity.items()},
    }
    if record.batch is NO_JOB:
        corrected.pop("batch", None)
    if corrected == written:
        return line
    return msgspec.json.encode({**document, "record": corrected})


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


# Task, container, start.
RunKey = tuple[str, str, str]


def run_key(report: "Report | ReportHead") -> RunKey:
    """The identity of a report's run: task, container, start."""
    record = report.record
    return record.task_id, record.container.name, record.started_at or ""


def report_start_ns(report: "Report | ReportHead") -> int:
    """The start of a report's run in nanoseconds since 1970; 0 if no time of the report can be
    parsed.
    """
    return parse_ns(report.record.started_at) or parse_ns(report.time) or 0


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

"""One ended run, merged of its report and the task's event by one rule: identity is ECS's.

Document, notification, export and ``task.ended`` are made from a :class:`MergedRun` alone.
"""

from datetime import datetime, timedelta
from operator import attrgetter
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import is_of_aws_batch
from profiler.core.optional_math import first_known, known
from profiler.core.timestamps import format_datetime
from profiler.forwarder.report_verification import OWN_STREAM, LogStreamClaim
from profiler.forwarder.run_event import NOTHING_SEEN, RunAsSeen, RunEvent, SeenReport, seen_report
from profiler.record.batch_job import NO_JOB, BatchJob
from profiler.record.gpu_memory_texts import with_gpu_memory_error
from profiler.record.model_base import absent_if_empty
from profiler.record.record_model import (
    ABSENT_PARTS,
    CHECKPOINT,
    UNKNOWN_COST,
    Cost,
    Metrics,
    Record,
    Report,
    possible_cost,
)
from profiler.record.run_outcome import Outcome
from profiler.record.spot_price import cost_on_provider
from profiler.record.stop_causes import NO_EVENT, outcome_of

_Part = TypeVar("_Part", bound=Struct)

# The clocks of ECS and of the batch's host differ by less.
CLOCK_TOLERANCE = timedelta(minutes=1)


class MergedRun(Struct, frozen=True, kw_only=True):
    """One run of one container, merged by :func:`merge_report_and_event`.

    ``reported``: the report or checkpoint that counts. ``began_at`` names the index of its
    document. ``started_at`` and ``finished_at`` are the record's, ``written_at`` is the report's
    time: values of the record's texts, within the task's life. ``is_complete``: the numbers are a
    report's, which cover the whole run. ``is_confirmed``: the event agrees with the report; None
    until there is an event, False if the report's log stream does not name its task.
    """

    record: Record
    outcome: Outcome
    reported: SeenReport | None
    event: RunEvent | None
    began_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    written_at: datetime | None
    is_complete: bool
    is_confirmed: bool | None

    @property
    def report(self) -> Report | None:
        return known(attrgetter("report"), self.reported)

    @property
    def claim(self) -> LogStreamClaim:
        """The report's log stream."""
        return OWN_STREAM if self.reported is None else self.reported.claim

    @property
    def report_account(self) -> str | None:
        """The account of the report's log group."""
        return known(attrgetter("record.account_id"), self.report)

    @property
    def duration_ms(self) -> float | None:
        """The report's; the event's without one, and for a run that was stopped: the monitor was
        stopped with it, perhaps earlier.
        """
        by_event = self._run_by_event_alone.record.metrics.duration_ms
        if self.report is None or not self.is_complete or self.report.record.status == "stopped":
            return by_event
        return first_known(self.report.record.metrics.duration_ms, by_event)

    @property
    def _run_by_event_alone(self) -> RunAsSeen:
        """The run as its event alone shows it; nothing also if that was read from a document."""
        return NOTHING_SEEN if self.event is None else self.event.alone

    @property
    def ended_at(self) -> datetime | None:
        """When the run ended; by the event, if the report does not say."""
        return self.finished_at or self._run_by_event_alone.finished_at

    @property
    def metrics(self) -> Metrics:
        """The numbers of the report or checkpoint, with the run's duration."""
        if self.report is None:
            return Metrics(duration_ms=self.duration_ms)
        return replace(self.record.metrics, duration_ms=self.duration_ms)

    @property
    def cost(self) -> Cost:
        return self.record.cost

    @property
    def record_completed_by_event(self) -> Record:
        """The record with the event's data where the report has none, for other systems."""
        record = self.record
        of_event = self._run_by_event_alone.record
        return replace(
            with_unknown_fields_from(record, of_event),
            container=with_unknown_fields_from(record.container, of_event.container),
            likely_out_of_memory=self.outcome.ran_out_of_memory or record.likely_out_of_memory,
            metrics=self.metrics,
        )


class WitnessedRuns(Struct, frozen=True, kw_only=True):
    """One run as its witnesses show it.

    ``by_report``: as its final report alone does, in the account of the task; None without one.
    """

    by_both: MergedRun
    by_event: MergedRun
    by_report: MergedRun | None = None

    def with_log_words(self, gpu_memory_error: str) -> "WitnessedRuns":
        """The runs with a line of the batch's log on a lack of GPU memory, which is a word of the
        event.
        """
        event = self.by_event.event
        if event is None:
            return self
        event = replace(event, gpu_memory_error=gpu_memory_error)
        again = _runs_with_event(self.by_both.reported, event)
        return replace(again, by_report=self.by_report)


def runs_of_witnesses(
    event: RunEvent, reported: SeenReport | None = None, *, task_cost: Cost = UNKNOWN_COST
) -> WitnessedRuns:
    """The run as the task's event and its report (or its last checkpoint) show it.

    ``reported``: with the event's verdict. ``task_cost``: if the report of another container has
    it.
    """
    if reported is None or reported.report.type == CHECKPOINT:
        return _runs_with_event(reported, event)
    record = reported.report.record
    in_account = _with_record(reported, replace(record, account_id=event.account_id))
    if task_cost != UNKNOWN_COST:
        reported = _with_record(reported, replace(record, cost=task_cost))
    of_report = _by_report(in_account)
    runs = _runs_with_event(reported, event)
    return replace(runs, by_report=_judged(of_report))


def _runs_with_event(reported: SeenReport | None, event: RunEvent) -> WitnessedRuns:
    """The runs of which the event speaks: with the report, and alone."""
    alone = both = _by_event(event)
    if reported is not None:
        both = _by_both(reported, event)
    by_event = _judged(alone)
    by_both = by_event if both is alone else _judged(both)
    return WitnessedRuns(by_both=by_both, by_event=by_event)


def _with_record(reported: SeenReport, record: Record) -> SeenReport:
    """A final report with another record of the same times."""
    report = replace(reported.report, record=record)
    return replace(reported, report=report, seen=replace(reported.seen, record=record))


def run_of_report(report: Report, claim: LogStreamClaim = OWN_STREAM) -> MergedRun:
    """The run as its report or last checkpoint alone shows it, before the task's event.

    ``claim``: the report's log stream.
    """
    return _judged(_by_report(seen_report(report, claim)))


def run_of_event(event: RunEvent) -> MergedRun:
    """The run as the task's event alone shows it, without a report."""
    return _judged(_by_event(event))


def merge_report_and_event(
    report: Report, event: RunEvent, claim: LogStreamClaim = OWN_STREAM
) -> MergedRun:
    """Merge a run's report (or its last checkpoint) and the task's event.

    ``claim``: the report's log stream. The result is the same in whatever order the two arrive. A
    value that the winner does not have is the other's:

    ======================================== ======== =============================================
    field                                    winner   why
    ======================================== ======== =============================================
    account, Region, zone, cluster, ARN      event    ECS started the task; a line can say anything
    family, revision, launch type            event    as above: a report must not enter a family
    job of AWS Batch                         event    as above; the report's further members of the
                                                      same job
    container id, image, digest              event    as above
    start and end of the container           report   it is exact; kept within the task's life, from
                                                      ``created_at`` to ``stopped_at``, a minute off
    outcome: status and cause                both     :mod:`profiler.record.stop_causes`
    lack of GPU memory                       report   the event has a line of the log
    a job's timeout, or that it was          Batch's  a container that is stopped does not know why,
    terminated; a lost host                  event    and ECS has anybody's text
    exit code                                event    the report's, if ECS does not know it
    stop code, reason, starter               event    no report has them
    cost                                     report   if the task's size and life can cost so much;
                                                      on Fargate Spot, which the event alone knows,
                                                      a fraction of it
    all other numbers                        report   only the monitor measures; the task's size
                                                      and the log are the event's without a report
    duration                                 report   the event's without one, and for a stopped
                                                      run (``MergedRun.duration_ms``)
    confirmed                                event    it knows account, Region and family, and the
                                                      report's log stream is the task's
    ======================================== ======== =============================================

    A checkpoint has no end, no cost and no billed duration: these, and the start, are the event's.
    Its CPU time and its memory peak are lower bounds.
    A report of another container, which the event refutes, does not count.
    """
    return _judged(_by_both(seen_report(report, claim, event), event))


class _UnjudgedRun(Struct, frozen=True, kw_only=True):
    """A run as its witnesses show it, before it is asked how it ended."""

    seen: RunAsSeen
    reported: SeenReport | None = None
    event: RunEvent | None = None
    is_confirmed: bool | None


def _judged(run: _UnjudgedRun) -> MergedRun:
    """The run with how it ended, by the monitor's words and by ECS's."""
    record = run.seen.record
    report: Report | None = known(attrgetter("report"), run.reported)
    judging = None if report is None else _with_log_words(report.record, run.event)
    outcome = outcome_of(
        judging,
        NO_EVENT if run.event is None else run.event.combined_end,
        container=record.container.name,
        is_confirmed=run.is_confirmed is True,
    )
    if (record.status, record.exit_code) != (outcome.status, outcome.exit_code):
        record = replace(record, status=outcome.status, exit_code=outcome.exit_code)
    return MergedRun(
        record=record,
        outcome=outcome,
        reported=run.reported,
        event=run.event,
        began_at=run.seen.began_at,
        started_at=run.seen.started_at,
        finished_at=run.seen.finished_at,
        written_at=run.seen.written_at,
        is_complete=report is not None and report.type != CHECKPOINT,
        is_confirmed=run.is_confirmed,
    )


def _by_report(reported: SeenReport) -> _UnjudgedRun:
    """The run as a report alone shows it."""
    return _UnjudgedRun(
        seen=reported.seen,
        reported=reported,
        is_confirmed=None if reported.claim.is_own else False,
    )


def _by_event(event: RunEvent) -> _UnjudgedRun:
    """The run as the event alone shows it."""
    if event.is_from_document:
        raise ValueError("A run has a report, or a task's event, not read back from a document.")
    record = _with_log_words(event.alone.record, event)
    seen = replace(event.alone, record=record)
    return _UnjudgedRun(seen=seen, event=event, is_confirmed=event.is_identified)


def _by_both(reported: SeenReport, event: RunEvent) -> _UnjudgedRun:
    """The run as the report shows it, with what the event decides; by the event alone, if that
    refutes the report.
    """
    if reported.verdict == "refuted":
        return _by_event(event)
    seen = reported.seen
    if reported.report.type != CHECKPOINT:
        seen = _with_times_within_task(seen, event)
    return _UnjudgedRun(
        seen=replace(seen, record=_record_with_event(seen.record, event)),
        reported=reported,
        event=event,
        is_confirmed=reported.verdict == "confirmed",
    )


def _with_log_words(record: Record, event: RunEvent | None) -> Record:
    """The record with what the batch's log says of a lack of GPU memory."""
    error = known(attrgetter("gpu_memory_error"), event)
    return record if error is None else with_gpu_memory_error(record, error)


def _plausible_cost(record: Record, event: RunEvent) -> Cost:
    """The cost, if a task of this launch type and time can have cost as much."""
    longest_ms = None
    if event.created_at and event.stopped_at:
        lived = event.stopped_at - event.created_at + 2 * CLOCK_TOLERANCE
        longest_ms = lived / timedelta(milliseconds=1)
    return cost_on_provider(event.capacity_provider, possible_cost(record, longest_ms))


def _with_times_within_task(seen: RunAsSeen, event: RunEvent) -> RunAsSeen:
    """What the report says, with times within the task's life."""
    started_at = moment_within_task(seen.started_at, event)
    finished_at = moment_within_task(seen.finished_at, event)
    record = seen.record
    if started_at != seen.started_at:
        record = replace(record, started_at=known(format_datetime, started_at))
    if finished_at != seen.finished_at:
        record = replace(record, finished_at=known(format_datetime, finished_at))
    return replace(
        seen,
        record=record,
        started_at=started_at,
        finished_at=finished_at,
        written_at=moment_within_task(seen.written_at, event),
    )


def _record_with_event(record: Record, event: RunEvent) -> Record:
    """The record with what the event decides."""
    record = _with_log_words(record, event)
    digest = next(iter(event.image_digests), None)
    container = replace(
        record.container,
        id=event.container_id or record.container.id,
        image=event.image or record.container.image,
        image_digest=digest or record.container.image_digest,
    )
    record = replace(
        record,
        account_id=event.account_id or record.account_id,
        region=event.region or record.region,
        availability_zone=event.availability_zone or record.availability_zone,
        cluster=event.cluster or record.cluster,
        task_arn=event.task_arn or record.task_arn,
        family=event.family or record.family,
        revision=event.revision or record.revision,
        launch_type=event.launch_type or record.launch_type,
        batch=_batch_job_of(record, event),
        container=container,
    )
    return replace(record, cost=_plausible_cost(record, event))


def _batch_job_of(record: Record, event: RunEvent) -> BatchJob:
    """The job of AWS Batch: a task in no cluster of Batch has none, whatever a line says of it, and
    a line says only more of the job that ECS names.
    """
    if event.cluster and not is_of_aws_batch(event.cluster):
        return NO_JOB
    if record.batch is NO_JOB:
        return event.batch
    # What a container's environment does not say, a line has made up.
    said = replace(
        record.batch,
        job_name=None,
        job_definition=None,
        job_definition_revision=None,
        allowed_attempts=None,
    )
    if event.batch is NO_JOB:
        return absent_if_empty(said, NO_JOB)
    if event.batch.job_id != said.job_id:
        return event.batch
    return with_unknown_fields_from(event.batch, said)


def moment_within_task(moment: datetime | None, event: RunEvent) -> datetime | None:
    """A time of the container, moved to the bound of the task's life that it exceeds."""
    if moment is None:
        return None
    if event.created_at and moment < event.created_at - CLOCK_TOLERANCE:
        return event.created_at
    if event.stopped_at and moment > event.stopped_at + CLOCK_TOLERANCE:
        return event.stopped_at
    return moment


def with_unknown_fields_from(value: _Part, other: _Part) -> _Part:
    """Return the value with the fields of the other where its own are unknown."""
    unknown = [name for name in value.__struct_fields__ if getattr(value, name) in ABSENT_PARTS]
    return replace(value, **{name: getattr(other, name) for name in unknown})

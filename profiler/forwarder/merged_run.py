"""One ended run, merged of its report and the task's event by one rule: identity is ECS's.

Document, notification, export and ``task.ended`` are made from a :class:`MergedRun` alone.
"""

from datetime import datetime, timedelta
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.optional_math import known
from profiler.core.timestamps import format_datetime, parse_datetime
from profiler.forwarder.run_event import RunEvent, StreamClaim
from profiler.record.last_checkpoint import with_whole_duration
from profiler.record.record_model import (
    CHECKPOINT,
    Cost,
    Metrics,
    Record,
    Report,
    possible_cost,
)
from profiler.record.run_outcome import Outcome
from profiler.record.spot_price import cost_on
from profiler.record.stop_causes import outcome_of

_Part = TypeVar("_Part", bound=Struct)

# The clocks of ECS and of the batch's host differ by less.
CLOCK_TOLERANCE = timedelta(minutes=1)


class MergedRun(Struct, frozen=True, kw_only=True):
    """One run of one container, merged by :func:`merge`.

    ``started_at`` and ``finished_at`` are the record's, ``written_at`` is the report's time: values
    of the record's texts, within the task's life. ``is_complete``: the numbers are a report's,
    which cover the whole run. ``is_confirmed``: the event agrees with the report; None until there
    is an event, False if the report's log stream does not name its task.
    """

    record: Record
    outcome: Outcome
    report: Report | None
    event: RunEvent | None
    started_at: datetime | None
    finished_at: datetime | None
    written_at: datetime | None
    is_complete: bool
    is_confirmed: bool | None

    @property
    def duration_ms(self) -> float | None:
        """The report's; the event's without one, and for a run that was stopped: the monitor was
        stopped with it, perhaps earlier.
        """
        reported = None
        if self.report is not None and self.is_complete and self.report.record.status != "stopped":
            reported = self.report.record.metrics.duration_ms
        if reported is not None:
            return reported
        alone = None if self.event is None else self.event.alone
        return None if alone is None else alone.record.metrics.duration_ms

    @property
    def ended_at(self) -> datetime | None:
        """When the run ended; by the event, if the report does not say."""
        if self.finished_at is not None or self.event is None or self.event.alone is None:
            return self.finished_at
        return self.event.alone.finished_at

    @property
    def metrics(self) -> Metrics:
        """The numbers of the report or checkpoint, with the run's duration."""
        if self.report is None:
            return Metrics(duration_ms=self.duration_ms)
        return replace(self.record.metrics, duration_ms=self.duration_ms)

    @property
    def cost(self) -> Cost | None:
        return self.record.cost

    @property
    def whole_record(self) -> Record:
        """The record with the event's data where the report has none, for other systems."""
        record = self.record
        event = self.event
        if event is None or event.alone is None:
            return record
        whole = completed(record, event.alone.record)
        return replace(
            whole,
            container=completed(record.container, event.alone.record.container),
            likely_out_of_memory=self.outcome.ran_out_of_memory or record.likely_out_of_memory,
            metrics=self.metrics,
        )


def run_of_report(report: Report, claim: StreamClaim | None = None) -> MergedRun:
    """The run as its report or last checkpoint alone shows it, before the task's event.

    ``claim``: the report's log stream, if it does not name the task.
    """
    is_complete = report.type != CHECKPOINT
    record = report.record if is_complete else _of_checkpoint(report.record)
    outcome = outcome_of(report.record, None)
    return MergedRun(
        record=_with_outcome(record, outcome),
        outcome=outcome,
        report=report,
        event=None,
        started_at=parse_datetime(record.started_at),
        finished_at=parse_datetime(record.finished_at),
        written_at=parse_datetime(report.time) if is_complete else None,
        is_complete=is_complete,
        is_confirmed=None if claim is None else False,
    )


def run_of_event(event: RunEvent) -> MergedRun:
    """The run as the task's event alone shows it, without a report."""
    if event.alone is None:
        raise ValueError("The event was read back from a document.")
    record = _with_event(event.alone.record, event)
    outcome = outcome_of(None, event.end, container=record.container.name)
    return MergedRun(
        record=_with_outcome(record, outcome),
        outcome=outcome,
        report=None,
        event=event,
        started_at=event.alone.started_at,
        finished_at=event.alone.finished_at,
        written_at=None,
        is_complete=False,
        is_confirmed=event.vouches_for(None),
    )


def merge(
    report: Report | None, event: RunEvent | None, claim: StreamClaim | None = None
) -> MergedRun:
    """Merge a run's report (or its last checkpoint) and the task's event; one of them is needed.

    ``claim``: the report's log stream, if it does not name the task. The result is the same in
    whatever order the two arrive. A value that the winner does not have is the other's:

    ======================================== ======== =============================================
    field                                    winner   why
    ======================================== ======== =============================================
    account, Region, zone, cluster, ARN      event    ECS started the task; a line can say anything
    family, revision, launch type            event    as above: a report must not enter a family
    container id, image, digest              event    as above
    start and end of the container           report   it is exact; kept within the task's life, from
                                                      ``created_at`` to ``stopped_at``, a minute off
    outcome: status and cause                both     :mod:`profiler.record.stop_causes`
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
    if event is None:
        if report is None:
            raise ValueError("A run has a report, or a task's event.")
        return run_of_report(report, claim)
    if report is None or event.refutes(claim, report.record.account_id):
        return run_of_event(event)
    reported = run_of_report(report, claim)
    record = _with_event(reported.record, event)
    started_at = reported.started_at
    finished_at = reported.finished_at
    if reported.is_complete:
        started_at = within_task(started_at, event)
        finished_at = within_task(finished_at, event)
        record = _at(record, reported, started_at, finished_at)
    elif event.alone is not None:
        started_at = event.alone.started_at or started_at
        finished_at = event.alone.finished_at
        record = _until_the_end(record, event.alone.record)
    is_confirmed = event.vouches_for(claim, report.record.account_id)
    outcome = outcome_of(report.record, event.end, is_confirmed=is_confirmed)
    record = replace(record, cost=_cost_of(record, event))
    return MergedRun(
        record=_with_outcome(record, outcome),
        outcome=outcome,
        report=report,
        event=event,
        started_at=started_at,
        finished_at=finished_at,
        written_at=within_task(reported.written_at, event),
        is_complete=reported.is_complete,
        is_confirmed=is_confirmed,
    )


def _cost_of(record: Record, event: RunEvent) -> Cost | None:
    """The cost, if a task of this launch type and time can have cost as much."""
    longest_ms = None
    if event.created_at is not None and event.stopped_at is not None:
        lived = event.stopped_at - event.created_at + 2 * CLOCK_TOLERANCE
        longest_ms = lived / timedelta(milliseconds=1)
    return cost_on(event.capacity_provider, possible_cost(record, longest_ms))


def _of_checkpoint(record: Record) -> Record:
    """The numbers of a checkpoint, without what is only known at the end."""
    return replace(
        record,
        cost=None,
        interval=None,
        exit_code=None,
        metrics=replace(record.metrics, billed_duration_ms=None),
    )


def _until_the_end(record: Record, alone: Record) -> Record:
    """The record of a checkpoint with the start and the end of the task's event."""
    record = with_whole_duration(record, alone.metrics.duration_ms)
    return replace(
        record,
        started_at=alone.started_at or record.started_at,
        finished_at=alone.finished_at,
        log_group=alone.log_group or record.log_group,
        log_stream=alone.log_stream or record.log_stream,
        log_region=alone.log_region or record.log_region,
        task_size=alone.task_size or record.task_size,
    )


def _at(
    record: Record,
    reported: MergedRun,
    started_at: datetime | None,
    finished_at: datetime | None,
) -> Record:
    """The record with these times, if they are not the reported ones."""
    if started_at != reported.started_at:
        record = replace(record, started_at=known(format_datetime, started_at))
    if finished_at != reported.finished_at:
        record = replace(record, finished_at=known(format_datetime, finished_at))
    return record


def _with_event(record: Record, event: RunEvent) -> Record:
    """The record with what the event decides."""
    digest = next(iter(event.image_digests), None)
    container = replace(
        record.container,
        id=event.container_id or record.container.id,
        image=event.image or record.container.image,
        image_digest=digest or record.container.image_digest,
    )
    return replace(
        record,
        account_id=event.account_id or record.account_id,
        region=event.region or record.region,
        availability_zone=event.availability_zone or record.availability_zone,
        cluster=event.cluster or record.cluster,
        task_arn=event.task_arn or record.task_arn,
        family=event.family or record.family,
        revision=event.revision or record.revision,
        launch_type=event.launch_type or record.launch_type,
        container=container,
    )


def _with_outcome(record: Record, outcome: Outcome) -> Record:
    if (record.status, record.exit_code) == (outcome.status, outcome.exit_code):
        return record
    return replace(record, status=outcome.status, exit_code=outcome.exit_code)


def within_task(moment: datetime | None, event: RunEvent) -> datetime | None:
    """A time of the container, moved to the bound of the task's life that it exceeds."""
    if moment is None:
        return None
    if event.created_at is not None and moment < event.created_at - CLOCK_TOLERANCE:
        return event.created_at
    if event.stopped_at is not None and moment > event.stopped_at + CLOCK_TOLERANCE:
        return event.stopped_at
    return moment


def completed(value: _Part, other: _Part) -> _Part:
    """Return the value with the fields of the other where its own are unknown."""
    unknown = [name for name in value.__struct_fields__ if getattr(value, name) is None]
    return replace(value, **{name: getattr(other, name) for name in unknown})

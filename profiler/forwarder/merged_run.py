"""One ended run, merged of its report and the task's event by one rule: identity is ECS's.

Document, notification, export and ``task.ended`` are made from a :class:`MergedRun` alone.
"""

from datetime import datetime, timedelta
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.timestamps import format_datetime, parse_datetime
from profiler.forwarder.run_event import RunEvent, StreamClaim
from profiler.record.last_checkpoint import with_whole_duration
from profiler.record.record_model import CHECKPOINT, Cost, Metrics, Record, Report
from profiler.record.run_outcome import Outcome
from profiler.record.spot_price import cost_on
from profiler.record.stop_causes import outcome_of

_Part = TypeVar("_Part", bound=Struct)

# The clocks of ECS and of the batch's host differ by less.
CLOCK_TOLERANCE = timedelta(minutes=1)


class MergedRun(Struct, frozen=True, kw_only=True):
    """One run of one container, merged by :func:`merge`.

    ``is_complete``: the numbers are a report's, which cover the whole run. ``is_confirmed``: the
    event agrees with the report; None until there is an event, False if the report's log stream
    does not name its task.
    """

    record: Record
    outcome: Outcome
    report: Report | None
    event: RunEvent | None
    is_complete: bool
    is_confirmed: bool | None

    @property
    def written(self) -> datetime | None:
        """When the report was written; None without a report."""
        if self.report is None or not self.is_complete:
            return None
        if self.event is None:
            return parse_datetime(self.report.time)
        return parse_datetime(within_task(self.report.time, self.event))

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
        return None if alone is None else alone.metrics.duration_ms

    @property
    def finished_at(self) -> str | None:
        if self.record.finished_at is not None:
            return self.record.finished_at
        alone = None if self.event is None else self.event.alone
        return None if alone is None else alone.finished_at

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
        whole = completed(record, event.alone)
        return replace(
            whole,
            container=completed(record.container, event.alone.container),
            likely_out_of_memory=self.outcome.ran_out_of_memory or record.likely_out_of_memory,
            finished_at=self.finished_at,
            metrics=self.metrics,
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
    cost                                     report   on Fargate Spot, which the event alone knows,
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
    account_id = None if report is None else report.record.account_id
    if event is not None and event.refutes(claim, account_id):
        report = None
        account_id = None
        claim = None
    is_complete = report is not None and report.type != CHECKPOINT
    if report is None:
        record = _alone(event)
    elif is_complete:
        record = report.record
    else:
        record = _of_checkpoint(report.record, event)
    if event is not None:
        record = _with_event(record, event, is_complete=is_complete)
    is_confirmed = None if claim is None else False
    if event is not None:
        is_confirmed = event.vouches_for(claim, account_id)
    outcome = outcome_of(
        None if report is None else report.record,
        None if event is None else event.end,
        is_confirmed=is_confirmed is not False,
        container=record.container.name,
    )
    return MergedRun(
        record=replace(record, status=outcome.status, exit_code=outcome.exit_code),
        outcome=outcome,
        report=report,
        event=event,
        is_complete=is_complete,
        is_confirmed=is_confirmed,
    )


def _alone(event: RunEvent | None) -> Record:
    if event is None or event.alone is None:
        raise ValueError("A run has a report, or a task's event.")
    return event.alone


def _of_checkpoint(record: Record, event: RunEvent | None) -> Record:
    """The numbers of a checkpoint, without what is only known at the end."""
    record = replace(
        record,
        cost=None,
        interval=None,
        exit_code=None,
        metrics=replace(record.metrics, billed_duration_ms=None),
    )
    if event is None or event.alone is None:
        return record
    alone = event.alone
    record = with_whole_duration(record, alone.metrics.duration_ms)
    return replace(
        record,
        status="unknown",
        started_at=alone.started_at or record.started_at,
        finished_at=alone.finished_at,
        log_group=alone.log_group or record.log_group,
        log_stream=alone.log_stream or record.log_stream,
        log_region=alone.log_region or record.log_region,
        task_size=alone.task_size or record.task_size,
    )


def _with_event(record: Record, event: RunEvent, *, is_complete: bool) -> Record:
    """The record with what the event decides."""
    digest = next(iter(event.image_digests), None)
    container = replace(
        record.container,
        id=event.container_id or record.container.id,
        image=event.image or record.container.image,
        image_digest=digest or record.container.image_digest,
    )
    started_at = record.started_at
    finished_at = record.finished_at
    if is_complete:
        started_at = within_task(started_at, event)
        finished_at = within_task(finished_at, event)
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
        started_at=started_at,
        finished_at=finished_at,
        cost=cost_on(event.capacity_provider, record.cost),
    )


def within_task(time: str | None, event: RunEvent) -> str | None:
    """A time of the container, moved to the bound of the task's life that it exceeds."""
    moment = parse_datetime(time)
    if moment is None:
        return time
    created = parse_datetime(event.created_at)
    stopped = parse_datetime(event.stopped_at)
    if created is not None and moment < created - CLOCK_TOLERANCE:
        return format_datetime(created)
    if stopped is not None and moment > stopped + CLOCK_TOLERANCE:
        return format_datetime(stopped)
    return time


def completed(value: _Part, other: _Part) -> _Part:
    """Return the value with the fields of the other where its own are unknown."""
    unknown = [name for name in value.__struct_fields__ if getattr(value, name) is None]
    return replace(value, **{name: getattr(other, name) for name in unknown})

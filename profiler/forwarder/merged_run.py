"""One ended run, merged of its report and the task's event by one rule: identity is ECS's.

Document, notification, export and ``task.ended`` are made from a :class:`MergedRun` alone.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import MONITOR_NAME, LogTarget
from profiler.core.json_fields import mapping, text
from profiler.core.optional_math import known
from profiler.core.timestamps import format_datetime, parse_datetime
from profiler.record.record_model import (
    CHECKPOINT,
    Container,
    Cost,
    Metrics,
    Record,
    Report,
    TaskSize,
)
from profiler.record.spot_price import cost_on
from profiler.record.task_end import EventContainer, Outcome, StoppedTask

_Part = TypeVar("_Part", bound=Struct)

# The statuses of an event that replace a report's status.
KNOWN_END_STATUSES = frozenset({"success", "failure", "stopped"})
# The clocks of ECS and of the batch's host differ by less.
CLOCK_TOLERANCE = timedelta(minutes=1)
# What vouches for a report whose log stream does not name its task.
CONTAINER_ID = "container-id"


class StreamClaim(Struct, frozen=True, kw_only=True):
    """The log stream of a report that does not name the report's task.

    ``voucher``: ``container-id`` for a stream named by Docker's container id, which the task's
    event vouches for; any other word, such as ``trusted-group``, stays unconfirmed.
    """

    voucher: str
    stream: str


class RunEvent(Struct, frozen=True, kw_only=True):
    """What ECS's event says of the run of one container. None or empty: it does not say.

    It is made from the event, or read back from the document that has it (:data:`EVENT_FIELDS`).
    Times are RFC 3339 texts. ``created_at`` and ``stopped_at`` are the task's: the bounds of the
    container's start and end. ``runtime_ids`` are Docker's ids of the container and of the task's
    monitor, which name their log streams. ``status`` is None if ECS does not report the end.
    ``is_identified``: account, Region and family are the event's own.
    """

    account_id: str | None = None
    region: str | None = None
    availability_zone: str | None = None
    cluster: str | None = None
    task_arn: str | None = None
    family: str | None = None
    revision: str | None = None
    launch_type: str | None = None
    container_id: str | None = None
    image: str | None = None
    image_digests: tuple[str, ...] = ()
    runtime_ids: tuple[str, ...] = ()
    created_at: str | None = None
    stopped_at: str | None = None
    status: str | None = None
    exit_code: int | None = None
    stop_code: str | None = None
    stop_category: str | None = None
    stopped_reason: str | None = None
    started_by: str | None = None
    capacity_provider: str | None = None
    out_of_memory: bool | None = None
    retry_of: str | None = None
    retried_as: str | None = None
    is_identified: bool = False
    # The run as the event alone shows it. None if the event was read back from a document.
    alone: Record | None = None

    def vouches_for(self, claim: StreamClaim | None) -> bool:
        """Whether the run is confirmed: the task's identity is known, and the report's stream is
        the task's. None: the stream names the task, or there is no report.
        """
        if not self.is_identified:
            return False
        return claim is None or claim.stream in self.runtime_ids

    def refutes(self, claim: StreamClaim | None) -> bool:
        """Whether the report is of another container: its stream is named by a container id that
        is not one of the task's.
        """
        if claim is None or claim.voucher != CONTAINER_ID or not self.runtime_ids:
            return False
        return claim.stream not in self.runtime_ids


# The fields of a document that only the event writes, with the event's attribute.
EVENT_FIELDS: Mapping[str, str] = {
    "cloud.account.id": "account_id",
    "cloud.region": "region",
    "cloud.availability_zone": "availability_zone",
    "orchestrator.cluster.name": "cluster",
    "service.name": "family",
    "container.id": "container_id",
    "container.image.name": "image",
    "container.image.hash.all": "image_digests",
    "task.arn": "task_arn",
    "task.family": "family",
    "task.revision": "revision",
    "task.launch_type": "launch_type",
    "task.runtime_ids": "runtime_ids",
    "task.created_at": "created_at",
    "task.stopped_at": "stopped_at",
    "task.status": "status",
    "task.exit_code": "exit_code",
    "task.stop_code": "stop_code",
    "task.stop_category": "stop_category",
    "task.stopped_reason": "stopped_reason",
    "task.started_by": "started_by",
    "task.capacity_provider": "capacity_provider",
    "task.out_of_memory": "out_of_memory",
    "task.retry_of": "retry_of",
    "task.retried_as": "retried_as",
}


def run_event(
    task: StoppedTask,
    outcome: Outcome,
    container: str | None,
    *,
    log: LogTarget | None = None,
    retry_of: str | None = None,
    retried_as: str | None = None,
) -> RunEvent:
    """What the event says of the run of this container, the batch."""
    batch = EventContainer(name="") if container is None else task.container(container)
    is_known = outcome.status in KNOWN_END_STATUSES
    return RunEvent(
        account_id=task.account_id,
        region=task.region,
        availability_zone=task.availability_zone,
        cluster=task.cluster,
        task_arn=task.arn,
        family=task.family,
        revision=task.revision,
        launch_type=task.launch_type,
        container_id=batch.runtime_id,
        image=batch.image,
        image_digests=() if batch.image_digest is None else (batch.image_digest,),
        runtime_ids=_runtime_ids(task, batch),
        created_at=known(format_datetime, task.created_at),
        stopped_at=known(format_datetime, task.stopped_at),
        status=outcome.status if is_known else None,
        exit_code=outcome.exit_code if is_known else None,
        stop_code=task.stop_code,
        stop_category=outcome.category,
        stopped_reason=outcome.reason,
        started_by=task.started_by,
        capacity_provider=task.capacity_provider,
        out_of_memory=outcome.out_of_memory,
        retry_of=retry_of,
        retried_as=retried_as,
        is_identified=None not in (task.account_id, task.region, task.family),
        alone=_event_record(task, batch, log),
    )


def _runtime_ids(task: StoppedTask, batch: EventContainer) -> tuple[str, ...]:
    """The ids of the batch and of the task's monitor, which may speak for it."""
    speakers = (batch, task.container(MONITOR_NAME))
    return tuple(one.runtime_id for one in speakers if one.runtime_id is not None)


def _event_record(task: StoppedTask, batch: EventContainer, log: LogTarget | None) -> Record:
    """The event's data as a record, without the end."""
    size = None
    if task.is_on_fargate:
        size = TaskSize(vcpu=task.vcpu, memory_mb=task.memory_mb)
    return Record(
        task_id=task.id,
        task_arn=task.arn,
        cluster=task.cluster,
        family=task.family,
        revision=task.revision,
        region=task.region,
        account_id=task.account_id,
        availability_zone=task.availability_zone,
        launch_type=task.launch_type,
        task_size=size,
        container=Container(
            name=batch.name,
            id=batch.runtime_id,
            arn=batch.arn,
            image=batch.image,
            image_digest=batch.image_digest,
        ),
        log_group=None if log is None else log.group,
        log_stream=None if log is None else log.stream,
        log_region=None if log is None else log.region,
        started_at=known(format_datetime, task.started_at),
        finished_at=known(format_datetime, task.execution_stopped_at or task.stopped_at),
        metrics=Metrics(duration_ms=task.duration_ms, memory_size_mb=batch.memory_mb),
    )


def read_run_event(fields: Mapping[str, Any]) -> RunEvent | None:
    """The event that a document has; None if none was written yet.

    What the event does not say is read as the report said it. So the document itself says whether
    the event was identified: it is not confirmed, or only because of the report's log stream.
    """
    task = mapping(fields.get("task"))
    if task.get("stop_category") is None:
        return None
    values: dict[str, Any] = {}
    for path, name in EVENT_FIELDS.items():
        value: Any = fields
        for part in path.split("."):
            value = mapping(value).get(part)
        if value is not None:
            values[name] = value
    if values.get("status") not in KNOWN_END_STATUSES:
        values.pop("status", None)
    is_claimed = task.get("confirmed") is False and read_claim(fields) is not None
    is_identified = task.get("confirmed") is True or is_claimed
    return msgspec.convert({**values, "is_identified": is_identified}, RunEvent)


def read_claim(fields: Mapping[str, Any]) -> StreamClaim | None:
    """The log stream of the report in a document, if it does not name the task."""
    task = mapping(fields.get("task"))
    voucher = text(task.get("voucher"))
    stream = text(task.get("voucher_stream"))
    if voucher is None or stream is None:
        return None
    return StreamClaim(voucher=voucher, stream=stream)


class MergedRun(Struct, frozen=True, kw_only=True):
    """One run of one container, merged by :func:`merge`.

    ``is_complete``: the numbers are a report's, which cover the whole run. ``is_confirmed``: the
    event agrees with the report; None until there is an event, False if the report's log stream
    does not name its task.
    """

    record: Record
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
            likely_out_of_memory=event.out_of_memory or record.likely_out_of_memory,
            finished_at=self.finished_at,
            metrics=self.metrics,
        )


def merge(
    report: Report | None, event: RunEvent | None, claim: StreamClaim | None = None
) -> MergedRun:
    """Merge a run's report (or its last checkpoint) and the task's event; one of them is needed.

    ``claim``: the report's log stream, if it does not name the task. The result is the same in
    whatever order the two arrive. A value that the winner does not have is the other's:

    ========================================= ======== =============================================
    field                                     winner   why
    ========================================= ======== =============================================
    account, Region, zone, cluster, ARN       event    ECS started the task; a line can say anything
    family, revision, launch type             event    as above: a report must not enter a family
    container id, image, digest               event    as above
    start and end of the container            report   it is exact; kept within the task's life, from
                                                       ``created_at`` to ``stopped_at``, a minute off
    status                                    event    it saw the end; an unknown one is the report's
    exit code                                 event    as above
    stop code, category, reason, starter      event    no report has them
    cost                                      report   on Fargate Spot, which the event alone knows,
                                                       a fraction of it
    all other numbers                         report   only the monitor measures; the task's size
                                                       and the log are the event's without a report
    duration                                  report   the event's without one, and for a stopped
                                                       run (``MergedRun.duration_ms``)
    confirmed                                 event    it knows account, Region and family, and the
                                                       report's log stream is the task's
    ========================================= ======== =============================================

    A checkpoint has no end, no cost and no billed duration: these, and the start, are the event's.
    A report of another container, which the event refutes, does not count.
    """
    if event is not None and event.refutes(claim):
        report = None
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
        is_confirmed = event.vouches_for(claim)
    return MergedRun(
        record=record,
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
    metrics = record.metrics
    if alone.metrics.duration_ms is not None:
        metrics = replace(metrics, duration_ms=alone.metrics.duration_ms)
    return replace(
        record,
        status="unknown",
        started_at=alone.started_at or record.started_at,
        finished_at=alone.finished_at,
        log_group=alone.log_group or record.log_group,
        log_stream=alone.log_stream or record.log_stream,
        log_region=alone.log_region or record.log_region,
        task_size=alone.task_size or record.task_size,
        metrics=metrics,
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
        status=event.status or record.status,
        exit_code=record.exit_code if event.exit_code is None else event.exit_code,
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

"""What ECS's event says of a run, and the run as the event and its report show it.

A document keeps all that the event says, so that a report that comes later is merged as one that
came earlier.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import LogTarget
from profiler.core.json_fields import mapping_or_empty, text_or_none
from profiler.core.optional_math import known, known_values
from profiler.core.timestamps import format_datetime, parse_datetime, subtract_ms
from profiler.forwarder.report_verification import (
    OWN_STREAM,
    LogStreamClaim,
    Verdict,
    claim_of_document,
    verdict_on_report,
)
from profiler.record.batch_job import NO_JOB, BatchJob, batch_job_of_document
from profiler.record.ecs_event_outcome import cause_with_job_end, written_event_end
from profiler.record.last_checkpoint import record_of_checkpoint, record_until_end
from profiler.record.record_model import (
    CHECKPOINT,
    UNKNOWN_SIZE,
    Container,
    Metrics,
    Record,
    Report,
    TaskSize,
)
from profiler.record.run_outcome import Cause
from profiler.record.stop_causes import EventEnd
from profiler.record.stopped_task import EventContainer, StoppedTask


class RunAsSeen(Struct, frozen=True, kw_only=True):
    """A run as one witness shows it: a record, and the values of its times.

    ``began_at``, the start of the image pull if it is known, names the index of its document.
    ``written_at`` is a report's time.
    """

    record: Record
    began_at: datetime | None = None
    started_at: datetime | None
    finished_at: datetime | None
    written_at: datetime | None = None


NOTHING_SEEN: Final = RunAsSeen(
    record=Record(task_id="", container=Container(name="")), started_at=None, finished_at=None
)


class RunEvent(Struct, frozen=True, kw_only=True):
    """What ECS's event says of the run of one container. None or empty: it does not say.

    It is made from the event, or read back from the document that has it (:data:`EVENT_FIELDS`).
    ``created_at`` and ``stopped_at`` are the task's: the bounds of the container's start and end.
    ``runtime_ids`` are Docker's ids of the container and of the task's monitor, which name their
    log streams. ``cause`` is the event's own word for the end, and ``first_end`` how another
    container ended (:class:`~profiler.record.stop_causes.EventEnd`).
    ``job_end`` is Batch's word for the end of the job's attempt.
    ``is_identified``: account, Region and family are the event's own. ``gpu_memory_error``: a line
    of the batch's log.
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
    created_at: datetime | None = None
    stopped_at: datetime | None = None
    cause: Cause = "unknown"
    exit_code: int | None = None
    first_end: str | None = None
    stop_code: str | None = None
    stopped_reason: str | None = None
    started_by: str | None = None
    capacity_provider: str | None = None
    out_of_memory: bool | None = None
    gpu_memory_error: str | None = None
    job_end: str | None = None
    retry_of: str | None = None
    retried_as: str | None = None
    resized_from: str | None = None
    batch: BatchJob = NO_JOB
    is_identified: bool = False
    # Nothing if the event was read back from a document.
    alone: RunAsSeen = NOTHING_SEEN

    @property
    def is_from_document(self) -> bool:
        """Whether it is from a document, which does not keep the run as the event shows it."""
        return self.alone == NOTHING_SEEN

    @property
    def combined_end(self) -> EventEnd:
        """How the run ended by the events alone, ECS's and that of its job of AWS Batch."""
        return EventEnd(
            cause=cause_with_job_end(self.cause, self.job_end),
            exit_code=self.exit_code,
            reason=self.stopped_reason,
            out_of_memory=bool(self.out_of_memory),
            first_end=self.first_end,
        )

    def is_of_other_account(self, report_account: str | None) -> bool:
        """Whether the log group of a report is of another account than the task; None: unknown."""
        return None not in (self.account_id, report_account) and self.account_id != report_account

    def verdict_on_report(
        self, claim: LogStreamClaim, report_account: str | None = None
    ) -> Verdict:
        """Whether a report is the run's, by its log stream and the account of its log group."""
        return verdict_on_report(
            claim,
            runtime_ids=self.runtime_ids,
            launch_type=self.launch_type,
            is_identified=self.is_identified,
            is_of_other_account=self.is_of_other_account(report_account),
        )


class SeenReport(Struct, frozen=True, kw_only=True):
    """A report (or last checkpoint), the run as it shows it, and the log stream that it is from.

    ``verdict``: the event's on the report; None before there is an event.
    """

    report: Report
    seen: RunAsSeen
    claim: LogStreamClaim
    verdict: Verdict | None = None


def seen_report(
    report: Report, claim: LogStreamClaim = OWN_STREAM, event: RunEvent | None = None
) -> SeenReport:
    """The run as the report shows it; a checkpoint, without what is only known at the end, and
    until the end that the event says.
    """
    record = report.record
    verdict = None
    if event is not None:
        verdict = event.verdict_on_report(claim, record.account_id)
    started_at = parse_datetime(record.started_at)
    finished_at = parse_datetime(record.finished_at)
    written_at = parse_datetime(report.time)
    began_at = subtract_ms(started_at, record.metrics.init_duration_ms) or written_at
    if report.type == CHECKPOINT:
        written_at = None
        record = record_of_checkpoint(record)
        if event is not None and not event.is_from_document:
            alone = event.alone
            record = record_until_end(record, alone.record)
            began_at = alone.began_at
            started_at = alone.started_at or started_at
            finished_at = alone.finished_at
    seen = RunAsSeen(
        record=record,
        began_at=began_at,
        started_at=started_at,
        finished_at=finished_at,
        written_at=written_at,
    )
    return SeenReport(report=report, seen=seen, claim=claim, verdict=verdict)


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
    "task.event_outcome": "cause",
    "task.exit_code": "exit_code",
    "task.first_end": "first_end",
    "task.stop_code": "stop_code",
    "task.stopped_reason": "stopped_reason",
    "task.started_by": "started_by",
    "task.capacity_provider": "capacity_provider",
    "task.out_of_memory": "out_of_memory",
    "task.gpu_memory_error": "gpu_memory_error",
    "task.job_end": "job_end",
    "task.retry_of": "retry_of",
    "task.retried_as": "retried_as",
    "task.resized_from": "resized_from",
}


_TIMES = ("created_at", "stopped_at")


def run_event_of_task(
    task: StoppedTask,
    end: EventEnd,
    container: EventContainer,
    monitor: EventContainer,
    *,
    log: LogTarget | None = None,
    resized_from: str | None = None,
) -> RunEvent:
    """What the event says of the run of this container.

    The stream of the task's ``monitor`` may speak for the container, too. ``resized_from``: the
    definition's tag.
    """
    speakers = (container, monitor)
    return RunEvent(
        account_id=task.account_id,
        region=task.region,
        availability_zone=task.availability_zone,
        cluster=task.cluster,
        task_arn=task.arn,
        family=task.family,
        revision=task.revision,
        launch_type=task.launch_type,
        container_id=container.runtime_id,
        image=container.image,
        image_digests=known_values((container.image_digest,)),
        runtime_ids=known_values(speaker.runtime_id for speaker in speakers),
        created_at=task.created_at,
        stopped_at=task.stopped_at,
        cause=end.cause,
        exit_code=end.exit_code,
        first_end=end.first_end,
        stop_code=task.stop_code,
        stopped_reason=end.reason,
        started_by=task.started_by,
        capacity_provider=task.capacity_provider,
        out_of_memory=end.out_of_memory,
        resized_from=resized_from,
        batch=task.batch,
        is_identified=None not in (task.account_id, task.region, task.family),
        alone=RunAsSeen(
            record=_record_of_event(task, container, log),
            # ECS does not pull a cached image.
            began_at=task.pull_started_at or task.started_at or task.created_at or task.stopped_at,
            started_at=task.started_at,
            finished_at=task.execution_stopped_at or task.stopped_at,
        ),
    )


def _record_of_event(task: StoppedTask, container: EventContainer, log: LogTarget | None) -> Record:
    """The event's data as a record, without the end."""
    size = UNKNOWN_SIZE
    if task.is_on_fargate:
        size = TaskSize(vcpu=task.vcpu, memory_mb=task.memory_mb)
    record = Record(
        task_id=task.id,
        task_arn=task.arn,
        cluster=task.cluster,
        family=task.family,
        revision=task.revision,
        region=task.region,
        account_id=task.account_id,
        availability_zone=task.availability_zone,
        launch_type=task.launch_type,
        batch=task.batch,
        task_size=size,
        container=Container(
            name=container.name,
            id=container.runtime_id,
            arn=container.arn,
            image=container.image,
            image_digest=container.image_digest,
        ),
        started_at=known(format_datetime, task.started_at),
        finished_at=known(format_datetime, task.execution_stopped_at or task.stopped_at),
        metrics=Metrics(duration_ms=task.duration_ms, memory_size_mb=container.memory_mb),
    )
    if not log:
        return record
    return replace(record, log_group=log.group, log_stream=log.stream, log_region=log.region)


def run_event_of_document(fields: Mapping[str, Any]) -> RunEvent | None:
    """The event that a document has; None if none was written yet.

    What the event does not say is read as the report said it. So the document itself says whether
    the event was identified: it is not confirmed, or only because of the report's log stream.
    """
    task = mapping_or_empty(fields.get("task"))
    end = written_event_end({**task, "job_end": None})
    if end is None:
        return None
    values: dict[str, Any] = {}
    for path, name in EVENT_FIELDS.items():
        value: Any = fields
        for part in path.split("."):
            value = mapping_or_empty(value).get(part)
        if value is not None:
            values[name] = value
    values["cause"] = end.cause
    values |= {name: parse_datetime(text_or_none(values.get(name))) for name in _TIMES}
    values["batch"] = batch_job_of_document(fields.get("batch"))
    is_claimed = task.get("confirmed") is False and not claim_of_document(fields).is_own
    is_identified = task.get("confirmed") is True or is_claimed
    return msgspec.convert({**values, "is_identified": is_identified}, RunEvent)

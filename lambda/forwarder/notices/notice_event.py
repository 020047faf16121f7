"""A notice of a running task or of a schedule as data for other programs: the detail of the EventBridge event."""

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from forwarder.notices.ended_run import (
    MAX_ARN_LENGTH,
    MAX_DETAIL_BYTES,
    MAX_NAME_LENGTH,
    MAX_REASON_LENGTH,
    MAX_WORD_LENGTH,
    Links,
    bounded_metrics,
    embeddable,
    known_links,
)
from forwarder.notices.links import links_of_record, links_of_task
from profiler.core.ecs_terms import cluster_name
from profiler.record.notice_model import (
    Notice,
    NoticedSchedule,
    NoticeEvidence,
    NoticeLine,
    ScheduleNotice,
    ScheduleNoticeLine,
)
from profiler.record.record_model import Metrics, describe_type

_RUN_PREDICATES = {
    "stuck": "seems to be stuck",
    "overdue": "runs longer than expected",
    "memory": "is running out of memory",
    "disk": "is running out of disk space",
}
_SCHEDULE_PREDICATES = {
    "missed": "did not run",
    "late": "started late",
    "overlapped": "started while its previous run was running",
    "slow": "takes longer than usual",
}
_MAX_MINUTES = 60 * 24 * 365
_UNKNOWN = "unknown"


class RunNotice(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A notice of a running task. What is unknown is left out.

    ``text`` is what the run does, and the notice's sentence with the numbers. No text but those of ``metrics`` has a
    quotation mark, backslash or control character: input transformers insert texts as they are. ``notice.kind`` is
    ``stuck``, ``overdue``, ``memory``, ``disk``, or one that a newer monitor knows; ``notice.since`` is the time from
    which on its condition was met. ``container`` is the name of the batch container. ``metrics`` are those so far.
    """

    text: str
    task_id: str
    task_arn: str | None = None
    cluster: str | None = None
    family: str
    revision: str | None = None
    container: str | None = None
    notice: Notice
    started_at: str | None = None
    metrics: Metrics | None = None
    links: Links | None = None


class ScheduleNoticeDetail(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A notice of a schedule. What is unknown is left out.

    ``text`` is the notice's sentence, with the limits of ``text`` in an ended run. ``notice.kind`` is ``missed``,
    ``late``, ``overlapped``, ``slow``, or one that a newer function knows; ``notice.dueAt`` is the due time,
    ``notice.taskId`` the task concerned. ``schedule.kind`` is ``schedule`` or ``rule``; ``schedule.group`` is the
    schedule group or the event bus.
    """

    text: str
    schedule: NoticedSchedule
    notice: ScheduleNotice
    cluster: str | None = None
    family: str | None = None
    links: Links | None = None


def run_notice(line: NoticeLine, *, kibana_url: str | None) -> RunNotice:
    """Return the event's detail, with all texts truncated; its JSON is smaller than 32 KB."""
    record, notice = line.record, line.notice
    detail = RunNotice(
        text=_text(f"{run_title(line)}. {notice.message}", MAX_REASON_LENGTH),
        task_id=_text(record.task_id, MAX_ARN_LENGTH),
        task_arn=embeddable(record.task_arn, MAX_ARN_LENGTH),
        cluster=embeddable(cluster_name(record.cluster), MAX_NAME_LENGTH),
        family=_text(record.family or _UNKNOWN, MAX_NAME_LENGTH),
        revision=embeddable(record.revision, MAX_WORD_LENGTH),
        container=embeddable(record.container.name, MAX_NAME_LENGTH),
        notice=Notice(
            kind=_text(notice.kind, MAX_WORD_LENGTH),
            message=_text(notice.message, MAX_REASON_LENGTH),
            since=embeddable(notice.since, MAX_WORD_LENGTH),
            evidence=_evidence(notice.evidence),
        ),
        started_at=embeddable(record.started_at, MAX_WORD_LENGTH),
        metrics=bounded_metrics(record.metrics),
        links=known_links(links_of_record(record, kibana_url)),
    )
    if len(msgspec.json.encode(detail)) < MAX_DETAIL_BYTES:
        return detail
    return replace(detail, metrics=None, notice=replace(detail.notice, evidence=None))


def schedule_notice(line: ScheduleNoticeLine, *, kibana_url: str | None) -> ScheduleNoticeDetail:
    """Return the event's detail, with all texts truncated; its JSON is smaller than 32 KB."""
    schedule, notice = line.schedule, line.notice
    return ScheduleNoticeDetail(
        text=_text(notice.message or schedule_title(line), MAX_REASON_LENGTH),
        schedule=NoticedSchedule(
            kind=_text(schedule.kind, MAX_WORD_LENGTH),
            name=_text(schedule.name, MAX_NAME_LENGTH),
            group=embeddable(schedule.group, MAX_NAME_LENGTH),
            expression=embeddable(schedule.expression, MAX_NAME_LENGTH),
            time_zone=embeddable(schedule.time_zone, MAX_WORD_LENGTH),
        ),
        notice=ScheduleNotice(
            kind=_text(notice.kind, MAX_WORD_LENGTH),
            message=_text(notice.message, MAX_REASON_LENGTH),
            due_at=embeddable(notice.due_at, MAX_WORD_LENGTH),
            reason=embeddable(notice.reason, MAX_REASON_LENGTH),
            task_id=embeddable(notice.task_id, MAX_WORD_LENGTH),
        ),
        cluster=embeddable(cluster_name(line.cluster), MAX_NAME_LENGTH),
        family=embeddable(line.family, MAX_NAME_LENGTH),
        links=None
        if notice.task_id is None
        else known_links(links_of_task(line.region, line.cluster, notice.task_id, kibana_url)),
    )


def run_title(line: NoticeLine) -> str:
    """Return what the run does, such as "nightly-etl:5 has been stuck for 30 minutes"; the texts are not escaped."""
    record, notice = line.record, line.notice
    name = (record.family or _UNKNOWN)[:MAX_NAME_LENGTH]
    if record.revision:
        name = f"{name}:{record.revision[:MAX_WORD_LENGTH]}"
    minutes = None if notice.evidence is None else notice.evidence.minutes
    if notice.kind == "stuck" and minutes is not None and 0 < minutes <= _MAX_MINUTES:
        return f"{name} has been stuck for {minutes:.0f} minutes"
    return f"{name} {_RUN_PREDICATES.get(notice.kind, f'has a notice of kind {notice.kind[:MAX_WORD_LENGTH]}')}"


def schedule_title(line: ScheduleNoticeLine) -> str:
    """Return what became of the schedule, such as "nightly-etl did not run"; the texts are not escaped."""
    kind = line.notice.kind
    predicate = _SCHEDULE_PREDICATES.get(kind, f"has a notice of kind {kind[:MAX_WORD_LENGTH]}")
    return f"{line.schedule.name[:MAX_NAME_LENGTH]} {predicate}"


def _evidence(evidence: NoticeEvidence | None) -> NoticeEvidence | None:
    if evidence is None:
        return None
    return replace(evidence, waiting_for=embeddable(evidence.waiting_for, MAX_NAME_LENGTH))


def _text(text: str, max_length: int) -> str:
    return embeddable(text, max_length) or ""


def run_notice_schema() -> dict[str, Any]:
    """Generate the JSON Schema (2020-12) of the detail of a run's notice."""
    return describe_type(RunNotice, "Detail of the event Task Run Notice")


def schedule_notice_schema() -> dict[str, Any]:
    """Generate the JSON Schema (2020-12) of the detail of a schedule's notice."""
    return describe_type(ScheduleNoticeDetail, "Detail of the event Schedule Notice")

"""The search documents of notices: of running tasks, and of schedules."""

import re
from datetime import datetime

from msgspec.structs import asdict

from profiler.core.ecs_terms import cluster_name
from profiler.core.optional_math import known
from profiler.core.timestamps import format_datetime, parse_datetime
from profiler.forwarder.document_fields import Fields, without_empty_values
from profiler.forwarder.document_updates import TOO_LONG, Document, is_id_too_long, run_document_id
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.line_kinds import InvalidReport, replace_lone_surrogates
from profiler.forwarder.run_links import links_of_line, links_of_schedule_notice
from profiler.record.notice_model import NoticeLine, ScheduleNoticeLine

_MAX_SHOWN_LENGTH = 40


def notice_document(
    line: NoticeLine, line_text: str, settings: ForwarderSettings
) -> Document | InvalidReport:
    """The document of a notice of a running task, or the reason why there is none.

    Its id: the run's, and the kind.
    """
    record = line.record
    notice = line.notice
    run = run_document_id(record.task_id, record.container.name)
    document_id = f"{run}/{notice.kind}"
    if is_id_too_long(document_id):
        return TOO_LONG
    written = parse_datetime(line.time)
    if written is None:
        return InvalidReport(
            f"The notification's time {line.time[:_MAX_SHOWN_LENGTH]!r} is not an RFC 3339 time "
            "between 1970 and 2200."
        )
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,39}", notice.kind):
        return InvalidReport(
            f"The notification's kind {notice.kind[:_MAX_SHOWN_LENGTH]!r} is not a word."
        )
    fields = {
        "notice": {
            "kind": notice.kind,
            "message": notice.message,
            "since": known(format_datetime, parse_datetime(notice.since)),
        },
        **_account_and_cluster_fields(
            record.account_id, record.region, record.cluster, record.family
        ),
        "container": {"name": record.container.name},
        "aws": {"cloudwatch": {"log_group": record.log_group, "log_stream": record.log_stream}},
        "task": {
            "id": record.task_id,
            "arn": record.task_arn,
            "family": record.family,
            "revision": record.revision,
        },
        "links": links_of_line(line, settings.kibana_url).document_fields(),
    }
    return _notice_document(
        line, line_text, fields, settings, written=written, document_id=document_id
    )


def schedule_notice_document(
    line: ScheduleNoticeLine, line_text: str, settings: ForwarderSettings
) -> Document:
    """The document of a notice of a schedule.

    Its id consists of the schedule, the due time and the kind.
    """
    notice = line.notice
    family = _family_field(line)
    fields = {
        "notice": {
            "kind": notice.kind,
            "message": notice.message,
            "due_at": known(format_datetime, parse_datetime(notice.due_at)),
            "reason": notice.reason,
        },
        **_account_and_cluster_fields(line.account_id, line.region, line.cluster, family),
        **_task_fields(line, family),
        "links": links_of_schedule_notice(line, settings.kibana_url).document_fields(),
        "schedule": asdict(line.schedule),
    }
    written = datetime.fromisoformat(line.time)
    return _notice_document(
        line, line_text, fields, settings, written=written, document_id=schedule_notice_id(line)
    )


def _family_field(line: ScheduleNoticeLine) -> str | list[str] | None:
    """The family; of several, each is found by its name."""
    return [*line.families] if len(line.families) > 1 else line.family


def _task_fields(line: ScheduleNoticeLine, family: str | list[str] | None) -> Fields:
    """The task that the notice is about, or the job."""
    if not line.is_of_jobs:
        return {"task": {"id": line.notice.task_id, "family": family}}
    job = {
        "job_id": line.notice.task_id,
        "queue": line.queue,
        "job_definition": family,
    }
    return {"task": {"family": family}, "batch": job}


def schedule_notice_id(line: ScheduleNoticeLine) -> str:
    """The schedule, the due time (the task of a notice without one), and the kind of the notice."""
    schedule = line.schedule
    notice = line.notice
    subject = notice.due_at or notice.task_id or ""
    return "/".join((schedule.kind, schedule.group or "", schedule.name, subject, notice.kind))


def _notice_document(
    line: NoticeLine | ScheduleNoticeLine,
    line_text: str,
    fields: Fields,
    settings: ForwarderSettings,
    *,
    written: datetime,
    document_id: str,
) -> Document:
    notice = line if isinstance(line, NoticeLine) else None
    whole = {
        "@timestamp": format_datetime(written),
        "event": {
            "kind": "alert",
            "dataset": "schedule.notice" if notice is None else "task.notice",
        },
        **without_empty_values(fields),
        "record": replace_lone_surrogates(line_text),
    }
    return Document(
        index=settings.indices.index_name("notices", written),
        id=document_id,
        fields=whole,
        notice=notice,
    )


def _account_and_cluster_fields(
    account_id: str | None,
    region: str | None,
    cluster: str | None,
    family: str | list[str] | None,
) -> Fields:
    return {
        "cloud": {"provider": "aws", "account": {"id": account_id}, "region": region},
        "orchestrator": {"type": "ecs", "cluster": {"name": cluster_name(cluster)}},
        "service": {"name": family},
    }

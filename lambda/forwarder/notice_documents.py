"""The search documents of notices: of a running task, and of a schedule.

They are in an index of their own (``kibana/index-templates/task-notices.json``), with the names of the fields in the
documents of reports.
"""

import re

from forwarder.documents import MAX_ID_BYTES, Document, Fields, drop_empty, format_known_moment, run_links
from forwarder.index_names import IndexPeriod, index_name
from forwarder.run_links import ecs_task, kibana_task
from forwarder.task_lines import InvalidReport, replace_lone_surrogates
from profiler.core.ecs_terms import cluster_name
from profiler.core.timestamps import format_datetime, parse_datetime
from profiler.record.notice_model import NoticeLine, ScheduleNoticeLine

_KIND = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}", re.ASCII)
_MAX_SHOWN_LENGTH = 40


def notice_document(
    line: NoticeLine, text: str, *, prefix: str, period: IndexPeriod = "month", kibana_url: str | None = None
) -> Document | InvalidReport:
    """The document of a notice of a running task. Its id is that of the run and the kind.

    Args:
        line: The notice.
        text: Its line, which the document contains.
        prefix: The prefix of the index name.
        period: Whether the index is one of a month or of a day.
        kibana_url: The address for the link to the run's dashboard; None: no such link.

    Returns:
        The document, or the reason why there is none: a time or a kind that is not valid, or an id that is too long.
    """
    record, notice = line.record, line.notice
    started = parse_datetime(record.started_at) or parse_datetime(line.time)
    document_id = f"{record.task_id}/{record.container.name}/{notice.kind}"
    if len(document_id.encode()) > MAX_ID_BYTES:
        return InvalidReport(f"Task id, container name and kind of the notice together exceed {MAX_ID_BYTES} bytes.")
    fields = {
        "notice": {
            "kind": notice.kind,
            "message": notice.message,
            "since": format_known_moment(parse_datetime(notice.since)),
        },
        "cloud": _cloud(record.account_id, record.region),
        "orchestrator": _orchestrator(record.cluster),
        "service": {"name": record.family},
        "container": {"name": record.container.name},
        "aws": {"cloudwatch": {"log_group": record.log_group, "log_stream": record.log_stream}},
        "task": {
            "id": record.task_id,
            "arn": record.task_arn,
            "family": record.family,
            "revision": record.revision,
        },
        "links": run_links(record, started, None, kibana_url),
    }
    return _document(line, text, document_id, fields, prefix=prefix, period=period)


def schedule_notice_document(
    line: ScheduleNoticeLine, text: str, *, prefix: str, period: IndexPeriod = "month", kibana_url: str | None = None
) -> Document | InvalidReport:
    """The document of a notice of a schedule. Its id is that of the schedule, the due time and the kind.

    See ``notice_document``.
    """
    schedule, notice = line.schedule, line.notice
    document_id = schedule_notice_id(line)
    if len(document_id.encode()) > MAX_ID_BYTES:
        from hashlib import sha256  # loads OpenSSL, and is seldom needed

        document_id = sha256(document_id.encode()).hexdigest()
    fields = {
        "notice": {
            "kind": notice.kind,
            "message": notice.message,
            "due_at": format_known_moment(parse_datetime(notice.due_at)),
            "reason": notice.reason,
        },
        "cloud": _cloud(line.account_id, line.region),
        "orchestrator": _orchestrator(line.cluster),
        "service": {"name": line.family},
        "task": {"id": notice.task_id, "family": line.family},
        "links": {
            "run": kibana_task(kibana_url, notice.task_id or "", parse_datetime(notice.due_at)),
            "task": ecs_task(line.region, cluster_name(line.cluster), notice.task_id or ""),
        },
        "schedule": {
            "kind": schedule.kind,
            "name": schedule.name,
            "group": schedule.group,
            "expression": schedule.expression,
            "time_zone": schedule.time_zone,
        },
    }
    return _document(line, text, document_id, fields, prefix=prefix, period=period)


def schedule_notice_id(line: ScheduleNoticeLine) -> str:
    """The schedule, the due time (the task of a notice without one), and the kind of the notice."""
    schedule, notice = line.schedule, line.notice
    subject = notice.due_at or notice.task_id or ""
    return "/".join((schedule.kind, schedule.group or "", schedule.name, subject, notice.kind))


def _document(
    line: NoticeLine | ScheduleNoticeLine,
    text: str,
    document_id: str,
    fields: Fields,
    *,
    prefix: str,
    period: IndexPeriod,
) -> Document | InvalidReport:
    written = parse_datetime(line.time)
    if written is None:
        return InvalidReport(
            f"The notice's time {line.time[:_MAX_SHOWN_LENGTH]!r} is not an RFC 3339 time between 1970 and 2200."
        )
    if _KIND.fullmatch(line.notice.kind) is None:
        return InvalidReport(f"The notice's kind {line.notice.kind[:_MAX_SHOWN_LENGTH]!r} is not a word.")
    notice = line if isinstance(line, NoticeLine) else None
    event = {"kind": "alert", "dataset": "schedule.notice" if notice is None else "task.notice"}
    return Document(
        index=index_name("notices", written, prefix=prefix, period=period),
        id=document_id,
        fields={
            "@timestamp": format_datetime(written),
            "event": event,
            **drop_empty(fields),
            "record": replace_lone_surrogates(text),
        },
        notice=notice,
    )


def _cloud(account_id: str | None, region: str | None) -> Fields:
    return {"provider": "aws", "account": {"id": account_id}, "region": region}


def _orchestrator(cluster: str | None) -> Fields:
    return {"type": "ecs", "cluster": {"name": cluster_name(cluster)}}

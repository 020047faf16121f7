"""The search documents of reports, checkpoints and notices; notices have an index of their own."""

import re
from collections.abc import Mapping
from datetime import datetime
from itertools import groupby
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict

from profiler.core.ecs_terms import cluster_name
from profiler.core.index_names import IndexKind
from profiler.core.json_fields import mapping
from profiler.core.optional_math import known
from profiler.core.timestamps import NS_PER_MS, format_datetime, parse_datetime, subtract_ms
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.run_links import links_of_line, links_of_schedule_notice
from profiler.forwarder.task_lines import InvalidReport, replace_lone_surrogates
from profiler.record.metric_catalogue import RunView, view_of
from profiler.record.notice_model import NoticeLine, ScheduleNoticeLine
from profiler.record.record_model import CHECKPOINT, Report
from profiler.record.search_document_fields import FIELDS
from profiler.record.spot_price import FARGATE_SPOT, on_spot, spot_fraction

Fields: TypeAlias = dict[str, Any]
# The statuses of an event that replace a report's status.
KNOWN_END_STATUSES = frozenset({"success", "failure", "stopped"})
# The fields that only the task's event provides.
_EVENT_FIELDS = (
    *(
        "stop_code",
        "stop_category",
        "stopped_reason",
        "started_by",
        "out_of_memory",
        "capacity_provider",
    ),
    *("retry_of", "retried_as"),
)
# Elasticsearch and OpenSearch reject a whole bulk request if one id in it is longer.
MAX_ID_BYTES = 512
_MAX_SHOWN_LENGTH = 40


class Stored(Struct, frozen=True, kw_only=True):
    """A run's document in the search cluster: its fields of ``STORED_FIELDS``, and the version
    to write under.
    """

    fields: Mapping[str, Any]
    seq_no: int
    primary_term: int

    @property
    def has_report(self) -> bool:
        """Whether its numbers come from a report."""
        return mapping(self.fields.get("task")).get("complete") is True


class Document(Struct, frozen=True, kw_only=True):
    """One document to write. The ``id`` makes repeated writes idempotent."""

    index: str
    id: str
    fields: Mapping[str, Any]  # set in an existing document
    upsert: Mapping[str, Any] | None = None  # the fields of a new one; None: ``fields``
    is_report: bool = (
        False  # a document that exists is read first: the task's event may have written it
    )
    stored: Stored | None = None  # that document
    spot_fraction: float = (
        1.0  # of the run's cost, on Fargate Spot, which only the task's event shows
    )
    notice: NoticeLine | None = None

    @property
    def initial_fields(self) -> Mapping[str, Any]:
        return self.fields if self.upsert is None else self.upsert


def report_document(
    report: Report, text: str, settings: ForwarderSettings
) -> Document | InvalidReport:
    """The document of a report or checkpoint, in the index of the start of the image pull, else
    of the batch.
    """
    record = report.record
    written = parse_datetime(report.time)
    if written is None:
        return InvalidReport(
            f"The report's time {report.time[:40]!r} is not an RFC 3339 time between 1970 and 2200."
        )
    is_checkpoint = report.type == CHECKPOINT
    started = parse_datetime(record.started_at)
    began = written if started is None else subtract_ms(started, record.metrics.init_duration_ms)
    kind: IndexKind = "checkpoints" if is_checkpoint else "reports"
    document_id = f"{record.task_id}/{record.container.name}" + (
        f"/{report.time}" if is_checkpoint else ""
    )
    if len(document_id.encode()) > MAX_ID_BYTES:
        return InvalidReport(f"Task id and container name together exceed {MAX_ID_BYTES} bytes.")
    fields = {**run_fields(report, written), "record": replace_lone_surrogates(text)}
    if not is_checkpoint:
        fields["task"]["complete"] = True
    if links := links_of_line(report, settings.kibana_url).document_fields():
        fields["links"] = links
    return Document(
        index=settings.index(kind, began),
        id=document_id,
        fields=fields,
        is_report=not is_checkpoint,
        spot_fraction=spot_fraction(record.cost),
    )


def completed_fields(document: Document, stored: Stored) -> Fields:
    """The fields of a report, with those that the task's event has written; its status wins
    unless it is unknown.
    """
    task, event = mapping(stored.fields.get("task")), mapping(stored.fields.get("event"))
    kept = {
        name: task[name] for name in (*_EVENT_FIELDS, "exit_code") if task.get(name) is not None
    }
    fields = merge_fields(document.fields, cost_fields(document, task.get("capacity_provider")))
    merged = merge_fields(fields, {"task": kept})
    if task.get("status") not in KNOWN_END_STATUSES:
        return merged
    return merge_fields(
        merged, {"task": {"status": task["status"]}, "event": {"outcome": event.get("outcome")}}
    )


def cost_fields(document: Document, capacity_provider: object) -> Fields:
    """The cost of a report's run on Fargate Spot; empty on another capacity provider, and
    without a cost.
    """
    cost = document.fields.get("cost")
    if not cost or capacity_provider != FARGATE_SPOT:
        return {}
    return {"cost": {name: on_spot(usd, document.spot_fraction) for name, usd in cost.items()}}


def run_fields(report: Report, written: datetime) -> Fields:
    """The fields of a report or checkpoint, without its line."""
    record, is_checkpoint = report.record, report.type == CHECKPOINT
    finished = parse_datetime(record.finished_at)
    duration_ms = record.metrics.duration_ms
    record_fields = _read_fields(view_of(record))
    event = {
        "kind": "metric",
        "dataset": report.type,
        "outcome": event_outcome(record.status),
        "duration": None if duration_ms is None else round(duration_ms * NS_PER_MS),
        **record_fields.pop("event", {}),
    }
    return {
        "@timestamp": format_datetime(written if is_checkpoint or finished is None else finished),
        "event": drop_empty(event),
        **record_fields,
    }


def event_outcome(status: str) -> str:
    """``event.outcome`` as the Elastic Common Schema allows it: success, failure or unknown."""
    return status if status in {"success", "failure"} else "unknown"


def _read_fields(run: RunView) -> Fields:
    fields: Fields = {}
    for objects, getters in _GETTERS:
        values = {
            name: value
            for name, is_moment, get in getters
            if (
                value := known(format_datetime, parse_datetime(get(run))) if is_moment else get(run)
            )
            is not None
        }
        if values:
            node = fields
            for part in objects:
                node = node.setdefault(part, {})
            node.update(values)
    return fields


def drop_empty(fields: Fields) -> Fields:
    """Leave out absent values, and objects that are empty as a result."""
    kept: Fields = {}
    for name, value in fields.items():
        rest = drop_empty(value) if isinstance(value, dict) else value
        if rest is not None and rest != {}:
            kept[name] = rest
    return kept


def merge_fields(*parts: Mapping[str, Any]) -> Fields:
    """Objects merged at every level; later parts win."""
    merged: Fields = {}
    for part in parts:
        for name, value in part.items():
            present = merged.get(name)
            is_nested = isinstance(present, dict) and isinstance(value, dict)
            merged[name] = merge_fields(present or {}, value) if is_nested else value
    return merged


# The fields that a report needs of an existing document.
STORED_FIELDS = (
    *(f"task.{name}" for name in ("complete", "status", "exit_code", *_EVENT_FIELDS)),
    "event.outcome",
)
# By the path of an object: its fields of a record, whether each is a time, and the function that
# reads it.
_GETTERS = [
    (
        path,
        [
            (one.name.rpartition(".")[2], one.index_type == "date", one.get)
            for one in group
            if one.get is not None
        ],
    )
    for path, group in groupby(FIELDS, lambda one: one.name.split(".")[:-1])
]


def notice_document(
    line: NoticeLine, text: str, settings: ForwarderSettings
) -> Document | InvalidReport:
    """The document of a notice of a running task, or the reason why there is none.

    Its id: the run's, and the kind.
    """
    record, notice = line.record, line.notice
    document_id = f"{record.task_id}/{record.container.name}/{notice.kind}"
    if len(document_id.encode()) > MAX_ID_BYTES:
        return InvalidReport(
            f"Task id, container name and kind of the notification together exceed {MAX_ID_BYTES} "
            "bytes."
        )
    written = parse_datetime(line.time)
    if written is None:
        return InvalidReport(
            f"The notification's time {line.time[:_MAX_SHOWN_LENGTH]!r} is not an RFC 3339 time "
            "between 1970 and 2200."
        )
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,39}", notice.kind) is None:
        return InvalidReport(
            f"The notification's kind {notice.kind[:_MAX_SHOWN_LENGTH]!r} is not a word."
        )
    fields = {
        "notice": {
            "kind": notice.kind,
            "message": notice.message,
            "since": known(format_datetime, parse_datetime(notice.since)),
        },
        **_place(record.account_id, record.region, record.cluster, record.family),
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
    return _notice_document(line, text, fields, settings, written=written, document_id=document_id)


def schedule_notice_document(
    line: ScheduleNoticeLine, text: str, settings: ForwarderSettings
) -> Document:
    """The document of a notice of a schedule.

    Its id consists of the schedule, the due time and the kind.
    """
    notice = line.notice
    fields = {
        "notice": {
            "kind": notice.kind,
            "message": notice.message,
            "due_at": known(format_datetime, parse_datetime(notice.due_at)),
            "reason": notice.reason,
        },
        **_place(line.account_id, line.region, line.cluster, line.family),
        "task": {"id": notice.task_id, "family": line.family},
        "links": links_of_schedule_notice(line, settings.kibana_url).document_fields(),
        "schedule": asdict(line.schedule),
    }
    written = datetime.fromisoformat(line.time)
    return _notice_document(
        line, text, fields, settings, written=written, document_id=schedule_notice_id(line)
    )


def schedule_notice_id(line: ScheduleNoticeLine) -> str:
    """The schedule, the due time (the task of a notice without one), and the kind of the notice."""
    schedule, notice = line.schedule, line.notice
    subject = notice.due_at or notice.task_id or ""
    return "/".join((schedule.kind, schedule.group or "", schedule.name, subject, notice.kind))


def _notice_document(
    line: NoticeLine | ScheduleNoticeLine,
    text: str,
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
        **drop_empty(fields),
        "record": replace_lone_surrogates(text),
    }
    return Document(
        index=settings.index("notices", written), id=document_id, fields=whole, notice=notice
    )


def _place(
    account_id: str | None, region: str | None, cluster: str | None, family: str | None
) -> Fields:
    return {
        "cloud": {"provider": "aws", "account": {"id": account_id}, "region": region},
        "orchestrator": {"type": "ecs", "cluster": {"name": cluster_name(cluster)}},
        "service": {"name": family},
    }

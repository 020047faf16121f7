"""Builds the Slack message of a notice of a running task, and that of a notice of a schedule."""

from datetime import timedelta

from forwarder.notices import value_formats
from forwarder.notices.links import links_of_record, links_of_task
from forwarder.notices.notice_event import run_title, schedule_title
from forwarder.notices.slack_blocks import (
    MAX_HEADER_LENGTH,
    JsonObject,
    SlackMessage,
    buttons,
    context,
    escape_text,
    names_in_a_row,
    plain_text,
    section,
    utf16_length,
    value_fields,
)
from forwarder.notices.slack_message import usage_lines
from profiler.core.ecs_terms import cluster_name
from profiler.core.timestamps import parse_datetime
from profiler.record.notice_model import NoticeLine, ScheduleNoticeLine

_SIGN = "⚠️ "
_MAX_MESSAGE_LENGTH = 1000
_MAX_FALLBACK_LENGTH = 400
_MILLISECOND = timedelta(milliseconds=1)


def run_notice_message(line: NoticeLine, *, kibana_url: str | None) -> SlackMessage:
    """Build the message of a notice of a running task."""
    record, notice = line.record, line.notice
    location = (
        ("cluster", cluster_name(record.cluster)),
        ("", record.region),
        ("task", record.task_id),
        ("container", record.container.name),
    )
    values = (
        ("Running for", value_formats.duration(_elapsed_ms(line))),
        ("Since", _moment(notice.since)),
        ("Started", _moment(record.started_at)),
    )
    return _message(
        run_title(line),
        notice.message,
        context(names_in_a_row(location)),
        section([escape_text(notice.message, _MAX_MESSAGE_LENGTH)]),
        value_fields(values),
        section(usage_lines(record.metrics, record), formatted=True),
        buttons(links_of_record(record, kibana_url)),
    )


def schedule_notice_message(line: ScheduleNoticeLine, *, kibana_url: str | None) -> SlackMessage:
    """Build the message of a notice of a schedule."""
    schedule, notice = line.schedule, line.notice
    name = schedule.name if schedule.group is None else f"{schedule.group}/{schedule.name}"
    location = (
        ("cluster", cluster_name(line.cluster)),
        ("", line.region),
        ("family", line.family),
        ("rule" if schedule.kind == "rule" else "schedule", name),
        ("task", notice.task_id),
    )
    is_said = notice.reason is None or notice.reason.rstrip(".") in notice.message
    sentences = [notice.message] if is_said else [notice.message, f"Reason: {notice.reason}"]
    expression = f"{schedule.expression or ''} {schedule.time_zone or ''}".strip()
    return _message(
        schedule_title(line),
        notice.message,
        context(names_in_a_row(location)),
        section([escape_text(sentence, _MAX_MESSAGE_LENGTH) for sentence in sentences]),
        value_fields((("Due", _moment(notice.due_at)), ("Schedule", expression))),
        None
        if notice.task_id is None
        else buttons(links_of_task(line.region, line.cluster, notice.task_id, kibana_url)),
    )


def _message(title: str, sentence: str, *blocks: JsonObject | None) -> SlackMessage:
    header = _SIGN + escape_text(title, MAX_HEADER_LENGTH - utf16_length(_SIGN))
    return SlackMessage(
        text=f"{header}: {escape_text(sentence, _MAX_FALLBACK_LENGTH)}",
        blocks=[{"type": "header", "text": plain_text(header)}, *(block for block in blocks if block is not None)],
    )


def _elapsed_ms(line: NoticeLine) -> float | None:
    if line.record.metrics.duration_ms is not None:
        return line.record.metrics.duration_ms
    started, written = parse_datetime(line.record.started_at), parse_datetime(line.time)
    return None if started is None or written is None else (written - started) / _MILLISECOND


def _moment(text: str | None) -> str | None:
    moment = parse_datetime(text)
    return None if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"

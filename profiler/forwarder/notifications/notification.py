"""A notification, of an ended task, a running one or a schedule; and the channels that it is
posted to, once.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TypeAlias

from msgspec import Struct

from profiler.core.notice_channels import ChannelKind
from profiler.forwarder.ended_run import EndedRun
from profiler.forwarder.invocation import ForwarderError
from profiler.forwarder.job_notice import JobNotice
from profiler.forwarder.notice_documents import schedule_notice_id
from profiler.forwarder.notifications.idempotency import Idempotently
from profiler.record.notice_model import NoticeLine, ScheduleNoticeLine
from profiler.record.record_model import Record


class SummaryLine(Struct, frozen=True, kw_only=True):
    """A line of a summary. ``at`` is when it happened, ``url`` where to look, ``command`` what to
    run.
    """

    text: str
    at: datetime | None = None
    url: str | None = None
    command: str | None = None


class NightSummary(Struct, frozen=True, kw_only=True):
    """The runs whose ends became known since the last message in a sentence, and what is worth a
    line.

    ``night`` is the day on which it began, such as 2026-11-24, ``since`` the time.
    """

    night: str
    since: str
    title: str
    sentence: str
    lines: tuple[SummaryLine, ...] = ()


Notification: TypeAlias = EndedRun | JobNotice | NoticeLine | ScheduleNoticeLine | NightSummary


class NoticeChannel(Struct):
    """Posts stopped tasks, jobs, and notices of running tasks and of schedules."""

    name: str  # a part of the idempotency key: never change it
    # Raises NoticeError if the notification was not accepted.
    post: Callable[[Notification, ChannelKind], None]
    # Whether it is configured; may raise SettingsError.
    accepts: Callable[[ChannelKind], bool] = lambda _kind: True


def post_to_accepting_channels(
    channels: Sequence[NoticeChannel],
    notification: Notification,
    kind: ChannelKind,
    once: Idempotently,
    errors: list[ForwarderError],
) -> tuple[str, ...]:
    """Post to each channel that accepts the kind, once.

    Returns the channels that have the notification.
    """
    posted = []
    for channel in channels:
        try:
            if channel.accepts(kind):
                once(
                    f"{notification_key(notification)}#{channel.name}",
                    partial(channel.post, notification, kind),
                )
                posted.append(channel.name)
        except ForwarderError as error:
            errors.append(error)
    return tuple(posted)


def notice_key(record: Record, kind: str) -> str:
    """The key of a kind of notice of a run. Stored: never change it."""
    task = record.task_arn or f"{record.account_id or ''}/{record.task_id}"
    return f"{task}#{record.container.name}#{kind}"


def notification_key(notification: Notification) -> str:
    """The key of a task's or a job's end, of a night's beginning, of a kind of notice of a run, or
    of the outcome of a due time.

    Stored: never change it.
    """
    if isinstance(notification, EndedRun):
        return notification.task.arn
    if isinstance(notification, JobNotice):
        return notification.notification_key
    if isinstance(notification, NightSummary):
        return f"night#{notification.since}"
    notice = notification.notice
    if isinstance(notification, NoticeLine):
        return notice_key(notification.record, notice.kind)
    return f"schedule#{schedule_notice_id(notification)}"

"""Posts a notification to each channel, once."""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from profiler.forwarder.documents import schedule_notice_id
from profiler.forwarder.invocation import ForwarderError
from profiler.forwarder.notifications.idempotency import Idempotently
from profiler.forwarder.notifications.notification import ChannelKind, EndedTask, Notification
from profiler.record.notice_model import NoticeLine


class NoticeChannel(Struct):
    """Posts stopped tasks, and notices of running tasks and of schedules."""

    name: str  # a part of the idempotency key: never change it
    post: Callable[[Notification, ChannelKind], None]  # raises DeliveryError if the notification was not accepted
    accepts: Callable[[ChannelKind], bool] = lambda _kind: True  # whether it is configured; may raise SettingsError
    is_selective: bool = True  # NOTIFY and the like apply


def notify(
    channels: Sequence[NoticeChannel],
    notification: Notification,
    kind: ChannelKind,
    once: Idempotently,
    errors: list[ForwarderError],
) -> tuple[str, ...]:
    """Post to each channel that accepts the kind, once. Returns the channels that have the notification."""
    posted = []
    for channel in channels:
        try:
            if channel.accepts(kind):
                once(f"{notification_key(notification)}#{channel.name}", partial(channel.post, notification, kind))
                posted.append(channel.name)
        except ForwarderError as error:
            errors.append(error)
    return tuple(posted)


def notification_key(notification: Notification) -> str:
    """The key of a task's end, of a kind of notice of a run, or of a due time's outcome. Stored: never change it."""
    if isinstance(notification, EndedTask):
        return notification.task.arn
    notice = notification.notice
    if isinstance(notification, NoticeLine):
        record = notification.record
        return f"{record.task_arn or record.task_id}#{record.container.name}#{notice.kind}"
    return f"schedule#{schedule_notice_id(notification)}"

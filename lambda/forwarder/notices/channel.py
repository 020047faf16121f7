"""The interface of notice channels, and the posting of an announcement to each of them."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

from forwarder.delivery_errors import ForwarderError
from forwarder.notice_documents import schedule_notice_id
from forwarder.notices.ended_task import EndedTask
from forwarder.notices.idempotency import Idempotently
from profiler.record.notice_model import NoticeLine, ScheduleNoticeLine

ChannelKind = Literal["success", "failure"]
Announcement: TypeAlias = EndedTask | NoticeLine | ScheduleNoticeLine


class NoticeChannel(Protocol):
    """Announces stopped tasks, and notices of running tasks and of schedules.

    A new channel is a class with these members, in a module of its own, that ``configured_channels`` adds to its list.
    """

    @property
    def name(self) -> str:
        """A part of the idempotency key: never change it."""
        ...

    @property
    def is_selective(self) -> bool:
        """Whether NOTIFY, NOTIFY_FAMILIES and NOTIFY_SERVICES select the tasks; False: all tasks."""
        ...

    def accepts(self, kind: ChannelKind) -> bool:
        """Whether the channel is configured for successes, or for everything else. Raises SettingsError."""
        ...

    def post(self, announcement: Announcement, kind: ChannelKind) -> None:
        """Post the announcement. Raises DeliveryError if it was not accepted; Lambda must retry the event."""
        ...


def announce(
    channels: Sequence[NoticeChannel],
    announcement: Announcement,
    kind: ChannelKind,
    once: Idempotently,
    errors: list[ForwarderError],
) -> tuple[str, ...]:
    """Post the announcement to each channel that accepts its kind, at most once for each channel.

    A channel that fails does not prevent the others: its error is added to ``errors``.

    Returns:
        The names of the channels that have the announcement, now or since an earlier invocation.
    """
    posted = []
    for channel in channels:
        try:
            if channel.accepts(kind):
                once(f"{announcement_key(announcement)}#{channel.name}", _posting(channel, announcement, kind))
                posted.append(channel.name)
        except ForwarderError as error:
            errors.append(error)
    return tuple(posted)


def announcement_key(announcement: Announcement) -> str:
    """Return what is announced once: a task's end, a kind of notice of a run, or what became of a due time.

    Keys are stored for days: never change them.
    """
    if isinstance(announcement, EndedTask):
        return announcement.task.arn
    notice = announcement.notice
    if isinstance(announcement, NoticeLine):
        record = announcement.record
        return f"{record.task_arn or record.task_id}#{record.container.name}#{notice.kind}"
    return f"schedule#{schedule_notice_id(announcement)}"


def _posting(channel: NoticeChannel, announcement: Announcement, kind: ChannelKind) -> Callable[[], bool]:
    def post() -> bool:
        channel.post(announcement, kind)
        return True

    return post

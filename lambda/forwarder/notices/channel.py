"""The interface of notice channels, and the posting of a notice to each of them."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from forwarder.delivery_errors import ForwarderError
from forwarder.notices.ended_task import EndedTask
from forwarder.notices.idempotency import Idempotently

ChannelKind = Literal["success", "failure"]


class NoticeChannel(Protocol):
    """Announces stopped tasks.

    A new channel is a class with these members, in a module of its own, that ``handler.task_stopped`` adds to its list.
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
        """Whether the channel is configured for successes, or for all other outcomes. Raises SettingsError."""
        ...

    def post(self, notice: EndedTask, kind: ChannelKind) -> None:
        """Post the notice. Raises DeliveryError if it was not accepted; Lambda must retry the event."""
        ...


def announce(
    channels: Sequence[NoticeChannel],
    notice: EndedTask,
    kind: ChannelKind,
    once: Idempotently,
    errors: list[ForwarderError],
) -> tuple[str, ...]:
    """Post the notice to each channel that accepts it, at most once for each task and channel.

    A channel that fails does not prevent the others: its error is added to ``errors``.

    Returns:
        The names of the channels that have the notice, now or since an earlier invocation.
    """
    posted = []
    for channel in channels:
        try:
            if channel.accepts(kind):
                once(f"{notice.task.arn}#{channel.name}", _posting(channel, notice, kind))
                posted.append(channel.name)
        except ForwarderError as error:
            errors.append(error)
    return tuple(posted)


def _posting(channel: NoticeChannel, notice: EndedTask, kind: ChannelKind) -> Callable[[], bool]:
    def post() -> bool:
        channel.post(notice, kind)
        return True

    return post

"""Posts a notification to each channel, once for its key however often Lambda retries the invocation."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct

from profiler.core.aws_clients import bounded_config
from profiler.forwarder.documents import schedule_notice_id
from profiler.forwarder.invocation import DeliveryError, ForwarderError, InProgressError
from profiler.forwarder.notifications.notification import ChannelKind, EndedTask, Notification
from profiler.record.notice_model import NoticeLine

_Result = TypeVar("_Result")
# Runs the work at most once for a key: (key, work).
Idempotently = Callable[[str, Callable[[], object]], object]


class NoticeChannel(Struct):
    """Posts stopped tasks, and notices of running tasks and of schedules.

    ``name`` is a part of the idempotency key: never change it. ``post`` raises DeliveryError if the notification was
    not accepted. ``accepts``: the channel is configured for successes, or for everything else; it may raise
    SettingsError. NOTIFY and the like do not apply to a channel that is not selective.
    """

    name: str
    post: Callable[[Notification, ChannelKind], None]
    accepts: Callable[[ChannelKind], bool] = lambda _kind: True
    is_selective: bool = True


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


def run_idempotently(
    table: str | None,
    context: Any,  # noqa: ANN401  Lambda's context
    key: str,
    work: Callable[[], _Result],
) -> _Result:
    """Run ``work`` unless it succeeded before for this key; return its result, now or of the earlier run.

    The DynamoDB table keeps results for seven days; without one, the work runs each time. An error releases the key.
    Raises InProgressError if another invocation runs the work, DeliveryError if the table cannot be used.
    """
    if table is None:
        return work()
    from aws_lambda_powertools.utilities import idempotency  # slow to import, and needed only with a table
    from aws_lambda_powertools.utilities.idempotency import exceptions

    layer = idempotency.DynamoDBPersistenceLayer(
        table_name=table, key_attr="id", expiry_attr="expiration", boto_config=bounded_config()
    )
    config = idempotency.IdempotencyConfig(expires_after_seconds=7 * 24 * 3600, lambda_context=context)

    def run_work(*, notice_key: str) -> _Result:
        assert notice_key == key  # noqa: S101  Powertools reads the key from the argument
        return work()

    try:
        guarded: Callable[..., _Result] = idempotency.idempotent_function(
            run_work, data_keyword_argument="notice_key", persistence_store=layer, config=config
        )
        return guarded(notice_key=key)
    except exceptions.IdempotencyAlreadyInProgressError as error:
        raise InProgressError("Another invocation is posting this task's notification.") from error
    except exceptions.IdempotencyPersistenceLayerError as error:
        raise DeliveryError(
            f"The table {table} cannot be used: check IDEMPOTENCY_TABLE and that the function's role may write to it."
        ) from error

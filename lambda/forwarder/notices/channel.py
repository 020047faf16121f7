"""The interface of notice channels, and the guard that posts each notice only once to each of them."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from forwarder.delivery_errors import DeliveryError, ForwarderError
from forwarder.notices.notice import Notice
from profiler.core.aws_clients import bounded_config

NoticeKind = Literal["success", "failure"]
# Runs the work at most once for a key: (key, work).
Idempotently = Callable[[str, Callable[[], bool]], bool]

_RETENTION_SECONDS = 7 * 24 * 60 * 60
_KEY_ATTRIBUTE, _EXPIRY_ATTRIBUTE = "id", "expiration"


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

    def accepts(self, kind: NoticeKind) -> bool:
        """Whether the channel is configured for successes, or for all other outcomes. Raises SettingsError."""
        ...

    def post(self, notice: Notice, kind: NoticeKind) -> None:
        """Post the notice. Raises DeliveryError if it was not accepted; Lambda must retry the event."""
        ...


def announce(
    channels: Sequence[NoticeChannel],
    notice: Notice,
    kind: NoticeKind,
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
                once(f"{notice.task_arn or notice.task_id}#{channel.name}", _posting(channel, notice, kind))
                posted.append(channel.name)
        except ForwarderError as error:
            errors.append(error)
    return tuple(posted)


def _posting(channel: NoticeChannel, notice: Notice, kind: NoticeKind) -> Callable[[], bool]:
    def post() -> bool:
        channel.post(notice, kind)
        return True

    return post


def run_idempotently(table: str, context: Any, key: str, work: Callable[[], bool]) -> bool:  # noqa: ANN401  Lambda's context
    """Run ``work`` unless it succeeded before for this key; return its result, now or of the earlier run.

    Args:
        table: the DynamoDB table that stores the results for seven days.
        context: Lambda's context; Powertools derives the time limit of a running attempt from it.
        key: the key in the table.
        work: an error that it raises releases the key, so that a retry runs it again.

    Raises:
        DeliveryError: another invocation is running the work, or the table cannot be used.
    """
    from aws_lambda_powertools.utilities import idempotency  # slow to import, and needed only with a table
    from aws_lambda_powertools.utilities.idempotency import exceptions

    layer = idempotency.DynamoDBPersistenceLayer(
        table_name=table, key_attr=_KEY_ATTRIBUTE, expiry_attr=_EXPIRY_ATTRIBUTE, boto_config=bounded_config()
    )
    config = idempotency.IdempotencyConfig(expires_after_seconds=_RETENTION_SECONDS, lambda_context=context)

    def run_work(*, notice_key: str) -> bool:
        assert notice_key == key  # noqa: S101  Powertools reads the key from the argument
        return work()

    try:
        return bool(
            idempotency.idempotent_function(
                run_work, data_keyword_argument="notice_key", persistence_store=layer, config=config
            )(notice_key=key)
        )
    except exceptions.IdempotencyAlreadyInProgressError as error:
        raise DeliveryError("Another invocation is posting the notice of this task at this moment.") from error
    except exceptions.IdempotencyPersistenceLayerError as error:
        raise DeliveryError(
            f"The table {table} cannot be used: check IDEMPOTENCY_TABLE and that the function's role may write to it."
        ) from error

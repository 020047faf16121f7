"""The interface of notice channels, and the guard that posts each notice only once."""

from collections.abc import Callable
from typing import Any, Literal, Protocol

from forwarder.errors import DeliveryError
from forwarder.notices.notice import Notice

NoticeKind = Literal["success", "failure"]
# Runs the work at most once for a key: (key, work) -> the result of the work, now or of the earlier run.
Idempotently = Callable[[str, Callable[[], bool]], bool]

_RETENTION_SECONDS = 7 * 24 * 60 * 60
_KEY_ATTRIBUTE, _EXPIRY_ATTRIBUTE = "id", "expiration"


class NoticeChannel(Protocol):
    """Posts notices of stopped tasks, once for each task.

    A new channel is a class with this method, in a module of its own, that ``handler.task_stopped`` builds from the
    settings.
    """

    def post(self, notice: Notice, kind: NoticeKind) -> bool:
        """Post the notice of a success or of any other outcome.

        Returns:
            True if the notice was posted, now or before; False if the channel is not configured for this kind.

        Raises:
            DeliveryError: the notice was not accepted; Lambda must retry the event.
        """
        ...


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
        table_name=table, key_attr=_KEY_ATTRIBUTE, expiry_attr=_EXPIRY_ATTRIBUTE
    )
    config = idempotency.IdempotencyConfig(expires_after_seconds=_RETENTION_SECONDS, lambda_context=context)

    def run_work(*, task_arn: str) -> bool:
        assert task_arn == key  # noqa: S101  Powertools reads the key from the argument
        return work()

    try:
        return bool(
            idempotency.idempotent_function(
                run_work, data_keyword_argument="task_arn", persistence_store=layer, config=config
            )(task_arn=key)
        )
    except exceptions.IdempotencyAlreadyInProgressError as error:
        raise DeliveryError("Another invocation is posting the notice of this task at this moment.") from error
    except exceptions.IdempotencyPersistenceLayerError as error:
        raise DeliveryError(
            f"The table {table} cannot be used: check IDEMPOTENCY_TABLE and that the function's role may write to it."
        ) from error

"""Posts each notice only once: a DynamoDB table keeps the keys of posted notices."""

from collections.abc import Callable
from typing import Any

from forwarder.delivery_errors import DeliveryError, InProgressError
from profiler.core.aws_clients import bounded_config

# Runs the work at most once for a key: (key, work).
Idempotently = Callable[[str, Callable[[], bool]], bool]

_RETENTION_SECONDS = 7 * 24 * 60 * 60
_KEY_ATTRIBUTE, _EXPIRY_ATTRIBUTE = "id", "expiration"


def run_idempotently(table: str, context: Any, key: str, work: Callable[[], bool]) -> bool:  # noqa: ANN401  Lambda's context
    """Run ``work`` unless it succeeded before for this key; return its result, now or of the earlier run.

    Args:
        table: the DynamoDB table that stores the results for seven days.
        context: Lambda's context; Powertools derives the time limit of a running attempt from it.
        key: the key in the table.
        work: an error that it raises releases the key, so that a retry runs it again.

    Raises:
        InProgressError: another invocation is running the work.
        DeliveryError: the table cannot be used.
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
        raise InProgressError("Another invocation is posting this task's notification.") from error
    except exceptions.IdempotencyPersistenceLayerError as error:
        raise DeliveryError(
            f"The table {table} cannot be used: check IDEMPOTENCY_TABLE and that the function's role may write to it."
        ) from error

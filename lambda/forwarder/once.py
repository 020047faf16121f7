"""At most once for each task, and not lost: Powertools' idempotency in DynamoDB.

The key is held while the work is done and freed if it fails, so that Lambda's next try does it.
"""

from collections.abc import Callable
from typing import Any

from forwarder.errors import DeliveryError

_RETENTION_SECONDS = 7 * 24 * 60 * 60
_KEY, _EXPIRY = "id", "expiration"


def run_idempotently(table: str, context: Any, key: str, work: Callable[[], bool]) -> bool:  # noqa: ANN401  Lambda's context
    """What ``work`` answers, or answered before for this key. Raises what it raises."""
    from aws_lambda_powertools.utilities import idempotency  # noqa: PLC0415  heavy, and only where a table is set
    from aws_lambda_powertools.utilities.idempotency import exceptions  # noqa: PLC0415

    layer = idempotency.DynamoDBPersistenceLayer(table_name=table, key_attr=_KEY, expiry_attr=_EXPIRY)
    config = idempotency.IdempotencyConfig(expires_after_seconds=_RETENTION_SECONDS, lambda_context=context)

    def run_work(*, task_arn: str) -> bool:
        assert task_arn == key  # noqa: S101  Powertools takes the key from the argument
        return work()

    try:
        return bool(
            idempotency.idempotent_function(
                run_work, data_keyword_argument="task_arn", persistence_store=layer, config=config
            )(task_arn=key)
        )
    except exceptions.IdempotencyAlreadyInProgressError as error:
        raise DeliveryError("Another invocation is telling of this task at this moment.") from error
    except exceptions.IdempotencyPersistenceLayerError as error:
        raise DeliveryError(
            f"The table {table} cannot be used: check IDEMPOTENCY_TABLE and that the function's role may write to it."
        ) from error

"""Work that is done once for a key, however often Lambda retries the invocation."""

from collections.abc import Callable
from typing import Any, TypeVar

from profiler.core.aws_clients import bounded_config
from profiler.core.queue_messages import KEPT_SECONDS, TRIED_SECONDS
from profiler.core.timestamps import MS_PER_SECOND
from profiler.forwarder.invocation import DeliveryError, InProgressError

_Result = TypeVar("_Result")
# An event may be redriven on the last day of its message, fail again, and be redriven once more.
KEY_SECONDS = 2 * (KEPT_SECONDS + TRIED_SECONDS)
# Runs the work at most once for a key: (key, work).
Idempotently = Callable[[str, Callable[[], object]], object]


class EndlessLambdaContext:
    """Lambda's context of work that is never done again after it was interrupted: its key is busy
    as long as it is kept.
    """

    def get_remaining_time_in_millis(self) -> int:
        return KEY_SECONDS * MS_PER_SECOND


def run_idempotently(
    table: str | None,
    context: Any,  # noqa: ANN401  Lambda's context
    key: str,
    work: Callable[[], _Result],
) -> _Result:
    """Run ``work`` unless it succeeded before for this key; return its result, now or of the
    earlier run.

    The DynamoDB table keeps results for four weeks; without one, the work runs each time. An error
    releases the key. Raises InProgressError if another invocation runs the work, DeliveryError if
    the table cannot be used.
    """
    if table is None:
        return work()
    # Slow to import, and needed only with a table.
    from aws_lambda_powertools.utilities import idempotency
    from aws_lambda_powertools.utilities.idempotency import exceptions

    layer = idempotency.DynamoDBPersistenceLayer(
        table_name=table, key_attr="id", expiry_attr="expiration", boto_config=bounded_config()
    )
    config = idempotency.IdempotencyConfig(
        expires_after_seconds=KEY_SECONDS, lambda_context=context
    )

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
            f"The table {table} cannot be used: check IDEMPOTENCY_TABLE and that the function's "
            "role may write to it."
        ) from error

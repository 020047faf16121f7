"""Work that is done once for a key, however often Lambda retries the invocation."""

import random
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from profiler.core.aws_clients import bounded_client
from profiler.core.aws_error_codes import error_code, may_succeed_later
from profiler.core.aws_lost_answers import has_lost_attempt
from profiler.core.queue_messages import KEPT_SECONDS, TRIED_SECONDS
from profiler.core.timestamps import MS_PER_HOUR, MS_PER_SECOND
from profiler.forwarder.invocation import DeliveryError, ForwarderError, InProgressError

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
        # Two invocations know their keys by the ends, and may begin in one millisecond.
        return KEY_SECONDS * MS_PER_SECOND + random.randrange(MS_PER_HOUR)  # noqa: S311  no secret


def run_idempotently(
    table: str | None,
    context: Any,  # noqa: ANN401  Lambda's context
    key: str,
    work: Callable[[], _Result],
) -> _Result:
    """Run ``work`` unless it succeeded before for this key; return its result, now or of the
    earlier run.

    The DynamoDB table keeps results for four weeks; without one, the work runs each time. An error
    releases the key, and is raised also if that fails. Raises InProgressError if another invocation
    runs the work, DeliveryError if the table cannot be used.
    """
    if table is None:
        return work()
    # Slow to import, and needed only with a table.
    from aws_lambda_powertools.utilities import idempotency
    from aws_lambda_powertools.utilities.idempotency import exceptions

    layer = _key_table_type()(
        table_name=table,
        key_attr="id",
        expiry_attr="expiration",
        boto3_client=bounded_client("dynamodb"),
    )
    failures: list[ForwarderError] = []
    config = idempotency.IdempotencyConfig(
        expires_after_seconds=KEY_SECONDS, lambda_context=context
    )

    def run_work(*, notice_key: str) -> _Result:
        assert notice_key == key  # noqa: S101  Powertools reads the key from the argument
        try:
            return work()
        except ForwarderError as error:
            failures.append(error)
            raise

    try:
        guarded: Callable[..., _Result] = idempotency.idempotent_function(
            run_work, data_keyword_argument="notice_key", persistence_store=layer, config=config
        )
        return guarded(notice_key=key)
    except (
        exceptions.IdempotencyAlreadyInProgressError,
        exceptions.IdempotencyInconsistentStateError,
    ) as error:
        raise InProgressError("Another invocation is posting this task's notification.") from error
    except exceptions.IdempotencyPersistenceLayerError as error:
        if failures:
            raise failures[0] from error
        raise table_refusal(table, error.__cause__ or error) from error


@cache
def _key_table_type() -> Any:  # noqa: ANN401  Powertools' class, which is slow to import
    from aws_lambda_powertools.utilities import idempotency
    from aws_lambda_powertools.utilities.idempotency import exceptions

    class KeyTable(idempotency.DynamoDBPersistenceLayer):
        """Knows its own key: botocore repeats a call whose answer was lost, and the condition then
        fails because of what the first attempt has written.
        """

        def _put_record(self, data_record: Any) -> None:  # noqa: ANN401  Powertools' record
            try:
                super()._put_record(data_record)
            except exceptions.IdempotencyItemAlreadyExistsError as error:
                kept = error.old_data_record
                end_ms = data_record.in_progress_expiry_timestamp
                is_own = kept is not None and kept.in_progress_expiry_timestamp == end_ms
                refusal = getattr(error.__cause__, "response", {})
                if not (is_own and has_lost_attempt(refusal)):
                    raise

    return KeyTable


def table_refusal(table: str, error: BaseException) -> DeliveryError:
    """Why the table of keys was not used, by boto3's error, and what to do."""
    refused = error if isinstance(error, Exception) else Exception()
    said = f"The table {table} cannot be used ({error_code(refused)})"
    if may_succeed_later(refused):
        return DeliveryError(f"{said} at this moment: the next invocation tries again.")
    return DeliveryError(
        f"{said}: check IDEMPOTENCY_TABLE and that the function's role may write to it."
    )

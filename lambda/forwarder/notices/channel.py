"""Sends the notice of an ended task, once for each task, each kind to its own channel."""

import random
from collections.abc import Callable, Mapping
from typing import Any

from forwarder.errors import DeliveryError
from forwarder.invocation import TimeBudget
from forwarder.notices.notice import Notice
from forwarder.notices.slack_message import message
from forwarder.notices.slack_sender import SlackSender
from forwarder.notices.slack_settings import SlackTarget

_RETENTION_SECONDS = 7 * 24 * 60 * 60
_KEY, _EXPIRY = "id", "expiration"


def run_idempotently(table: str, context: Any, key: str, work: Callable[[], bool]) -> bool:  # noqa: ANN401  Lambda's context
    """What ``work`` answers, or answered before for this key. Raises what it raises."""
    from aws_lambda_powertools.utilities import idempotency  # heavy, and only where a table is set
    from aws_lambda_powertools.utilities.idempotency import exceptions

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


# Does the work at most once for a key: (key, work) -> what the work answers.
Idempotently = Callable[[str, Callable[[], bool]], bool]


class SlackNoticeChannel:
    """Sends notices. A kind without a target is off."""

    def __init__(
        self,
        targets: Mapping[str, SlackTarget],
        time: TimeBudget,
        idempotently: Idempotently,
        *,
        kibana_url: str | None = None,
    ) -> None:
        self._targets = targets
        self._time = time
        self._idempotently = idempotently
        self._kibana_url = kibana_url

    def post(self, notice: Notice, kind: str) -> bool:
        """Send it, unless its task has been told of already. Raises NoticeError."""
        target = self._targets.get(kind)
        if target is None:
            return False

        def send() -> bool:
            sender = SlackSender(target, self._time, random.random)
            sender.send(message(notice, kibana_url=self._kibana_url))
            return True

        return self._idempotently(notice.task_arn or notice.task_id, send)

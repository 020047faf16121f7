"""Sends each channel the runs whose ends became known since its last morning message, and remembers
what it has.

A channel's message is kept in the table of keys without a date of expiry. A message that was not
accepted is part of the next one, and the other channels do not wait for it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from profiler.core.aws_clients import AwsClient
from profiler.core.aws_error_codes import error_code
from profiler.core.json_fields import decoded_or_none, field_at, text_or_none
from profiler.core.optional_math import first_known
from profiler.forwarder.invocation import ForwarderError
from profiler.forwarder.night_period import (
    MIN_PERIOD_NS,
    NightPeriod,
    RememberedNight,
    night_within_lookback,
    remembered_before_first,
)
from profiler.forwarder.notifications.idempotency import Idempotently, table_refusal
from profiler.forwarder.notifications.notification import (
    NightSummary,
    NoticeChannel,
    notification_key,
)

_ATTRIBUTE = "remembered"


class NightMessage(Struct, frozen=True, kw_only=True):
    """A summary, and what the next one must know."""

    summary: NightSummary
    remembered: RememberedNight


class LastMessageStore(Protocol):
    """What the last message to a channel has counted."""

    def last_remembered(self, channel: str, first: RememberedNight) -> RememberedNight:
        """What the last message to the channel has counted; before the first message ``first``,
        which is kept. Raises DeliveryError.
        """
        ...

    def remember(self, channel: str, remembered: RememberedNight) -> None:
        """Raises DeliveryError."""
        ...


class StoredLastMessages(Struct, frozen=True, kw_only=True):
    """The messages as items of the table of keys."""

    table: str
    client: AwsClient

    def last_remembered(self, channel: str, first: RememberedNight) -> RememberedNight:
        stored = self._read_item(channel)
        if stored is None:
            # Of two invocations at once, one is first; a retry has the same beginning.
            self._write_item(channel, first, "attribute_not_exists(id)")
            stored = self._read_item(channel)
        return first_known(stored, first)

    def remember(self, channel: str, remembered: RememberedNight) -> None:
        self._write_item(channel, remembered, "attribute_not_exists(id) OR end_ns < :end_ns")

    def _read_item(self, channel: str) -> RememberedNight | None:
        answer = self._call_with_condition(
            self.client.get_item, Key={"id": {"S": _item_key(channel)}}, ConsistentRead=True
        )
        stored = text_or_none(field_at(answer, f"Item.{_ATTRIBUTE}.S"))
        if stored is None:
            return None
        return decoded_or_none(lambda line: msgspec.json.decode(line, type=RememberedNight), stored)

    def _write_item(self, channel: str, remembered: RememberedNight, condition: str) -> None:
        values = {}
        if ":end_ns" in condition:
            values = {"ExpressionAttributeValues": {":end_ns": {"N": str(remembered.end_ns)}}}
        item = {
            "id": {"S": _item_key(channel)},
            "end_ns": {"N": str(remembered.end_ns)},
            _ATTRIBUTE: {"S": msgspec.json.encode(remembered).decode()},
        }
        self._call_with_condition(
            self.client.put_item, Item=item, ConditionExpression=condition, **values
        )

    def _call_with_condition(
        self,
        method: Callable[..., Any],
        **arguments: object,
    ) -> Any:  # noqa: ANN401
        """The answer; None if a condition does not hold: another invocation was first."""
        from botocore.exceptions import BotoCoreError, ClientError  # slow to import

        try:
            return method(TableName=self.table, **arguments)
        except (BotoCoreError, ClientError) as error:
            if error_code(error) == "ConditionalCheckFailedException":
                return None
            raise table_refusal(self.table, error) from error


def _item_key(channel: str) -> str:
    """Stored: never change it."""
    return f"morning-digest#{channel}"


class DigestSender(Struct, frozen=True, kw_only=True):
    """One morning. ``message_of`` reads what became known in a period."""

    last_messages: LastMessageStore
    message_of: Callable[[NightPeriod], NightMessage]
    once: Idempotently
    period_of: Callable[[RememberedNight], NightPeriod]
    now_ns: int

    def send(
        self, channels: Sequence[NoticeChannel], errors: list[ForwarderError]
    ) -> tuple[NightSummary, ...]:
        """Send each channel that gets successes its message. Returns those that were sent."""
        messages: dict[RememberedNight, NightMessage] = {}
        sent: list[NightSummary] = []
        for channel in channels:
            try:
                if channel.accepts("success"):
                    sent += self._send_and_yield_summaries(channel, messages)
            except ForwarderError as error:
                errors.append(error)
        return tuple(sent)

    def _send_and_yield_summaries(
        self, channel: NoticeChannel, messages: dict[RememberedNight, NightMessage]
    ) -> Iterator[NightSummary]:
        """Channels with the same last message get the same one."""
        first = remembered_before_first(self.now_ns)
        last = night_within_lookback(
            self.last_messages.last_remembered(channel.name, first), self.now_ns
        )
        while self.now_ns - last.end_ns >= MIN_PERIOD_NS:
            if last not in messages:
                messages[last] = self.message_of(self.period_of(last))
            message = messages[last]

            def post(message: NightMessage = message) -> str:
                channel.post(message.summary, "success")
                return msgspec.json.encode(message.remembered).decode()

            posted = self.once(f"{notification_key(message.summary)}#{channel.name}", post)
            remembered = msgspec.json.decode(str(posted), type=RememberedNight)
            self.last_messages.remember(channel.name, remembered)
            if remembered == message.remembered:
                yield message.summary
            # An earlier invocation has sent a shorter one and was ended before it said so.
            last = remembered

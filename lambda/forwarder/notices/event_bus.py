"""The channel of notices that are EventBridge events."""

from collections.abc import Callable
from typing import Any

import msgspec

from forwarder.delivery_errors import NoticeError
from forwarder.notices.channel import ChannelKind
from forwarder.notices.ended_run import ended_run
from forwarder.notices.ended_task import EndedTask

SOURCE = "task-profiler"
DETAIL_TYPE = "Task Run Ended"
_MAX_CODE_LENGTH = 100


class EventBusChannel:
    """Puts one event on an EventBridge bus for each ended run. See ``NoticeChannel``.

    Args:
        bus: the name or the ARN of the bus.
        client: returns boto3's client of EventBridge, which is slow to build.
        kibana_url: the address for the links; None: no link to Kibana.
    """

    name = "event-bus"
    is_selective = True

    def __init__(self, bus: str, client: Callable[[], Any], *, kibana_url: str | None = None) -> None:
        self._bus = bus
        self._client = client
        self._kibana_url = kibana_url

    def accepts(self, kind: ChannelKind) -> bool:  # noqa: ARG002  part of the interface
        """See ``NoticeChannel``: every kind, because the rules on the bus select."""
        return True

    def post(self, notice: EndedTask, kind: ChannelKind) -> None:  # noqa: ARG002  part of the interface
        """Put the event. Raises NoticeError."""
        from botocore.exceptions import BotoCoreError, ClientError  # slow to import, and not always needed

        entry = {
            "Source": SOURCE,
            "DetailType": DETAIL_TYPE,
            "Detail": msgspec.json.encode(ended_run(notice, kibana_url=self._kibana_url)).decode(),
            "EventBusName": self._bus,
            "Resources": [notice.task.arn] if notice.task.arn else [],
        }
        try:
            response = self._client().put_events(Entries=[entry])
        except ClientError as error:
            raise self._error(error.response.get("Error", {}).get("Code")) from error
        except BotoCoreError as error:
            raise self._error(type(error).__name__) from error
        if response.get("FailedEntryCount"):
            raise self._error(response["Entries"][0].get("ErrorCode"))

    def _error(self, code: object) -> NoticeError:
        return NoticeError(
            f"The event bus {self._bus} did not accept the event ({str(code)[:_MAX_CODE_LENGTH]}): check "
            "EVENT_BUS_NAME and that the function's role has the permission events:PutEvents on the bus."
        )

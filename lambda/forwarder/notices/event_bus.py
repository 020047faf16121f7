"""The channel of notices that are EventBridge events."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from forwarder.delivery_errors import NoticeError
from forwarder.notices.channel import Announcement, ChannelKind
from forwarder.notices.ended_task import EndedTask
from profiler.record.notice_model import NoticeLine

SOURCE = "task-profiler"
_MAX_CODE_LENGTH = 100


class BusEvent(Struct, frozen=True, kw_only=True):
    """What an event says: its type, its detail, and the task that is its resource."""

    detail_type: str
    detail: Struct
    task_arn: str | None = None


def bus_event(announcement: Announcement, *, kibana_url: str | None) -> BusEvent:
    """Return the event of an announcement."""
    if isinstance(announcement, EndedTask):
        from forwarder.notices.ended_run import ended_run  # a function announces either ended tasks or notices

        run = ended_run(announcement, kibana_url=kibana_url)
        return BusEvent(detail_type="Task Run Ended", detail=run, task_arn=announcement.task.arn)
    from forwarder.notices import notice_event

    if isinstance(announcement, NoticeLine):
        notice = notice_event.run_notice(announcement, kibana_url=kibana_url)
        return BusEvent(detail_type="Task Run Notice", detail=notice, task_arn=notice.task_arn)
    detail = notice_event.schedule_notice(announcement, kibana_url=kibana_url)
    return BusEvent(detail_type="Schedule Notice", detail=detail)


class EventBusChannel:
    """Puts one event on an EventBridge bus for each announcement. See ``NoticeChannel``.

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

    def post(self, announcement: Announcement, kind: ChannelKind) -> None:  # noqa: ARG002  part of the interface
        """Put the event. Raises NoticeError."""
        from botocore.exceptions import BotoCoreError, ClientError  # slow to import, and not always needed

        event = bus_event(announcement, kibana_url=self._kibana_url)
        entry = {
            "Source": SOURCE,
            "DetailType": event.detail_type,
            "Detail": msgspec.json.encode(event.detail).decode(),
            "EventBusName": self._bus,
            "Resources": [event.task_arn] if event.task_arn else [],
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

"""The channels of notifications: Slack, an EventBridge bus, and the log of the function."""

import random
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from profiler.core.aws_clients import AwsClient, error_code
from profiler.forwarder.delivery_errors import NoticeError
from profiler.forwarder.function_settings import NoticeSettings, fetch_secret
from profiler.forwarder.invocation_time import TimeBudget
from profiler.forwarder.notices.announcements import Announcement, ChannelKind, EndedTask, NoticeChannel
from profiler.forwarder.notices.event_details import LINE_TYPE, bus_event, ended_run
from profiler.forwarder.notices.slack_messages import message_of
from profiler.forwarder.notices.slack_sender import SlackTarget, read_targets, send

SOURCE = "task-profiler"


class SlackNoticeChannel(Struct, frozen=True):
    """Posts notices to Slack, to the target of each kind. See ``NoticeChannel``."""

    name = "slack"
    is_selective = True

    targets: Callable[[], Mapping[ChannelKind, SlackTarget]]
    budget: TimeBudget
    kibana_url: str | None = None

    def accepts(self, kind: ChannelKind) -> bool:
        return kind in self.targets()

    def post(self, announcement: Announcement, kind: ChannelKind) -> None:
        send(self.targets()[kind], message_of(announcement, kibana_url=self.kibana_url), self.budget, random.random)


class EventBusChannel(Struct, frozen=True):
    """Puts one event on an EventBridge bus (a name or an ARN) for each announcement. See ``NoticeChannel``.

    Every kind is accepted, because the rules on the bus select. boto3's client is slow to build.
    """

    name = "event-bus"
    is_selective = True

    bus: str
    client: Callable[[], Any]
    kibana_url: str | None = None

    def accepts(self, kind: ChannelKind) -> bool:  # noqa: ARG002  part of the interface
        return True

    def post(self, announcement: Announcement, kind: ChannelKind) -> None:  # noqa: ARG002  part of the interface
        from botocore.exceptions import BotoCoreError, ClientError  # slow to import, and not always needed

        event = bus_event(announcement, kibana_url=self.kibana_url)
        entry = {
            "Source": SOURCE,
            "DetailType": event.detail_type,
            "Detail": msgspec.json.encode(event.detail).decode(),
            "EventBusName": self.bus,
            "Resources": [event.task_arn] if event.task_arn else [],
        }
        try:
            response = self.client().put_events(Entries=[entry])
        except (ClientError, BotoCoreError) as error:
            raise self._error(error_code(error)) from error
        if response.get("FailedEntryCount"):
            raise self._error(response["Entries"][0].get("ErrorCode"))

    def _error(self, code: object) -> NoticeError:
        return NoticeError(
            f"The event bus {self.bus} did not accept the event ({str(code)[:100]}): check "
            "EVENT_BUS_NAME and that the function's role has the permission events:PutEvents on the bus."
        )


class LogLineChannel(Struct, frozen=True):
    """Prints each ended run as a JSON line: without a search cluster, the function's log is the list of all runs.

    A notice is a line of a log already.
    """

    name = "log"
    is_selective = False

    write: Callable[[str], None]
    kibana_url: str | None = None

    def accepts(self, kind: ChannelKind) -> bool:  # noqa: ARG002  part of the interface
        return True

    def post(self, announcement: Announcement, kind: ChannelKind) -> None:  # noqa: ARG002  part of the interface
        if isinstance(announcement, EndedTask):
            run = msgspec.to_builtins(ended_run(announcement, kibana_url=self.kibana_url))
            self.write(msgspec.json.encode({"type": LINE_TYPE, **run}).decode())


def configured_channels(
    settings: NoticeSettings,
    environment: Mapping[str, str],
    budget: TimeBudget,
    events_client: Callable[[], AwsClient],
) -> list[NoticeChannel]:
    """Return Slack's channel, which accepts no notice without a target, and the bus if the settings name one."""
    kibana_url = settings.kibana_url
    slack = SlackNoticeChannel(lambda: read_targets(environment, fetch_secret), budget, kibana_url=kibana_url)
    if settings.event_bus_name is None:
        return [slack]
    return [slack, EventBusChannel(settings.event_bus_name, events_client, kibana_url=kibana_url)]

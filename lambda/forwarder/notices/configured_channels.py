"""The channels that the settings configure for both the function and the preview: Slack and the event bus."""

from collections.abc import Callable, Mapping

from forwarder.function_settings import NoticeSettings, fetch_secret
from forwarder.invocation_time import TimeBudget
from forwarder.notices.channel import NoticeChannel
from forwarder.notices.event_bus import EventBusChannel
from forwarder.notices.slack_channel import SlackNoticeChannel
from forwarder.notices.slack_settings import read_targets
from profiler.core.aws_clients import AwsClient


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

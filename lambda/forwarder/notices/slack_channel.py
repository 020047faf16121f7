"""The channel of notices that are Slack messages."""

import random
from collections.abc import Callable, Mapping

from forwarder.delivery_errors import SettingsError
from forwarder.invocation_time import TimeBudget
from forwarder.notices.channel import Announcement, ChannelKind
from forwarder.notices.ended_task import EndedTask
from forwarder.notices.slack_blocks import SlackMessage
from forwarder.notices.slack_settings import SlackTarget
from profiler.record.notice_model import NoticeLine


class SlackNoticeChannel:
    """Posts notices to Slack. See ``NoticeChannel``.

    Args:
        targets: reads the target of each kind; raises SettingsError.
        budget: the time for all requests and retries.
        kibana_url: the address for the button; None: no button.
    """

    name = "slack"
    is_selective = True

    def __init__(
        self,
        targets: Callable[[], Mapping[ChannelKind, SlackTarget]],
        budget: TimeBudget,
        *,
        kibana_url: str | None = None,
    ) -> None:
        self._targets = targets
        self._budget = budget
        self._kibana_url = kibana_url

    def accepts(self, kind: ChannelKind) -> bool:
        """Whether Slack has a target for this kind."""
        return kind in self._targets()

    def post(self, announcement: Announcement, kind: ChannelKind) -> None:
        """Send the message."""
        from forwarder.notices.slack_sender import send  # imports slack_sdk, which is not always needed

        target = self._targets().get(kind)
        if target is None:
            raise SettingsError(f"No channel is configured for {kind}: set SLACK_{kind.upper()}_WEBHOOK_URL.")
        send(target, message_of(announcement, kibana_url=self._kibana_url), self._budget, random.random)


def message_of(announcement: Announcement, *, kibana_url: str | None) -> SlackMessage:
    """Build the message of an announcement. Never raises, because an error here would lose the notice."""
    if isinstance(announcement, EndedTask):
        from forwarder.notices import slack_message  # a function announces either ended tasks or notices

        return slack_message.message(announcement, kibana_url=kibana_url)
    from forwarder.notices import notice_message

    if isinstance(announcement, NoticeLine):
        return notice_message.run_notice_message(announcement, kibana_url=kibana_url)
    return notice_message.schedule_notice_message(announcement, kibana_url=kibana_url)

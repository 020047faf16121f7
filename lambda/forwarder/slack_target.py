"""Where a notice goes in Slack, and the settings that say so. Shown without their secrets."""

from msgspec import Struct


class SlackWebhook(Struct, frozen=True, kw_only=True):
    """An incoming webhook. ``setting`` names the setting that the address is from."""

    url: str
    setting: str

    def __repr__(self) -> str:
        """The address is a secret."""
        return f"SlackWebhook({self.setting})"


class SlackBot(Struct, frozen=True, kw_only=True):
    """A bot that writes into a channel. ``base_url`` includes ``/api/``; None: Slack's own."""

    token: str
    channel: str
    channel_setting: str
    token_setting: str = "SLACK_BOT_TOKEN"  # noqa: S105  the setting's name
    base_url: str | None = None

    def __repr__(self) -> str:
        """The token is a secret."""
        return f"SlackBot({self.channel_setting})"


SlackTarget = SlackWebhook | SlackBot

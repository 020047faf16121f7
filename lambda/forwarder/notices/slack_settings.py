"""The Slack target of each kind of notice, from the environment or a secret."""

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from forwarder.delivery_errors import SettingsError
from forwarder.notices.channel import ChannelKind


class SlackWebhook(Struct, frozen=True, kw_only=True):
    """An incoming webhook. ``setting`` is the name of the setting with the address."""

    url: str
    setting: str

    def __repr__(self) -> str:
        """The name of the setting; the address is a secret."""
        return f"SlackWebhook({self.setting})"


class SlackBot(Struct, frozen=True, kw_only=True):
    """A bot that posts to a channel. ``base_url`` includes ``/api/``; None: Slack's own."""

    token: str
    channel: str
    channel_setting: str
    base_url: str | None = None

    def __repr__(self) -> str:
        """The name of the channel's setting; the token is a secret."""
        return f"SlackBot({self.channel_setting})"


SlackTarget = SlackWebhook | SlackBot


KINDS: tuple[ChannelKind, ...] = ("success", "failure")
_SETTINGS = (
    "SLACK_SUCCESS_WEBHOOK_URL",
    "SLACK_FAILURE_WEBHOOK_URL",
    "SLACK_BOT_TOKEN",
    "SLACK_SUCCESS_CHANNEL",
    "SLACK_FAILURE_CHANNEL",
)


def read_targets(environment: Mapping[str, str], fetch: Callable[[str], str]) -> Mapping[ChannelKind, SlackTarget]:
    """Return the target of each kind of notice that is configured.

    ``SLACK_SECRET_ID`` names a secret (``ssm:NAME``: a parameter) with the same names in lower case. A value in the
    environment takes precedence.

    Raises:
        SettingsError: names the setting, never its value.
    """
    values = {name: environment.get(name, "").strip() for name in _SETTINGS}
    secret_id = environment.get("SLACK_SECRET_ID", "").strip()
    if secret_id:
        secret = _secret(secret_id, fetch)
        values = {name: value or secret.get(name.lower(), "") for name, value in values.items()}
    base_url = environment.get("SLACK_BASE_URL", "").strip() or None
    targets = {kind: _target(kind.upper(), values, base_url) for kind in KINDS}
    return {kind: target for kind, target in targets.items() if target is not None}


def _target(kind: str, values: Mapping[str, str], base_url: str | None) -> SlackTarget | None:
    webhook, channel = f"SLACK_{kind}_WEBHOOK_URL", f"SLACK_{kind}_CHANNEL"
    if values[webhook]:
        return SlackWebhook(url=values[webhook], setting=webhook)
    if values["SLACK_BOT_TOKEN"] and values[channel]:
        return SlackBot(
            token=values["SLACK_BOT_TOKEN"], channel=values[channel], channel_setting=channel, base_url=base_url
        )
    if values[channel]:
        raise SettingsError(f"{channel} is set without SLACK_BOT_TOKEN: set both, or {webhook}.")
    return None


def _secret(name: str, fetch: Callable[[str], str]) -> Mapping[str, str]:
    """Return the values of Slack's settings in the secret. Null counts as unset, and other names are ignored."""
    try:
        secret = msgspec.json.decode(fetch(name), type=dict[str, object])
        values = {key: secret.get(key) for key in map(str.lower, _SETTINGS)}
        texts = msgspec.convert(values, type=dict[str, str | int | float | None])
    except (msgspec.DecodeError, UnicodeError):
        # Not "from": the decoder's message may quote the secret.
        raise SettingsError(f"The secret {name} is not a JSON object with Slack's settings as strings.") from None
    return {key: str(value).strip() for key, value in texts.items() if value is not None}

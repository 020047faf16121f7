"""Which Slack channel each kind of notice goes to, from the environment or a secret."""

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from forwarder.errors import SettingsError


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


KINDS = ("success", "failure")
_NAMES = (
    "SLACK_SUCCESS_WEBHOOK_URL",
    "SLACK_FAILURE_WEBHOOK_URL",
    "SLACK_BOT_TOKEN",
    "SLACK_SUCCESS_CHANNEL",
    "SLACK_FAILURE_CHANNEL",
)


def read_targets(environment: Mapping[str, str], fetch: Callable[[str], str]) -> Mapping[str, SlackTarget]:
    """A target for each kind that is configured; a kind that is not there is off.

    ``SLACK_SECRET_ID`` names a secret (``ssm:NAME``: a parameter) with the same names in lower
    case; what stands in the environment itself wins. Raises SettingsError, never with a value.
    """
    values = {name: environment.get(name, "").strip() for name in _NAMES}
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
    """The secret's texts; null is unset, a number is its digits, and what is not Slack's may be anything."""
    try:
        secret = msgspec.json.decode(fetch(name), type=dict[str, object])
        found = {key: secret.get(key) for key in map(str.lower, _NAMES)}
        texts = msgspec.convert(found, type=dict[str, str | int | float | None])
    except (msgspec.DecodeError, UnicodeError):
        # Not "from": the decoder's message may quote what it could not read.
        raise SettingsError(f"The secret {name} is not a JSON object of texts with Slack's settings.") from None
    return {key: str(value).strip() for key, value in texts.items() if value is not None}

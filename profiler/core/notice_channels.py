"""The channels of notifications: one row for each, of which everything else is derived.

The forwarder sends through the rows that have a sender, in this order. Setup, proof and the checks
of the template ask the rows for the parameters of a stack.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

ChannelKind = Literal["success", "failure"]
KINDS: tuple[ChannelKind, ...] = ("success", "failure")


class Channel(Struct, frozen=True, kw_only=True):
    """One channel.

    ``name`` is a part of the idempotency key: never change it. ``parameter`` is the parameter of
    the stack that switches the channel on, and ``setting`` the variable of the functions that it
    becomes; ``settings`` are the channel's other variables, by the parameters that set them.
    ``of_kind`` are the variables of which one is needed to receive a kind, first the usual one:
    without them, the channel receives every kind. ``in_secret`` are the variables whose values may
    stand in the secret that ``parameter`` names, in lower case. ``sender`` is the name of the
    channel that sends for this one.
    """

    name: str
    parameter: str
    setting: str
    settings: Mapping[str, str] = {}
    of_kind: Mapping[ChannelKind, tuple[str, ...]] = {}
    in_secret: tuple[str, ...] = ()
    sender: str

    @property
    def variables(self) -> Mapping[str, str]:
        """Every variable of the functions, by the parameter of the stack that sets it."""
        return {self.parameter: self.setting, **self.settings}

    def setting_of(self, kind: ChannelKind) -> str:
        """The variable to set so that the channel receives this kind."""
        return next(iter(self.of_kind.get(kind, ())), self.setting)


SLACK = Channel(
    name="slack",
    sender="slack",
    parameter="SlackSecretId",
    setting="SLACK_SECRET_ID",
    settings={
        "SlackSuccessChannel": "SLACK_SUCCESS_CHANNEL",
        "SlackFailureChannel": "SLACK_FAILURE_CHANNEL",
        "SlackBaseUrl": "SLACK_BASE_URL",
    },
    of_kind={
        "success": ("SLACK_SUCCESS_WEBHOOK_URL", "SLACK_SUCCESS_CHANNEL"),
        "failure": ("SLACK_FAILURE_WEBHOOK_URL", "SLACK_FAILURE_CHANNEL"),
    },
    in_secret=(
        "SLACK_SUCCESS_WEBHOOK_URL",
        "SLACK_FAILURE_WEBHOOK_URL",
        "SLACK_BOT_TOKEN",
        "SLACK_SUCCESS_CHANNEL",
        "SLACK_FAILURE_CHANNEL",
    ),
)
EVENT_BUS = Channel(
    name="event-bus", sender="event-bus", parameter="EventBusName", setting="EVENT_BUS_NAME"
)
# The template's rules make a mail of an event on the bus; without a bus, on the default one.
EMAIL = Channel(name="email", sender="event-bus", parameter="NoticeEmail", setting="EVENT_BUS_NAME")
CHANNELS = (SLACK, EVENT_BUS, EMAIL)
SENDERS = tuple(channel for channel in CHANNELS if channel.sender == channel.name)
CHANNEL_PARAMETERS = tuple(channel.parameter for channel in CHANNELS)


def has_channel(parameters: Mapping[str, str]) -> bool:
    """Whether a stack with these parameters has a channel."""
    return any(parameters.get(name) for name in CHANNEL_PARAMETERS)

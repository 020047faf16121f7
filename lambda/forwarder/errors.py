"""What can go wrong, as an operator sees it.

ForwarderError
├── SettingsError        a setting is missing or wrong: change it
├── PayloadError         the event is not what CloudWatch Logs sends
└── DeliveryError        documents could not be brought to where they belong
    ├── ClusterError     the cluster refused a whole request, or cannot be reached
    └── NoticeError      Slack refused a notice, or cannot be reached
"""


class ForwarderError(Exception):
    """One sentence that says what happened and what to do; never a secret."""


class SettingsError(ForwarderError):
    """A setting is missing or cannot be used."""


class PayloadError(ForwarderError):
    """The event cannot be decoded."""


class DeliveryError(ForwarderError):
    """Something was not delivered; Lambda is to try again."""


class ClusterError(DeliveryError):
    """A request failed as a whole.

    ``status`` is the HTTP status, None if there was no answer. ``retryable`` failures may pass.
    """

    def __init__(self, message: str, *, status: int | None) -> None:
        super().__init__(message)
        self.status = status

    @property
    def retryable(self) -> bool:
        """Whether the same request may work later."""
        return self.status in {None, 429, 502, 503, 504}

    @property
    def too_large(self) -> bool:
        """Whether a smaller request may work."""
        return self.status == 413  # noqa: PLR2004  Content Too Large


class NoticeError(DeliveryError):
    """A notice was not taken by Slack; names the setting, never an address or a token."""

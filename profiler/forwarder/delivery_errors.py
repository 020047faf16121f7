"""The errors that an operator can see.

ForwarderError
├── SettingsError        a setting is missing or invalid: change the setting
├── PayloadError         the event is not from CloudWatch Logs, or is damaged
├── ReadError           schedules or tasks cannot be read from AWS
└── DeliveryError        documents or notices were not delivered
    ├── SearchClusterError     the search cluster refused a whole request, or cannot be reached
    ├── NoticeError      Slack or the event bus refused a notice, or cannot be reached
    └── InProgressError  another invocation does the same work
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

_Result = TypeVar("_Result")
NO_TIME_TO_NOTIFY = "The invocation ran out of time before all notifications were sent: the next one continues."


class ForwarderError(Exception):
    """One sentence with what happened and what to do. It never contains a secret."""


class SettingsError(ForwarderError):
    """A setting is missing or invalid."""


class PayloadError(ForwarderError):
    """The event cannot be decoded."""


class ReadError(ForwarderError):
    """Schedules or tasks cannot be read from AWS."""


class DeliveryError(ForwarderError):
    """Something was not delivered; Lambda must retry the event."""


class SearchClusterError(DeliveryError):
    """A whole request to the search cluster failed. ``status`` is the HTTP status, None if there was no response."""

    def __init__(self, message: str, *, status: int | None) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_retryable(self) -> bool:
        """Whether the same request can succeed later."""
        return self.status in {None, 429, 502, 503, 504}

    @property
    def is_too_large(self) -> bool:
        return self.status == 413  # noqa: PLR2004  Content Too Large


class NoticeError(DeliveryError):
    """Slack or the event bus did not accept a notice. The message has the setting's name, never an address or token."""


class InProgressError(DeliveryError):
    """Another invocation does the same work."""


def attempt(call: Callable[[], _Result], errors: list[ForwarderError]) -> _Result | None:
    """Return the result of the call; if it fails, add its error to ``errors`` and return None."""
    try:
        return call()
    except ForwarderError as error:
        errors.append(error)
        return None


def raise_errors(errors: Sequence[ForwarderError]) -> None:
    """Raise the error, or one error with the sentences of all; return without errors."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise DeliveryError(" ".join(str(error) for error in errors)) from errors[0]

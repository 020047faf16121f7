"""One Lambda invocation: the errors that an operator can see, the remaining time, retries, and
the libraries' logs.
"""

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from profiler.core.errors import TaskProfilerError
from profiler.core.http_statuses import RETRYABLE_STATUSES, UNAUTHORIZED_STATUSES
from profiler.core.search_answers import missing_shards

_Result = TypeVar("_Result")
NO_TIME_TO_NOTIFY = (
    "The invocation ran out of time before all notifications were sent: the next one continues."
)
# Reserved at the end of an invocation for the failure store and the response.
RESERVED_SECONDS = 3.0
_MIN_REQUEST_SECONDS = 1.0
_AT_INFO = ("boto3", "botocore", "urllib3", "elastic_transport", "elasticsearch", "opensearch")
_LIBRARY_LEVELS = {**dict.fromkeys(_AT_INFO, logging.INFO), "opensearchpy.trace": logging.WARNING}


class ForwarderError(TaskProfilerError):
    """What happened and what to do, without a secret.

    ``is_refusal``: a service refused the sender of the request.
    """

    is_refusal = False


class SettingsError(ForwarderError):
    """A setting is missing or invalid."""


class PayloadError(ForwarderError):
    """The event cannot be decoded."""


class ReadError(ForwarderError):
    """Schedules or tasks cannot be read from AWS."""


class DeliveryError(ForwarderError):
    """Something was not delivered; Lambda must retry the event."""


class SearchClusterError(DeliveryError):
    """A whole request to the search cluster failed.

    ``status`` is the HTTP status, None if there was no response. ``closed_index``: the index that
    a search names because it is closed.
    """

    def __init__(
        self, message: str, *, status: int | None, closed_index: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.closed_index = closed_index
        self.is_refusal = status in UNAUTHORIZED_STATUSES

    @property
    def is_retryable(self) -> bool:
        return self.status in {None, *RETRYABLE_STATUSES}


class PartialAnswerError(SearchClusterError):
    """The search cluster has answered with a part of the documents; ``why`` is a clause.

    Another search can be whole unless shards are lost, or an index is closed (``is_closed``), which
    may stay so for days.
    """

    def __init__(self, answer: Mapping[str, object], why: str, *, is_closed: bool = False) -> None:
        is_lost = is_closed or missing_shards(answer) > 0
        super().__init__(f"A search is not whole: {why}.", status=200 if is_lost else 503)
        self.answer = answer
        self.why = why


class NoticeError(DeliveryError):
    """Slack or the event bus did not accept a notice.

    The message has the setting's name, never an address or token.
    """


class ThrottledError(DeliveryError):
    """AWS refused a call because there were too many in this account and Region."""


class InProgressError(DeliveryError):
    """Another invocation does the same work."""


def call_collecting_error(
    call: Callable[[], _Result], errors: list[ForwarderError]
) -> _Result | None:
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


def configure_library_logging() -> None:
    """Stop libraries from logging secrets and documents where the root logger's level is DEBUG
    or INFO.
    """
    for name, level in _LIBRARY_LEVELS.items():
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(level)


class LambdaContext(Protocol):
    """The part of Lambda's context object that is used here."""

    def get_remaining_time_in_millis(self) -> int: ...


class NamedContext(LambdaContext, Protocol):
    """The part with which a function knows itself."""

    invoked_function_arn: str
    function_name: str


class InvocationTime:
    """The remaining time of one invocation, without a part that is reserved for other work; and
    a way to wait.
    """

    # In words: what ran out of time, what to do against it, what happens next, what to do if that
    # does not help, and against too many messages.
    name = "invocation"
    more_time = "raise the function's timeout"
    next_attempt = "Lambda retries"
    last_remedy = "check the function's network route to {} and raise its timeout"
    # Lambda holds an event back for six hours, as it repeats one that failed only twice.
    limit_remedy = "where hundreds of runs end at once, set the stack's ReservedConcurrency to 10"

    def __init__(self, context: LambdaContext, reserved_seconds: float = 0) -> None:
        self._context = context
        self._reserved_seconds = reserved_seconds

    def remaining_seconds(self) -> float:
        """Negative after the deadline."""
        return self._context.get_remaining_time_in_millis() / 1000 - self._reserved_seconds

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def jitter(self) -> float:
        """A number from 0 to 1, which spreads the pauses of many invocations."""
        return random.random()  # noqa: S311  no secret


class RetryBackoff(Struct):
    """Retries of one operation until the deadline: request timeouts, and pauses that grow
    exponentially with jitter.
    """

    budget: InvocationTime  # of which RESERVED_SECONDS are not used
    initial_seconds: float  # half of the first pause without jitter
    max_seconds: float
    max_request_seconds: float
    _failures: int = 0

    def next_request_timeout_seconds(self) -> float | None:
        """Return the timeout of the next request; None if there is not enough time for a
        request.
        """
        left_seconds = self.budget.remaining_seconds() - RESERVED_SECONDS
        if left_seconds < _MIN_REQUEST_SECONDS:
            return None
        return min(left_seconds, self.max_request_seconds)

    def wait(self, *, min_seconds: float = 0.0) -> bool:
        """Wait after a failed attempt; False, without waiting, if there is not enough time for
        another request.
        """
        self._failures += 1
        longest_seconds = min(self.initial_seconds * 2.0**self._failures, self.max_seconds)
        pause_seconds = max(longest_seconds * (0.5 + self.budget.jitter() / 2), min_seconds)
        if (
            self.budget.remaining_seconds() - pause_seconds
            < RESERVED_SECONDS + _MIN_REQUEST_SECONDS
        ):
            return False
        self.budget.sleep(pause_seconds)
        return True

    def reset(self) -> None:
        self._failures = 0

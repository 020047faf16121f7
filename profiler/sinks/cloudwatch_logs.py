"""Puts the report into the batch container's own log stream (PutLogEvents).

botocore is imported with the first line: it takes 22 MiB, and until then the monitor shares the task's memory
with the batch.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct

from profiler.core.clock import Clock
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.sinks import DeliveryFailure

# The last attempt begins about this long before the time is over.
_LAST_ATTEMPT_SECONDS = 2.0
_FIRST_PAUSE_SECONDS = 0.5
_MAX_PAUSE_SECONDS = 4.0
_MAX_MESSAGE_CHARS = 300
_PROBE_MESSAGE = "task-profiler doctor checks whether it may write here"
_PROBE_AGE_NS = 30 * 24 * 3600 * NS_PER_SECOND
_ALREADY_ACCEPTED = "DataAlreadyAcceptedException"
_ACCESS_DENIED = frozenset({"AccessDeniedException", "AccessDenied", "UnauthorizedOperation"})
# AWS refuses signatures whose time is more than 5 minutes off. This error code also stands for a wrong key; only
# the message shows that the time is the reason.
_SIGNATURE_REFUSED = "InvalidSignatureException"
_SIGNATURE_TIMES = ("Signature expired", "Signature not yet current")
_CLOCK_SKEW = frozenset({"RequestTimeTooSkewed", "RequestExpired", "RequestInTheFuture"})
_REJECTIONS = {
    "tooNewLogEventStartIndex": "it is more than 2 hours ahead of CloudWatch's clock",
    "tooOldLogEventEndIndex": "it is more than 14 days behind CloudWatch's clock",
    "expiredLogEventEndIndex": "it is older than the log group's retention",
}


class LogTarget(Struct, frozen=True, kw_only=True):
    """A log stream. With ``region`` None, boto3 determines the region (AWS_REGION)."""

    group: str
    stream: str
    region: str | None = None


class LogsClient(Protocol):
    """The part of boto3's CloudWatch Logs client that is used."""

    def put_log_events(  # boto3 uses the parameter names of the API
        self,
        *,
        logGroupName: str,  # noqa: N803
        logStreamName: str,  # noqa: N803
        logEvents: list[dict[str, object]],  # noqa: N803
    ) -> Mapping[str, object]:
        """https://docs.aws.amazon.com/goto/WebAPI/logs/PutLogEvents ."""
        ...


class TransientFailure(DeliveryFailure, frozen=True):
    """A failure that may pass. ``reason`` is a part of a sentence.

    Another attempt needs new credentials if these have expired.
    """

    has_expired: bool = False


Connect = Callable[[str | None, Callable[[str], None]], LogsClient]


class CloudWatchLogsSink:
    """Puts lines into log streams. ``last_cause`` is why the last attempt failed, as part of a sentence.

    Args:
        connect: Creates the client of a region, with fresh credentials. It gets a function to call with the cause of
            each attempt that fails, as part of a sentence.
        clock: The time of the lines and of the attempts.
    """

    def __init__(self, connect: Connect, clock: Clock) -> None:
        self._connect = connect
        self._clock = clock
        self.last_cause = "nothing was answered"

    def put(self, line: bytes, target: LogTarget, seconds: float) -> DeliveryFailure | None:
        """Put a line within about ``seconds``; None means that CloudWatch has stored it.

        botocore repeats each call a few times. Its pauses grow up to 20 s, so the calls are repeated here: the last
        one begins near the end of the time.
        """
        deadline_ns = self._clock.monotonic_ns() + round(seconds * NS_PER_SECOND)
        pause_seconds = _FIRST_PAUSE_SECONDS
        client: LogsClient | None = None
        while True:
            try:
                client = client or self._connect(target.region, self._note_cause)
            except _sdk_errors() as error:
                return _failure(error, target)
            answer = self._send(client, line.decode(), self._clock.wall_ns(), target)
            if not isinstance(answer, TransientFailure):
                return answer if isinstance(answer, DeliveryFailure) else _rejection(answer, target)
            self._note_cause(answer.reason)
            if answer.has_expired:
                client = None
            left_seconds = (deadline_ns - self._clock.monotonic_ns()) / NS_PER_SECOND - _LAST_ATTEMPT_SECONDS
            if left_seconds <= 0:
                return not_accepted(seconds, answer.reason)
            self._clock.sleep(min(pause_seconds, left_seconds))
            pause_seconds = min(2 * pause_seconds, _MAX_PAUSE_SECONDS)

    def check_permission(self, target: LogTarget) -> DeliveryFailure | None:
        """Check that a line could be put, without storing one; None means success.

        The event is so old that CloudWatch drops it, but only after it has checked the permission and
        found the log stream.
        """
        try:
            client = self._connect(target.region, self._note_cause)
        except _sdk_errors() as error:
            return _failure(error, target)
        answer = self._send(client, _PROBE_MESSAGE, self._clock.wall_ns() - _PROBE_AGE_NS, target)
        if isinstance(answer, TransientFailure):
            return DeliveryFailure(f"CloudWatch Logs cannot be reached: {answer.reason}.")
        return answer if isinstance(answer, DeliveryFailure) else None

    def _note_cause(self, cause: str) -> None:
        self.last_cause = cause

    def _send(
        self, client: LogsClient, message: str, time_ns: int, target: LogTarget
    ) -> Mapping[str, object] | DeliveryFailure:
        event = {"timestamp": time_ns // NS_PER_MS, "message": message}
        try:
            return client.put_log_events(logGroupName=target.group, logStreamName=target.stream, logEvents=[event])
        except _sdk_errors() as error:
            if _error_code(error) == _ALREADY_ACCEPTED:  # an earlier attempt, whose answer was lost
                return {}
            return _failure(error, target)


def connect(
    region: str | None, on_failure: Callable[[str], None] = lambda _cause: None, *, profile: str | None = None
) -> LogsClient:
    """A client of a region, with the credentials that boto3 finds now; see :func:`logs_client.make_client`."""
    from profiler.sinks.logs_client import make_client  # see the module's docstring

    client: LogsClient = make_client(region, on_failure, profile)
    return client


def not_accepted(seconds: float, cause: str) -> DeliveryFailure:
    """The failure after all attempts within ``seconds``, with the cause of the last one as part of a sentence."""
    return DeliveryFailure(
        f"CloudWatch Logs did not accept the line within {seconds:.3g} s, the rest of the stop budget: {cause}."
    )


def _sdk_errors() -> tuple[type[Exception], ...]:
    """What boto3's clients raise."""
    from botocore.exceptions import BotoCoreError, ClientError  # see the module's docstring

    return ClientError, BotoCoreError, OSError, ValueError


def _failure(error: Exception, target: LogTarget) -> DeliveryFailure:
    from botocore.exceptions import ClientError  # see the module's docstring

    from profiler.sinks.logs_client import cause_of, has_expired, is_transient

    if is_transient(error):
        return TransientFailure(cause_of(error), has_expired=has_expired(error))
    if isinstance(error, ClientError):
        return DeliveryFailure(_refusal(error.response.get("Error", {}), target))
    return DeliveryFailure(
        f"CloudWatch Logs cannot be reached ({error}): the task needs a route to it and a task role."
    )


def _error_code(error: Exception) -> str | None:
    response = getattr(error, "response", None)
    return response.get("Error", {}).get("Code") if isinstance(response, dict) else None


def _refusal(error: Mapping[str, object], target: LogTarget) -> str:
    code = str(error.get("Code", "unknown error"))
    if code in _ACCESS_DENIED:
        return f"The task role may not write to log group {target.group}: allow logs:PutLogEvents on it ({code})."
    if code == "ResourceNotFoundException":
        return (
            f"Log stream {target.stream} of log group {target.group} does not exist: "
            "check TASK_PROFILER_LOG_GROUP and TASK_PROFILER_LOG_STREAM, or the batch's log driver."
        )
    message = str(error.get("Message", ""))
    if code in _CLOCK_SKEW or (code == _SIGNATURE_REFUSED and message.startswith(_SIGNATURE_TIMES)):
        return (
            f"CloudWatch Logs refused the report because the clock here is more than 5 minutes off ({code}): "
            "set the clock of the machine that the task runs on, or synchronize it by NTP."
        )
    if code == _SIGNATURE_REFUSED:
        # The rest of the message is the request that should have been signed, with the session token.
        return (
            f"CloudWatch Logs refused the report's signature ({code}): check the monitor's credentials, and that no "
            "proxy changes its requests."
        )
    return f"CloudWatch Logs refused the report: {code}: {_first_line(message)}"


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:_MAX_MESSAGE_CHARS]


def _rejection(answer: Mapping[str, object], target: LogTarget) -> DeliveryFailure | None:
    """The failure in a response with HTTP 200: CloudWatch drops events outside of the accepted time and lists them."""
    rejected = answer.get("rejectedLogEventsInfo")
    if not isinstance(rejected, dict) or not rejected:
        return None
    reasons = ", ".join(_REJECTIONS.get(str(key), str(key)) for key in rejected)
    return DeliveryFailure(f"CloudWatch Logs dropped the report for {target.stream}: {reasons}.")

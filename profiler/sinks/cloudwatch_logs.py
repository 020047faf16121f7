"""Puts the report into the batch container's own log stream (PutLogEvents).

boto3 is imported with the first line: it takes 22 MiB, and until then the monitor shares the task's memory
with the batch.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct

from profiler.core.clock import Clock
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.sinks import DeliveryFailure

_CONNECT_TIMEOUT_SECONDS = 3
_READ_TIMEOUT_SECONDS = 5
# More than fit into any time limit for the stop: the limit ends the attempts, not their number.
_MAX_ATTEMPTS = 12
_MAX_MESSAGE_CHARS = 300
_PROBE_MESSAGE = "task-profiler doctor checks whether it may write here"
_PROBE_AGE_NS = 30 * 24 * 3600 * NS_PER_SECOND
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


class CloudWatchLogsSink:
    """Puts lines into log streams. ``connect`` creates the client of a region."""

    def __init__(self, connect: Callable[[str | None], LogsClient], clock: Clock) -> None:
        self._connect = connect
        self._clock = clock

    def put(self, line: bytes, target: LogTarget) -> DeliveryFailure | None:
        """Put a line by one PutLogEvents call, which botocore retries; None means that CloudWatch has stored it."""
        answer = self._send(line.decode(), self._clock.wall_ns(), target)
        return answer if isinstance(answer, DeliveryFailure) else _rejection(answer, target)

    def check_permission(self, target: LogTarget) -> DeliveryFailure | None:
        """Check that a line could be put, without storing one; None means success.

        The event is so old that CloudWatch drops it, but only after it has checked the permission and
        found the log stream.
        """
        answer = self._send(_PROBE_MESSAGE, self._clock.wall_ns() - _PROBE_AGE_NS, target)
        return answer if isinstance(answer, DeliveryFailure) else None

    def _send(self, message: str, time_ns: int, target: LogTarget) -> Mapping[str, object] | DeliveryFailure:
        from botocore.exceptions import BotoCoreError, ClientError  # see the module's docstring

        event = {"timestamp": time_ns // NS_PER_MS, "message": message}
        try:
            return self._connect(target.region).put_log_events(
                logGroupName=target.group, logStreamName=target.stream, logEvents=[event]
            )
        except ClientError as error:
            return DeliveryFailure(_refusal(error.response.get("Error", {}), target))
        except (BotoCoreError, OSError, ValueError) as error:
            return DeliveryFailure(
                f"CloudWatch Logs cannot be reached ({error}): the task needs a route to it and a task role."
            )


def connect(region: str | None, profile: str | None = None) -> LogsClient:
    """A client that retries after throttling, 5xx responses and broken connections (botocore's standard mode)."""
    import boto3  # see the module's docstring
    from botocore.config import Config

    client: LogsClient = boto3.Session(profile_name=profile).client(
        "logs",
        region_name=region,
        config=Config(
            connect_timeout=_CONNECT_TIMEOUT_SECONDS,
            read_timeout=_READ_TIMEOUT_SECONDS,
            retries={"mode": "standard", "max_attempts": _MAX_ATTEMPTS},
        ),
    )
    return client


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

"""Why an upload to CloudWatch Logs failed, in words, and whether the failure may pass.

Importing this module imports botocore.
"""

import socket
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from botocore import exceptions
from botocore.exceptions import ClientError

from profiler.core.aws_error_codes import (
    ACCESS_DENIED,
    EXPIRED,
    SERVER_FAULT,
    denial_remedy,
    error_code,
    error_status,
    is_throttled,
)
from profiler.sinks import DeliveryFailure, LogTarget, TransientFailure

# Of each attempt.
CONNECT_TIMEOUT_SECONDS = 3
READ_TIMEOUT_SECONDS = 5
_MAX_CAUSE_CHARS = 300
_ALREADY_ACCEPTED = "DataAlreadyAcceptedException"
# What boto3's clients raise.
SDK_ERRORS = (ClientError, exceptions.BotoCoreError, OSError, ValueError)
# The first that fits, from the outermost to the innermost exception.
_CAUSES: Mapping[type[BaseException], str] = {
    socket.gaierror: "the name of {host} was not found (no DNS, or no route to it)",
    ConnectionRefusedError: "{host} refused the connection",
    exceptions.SSLError: "the TLS connection to {host} failed ({error})",
    exceptions.ProxyConnectionError: "the proxy (HTTPS_PROXY) cannot be reached",
    exceptions.ConnectTimeoutError: (
        f"{{host}} did not accept a connection within {CONNECT_TIMEOUT_SECONDS} s (no route to it?)"
    ),
    exceptions.ReadTimeoutError: f"{{host}} did not answer within {READ_TIMEOUT_SECONDS} s",
    exceptions.ConnectionClosedError: "{host} closed the connection before its answer was complete",
}
_PASSING = (
    OSError,
    exceptions.ConnectionError,
    exceptions.HTTPClientError,
    exceptions.CredentialRetrievalError,
)


class AnswerError(OSError):
    """The answer is not one of CloudWatch Logs. The text is a part of a sentence."""


def was_already_stored(error: Exception) -> bool:
    """Whether an earlier attempt has stored the line, but its answer was lost."""
    return isinstance(error, ClientError) and error_code(error) == _ALREADY_ACCEPTED


def delivery_failure_of(error: Exception, target: LogTarget) -> DeliveryFailure:
    """The failure of an attempt: a sentence, or a cause that may pass."""
    if not isinstance(error, ClientError):
        if isinstance(error, _PASSING):
            return TransientFailure(cause_text_of(error))
        return DeliveryFailure(
            f"CloudWatch Logs cannot be reached ({error}): the task needs a route to it and a "
            "task role."
        )
    code = error_code(error)
    status = error_status(error)
    if code in EXPIRED or is_throttled(code, status) or status >= SERVER_FAULT:
        return TransientFailure(cause_text_of(error), has_expired=code in EXPIRED)
    if code in ACCESS_DENIED:
        remedy = denial_remedy(_aws_error_message(error), "logs:PutLogEvents on it")
        reason = f"The task role may not write to log group {target.group}: {remedy} ({code})."
    elif code == "ResourceNotFoundException":
        reason = (
            f"Log stream {target.stream} of log group {target.group} does not exist: "
            "check TASK_PROFILER_LOG_GROUP and TASK_PROFILER_LOG_STREAM, or the batch's log driver."
        )
    else:
        reason = (
            f"CloudWatch Logs refused the report: {code}: "
            f"{_aws_error_message(error)[:_MAX_CAUSE_CHARS]}"
        )
    return DeliveryFailure(reason)


def cause_text_of(error: Exception) -> str:
    """The cause of a failure, as part of a sentence."""
    return _unbounded_cause_text(error)[:_MAX_CAUSE_CHARS].rstrip(".")


def _unbounded_cause_text(error: Exception) -> str:
    if isinstance(error, ClientError):
        code = error_code(error)
        status = error_status(error)
        if is_throttled(code, status):
            return f"it throttles ({code}: {_aws_error_message(error)})"
        if code in EXPIRED:
            return f"the credentials have expired ({code})"
        return f"HTTP {status} was answered ({code})"
    host = (
        urlsplit(str(getattr(error, "kwargs", {}).get("endpoint_url", ""))).netloc or "the endpoint"
    )
    for inner in _iterate_causes(error):
        if isinstance(inner, AnswerError):
            return str(inner)
        for kind, words in _CAUSES.items():
            if isinstance(inner, kind):
                return words.format(host=host, error=getattr(inner, "kwargs", {}).get("error"))
    return str(error)


def _iterate_causes(error: BaseException | None) -> Iterator[BaseException]:
    """The exception, and those that caused it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        kwargs = getattr(error, "kwargs", None)
        inner = kwargs.get("error") if isinstance(kwargs, dict) else None
        error = inner if isinstance(inner, BaseException) else error.__cause__ or error.__context__


def _aws_error_message(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Message", "")).partition("\n")[0]

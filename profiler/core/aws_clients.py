"""boto3's sessions and clients, and what AWS's error codes mean.

boto3 is imported with the first session or client: it takes a quarter second and 22 MiB.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from profiler.core.http_statuses import TOO_MANY_REQUESTS

AwsClient: TypeAlias = Any  # boto3 makes the classes of its clients at run time
_DOMAINS = {
    "aws-cn": "amazonaws.com.cn",
    "aws-eusc": "amazonaws.eu",
    "aws-iso": "c2s.ic.gov",
    "aws-iso-b": "sc2s.sgov.gov",
    "aws-iso-e": "cloud.adc-e.uk",
    "aws-iso-f": "csp.hci.ic.gov",
}
# The answer of a HEAD request has no body: its code is the HTTP status.
ACCESS_DENIED = frozenset({"AccessDeniedException", "AccessDenied", "UnauthorizedOperation", "403"})
EXPIRED = frozenset({"ExpiredTokenException", "ExpiredToken"})
_THROTTLED = frozenset(
    {
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "ProvisionedThroughputExceededException",
        "SlowDown",
        "BandwidthLimitExceeded",
    }
)
# IAM's sentence contains the refused action, such as the permission to pass a role.
_ACTION = re.compile(r"[\w-]+:\w+")
_REFUSED_ACTION = re.compile(rf"not authorized to perform: ({_ACTION.pattern})")
# What AWS's message says of the policy that refuses: an explicit deny, which no other policy can
# outweigh, and a policy that only limits what others allow.
_EXPLICIT_DENY = re.compile(r"explicit deny in (an?|the) ([\w -]*?(?:policy|boundary))\b")
_NOT_IN_LIMIT = re.compile(
    r"because no ((?:service control|resource control|session|VPC endpoint) policy|"
    r"permissions boundary) allows"
)
_OF_ORGANIZATION = ("service control policy", "resource control policy")
_IS_LOST = "IsAnswerLost"  # of ours, beside botocore's own RetryAttempts
SERVER_FAULT = 500  # the first HTTP status of a fault of AWS's own


def service_domain(partition: str) -> str:
    """The domain of the services of a partition, such as ``aws-cn``."""
    return _DOMAINS.get(partition, "amazonaws.com")


# Boto3 has no types.
def open_session(region: str | None, profile: str | None) -> Any:  # noqa: ANN401
    """A session of boto3. None: boto3 determines the Region or the profile."""
    import boto3  # see the module's docstring

    return boto3.Session(region_name=region, profile_name=profile)


def bounded_client(service: str, region: str | None = None, attempts: int = 3) -> AwsClient:
    """A client of boto3's default session, with the limits of ``bounded_config()``."""
    import boto3  # see the module's docstring

    client = boto3.client(service, region_name=region, config=bounded_config(attempts=attempts))
    note_lost_answers(client)
    return client


def bounded_config(
    *, connect_timeout_seconds: float = 2, read_timeout_seconds: float = 5, attempts: int = 3
) -> Any:  # noqa: ANN401  as above
    """The limits of a client's calls, with botocore's standard retries. boto3's own last longer
    than an invocation.
    """
    from botocore.config import Config  # see the module's docstring

    return Config(
        connect_timeout=connect_timeout_seconds,
        read_timeout=read_timeout_seconds,
        retries={"mode": "standard", "total_max_attempts": attempts},
    )


def pages_backwards(
    read_page: Callable[..., Mapping[str, Any]], max_pages: int
) -> Iterator[Mapping[str, Any]]:
    """The pages of ``logs:GetLogEvents``, the newest first, read by a call that takes
    ``nextToken``.
    """
    position: dict[str, str] = {}
    for _ in range(max_pages):
        page = read_page(**position)
        yield page
        token = page.get("nextBackwardToken")
        # An empty page alone is not the beginning of the stream.
        if token in (None, position.get("nextToken")):
            return
        position = {"nextToken": token}


def is_throttled(code: str, status: int = 0) -> bool:
    """Whether there were too many calls: the services have a dozen codes for it, most with one
    word in common.
    """
    return "throttl" in code.lower() or code in _THROTTLED or status == TOO_MANY_REQUESTS


def denial_remedy(message: str, permission: str) -> str:
    """What to do about a refused access, by AWS's message: ``permission`` names the actions, unless
    the message names another one.
    """
    refused = _REFUSED_ACTION.search(message)
    if refused is not None and refused[1] not in _ACTION.findall(permission):
        permission = refused[1]
    denial = _EXPLICIT_DENY.search(message)
    limit = _NOT_IN_LIMIT.search(message)
    if denial is not None:
        policy = denial[2]
        remedy = f"no other policy can allow that, so change the {policy}"
    elif limit is not None:
        policy = limit[1]
        remedy = f"allow {permission} in the {policy}, too"
    else:
        return f"allow {permission}"
    if policy in _OF_ORGANIZATION:
        remedy += " (the administrators of the organization can)"
    return remedy


def error_code(error: Exception) -> str:
    """The code of AWS's answer; without an answer, the name of botocore's error."""
    answer = getattr(error, "response", None)
    if answer is None:
        return type(error).__name__
    return str(answer.get("Error", {}).get("Code", "unknown error"))


def cause_code(error: Exception) -> str:
    """The code of AWS's error that caused this one; "" if none did."""
    cause = error.__cause__
    return error_code(cause) if isinstance(cause, Exception) else ""


def error_status(error: Exception) -> int:
    """The HTTP status of AWS's answer; 0 without an answer."""
    answer = getattr(error, "response", None) or {}
    return int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def note_lost_answers(client: AwsClient) -> None:
    """Let the errors of a client's calls tell whether an earlier attempt of the same call was
    lost: botocore repeats a call without an answer, and the repetition may be refused because the
    first attempt has done it.
    """
    service = client.meta.service_model.service_id.hyphenize()
    # Before botocore's legacy retries, which raise the last error of a call themselves.
    client.meta.events.register_first(f"needs-retry.{service}", _note_lost)


def _note_lost(
    request_dict: Mapping[str, Any],
    response: tuple[object, dict[str, Any]] | None,
    caught_exception: Exception | None,
    **_: object,
) -> None:
    """Mark what an attempt ended with, if an earlier one of the call was lost. botocore raises the
    last one of them.
    """
    context = request_dict["context"]
    marks: dict[str, Any] = {}
    status = 0
    if response is not None:
        marks = response[1].setdefault("ResponseMetadata", {})
        status = int(marks.get("HTTPStatusCode", 0))
    elif caught_exception is not None:
        marks = getattr(caught_exception, "kwargs", marks)
    if context.get(_IS_LOST):
        marks[_IS_LOST] = True
    context[_IS_LOST] = context.get(_IS_LOST) or not _has_changed_nothing(caught_exception, status)


def has_lost_attempt(answer: Mapping[str, Any]) -> bool:
    """Whether an earlier attempt of the call of this answer was lost."""
    return bool(answer.get("ResponseMetadata", {}).get(_IS_LOST))


def has_surely_changed_nothing(error: BaseException | None) -> bool:
    """Whether a call has certainly changed nothing: AWS refused each attempt, or was not asked.

    Of a client that repeats calls, only ``note_lost_answers`` lets the earlier attempts be known.
    """
    is_lost = getattr(error, "kwargs", {}).get(_IS_LOST)
    if is_lost or has_lost_attempt(getattr(error, "response", None) or {}):
        return False
    return isinstance(error, Exception) and _has_changed_nothing(error, error_status(error))


def _has_changed_nothing(error: Exception | None, status: int) -> bool:
    """Whether an attempt has changed nothing, by its error, and its HTTP status (0: no answer)."""
    # Slow to import.
    from botocore.exceptions import (
        ConnectTimeoutError,
        EndpointConnectionError,
        NoCredentialsError,
        ParamValidationError,
    )

    not_asked = (
        ConnectTimeoutError,
        EndpointConnectionError,
        NoCredentialsError,
        ParamValidationError,
    )
    return isinstance(error, not_asked) or 0 < status < SERVER_FAULT


def may_succeed_later(error: Exception) -> bool:
    """Whether the same call can succeed later, after an error of boto3: no answer, too many calls,
    or a server's fault.
    """
    code = error_code(error)
    if not getattr(error, "response", None):
        return code != "ParamValidationError"
    status = error_status(error)
    return is_throttled(code, status) or status >= SERVER_FAULT

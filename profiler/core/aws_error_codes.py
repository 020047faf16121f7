"""What AWS's error codes mean: too many calls, a refused access, a fault of AWS's own; and whether
the same call can succeed later.
"""

import re

from profiler.core.http_statuses import TOO_MANY_REQUESTS

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
SERVER_FAULT = 500  # the first HTTP status of a fault of AWS's own


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


def may_succeed_later(error: Exception) -> bool:
    """Whether the same call can succeed later, after an error of boto3: no answer, too many calls,
    or a server's fault.
    """
    code = error_code(error)
    if not getattr(error, "response", None):
        return code != "ParamValidationError"
    status = error_status(error)
    return is_throttled(code, status) or status >= SERVER_FAULT

"""What AWS's error codes mean, for all who call AWS."""

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
_TOO_MANY_REQUESTS = 429
SERVER_FAULT = 500  # the first HTTP status of a fault of AWS's own


def is_throttled(code: str, status: int = 0) -> bool:
    """Whether there were too many calls: the services have a dozen codes for it, most with one word in common."""
    return "throttl" in code.lower() or code in _THROTTLED or status == _TOO_MANY_REQUESTS


def error_code(error: Exception) -> str:
    """The code of AWS's answer; without an answer, the name of botocore's error."""
    answer = getattr(error, "response", None)
    return type(error).__name__ if answer is None else str(answer.get("Error", {}).get("Code", "unknown error"))


def error_status(error: Exception) -> int:
    """The HTTP status of AWS's answer; 0 without an answer."""
    answer = getattr(error, "response", None) or {}
    return int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))

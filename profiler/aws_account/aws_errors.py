"""Errors of AWS as sentences. botocore is imported with the first call: it takes a quarter second."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from profiler.core.aws_clients import AwsClient
from profiler.core.errors import TaskProfilerError

_ACCESS_DENIED = frozenset({"AccessDeniedException", "AccessDenied", "UnauthorizedOperation"})
_EXPIRED = frozenset({"ExpiredTokenException", "ExpiredToken", "RequestExpired"})
_UNKNOWN_KEY = frozenset({"UnrecognizedClientException", "InvalidClientTokenId", "InvalidSignatureException"})
_NOT_FOUND = "ResourceNotFoundException"
_THROTTLED = frozenset(
    {
        "ThrottlingException",
        "Throttling",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "ProvisionedThroughputExceededException",
    }
)

# Makes boto3's client of a service.
OpenClient = Callable[[str], AwsClient]


@contextmanager
def aws_errors(what: str, permission: str | None = None, *, not_found: str | None = None) -> Iterator[None]:
    """Turn an error of AWS into a sentence.

    Args:
        what: What could not be done, such as ``/ecs/jobs cannot be read``.
        permission: The permissions that it needs; None: the operation that failed.
        not_found: The sentence if AWS does not find it; None: AWS's own message and what to check.
    """
    from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError  # see the module's docstring
    from botocore.parsers import ResponseParserError

    try:
        yield
    except ClientError as error:
        needed = permission or f"the operation {error.operation_name}"
        details = error.response.get("Error", {})
        is_missing = not_found is not None and details.get("Code") == _NOT_FOUND
        raise TaskProfilerError(f"{what}: {not_found if is_missing else _refusal(details, needed)}") from error
    except ParamValidationError as error:
        reason = " ".join(str(error.kwargs["report"]).split())
        cause = "boto3 does not know all fields, so upgrade boto3" if "Unknown parameter" in reason else "wrong name"
        raise TaskProfilerError(f"{what}: {cause} ({reason}).") from error
    except ResponseParserError as error:  # its text contains the response
        raise TaskProfilerError(
            f"{what}: the response is not one of AWS: check HTTPS_PROXY, AWS_ENDPOINT_URL and the network."
        ) from error
    except BotoCoreError as error:
        raise TaskProfilerError(f"{what}: {_describe(error)}") from error


def _refusal(error: Mapping[str, Any], permission: str) -> str:
    code = str(error.get("Code", "unknown error"))
    message = " ".join(str(error.get("Message", "")).split()).rstrip(".")
    if code in _ACCESS_DENIED:
        return f"AWS refused ({code}): allow {permission}."
    if code in _EXPIRED:
        return f"AWS refused ({code}): the credentials have expired, so sign in again (aws sso login)."
    if code in _UNKNOWN_KEY:
        return f"AWS refused ({code}): check the credentials, or choose others with --profile."
    if code in _THROTTLED:
        return f"AWS returned {code} ({message}), because there are too many calls: wait a minute."
    if code == _NOT_FOUND:
        return f"AWS cannot find it ({message}): check name, --region and --profile."
    return f"AWS returned {code} ({message}): check name, --region and --profile."


def _describe(error: Exception) -> str:
    """Describe an error before any answer of AWS."""
    from botocore import exceptions  # see the module's docstring

    details = getattr(error, "kwargs", {})
    if isinstance(error, exceptions.NoRegionError):
        return "the Region is unknown: use --region, or set AWS_REGION."
    if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
        return "there are no AWS credentials: sign in (aws sso login, aws configure), or choose a --profile."
    if isinstance(error, exceptions.ProfileNotFound):
        return f"there is no profile {details.get('profile', '')!r}: aws configure list-profiles shows the profiles."
    if isinstance(error, exceptions.SSLError):
        return "the certificate of AWS's endpoint is not trusted: set AWS_CA_BUNDLE to the file of your private CA."
    if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError):
        endpoint = details.get("endpoint_url")
        at = f" at {endpoint}" if endpoint else ""
        return f"AWS cannot be reached{at}: check --region, the network, and HTTPS_PROXY if you need a proxy."
    return f"the AWS client failed ({str(error).rstrip('.')}): check credentials, --region and --profile."

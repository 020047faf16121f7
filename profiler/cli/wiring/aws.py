"""Clients of AWS, and its errors as sentences. boto3 is imported with the first client: it takes a quarter second."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from profiler.core.errors import TaskProfilerError

_ACCESS_DENIED = frozenset({"AccessDeniedException", "AccessDenied", "UnauthorizedOperation"})
_EXPIRED = frozenset({"ExpiredTokenException", "ExpiredToken", "RequestExpired"})
_UNKNOWN_KEY = frozenset({"UnrecognizedClientException", "InvalidClientTokenId", "InvalidSignatureException"})
_NOT_FOUND = "ResourceNotFoundException"
_THROTTLED = frozenset({"ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded"})


class AwsOptions(Struct, frozen=True, kw_only=True):
    """The region and the profile of the command line; None: as the AWS CLI determines them."""

    region: str | None = None
    profile: str | None = None


def aws_session(options: AwsOptions, environment: Mapping[str, str]) -> Any:  # noqa: ANN401  as aws_client
    """A session of boto3. Like the AWS CLI, it honours AWS_REGION, which boto3 alone does not read."""
    import boto3  # see the module's docstring

    return boto3.Session(
        region_name=options.region or environment.get("AWS_REGION") or None, profile_name=options.profile or None
    )


def aws_client(
    service: str,
    options: AwsOptions,
    environment: Mapping[str, str],
    config: Any = None,  # noqa: ANN401  botocore's own
) -> Any:  # noqa: ANN401  boto3 makes its clients at run time
    """A client of a service."""
    return aws_session(options, environment).client(service, config=config)


def repeating(options: AwsOptions, repeats: int) -> Any:  # noqa: ANN401  botocore's own
    """A configuration that repeats throttled calls, unless AWS_MAX_ATTEMPTS or the profile limits the attempts."""
    from botocore.config import Config  # see the module's docstring
    from botocore.session import Session

    is_configured = Session(profile=options.profile).get_config_variable("max_attempts") is not None
    return Config() if is_configured else Config(retries={"max_attempts": repeats})


def aws_environment(options: AwsOptions, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that select the region and the profile in another process, which may use boto3 alone."""
    region = options.region or environment.get("AWS_REGION")
    named = {"AWS_REGION": region, "AWS_DEFAULT_REGION": region, "AWS_PROFILE": options.profile}
    return {name: value for name, value in named.items() if value}


@contextmanager
def aws_errors(what: str, permission: str | None = None, *, not_found: str | None = None) -> Iterator[None]:
    """Turn an error of AWS into a sentence.

    Args:
        what: What could not be done, such as ``/ecs/jobs cannot be read``.
        permission: The permissions that it needs; None: the operation that failed.
        not_found: The sentence if AWS does not find it; None: AWS's own message and what to check.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # see the module's docstring

    try:
        yield
    except ClientError as error:
        needed = permission or f"the operation {error.operation_name}"
        details = error.response.get("Error", {})
        is_missing = not_found is not None and details.get("Code") == _NOT_FOUND
        raise TaskProfilerError(f"{what}: {not_found if is_missing else _refusal(details, needed)}") from error
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
        return f"AWS refused ({code}): check the credentials, or choose others by --profile."
    if code in _THROTTLED:
        return f"AWS answered {code} ({message}): wait a minute and repeat the command."
    if code == _NOT_FOUND:
        return f"AWS does not find it ({message}): check name, --region and --profile."
    return f"AWS answered {code} ({message}): check name, --region and --profile."


def _describe(error: Exception) -> str:
    """Describe an error before any answer of AWS."""
    from botocore import exceptions  # see the module's docstring

    details = getattr(error, "kwargs", {})
    if isinstance(error, exceptions.NoRegionError):
        return "the region is not known: give --region, or set AWS_REGION."
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

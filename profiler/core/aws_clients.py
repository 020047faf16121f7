"""boto3's sessions and clients: their limits, and the pages of an answer.

boto3 is imported with the first session or client: it takes a quarter second and 22 MiB.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from profiler.core.aws_lost_answers import note_lost_answers

AwsClient: TypeAlias = Any  # boto3 makes the classes of its clients at run time
_DOMAINS = {
    "aws-cn": "amazonaws.com.cn",
    "aws-eusc": "amazonaws.eu",
    "aws-iso": "c2s.ic.gov",
    "aws-iso-b": "sc2s.sgov.gov",
    "aws-iso-e": "cloud.adc-e.uk",
    "aws-iso-f": "csp.hci.ic.gov",
}


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

"""AWS clients with limits that fit an invocation: boto3's defaults are longer."""

from typing import Any

_CONNECT_TIMEOUT_SECONDS, _READ_TIMEOUT_SECONDS = 2, 5
_MAX_ATTEMPTS = 3


def bounded_client(service: str, region: str | None = None) -> Any:  # noqa: ANN401  boto3 creates the classes of its clients at run time
    """Return boto3's client of a service. ``region`` None: the function's region."""
    import boto3  # in Lambda's runtime; slow to import, and not always needed

    return boto3.client(service, region_name=region, config=client_config())


def client_config() -> Any:  # noqa: ANN401  boto3 has no types
    """Return the configuration of a client whose calls have bounded times."""
    from botocore.config import Config  # slow to import, and not always needed

    return Config(
        connect_timeout=_CONNECT_TIMEOUT_SECONDS,
        read_timeout=_READ_TIMEOUT_SECONDS,
        retries={"mode": "standard", "total_max_attempts": _MAX_ATTEMPTS},
    )

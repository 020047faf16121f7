"""The limits of every AWS client: boto3's own are longer than an invocation."""

from typing import Any

_CONNECT_TIMEOUT_SECONDS, _READ_TIMEOUT_SECONDS = 2, 5
_MAX_ATTEMPTS = 3


def client_config() -> Any:  # noqa: ANN401  boto3 has no types
    """Return the configuration of a client whose calls have bounded times."""
    from botocore.config import Config  # slow to import, and not always needed

    return Config(
        connect_timeout=_CONNECT_TIMEOUT_SECONDS,
        read_timeout=_READ_TIMEOUT_SECONDS,
        retries={"mode": "standard", "total_max_attempts": _MAX_ATTEMPTS},
    )

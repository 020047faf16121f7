"""Credentials by name: from Secrets Manager, or with ``ssm:NAME`` from Parameter Store.

Kept for five minutes by Powertools, so that a rotated secret is taken up without a deployment.
"""

from collections.abc import Callable

import msgspec
from msgspec import Struct

from forwarder.errors import SettingsError
from forwarder.settings import Credentials

_CACHE_SECONDS = 300
_PARAMETER_PREFIX = "ssm:"


class _Secret(Struct):
    api_key: str | None = None
    username: str | None = None
    password: str | None = None


def fetch_secret(name: str) -> str:
    """The secret's text. Raises SettingsError, which names the secret and not its content."""
    from aws_lambda_powertools.utilities import parameters  # noqa: PLC0415  heavy, and only where secrets are named

    try:
        if name.startswith(_PARAMETER_PREFIX):
            parameter = name.removeprefix(_PARAMETER_PREFIX)
            return str(parameters.get_parameter(parameter, decrypt=True, max_age=_CACHE_SECONDS))
        secret: str | bytes = parameters.get_secret(name, max_age=_CACHE_SECONDS)
        return secret.decode() if isinstance(secret, bytes) else secret
    except parameters.GetParameterError as error:
        raise SettingsError(
            f"The secret {name} cannot be read ({type(error.__cause__ or error).__name__}): "
            "check its name and that the function's role may read it."
        ) from error


def read_credentials(name: str, fetch: Callable[[str], str]) -> Credentials:
    """The credentials in a secret: JSON with ``api_key``, or ``username`` and ``password``; empty ones are unset."""
    try:
        secret = msgspec.json.decode(fetch(name), type=_Secret)
    except (msgspec.DecodeError, UnicodeError):
        # Not "from": the decoder's message may quote what it could not read.
        raise SettingsError(f"The secret {name} is not JSON with api_key, or username and password.") from None
    credentials = Credentials(
        api_key=secret.api_key or None, username=secret.username or None, password=secret.password or None
    )
    if credentials.api_key is None and credentials.basic is None:
        raise SettingsError(f"The secret {name} holds neither api_key, nor username and password.")
    return credentials

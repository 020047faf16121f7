"""The forwarder's settings, read once from the environment, and its secrets by name."""

import re
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from forwarder.errors import SettingsError

Engine = Literal["elasticsearch", "opensearch"]

_ENGINES: dict[str, Engine] = {"elasticsearch": "elasticsearch", "opensearch": "opensearch"}
_MAX_WAIT_SECONDS = 600.0
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
# What both engines allow at the beginning of an index's name.
_PREFIX = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}", re.ASCII)


class Credentials(Struct, frozen=True, kw_only=True):
    """How to sign in; all None: not at all. Never shown: see ``__repr__``."""

    api_key: str | None = None
    username: str | None = None
    password: str | None = None
    aws: bool = False

    @property
    def basic(self) -> tuple[str, str] | None:
        """User name and password."""
        if self.username is None or self.password is None:
            return None
        return self.username, self.password

    def __repr__(self) -> str:
        """The kind of sign-in without its secrets."""
        kind = "api key" if self.api_key else "basic" if self.basic else "aws" if self.aws else "none"
        return f"Credentials({kind})"


class ForwarderSettings(Struct, frozen=True, kw_only=True):
    """What the functions were told. ``secret_id`` names where the credentials are instead."""

    url: str | None = None
    engine: Engine = "elasticsearch"
    credentials: Credentials = Credentials()
    secret_id: str | None = None
    region: str | None = None
    index_prefix: str = "task"
    forward_log_lines: bool = False
    failed_items_queue_url: str | None = None


class NoticeSettings(Struct, frozen=True, kw_only=True):
    """Which ended tasks are told, and how."""

    only_failures: bool = False
    families: tuple[str, ...] = ()
    services: bool = False
    report_wait_seconds: float = 20.0
    kibana_url: str | None = None
    idempotency_table: str | None = None


def read_notice_settings(environment: Mapping[str, str]) -> NoticeSettings:
    """``task_stopped``'s own, beside the cluster's: either may be wrong without hindering what the other is for.

    Raises SettingsError, which names the variable and never its value.
    """
    notify = environment.get("NOTIFY", "").strip().lower() or "all"
    if notify not in {"all", "failure"}:
        raise SettingsError("NOTIFY is neither all nor failure: set it to one of them.")
    services = environment.get("NOTIFY_SERVICES", "").strip().lower() or "false"
    if services not in _BOOLEANS:
        raise SettingsError("NOTIFY_SERVICES is neither true nor false: set it to one of them.")
    families = environment.get("NOTIFY_FAMILIES", "").split(",")
    return NoticeSettings(
        only_failures=notify == "failure",
        families=tuple(family.strip() for family in families if family.strip()),
        services=_BOOLEANS[services],
        report_wait_seconds=_seconds(environment, "REPORT_WAIT_SECONDS", 20.0),
        kibana_url=environment.get("KIBANA_URL", "").strip().rstrip("/") or None,
        idempotency_table=environment.get("IDEMPOTENCY_TABLE", "").strip() or None,
    )


def _seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "").strip()
    if not text:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= _MAX_WAIT_SECONDS:
        raise SettingsError(f"{name} is no number of seconds from 0 to {_MAX_WAIT_SECONDS:.0f}: correct it.")
    return seconds


def read_settings(environment: Mapping[str, str]) -> ForwarderSettings:
    """The settings in ``environment``. Raises SettingsError, which names the variable and never its value."""

    def text(name: str) -> str | None:
        return environment.get(name, "").strip() or None

    def switch(name: str) -> bool:
        value = text(name)
        if value is None:
            return False
        if value.lower() not in _BOOLEANS:
            raise SettingsError(f"{name} is neither true nor false: set it to one of them.")
        return _BOOLEANS[value.lower()]

    engine = text("SEARCH_ENGINE") or "elasticsearch"
    if engine not in _ENGINES:
        raise SettingsError("SEARCH_ENGINE is neither elasticsearch nor opensearch: set it to one of them.")
    prefix = text("INDEX_PREFIX") or "task"
    if not _PREFIX.fullmatch(prefix):
        raise SettingsError(
            "INDEX_PREFIX cannot begin an index's name: use lower-case letters, digits, '_', '-' and '.'."
        )
    credentials = Credentials(
        api_key=text("ELASTICSEARCH_API_KEY"),
        username=text("ELASTICSEARCH_USERNAME"),
        password=text("ELASTICSEARCH_PASSWORD"),
        aws=switch("OPENSEARCH_AWS_AUTH"),
    )
    if (credentials.username is None) != (credentials.password is None):
        raise SettingsError("ELASTICSEARCH_USERNAME and ELASTICSEARCH_PASSWORD go together: set both or none.")
    if credentials.aws and engine != "opensearch":
        raise SettingsError("OPENSEARCH_AWS_AUTH signs for OpenSearch only: set SEARCH_ENGINE=opensearch.")
    return ForwarderSettings(
        url=text("ELASTICSEARCH_URL"),
        engine=_ENGINES[engine],
        credentials=credentials,
        secret_id=text("ELASTICSEARCH_SECRET_ID"),
        region=text("AWS_REGION") or text("AWS_DEFAULT_REGION"),
        index_prefix=prefix,
        forward_log_lines=switch("FORWARD_LOG_LINES"),
        failed_items_queue_url=text("FAILED_ITEMS_QUEUE_URL"),
    )


_CACHE_SECONDS = 300
_PARAMETER_PREFIX = "ssm:"


class _Secret(Struct):
    api_key: str | None = None
    username: str | None = None
    password: str | None = None


def fetch_secret(name: str) -> str:
    """The secret's text. Raises SettingsError, which names the secret and not its content."""
    from aws_lambda_powertools.utilities import parameters  # heavy, and only where secrets are named

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

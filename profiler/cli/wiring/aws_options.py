"""The Region and the profile that the options and the environment select, and clients of AWS for
them.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from configparser import Error, RawConfigParser
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from profiler.aws_account.aws_errors import UNKNOWN_REGION, OpenClient, aws_errors
from profiler.cli.printing import warn
from profiler.core.aws_clients import AwsClient, bounded_config, open_session
from profiler.core.aws_error_codes import is_throttled
from profiler.core.aws_lost_answers import note_lost_answers
from profiler.core.aws_signature import AwsSignature, signing_region, signing_service
from profiler.core.errors import TaskProfilerError

if TYPE_CHECKING:
    import requests

_UNUSABLE = "AWS cannot be used"
_OPENED = f"{__name__}.open_clients"  # in a command's context
_MAX_RETRIES = 10
_ATTEMPTS_TO_ANNOUNCE = 3  # of a lost connection, which the second one mostly mends
_MAX_WAIT_SECONDS = 2.5  # so all waits of a call together are below half a minute
MAX_CONCURRENCY = 32  # of the calls of one client
# botocore's minute, at each of eleven attempts, is a long silence without a route to AWS.
_CONNECT_SECONDS = 5
# What they answer is optional, and a private network may not reach them.
_OPTIONAL_SERVICES = ("sts", "stepfunctions")
_OPTIONAL_ATTEMPTS = 2
_FUNCTION_SECONDS = (
    910  # a function runs for 900 s at most; after a shorter time, boto3 would invoke it again
)


def aws_environment(
    region: str | None, profile: str | None, environment: Mapping[str, str]
) -> dict[str, str]:
    """The variables that select the Region and the profile for code that uses boto3 alone."""
    region = region or environment.get("AWS_REGION")
    selected = {"AWS_REGION": region, "AWS_DEFAULT_REGION": region, "AWS_PROFILE": profile}
    return {name: value for name, value in selected.items() if value}


def search_session(
    url: str, region: str | None, profile: str | None, environment: Mapping[str, str]
) -> "requests.Session":
    """A session with a search cluster or its dashboards, signed in as the variables say.

    Raises TaskProfilerError.
    """
    service = signing_service(url, environment)
    region = signing_region(url) or region
    if service is not None:
        check_region(region, profile)
    from profiler.search_setup.search_servers import signed_in_session  # requests

    signature = None
    if service is not None:
        with aws_errors("The requests cannot be signed"):
            from botocore.exceptions import NoCredentialsError, NoRegionError  # slow to import

            session = open_session(region_of_environment(region), profile or None)
            credentials = session.get_credentials()
            if credentials is None:
                raise NoCredentialsError
            if session.region_name is None:
                raise NoRegionError
            credentials.get_frozen_credentials()  # an expired sign-in fails here
            signature = AwsSignature(credentials, session.region_name, service)
    return signed_in_session(environment, signature)


def region_of_environment(region: str | None) -> str | None:
    """The Region of the option, else of the environment, as the AWS CLI selects it."""
    return region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None


def check_region(region: str | None, profile: str | None) -> None:
    """Raise TaskProfilerError if no Region is set, without the quarter second that the import of
    boto3 takes.
    """
    if region_of_environment(region) is not None:
        return
    name = (
        profile
        or os.environ.get("AWS_DEFAULT_PROFILE")
        or os.environ.get("AWS_PROFILE")
        or "default"
    )
    files = (
        ("AWS_CONFIG_FILE", "~/.aws/config"),
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
    )
    parser = RawConfigParser(strict=False)
    try:
        parser.read(
            Path(os.environ.get(variable) or default).expanduser() for variable, default in files
        )
    except (Error, UnicodeDecodeError, RuntimeError):
        return  # boto3 reports the error
    sections = [section for section in (name, f"profile {name}") if parser.has_section(section)]
    is_known = any(parser.get(section, "region", fallback="") for section in sections)
    if not is_known and (
        sections or name == "default"
    ):  # boto3 reports a profile that does not exist
        raise TaskProfilerError(f"{_UNUSABLE}: {UNKNOWN_REGION}")


def _retry_handler() -> Callable[..., float | None]:
    """The waits before throttled calls: botocore's double up to minutes, in silence.

    The first one is announced, and once that AWS cannot be reached, which botocore tries again.
    """
    waits = count()  # of several threads
    lost = count()

    def wait_seconds(
        response: tuple[object, Mapping[str, Any]] | None, attempts: int, **_: object
    ) -> float | None:
        code = "" if response is None else str(response[1].get("Error", {}).get("Code"))
        if response is None and attempts == _ATTEMPTS_TO_ANNOUNCE and next(lost) == 0:
            warn("AWS cannot be reached yet: trying again for up to a minute.")
        if attempts > _MAX_RETRIES or not is_throttled(code):
            return None
        if next(waits) == 0:
            warn(
                f"AWS returned {code}, because there are too many calls: trying again for up to "
                "half a minute."
            )
        return min(attempts, _MAX_WAIT_SECONDS)

    return wait_seconds


def open_clients(region: str | None, profile: str | None) -> OpenClient:
    """A function that makes boto3's client of a service, or raises TaskProfilerError.

    Throttled calls are repeated. The parts of a command share its clients: a new session reads the
    sign-in and the descriptions of the services again, which takes a tenth of a second.
    """
    context = click.get_current_context(silent=True)
    if context is None:
        return _open_clients(region, profile)
    opened: dict[tuple[str | None, str | None], OpenClient] = context.meta.setdefault(_OPENED, {})
    if (region, profile) not in opened:
        opened[region, profile] = _open_clients(region, profile)
    return opened[region, profile]


@contextmanager
def _wrong_settings() -> Iterator[None]:
    """boto3 refuses a setting of the wrong form with ValueError, which is none of its errors."""
    from botocore.exceptions import BotoCoreError  # slow to import

    try:
        yield
    except BotoCoreError:
        raise
    except ValueError as error:
        raise TaskProfilerError(
            f"{_UNUSABLE}: a setting is wrong ({str(error).rstrip('.')}): check the variables "
            "AWS_…, such as AWS_ENDPOINT_URL, and AWS's configuration file."
        ) from error


def _open_clients(region: str | None, profile: str | None) -> OpenClient:
    retry_handler = _retry_handler()
    lock = Lock()  # boto3's sessions make one client at a time

    @cache
    def session_and_config() -> tuple[Any, Any]:
        from botocore.config import Config  # slow to import, as boto3
        from botocore.session import Session

        is_configured = (
            Session(profile=profile or None).get_config_variable("max_attempts") is not None
        )
        retries = None if is_configured else {"max_attempts": _MAX_RETRIES}
        config = Config(
            retries=retries,
            max_pool_connections=MAX_CONCURRENCY,
            connect_timeout=_CONNECT_SECONDS,
        )
        return open_session(region_of_environment(region), profile or None), config

    @cache
    def open_client(service: str) -> AwsClient:
        check_region(region, profile)
        with lock, aws_errors(_UNUSABLE), _wrong_settings():
            session, config = session_and_config()
            if service == "lambda":
                config = config.merge(type(config)(read_timeout=_FUNCTION_SECONDS))
            elif service in _OPTIONAL_SERVICES:
                config = config.merge(bounded_config(attempts=_OPTIONAL_ATTEMPTS))
            client = session.client(service, config=config)
            _ = urlsplit(client.meta.endpoint_url).port  # ValueError: else its first call has it
            if config.retries is not None:
                service_id = client.meta.service_model.service_id.hyphenize()
                client.meta.events.register_first(f"needs-retry.{service_id}", retry_handler)
            note_lost_answers(client)
            return client

    return open_client

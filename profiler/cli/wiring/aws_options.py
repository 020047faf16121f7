"""The Region and the profile that the options and the environment select, and clients of AWS for them."""

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.core.aws_clients import AwsClient, open_session

_MAX_RETRIES = 10
FUNCTION_SECONDS = 910  # a function runs for 900 s at most; after a shorter time, boto3 would invoke it again


class AwsOptions(Struct, frozen=True, kw_only=True):
    """The Region and the profile of the command line; None: as the AWS CLI determines them."""

    region: str | None = None
    profile: str | None = None


def aws_client(
    service: str,
    options: AwsOptions,
    environment: Mapping[str, str],
    config: Any = None,  # noqa: ANN401  botocore's own
) -> AwsClient:
    """A client of a service. Like the AWS CLI, it honours AWS_REGION, which boto3 alone does not read."""
    region = options.region or environment.get("AWS_REGION") or None
    return open_session(region, options.profile or None).client(service, config=config)


def aws_environment(options: AwsOptions, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that select the Region and the profile in another process, which may use boto3 alone."""
    region = options.region or environment.get("AWS_REGION")
    selected = {"AWS_REGION": region, "AWS_DEFAULT_REGION": region, "AWS_PROFILE": options.profile}
    return {name: value for name, value in selected.items() if value}


def region_of_environment(region: str | None) -> str | None:
    """The Region of the option, else of the environment, as the AWS CLI selects it."""
    return region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None


def open_clients(region: str | None, profile: str | None) -> OpenClient:
    """Return a function that makes boto3's client of a service.

    Throttled calls are repeated, up to ten times unless AWS_MAX_ATTEMPTS or the profile sets another number. The
    function raises TaskProfilerError if there is no such profile or no Region.
    """

    @cache
    def session_and_config() -> tuple[Any, Any]:
        from botocore.config import Config  # slow to import, as boto3
        from botocore.session import Session

        is_configured = Session(profile=profile or None).get_config_variable("max_attempts") is not None
        config = Config() if is_configured else Config(retries={"max_attempts": _MAX_RETRIES})
        return open_session(region_of_environment(region), profile or None), config

    @cache
    def open_client(service: str) -> AwsClient:
        with aws_errors("AWS cannot be used"):
            session, config = session_and_config()
            if service == "lambda":
                config = config.merge(type(config)(read_timeout=FUNCTION_SECONDS))
            return session.client(service, config=config)

    return open_client

"""Clients of AWS. boto3 is imported with the first client: it takes a quarter second."""

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient, aws_errors

_MAX_REPEATS = 10


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


def region_of_environment(region: str | None) -> str | None:
    """The Region of the option, else of the environment, as the AWS CLI selects it."""
    return region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None


def open_clients(region: str | None, profile: str | None) -> OpenClient:
    """Return a function that makes boto3's client of a service.

    Throttled calls are repeated, up to ten times unless AWS_MAX_ATTEMPTS or the profile sets another number. The
    function raises TaskProfilerError if there is no such profile or no Region.
    """
    options = AwsOptions(region=region_of_environment(region), profile=profile)

    @cache
    def open_client(service: str) -> Any:  # noqa: ANN401  boto3 makes its clients at run time
        with aws_errors("AWS cannot be used"):
            return aws_client(service, options, os.environ, repeating(options, _MAX_REPEATS))

    return open_client

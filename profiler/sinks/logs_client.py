"""The client of CloudWatch Logs: boto3's, whose answers are checked.

A captive portal or a proxy answers with HTML and status 200, which boto3 takes, as an empty or cut
answer, for an empty object. Importing this module imports boto3, which takes 22 MiB.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError

from profiler.core.aws_clients import AwsClient, bounded_config, open_session
from profiler.core.json_levels import within_levels
from profiler.sinks.upload_failures import (
    CONNECT_TIMEOUT_SECONDS,
    READ_TIMEOUT_SECONDS,
    AnswerError,
    cause_text_of,
)

_ATTEMPTS_PER_CALL = 3  # the sink repeats the call until its time is over


def make_logs_client(
    region: str | None, on_failure: Callable[[str], None], profile: str | None
) -> AwsClient:
    """A client with botocore's standard retries; ``on_failure`` gets the cause of each attempt
    that fails.
    """
    config = bounded_config(
        connect_timeout_seconds=CONNECT_TIMEOUT_SECONDS,
        read_timeout_seconds=READ_TIMEOUT_SECONDS,
        attempts=_ATTEMPTS_PER_CALL,
    )
    client: AwsClient = open_session(region, profile).client("logs", config=config)

    def note_cause(
        response: tuple[object, Mapping[str, Any]] | None,
        caught_exception: Exception | None,
        **_: object,
    ) -> None:
        if caught_exception is not None:
            on_failure(cause_text_of(caught_exception))
        elif response is not None and "Error" in response[1]:
            on_failure(cause_text_of(ClientError(dict(response[1]), "PutLogEvents")))

    client.meta.events.register("needs-retry.cloudwatch-logs.PutLogEvents", note_cause)
    client.meta.events.register("after-call.cloudwatch-logs.PutLogEvents", _check_is_json_object)
    return client


def _check_is_json_object(http_response: AWSResponse, **_: object) -> None:
    """Raise AnswerError unless the answer is a JSON object."""
    body = http_response.content
    try:
        msgspec.json.decode(within_levels(body), type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError):
        content = "nothing"
        if body:
            content = f"{len(body)} bytes that are not the JSON of CloudWatch Logs"
        status = http_response.status_code
        raise AnswerError(
            f"HTTP {status} with {content} was answered, as by a proxy or a sign-in page"
        ) from None

"""What an error of AWS says of the attempts of its call: botocore repeats one without an answer."""

import json
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import botocore.endpoint
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ReadTimeoutError,
)
from botocore.session import Session

from profiler.core.aws_lost_answers import has_surely_changed_nothing, note_lost_answers

URL: Final = "https://ecs.eu-west-1.amazonaws.com"
REFUSED: Final = (400, "ClientException")
THROTTLED: Final = (400, "ThrottlingException")
FAILED: Final = (500, "ServerException")
LOST: Final = ReadTimeoutError(endpoint_url=URL)
UNREACHED: Final = ConnectTimeoutError(endpoint_url=URL)
NO_HOST: Final = EndpointConnectionError(endpoint_url=URL)
Attempt: TypeAlias = Any  # a status with a code, or an error of botocore, which has no types


class Raw:
    """A body, as urllib3 has it."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def stream(self) -> Iterator[bytes]:
        yield self.content


def error_of(attempts: list[Attempt], mode: str) -> BaseException:
    """The error of a call whose attempts end so; what follows the last one would be repeated."""
    session = Session()
    session.set_credentials("key", "secret")
    retries = {"max_attempts": len(attempts) - 1, "mode": mode}
    client = session.create_client("ecs", "eu-west-1", config=Config(retries=retries))
    note_lost_answers(client)
    left = iter(attempts)

    def answer(**_: Any) -> AWSResponse:
        attempt = next(left)
        if isinstance(attempt, BotoCoreError):
            raise type(attempt)(**attempt.kwargs)
        status, code = attempt
        return AWSResponse(URL, status, {}, Raw(json.dumps({"__type": code}).encode()))

    client.meta.events.register("before-send.ecs", answer)
    with pytest.raises((BotoCoreError, ClientError)) as raised:
        client.deregister_task_definition(taskDefinition="nightly:1")
    assert next(left, None) is None
    error: BaseException = raised.value
    return error


@pytest.mark.parametrize("mode", ["legacy", "standard"])
@pytest.mark.parametrize(
    ("attempts", "certain"),
    [
        ([REFUSED], True),
        ([THROTTLED, THROTTLED, REFUSED], True),
        ([THROTTLED, THROTTLED], True),
        ([UNREACHED, REFUSED], True),
        ([UNREACHED, NO_HOST], True),
        ([LOST], False),
        ([FAILED], False),
        ([LOST, REFUSED], False),
        ([FAILED, REFUSED], False),
        ([LOST, THROTTLED, REFUSED], False),
        ([LOST, UNREACHED], False),
        ([FAILED, THROTTLED, NO_HOST], False),
    ],
)
def test_a_refusal_is_certain_unless_an_earlier_attempt_was_lost(
    attempts: list[Attempt],
    certain: bool,  # noqa: FBT001  of pytest
    mode: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(botocore.endpoint.time, "sleep", lambda _seconds: None)
    assert has_surely_changed_nothing(error_of(attempts, mode)) is certain

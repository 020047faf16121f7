"""What is asked of AWS about an ended task: its definition, and the newest lines of its log streams.

Neither is necessary: what may not be read, or is not there, is said once and done without.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from forwarder.task_definition import LogStream

_NEWEST_LINES = 200

Warn = Callable[[str], None]


class EcsDefinitions:
    """``ecs:DescribeTaskDefinition``."""

    def __init__(self, client: Any, warn: Warn) -> None:  # noqa: ANN401  boto3 makes its clients at run time
        self._client = client
        self._warn = warn

    def describe(self, arn: str) -> Mapping[str, object] | None:
        """The task definition; None if it cannot be read."""
        try:
            answer: Mapping[str, object] = self._client.describe_task_definition(taskDefinition=arn)["taskDefinition"]
        except (ClientError, BotoCoreError) as error:
            self._warn(f"The task definition cannot be read ({_code(error)}): allow ecs:DescribeTaskDefinition.")
            return None
        return answer


class CloudWatchTail:
    """``logs:GetLogEvents``. ``client_of`` makes the client of a region."""

    def __init__(self, client_of: Callable[[str | None], Any], warn: Warn) -> None:
        self._client_of = client_of
        self._warn = warn

    def newest(self, place: LogStream) -> Sequence[str]:
        """The last lines of the stream, oldest first."""
        try:
            answer = self._client_of(place.region).get_log_events(
                logGroupName=place.group, logStreamName=place.stream, limit=_NEWEST_LINES, startFromHead=False
            )
        except (ClientError, BotoCoreError) as error:
            if _code(error) != "ResourceNotFoundException":
                self._warn(f"Log group {place.group} cannot be read ({_code(error)}): allow logs:GetLogEvents.")
            return ()
        return [str(event["message"]) for event in answer["events"]]


def _code(error: ClientError | BotoCoreError) -> str:
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "unknown"))
    return type(error).__name__

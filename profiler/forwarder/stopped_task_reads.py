"""What AWS tells of a stopped task: its definition, and the newest lines of its log streams."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from profiler.core.aws_clients import pages_backwards
from profiler.core.aws_error_codes import ACCESS_DENIED, denial_remedy, error_code, is_throttled
from profiler.core.ecs_terms import LogTarget
from profiler.forwarder.invocation import DeliveryError, ForwarderError, ThrottledError

PAGE_LINES = 200
# Against a stream without an end: the time and the number of lines end a reading before. CloudWatch
# Logs may return any number of empty and short pages before the end.
_MAX_PAGES = 1_000
# The error codes of ECS and CloudWatch Logs for resources that do not exist.
_UNKNOWN = frozenset({"ClientException", "ResourceNotFoundException", "InvalidParameterException"})


class MissingStreamError(ForwarderError):
    """CloudWatch Logs has no such log stream, or no such log group."""


class StreamLine(Struct, frozen=True):
    """A line of a log stream; ``timestamp_ms`` is CloudWatch's, since 1970."""

    text: str
    timestamp_ms: int


class TaskDefinitionReader(Struct, frozen=True):
    """Reads task definitions with ``ecs:DescribeTaskDefinition``.

    A revision never changes, so it is read once.
    """

    client: Any
    warn: Callable[[str], None]
    _known: dict[str, Mapping[str, object]] = {}

    def describe_definition(
        self, arn: str, wait: Callable[[], bool] = lambda: False
    ) -> Mapping[str, object] | None:
        """Return the task definition with its tags; None with a warning.

        ``wait``: before a throttled call. Raises DeliveryError.
        """
        # Slow to import, and forward_logs does not need it.
        from botocore.exceptions import BotoCoreError, ClientError

        while arn not in self._known:
            try:
                described = self.client.describe_task_definition(
                    taskDefinition=arn, include=["TAGS"]
                )
                tags = {"tags": described["tags"]} if described.get("tags") else {}
                self._known[arn] = {**described["taskDefinition"], **tags}
            except (ClientError, BotoCoreError) as error:
                if not (is_throttled(error_code(error)) and wait()):
                    needed = f"ecs:DescribeTaskDefinition on {arn}"
                    self.warn(_why_unreadable(error, f"The task definition {arn}", needed))
                    return None
        return self._known[arn]


class LogStreamTailReader(Struct, frozen=True):
    """Reads log streams with ``logs:GetLogEvents``.

    ``client_for`` returns the client of a region.
    """

    client_for: Callable[[str | None], Any]
    warn: Callable[[str], None]

    def read_newest_pages(self, stream: LogTarget) -> Iterator[Sequence[StreamLine]]:
        """The pages of a stream, the newest one and its newest line first; a warning names a stream
        that cannot be read.
        """
        for page in pages_backwards(partial(self._read_page, stream), _MAX_PAGES):
            events = page.get("events", ())
            yield [StreamLine(event["message"], event["timestamp"]) for event in events][::-1]

    def _read_page(self, stream: LogTarget, **position: str) -> Mapping[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError  # as above

        try:
            page: Mapping[str, Any] = self.client_for(stream.region).get_log_events(
                logGroupName=stream.group,
                logStreamName=stream.stream,
                limit=PAGE_LINES,
                startFromHead=False,
                **position,
            )
        except (ClientError, BotoCoreError) as error:
            what = f"The log stream {stream.stream} of {stream.group}"
            why = _why_unreadable(error, what, f"logs:GetLogEvents on the log group {stream.group}")
            self.warn(why)
            if error_code(error) in _UNKNOWN:
                raise MissingStreamError(why) from error
            return {}
        return page


def _why_unreadable(error: Exception, what: str, permission: str) -> str:
    """A sentence on why AWS will never return something.

    Raises DeliveryError if it can return it later.
    """
    code = error_code(error)
    if code in ACCESS_DENIED:
        remedy = denial_remedy(str(error), permission)
        return f"Not everything of stopped tasks can be read ({code}): {remedy}."
    if code in _UNKNOWN:
        return f"{what} does not exist in this account and Region ({code})."
    kind = ThrottledError if is_throttled(code) else DeliveryError
    raise kind(f"{what} was not returned ({code}): Lambda retries.") from error

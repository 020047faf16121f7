"""The attempts to put a line into CloudWatch Logs, on a fake clock."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any
from unittest.mock import Mock

import botocore.exceptions
import pytest

from profiler.sinks import LogTarget
from profiler.sinks.report_upload import CloudWatchLogsSink
from tests.fakes import FakeClock
from tests.values import present

TARGET = LogTarget(group="/ecs/jobs", stream="ecs/batch/0123", region="eu-west-1")


class FailingClient:
    """Keeps the times of its calls, all of which fail."""

    def __init__(self, error: Exception, clock: FakeClock) -> None:
        self.error, self.clock = error, clock
        self.attempts: list[int] = []

    def put_log_events(self, **_: object) -> dict[str, object]:
        self.attempts.append(self.clock.now_ns)
        self.clock.advance(0.01)
        raise self.error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (botocore.exceptions.NoCredentialsError(), "a task role"),
        (botocore.exceptions.NoRegionError(), "cannot be reached"),
        (OSError(101, "Network is unreachable"), "Network is unreachable."),
    ],
)
def test_what_comes_to_no_answer_says_what_to_do(error: Exception, said: str) -> None:
    clock = FakeClock()
    regions: list[str | None] = []

    def connect_to(region: str | None, _on_failure: Callable[[str], None]) -> FailingClient:
        regions.append(region)
        return FailingClient(error, clock)

    assert said in present(CloudWatchLogsSink(connect_to, clock).put(b"line", TARGET, 20)).reason
    assert set(regions) == {"eu-west-1"}


@pytest.mark.parametrize("seconds", [0.5, 2, 3, 7.5, 24, 120])
def test_the_last_attempt_begins_two_seconds_before_the_end_of_the_time(seconds: float) -> None:
    clock = FakeClock()
    throttled: Any = {"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}
    client = FailingClient(botocore.exceptions.ClientError(throttled, "PutLogEvents"), clock)
    failure = CloudWatchLogsSink(lambda *_: client, clock).put(b"line", TARGET, seconds)
    assert f"did not accept the line within {seconds:.3g} s" in present(failure).reason
    assert client.attempts[-1] == pytest.approx(max(seconds - 2, 0) * 1e9, abs=0.02e9)
    assert max((later - earlier for earlier, later in pairwise(client.attempts)), default=0) < 5e9


REPORT = {"message": '{"type":"task.report","record":{"container":{"id":"0123abc"}}}'}


@pytest.mark.parametrize(
    ("code", "reads", "is_found"), [("ThrottlingException", 3, True), ("AccessDenied", 1, False)]
)
def test_a_read_that_is_throttled_is_repeated(code: str, reads: int, is_found: bool) -> None:  # noqa: FBT001
    busy = botocore.exceptions.ClientError({"Error": {"Code": code}}, "GetLogEvents")
    client = Mock(get_log_events=Mock(side_effect=[busy, busy, {"events": [REPORT]}]))
    assert (
        CloudWatchLogsSink(lambda *_: client, FakeClock()).holds_report(TARGET, "0123abc", 12.5)
        == is_found
    )
    assert client.get_log_events.call_count == reads


def test_an_empty_page_is_not_the_whole_stream() -> None:
    pages = {
        None: {"events": [], "nextBackwardToken": "b/1"},
        "b/1": {"events": [REPORT], "nextBackwardToken": "b/2"},
    }
    client = Mock(get_log_events=lambda nextToken=None, **_: pages[nextToken])
    assert CloudWatchLogsSink(lambda *_: client, FakeClock()).holds_report(TARGET, "0123abc", 9)

"""The sink against boto3 and a played CloudWatch Logs (moto), and against answers that moto does not give."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import boto3
import botocore.exceptions
import pytest
from moto import mock_aws

from profiler.core.clock import SystemClock
from profiler.sinks import DeliveryFailure, LogTarget
from profiler.sinks.report_upload import CloudWatchLogsSink, LogsClient, connect
from tests.fakes import FakeClock
from tests.values import present

TARGET = LogTarget(group="/ecs/jobs", stream="ecs/batch/0123", region="eu-west-1")


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)


@pytest.fixture
def logs(credentials: None) -> Iterator[LogsClient]:
    with mock_aws():
        client = boto3.client("logs", region_name="eu-west-1")
        client.create_log_group(logGroupName=TARGET.group)
        client.create_log_stream(logGroupName=TARGET.group, logStreamName=TARGET.stream)
        yield client


def test_the_line_stands_in_the_stream_with_the_time_of_now(logs: LogsClient) -> None:
    sink = CloudWatchLogsSink(connect, SystemClock())
    assert sink.put('{"report": "é"}'.encode(), TARGET, 20) is None
    events = logs.get_log_events(logGroupName=TARGET.group, logStreamName=TARGET.stream)["events"]
    assert [event["message"] for event in events] == ['{"report": "é"}']
    assert abs(events[0]["timestamp"] - events[0]["ingestionTime"]) < 60_000


def test_trying_out_writes_nothing(logs: LogsClient) -> None:
    assert CloudWatchLogsSink(connect, SystemClock()).check_permission(TARGET) is None
    events = logs.get_log_events(logGroupName=TARGET.group, logStreamName=TARGET.stream)["events"]
    assert events == []


class AnsweringClient:
    """Answers, or fails, as a test says; the shapes are those of botocore."""

    def __init__(self, answer: Callable[[], dict[str, object]]) -> None:
        self._answer = answer
        self.events: list[dict[str, object]] = []

    def put_log_events(
        self, *, logGroupName: str, logStreamName: str, logEvents: list[dict[str, object]]
    ) -> dict[str, object]:
        assert (logGroupName, logStreamName) == (TARGET.group, TARGET.stream)
        self.events += logEvents
        return self._answer()


def put(answer: Callable[[], dict[str, object]]) -> tuple[DeliveryFailure | None, AnsweringClient]:
    client = AnsweringClient(answer)
    regions: list[str | None] = []

    def connect_to(region: str | None, _on_failure: Callable[[str], None]) -> LogsClient:
        regions.append(region)
        return client

    failure = CloudWatchLogsSink(connect_to, FakeClock()).put(b"line", TARGET, 20)
    assert set(regions) == {"eu-west-1"}
    return failure, client


def raising(error: Exception) -> Callable[[], dict[str, object]]:
    def answer() -> dict[str, object]:
        raise error

    return answer


def refusal(code: str, message: str = "m") -> Exception:
    error: Exception = botocore.exceptions.ClientError({"Error": {"Code": code, "Message": message}}, "PutLogEvents")
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (refusal("AccessDeniedException"), "allow logs:PutLogEvents on it"),
        (refusal("ResourceNotFoundException"), "does not exist"),
        (refusal("ThrottlingException", "Rate exceeded"), "it throttles (ThrottlingException: Rate exceeded)"),
        (refusal("ExpiredTokenException"), "the credentials have expired (ExpiredTokenException)"),
        (refusal("InvalidSignatureException", "Signature expired: …"), "InvalidSignatureException: Signature exp"),
        (botocore.exceptions.NoCredentialsError(), "a task role"),
        (botocore.exceptions.EndpointConnectionError(endpoint_url="https://logs"), "within 20 s"),
        (botocore.exceptions.NoRegionError(), "cannot be reached"),
        (OSError(101, "Network is unreachable"), "Network is unreachable."),
    ],
)
def test_a_failure_says_what_to_do(error: Exception, said: str) -> None:
    failure, _ = put(raising(error))
    assert failure is not None
    assert said in failure.reason
    assert "\n" not in failure.reason


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ({"tooNewLogEventStartIndex": 0}, "2 hours ahead"),
        ({"tooOldLogEventEndIndex": 1}, "14 days behind"),
        ({"expiredLogEventEndIndex": 1}, "retention"),
        ({"somethingNew": 1}, "somethingNew"),
    ],
)
def test_an_event_dropped_with_http_200_is_a_failure(info: dict[str, int], said: str) -> None:
    failure, _ = put(lambda: {"rejectedLogEventsInfo": info})
    assert said in present(failure).reason


@pytest.mark.parametrize("seconds", [0.5, 2, 3, 7.5, 24, 120])
def test_the_last_attempt_begins_two_seconds_before_the_end_of_the_time(seconds: float) -> None:
    clock = FakeClock()
    attempts: list[int] = []

    def answer() -> dict[str, object]:
        attempts.append(clock.now_ns)
        clock.advance(0.01)
        raise refusal("ThrottlingException", "Rate exceeded")

    failure = CloudWatchLogsSink(lambda *_: AnsweringClient(answer), clock).put(b"line", TARGET, seconds)
    assert failure is not None
    assert f"did not accept the line within {seconds:.3g} s" in failure.reason
    assert attempts[-1] == pytest.approx(max(seconds - 2, 0) * 1e9, abs=0.02e9)
    assert max((later - earlier for earlier, later in pairwise(attempts)), default=0) < 5e9

"""The AWS calls of task_stopped, with moto: definitions and newest log lines; the targets of
Slack.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from msgspec.structs import replace

from profiler.forwarder.invocation import DeliveryError, RetryBackoff, ThrottledError
from profiler.forwarder.notifications.channels import SlackTarget, read_slack_targets
from profiler.forwarder.report_finder import ReportFinder, TaskContainers
from profiler.forwarder.stopped_task_reads import (
    LogStreamTailReader,
    MissingStreamError,
    TaskDefinitionReader,
)
from profiler.record.stopped_task import StoppedTask
from profiler.sinks import LogTarget
from tests.fakes import FakeInvocationTime
from tests.lambda_environment import moto_account

TASK = StoppedTask(arn="arn:aws:ecs:eu-west-1:111122223333:task/jobs/" + "1" * 32)
CONTAINERS = TaskContainers(batch="batch", monitor=None)
PLACE = LogTarget(group="/ecs/jobs", stream=f"ecs/batch/{TASK.id}", region="eu-west-1")


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with moto_account(monkeypatch, "eu-west-1"):
        yield


class Failing:
    """A client whose calls fail with these codes of AWS, then return pages."""

    def __init__(self, *answers: str | Exception | dict[str, Any]) -> None:
        self.answers = list(answers)
        self.calls: list[dict[str, Any]] = []

    def _call(self, **arguments: Any) -> Any:
        self.calls.append(arguments)
        answer = self.answers.pop(0)
        if isinstance(answer, str):
            raise ClientError({"Error": {"Code": answer, "Message": "no"}}, "Call")
        if isinstance(answer, Exception):
            raise answer
        return answer

    describe_task_definition = get_log_events = _call


BUSY = ["ThrottlingException", "ServerException", ReadTimeoutError(endpoint_url="x")]


@pytest.fixture
def warnings() -> list[str]:
    return []


def test_a_missing_definition_is_named(warnings: list[str]) -> None:
    client = boto3.client("ecs")
    batch = {"name": "batch", "image": "x", "memory": 64}
    client.register_task_definition(family="nightly", containerDefinitions=[batch])
    definitions = TaskDefinitionReader(client, warnings.append)
    described: Any = definitions.describe_definition("nightly:1")
    assert [container["name"] for container in described["containerDefinitions"]] == ["batch"]
    assert definitions.describe_definition("missing:1") is None
    (warning,) = warnings
    assert "missing:1 does not exist" in warning


def test_a_denied_permission_is_named_and_the_definition_read_again_later(
    warnings: list[str],
) -> None:
    client = Failing("AccessDeniedException", {"taskDefinition": {"family": "nightly"}})
    definitions = TaskDefinitionReader(client, warnings.append)
    assert definitions.describe_definition("nightly:1") is None
    assert definitions.describe_definition("nightly:1") == {"family": "nightly"}
    assert (
        lines(
            LogStreamTailReader(lambda _region: Failing("AccessDeniedException"), warnings.append)
        )
        == []
    )
    of_definition, of_stream = warnings
    assert (
        ("allow ecs:DescribeTaskDefinition" in of_definition)
        is ("allow logs:GetLogEvents" in of_stream)
        is True
    )


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        (
            "User: u is not authorized to perform: ecs:ListTagsForResource on resource: r",
            "allow ecs:ListTagsForResource.",
        ),
        (
            (
                "User: u is not authorized to perform: ecs:DescribeTaskDefinition on resource: r "
                "with an explicit deny in a service control policy"
            ),
            "so change the service control policy (the administrators of the organization can).",
        ),
    ],
)
def test_a_refusal_names_the_action_and_the_policy_that_refuses(
    warnings: list[str], message: str, remedy: str
) -> None:
    """ECS asks for another right to return the tags."""
    details = {"Error": {"Code": "AccessDeniedException", "Message": message}}
    refused = Failing(ClientError(details, "DescribeTaskDefinition"))
    assert TaskDefinitionReader(refused, warnings.append).describe_definition("nightly:1") is None
    (warning,) = warnings
    assert warning.endswith(remedy)


@pytest.mark.parametrize("answer", BUSY, ids=str)
def test_a_busy_service_raises(answer: str | Exception, warnings: list[str]) -> None:
    with pytest.raises(DeliveryError, match="nightly:1"):
        TaskDefinitionReader(Failing(answer), warnings.append).describe_definition("nightly:1")
    with pytest.raises(DeliveryError, match=PLACE.stream) as error:
        lines(LogStreamTailReader(lambda _region: Failing(answer), warnings.append))
    assert isinstance(error.value, ThrottledError) is (answer == "ThrottlingException")
    assert warnings == []


class LimitedLogs:
    """CloudWatch Logs, which answers 25 calls a second. Every stream has one line."""

    def __init__(self, line: str) -> None:
        self.line, self.throttled = line, 0
        self.accepted = Counter[int]()  # by second

    def find(self, begins: float, jitter: float) -> bool:
        """Look for the report of a task that stops at this second, after the tasks before it
        have looked for theirs.
        """
        self.begins, self.time = begins, FakeInvocationTime(120, jitter)
        finder = ReportFinder(
            LogStreamTailReader(lambda _region: self, print).read_newest_pages,
            self.time,
            TASK,
            CONTAINERS,
        )
        found = finder.find([PLACE, replace(PLACE, stream=f"ecs/task-monitor/{TASK.id}")], 20)
        return found is not None and finder.has_time and self.time.left > 120 - 20.5

    def get_log_events(self, **asked: Any) -> dict[str, Any]:
        self.time.left -= 0.05
        second = int(self.begins + 120 - self.time.left)
        if self.accepted[second] == 25:
            self.throttled += 1
            raise ClientError(
                {"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}},
                "GetLogEvents",
            )
        self.accepted[second] += 1
        return page("b/1", *([] if "nextToken" in asked else [self.line]))


@pytest.mark.parametrize(
    ("kind", "tasks", "most_calls"), [("task.report", 300, 1500), ("task.checkpoint", 50, 600)]
)
def test_tasks_that_stop_together_share_the_limit_of_the_service(
    kind: str, tasks: int, most_calls: int
) -> None:
    """Within two seconds: each finds its report or, after the whole wait, its last checkpoint."""
    line = {
        "type": kind,
        "time": "x",
        "record": {"taskId": TASK.id, "container": {"name": "batch"}},
    }
    logs = LimitedLogs(json.dumps(line))
    assert all(logs.find(2 * number / tasks, jitter=number % 8 / 8) for number in range(tasks))
    assert logs.accepted.total() + logs.throttled < most_calls


def test_a_throttled_definition_is_asked_for_again_while_there_is_time() -> None:
    """As when the tasks of a new revision stop together: ECS answers some twenty calls a second."""
    budget = FakeInvocationTime(60)
    backoff = RetryBackoff(budget, initial_seconds=1, max_seconds=16, max_request_seconds=1)
    client = Failing(*["ThrottlingException"] * 4, {"taskDefinition": {"family": "nightly"}})
    assert TaskDefinitionReader(client, print).describe_definition("nightly:1", backoff.wait) == {
        "family": "nightly"
    }
    assert budget.pauses == [2, 4, 8, 16]
    with pytest.raises(DeliveryError, match="ThrottlingException"):
        TaskDefinitionReader(Failing(*["ThrottlingException"] * 99), print).describe_definition(
            "nightly:1", backoff.wait
        )
    assert budget.left >= 4


def lines(tail: LogStreamTailReader) -> list[str]:
    return [line.text for page in tail.read_newest_pages(PLACE) for line in page]


def test_the_newest_lines_come_first(warnings: list[str]) -> None:
    client = boto3.client("logs")
    tail = LogStreamTailReader(lambda _region: client, warnings.append)
    with pytest.raises(MissingStreamError):
        lines(tail)
    (warning,) = warnings
    assert PLACE.stream in warning
    client.create_log_group(logGroupName=PLACE.group)
    client.create_log_stream(logGroupName=PLACE.group, logStreamName=PLACE.stream)
    now_ms = time.time_ns() // 1_000_000 - 1000  # CloudWatch rejects old log events
    events = [{"timestamp": now_ms + number, "message": f"line {number}"} for number in range(300)]
    client.put_log_events(logGroupName=PLACE.group, logStreamName=PLACE.stream, logEvents=events)
    assert lines(tail) == [f"line {number}" for number in range(299, -1, -1)]
    assert len(warnings) == 1


def page(token: str, *messages: str) -> dict[str, Any]:
    events = [{"message": message, "timestamp": 1772359953000} for message in messages]
    return {"events": events, "nextBackwardToken": token}


def test_an_empty_page_is_not_the_end_of_a_stream() -> None:
    client = Failing(
        page("b/1"), page("b/2", "two", "three"), page("b/3"), page("b/4", "one"), page("b/4")
    )
    tail = LogStreamTailReader(lambda _region: client, print)
    assert lines(tail) == ["three", "two", "one"]
    assert [call.get("nextToken") for call in client.calls] == [None, "b/1", "b/2", "b/3", "b/4"]


REPORT = json.dumps(
    {
        "type": "task.report",
        "time": "2026-03-01T10:12:33Z",
        "record": {"taskId": TASK.id, "container": {"name": "batch"}},
    }
)
OLD = [f"line {number}" for number in range(199)]


class Pages:
    """CloudWatch Logs with one stream in pages, the newest one first, of its oldest line first."""

    def __init__(self, *pages: list[str], time: FakeInvocationTime, seconds: float = 0.05) -> None:
        self.pages, self.time, self.seconds = pages, time, seconds
        self.calls = 0
        self.fails_at = 0

    def get_log_events(self, **asked: Any) -> dict[str, Any]:
        self.calls += 1
        self.time.left -= self.seconds
        if self.calls == self.fails_at:
            raise ClientError({"Error": {"Code": "ServerException", "Message": "no"}}, "Call")
        number = int(asked.get("nextToken", "0"))
        if number >= len(self.pages):
            return page(str(number))
        return page(str(number + 1), *self.pages[number])

    def finder(self) -> ReportFinder:
        tail = LogStreamTailReader(lambda _region: self, print)
        return ReportFinder(tail.read_newest_pages, self.time, TASK, CONTAINERS)


@pytest.mark.parametrize(
    ("pages", "calls"),
    [
        ([["one", "two", "three", REPORT, "last"]], 1),
        ([[], ["one", "two", "three", REPORT, "last"]], 2),
        ([["last"], ["one", "two", "three", REPORT]], 2),
        ([["last"], [], [], [REPORT], ["three"], ["two"], ["one"]], 7),
        ([["last"], ["three"], ["two"], ["one", REPORT]], 4),
    ],
    ids=["one page", "an empty one first", "one line first", "single lines", "the oldest page"],
)
def test_pages_are_read_until_the_report_is_found(pages: list[list[str]], calls: int) -> None:
    """At once, and the notice's lines are the newest ones of the stream, whatever their pages."""
    logs = Pages(*pages, time=FakeInvocationTime(120))
    finder = logs.finder()
    found = finder.find([PLACE], 20)
    assert found is not None
    assert found.is_final
    assert finder.has_time
    assert logs.time.pauses == []
    assert finder.read_last_lines(PLACE, 4) == ("one", "two", "three", "last")
    assert logs.calls == calls


@pytest.mark.parametrize("page_lines", [[], ["one line"]], ids=["empty pages", "short pages"])
def test_a_report_behind_hundreds_of_pages_is_found(page_lines: list[str]) -> None:
    logs = Pages(*[page_lines] * 400, [REPORT], time=FakeInvocationTime(120))
    finder = logs.finder()
    assert finder.find([PLACE], 20) is not None
    assert finder.has_time


def test_a_report_below_many_lines_is_found_once_the_wait_is_over() -> None:
    """The attempts read only what is new, so that tasks that stop together are not throttled."""
    logs = Pages(OLD, OLD, [], [REPORT, *OLD], OLD, time=FakeInvocationTime(120))
    found = logs.finder().find([PLACE], 20)
    assert found is not None
    assert logs.calls <= 2 + len(logs.time.pauses) + 3
    assert 80 < logs.time.left < 120 - 10


def test_without_a_monitor_fewer_lines_are_looked_through() -> None:
    pages = [OLD] * 50
    logs = Pages(*pages, [REPORT], time=FakeInvocationTime(120))
    assert logs.finder().find([PLACE], 20, is_expected=False) is None
    assert logs.calls == 11
    assert logs.time.pauses == []
    expected = Pages(*pages, [REPORT], time=FakeInvocationTime(120))
    assert expected.finder().find([PLACE], 20) is not None


def test_reading_all_pages_leaves_the_time_of_the_document_and_the_notice() -> None:
    logs = Pages(*[OLD] * 90, [REPORT], time=FakeInvocationTime(60), seconds=1.5)
    finder = logs.finder()
    assert finder.find([PLACE], 20) is None
    assert not finder.has_time
    assert 10 <= logs.time.left < 13


def test_a_page_that_cannot_be_read_does_not_hide_the_others() -> None:
    logs = Pages(["last"], ["one", REPORT], time=FakeInvocationTime(120))
    logs.fails_at = 2
    finder = logs.finder()
    assert finder.find([PLACE], 20) is not None
    assert finder.read_last_lines(PLACE, 5) == ("one", "last")


@pytest.mark.parametrize(
    "other", [{"slack_bot_token": "x"}, {"slack_bot_token": None, "slack_success_channel": ""}]
)
def test_slack_settings_in_a_secret(other: dict[str, object]) -> None:
    secret = json.dumps({"slack_failure_webhook_url": "https://hooks/2", "note": [None], **other})
    targets = read_slack_targets({"SLACK_SECRET_ID": "slack"}, lambda _name: secret)
    assert targets == {
        "failure": SlackTarget(secret="https://hooks/2", setting="SLACK_FAILURE_WEBHOOK_URL")
    }

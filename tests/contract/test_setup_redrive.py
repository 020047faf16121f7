"""``task-profiler setup redrive``: events in the dead-letter queues are sent again, with moto."""

import json
import math
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from profiler.aws_account.replay import RedriveProgress, redrive_events
from profiler.cli.setup.setup_commands import redrive as redrive_command
from profiler.core.errors import TaskProfilerError
from tests.fake_cloudformation import FakeCloudFormation
from tests.lambda_environment import moto_account
from tests.log_subscriptions import subscription_event
from tests.task_events import EVENT

# What Lambda sends to an on-failure destination: "Capturing records of Lambda asynchronous
# invocations".
RECORD = {
    "version": "1.0",
    "timestamp": "2026-03-01T10:15:00.000Z",
    "requestContext": {
        "requestId": "e4b4",
        "condition": "RetriesExhausted",
        "approximateInvokeCount": 3,
    },
    "requestPayload": subscription_event("hello"),
    "responseContext": {
        "statusCode": 200,
        "executedVersion": "$LATEST",
        "functionError": "Unhandled",
    },
    "responsePayload": {"errorMessage": "OpenSearch cannot be reached."},
}


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with moto_account(monkeypatch, "eu-west-1"):
        made = boto3.client("sqs").create_queue(
            QueueName="dead", Attributes={"VisibilityTimeout": "300"}
        )
        yield str(made["QueueUrl"])


def refusal(code: str, status: int, message: str = "") -> ClientError:
    answer: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(answer, "Invoke")


THROTTLED = refusal("TooManyRequestsException", 429, "Rate Exceeded.")


class Functions:
    """Accepts a number of events, then fails.

    Codes and messages are those that users of Lambda have seen.
    """

    def __init__(self, takes: int = 1000, error: BaseException = THROTTLED) -> None:
        self.calls: list[dict[str, Any]] = []
        self._takes, self._error = takes, error

    def invoke(self, **arguments: Any) -> dict[str, Any]:
        if len(self.calls) == self._takes:
            raise self._error
        self.calls.append(arguments)
        return {"StatusCode": 202}


def put(queue: str, *messages: object) -> None:
    """Texts as they are, other messages as JSON."""
    for message in messages:
        text = message if isinstance(message, str) else json.dumps(message)
        boto3.client("sqs").send_message(QueueUrl=queue, MessageBody=text)


def waiting(queue: str) -> int:
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    attributes = boto3.client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=names)[
        "Attributes"
    ]
    return sum(int(attributes[name]) for name in names)


def again(
    functions: Functions, queue: str, function: str = "f", *, now_ms: float = math.inf
) -> tuple[int, list[str]]:
    clients: dict[str, Any] = {"sqs": boto3.client("sqs"), "lambda": functions}
    done = RedriveProgress()
    redrive_events(clients.__getitem__, queue, function, done, now_ms=now_ms)
    return done.sent, [*done.refused.values()]


def test_events_of_both_senders_are_sent_as_they_came(
    queue: str,
) -> None:
    """Events of both senders are sent as they came and what is not taken stays in the queue."""
    functions = Functions()
    put(queue, RECORD, EVENT)
    assert again(functions, queue, "forward-logs") == (2, [])
    assert [json.loads(call["Payload"]) for call in functions.calls] == [
        RECORD["requestPayload"],
        EVENT,
    ]
    assert {(call["FunctionName"], call["InvocationType"]) for call in functions.calls} == {
        ("forward-logs", "Event")
    }
    assert waiting(queue) == 0
    put(queue, *({"number": number} for number in range(3)))
    with pytest.raises(ClientError):
        again(Functions(takes=1), queue)
    assert waiting(queue) == 2
    assert again(Functions(takes=0), queue, now_ms=0) == (0, []), (
        "newer events may have come back meanwhile"
    )
    assert waiting(queue) == 2


STREAM = '{"version": "1.0", "KinesisBatchInfo": {"startSequenceNumber": "1"}}'


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (STREAM, "about records of a data stream: run task-profiler replay on their log groups."),
        ("[" * 100_000, "not an event of Lambda."),
        ("[]", "not an event of Lambda."),
    ],
)
def test_one_message_without_an_event_does_not_keep_back_the_others(
    queue: str, body: str, said: str
) -> None:
    functions = Functions()
    put(queue, body, "{}")
    sent, (reason,) = again(functions, queue)
    assert sent == 1
    assert waiting(queue) == 1
    assert reason.endswith(f" is {said} It is still in the queue.")


@pytest.mark.parametrize("error", [KeyboardInterrupt, refusal("AccessDeniedException", 403)])
def test_what_was_not_sent_can_be_sent_at_once_again(queue: str, error: Any) -> None:
    """It was hidden for five minutes, in which the repeated command found nothing and ended
    well.
    """
    put(queue, *({"number": number} for number in range(12)), "hello")
    with pytest.raises((KeyboardInterrupt, ClientError)):
        again(Functions(11, error), queue)
    assert again(Functions(), queue)[0] == 1
    sent, refused = again(Functions(), queue)
    assert sent == 0
    assert len(refused) == 1


@pytest.mark.parametrize("nth", [1, 10, 11, 13])
def test_two_people_at_once_send_each_event_once(queue: str, nth: int) -> None:
    """The second one sends what the first has not received yet."""
    put(queue, *({"number": number} for number in range(13)))
    both: list[dict[str, Any]] = []

    class First(Functions):
        def invoke(self, **arguments: Any) -> dict[str, Any]:
            if len(self.calls) == nth - 1:
                second = Functions()
                again(second, queue)
                both.extend(second.calls)
            return super().invoke(**arguments)

    first = First()
    again(first, queue)
    both.extend(first.calls)
    sent = sorted(json.loads(call["Payload"])["number"] for call in both)
    assert sent == [*range(13)]
    assert waiting(queue) == 0


def test_the_command_finds_the_queues_of_the_stack(
    queue: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    outputs = {"TaskStoppedDeadLetterQueueUrl": queue, "TaskStoppedFunctionName": "tp-task-stopped"}
    listed = [{"OutputKey": name, "OutputValue": value} for name, value in outputs.items()]
    cloudformation = FakeCloudFormation(stack={"StackStatus": "CREATE_COMPLETE", "Outputs": listed})
    clients = {
        "cloudformation": cloudformation,
        "lambda": Functions(takes=1),
        "sqs": boto3.client("sqs"),
    }
    monkeypatch.setattr(
        "profiler.cli.setup.setup_commands.open_clients", lambda *_: clients.__getitem__
    )
    put(queue, "{}")
    assert redrive_command.main([], standalone_mode=False) == 0
    assert capfd.readouterr().out.splitlines() == [
        "would send 1 event to tp-task-stopped",
        "Nothing was changed; --yes carries this out.",
    ]
    stream = {
        "ReportStreamArn": "s",
        "ForwardLogsDeadLetterQueueUrl": queue,
        "ForwardLogsFunctionName": "f",
    }
    listed += [{"OutputKey": name, "OutputValue": value} for name, value in stream.items()]
    assert redrive_command.main([], standalone_mode=False) == 0
    assert capfd.readouterr().err.count("run task-profiler replay on their log groups") == 1
    del listed[2:]
    assert redrive_command.main(["--json"], standalone_mode=False) == 0
    waiting = {
        "function": "tp-task-stopped",
        "isApplied": False,
        "events": 1,
        "refused": 0,
        "hidden": 0,
    }
    assert json.loads(capfd.readouterr().out) == waiting
    assert redrive_command.main(["--yes"], standalone_mode=False) == 0
    assert capfd.readouterr().out == "Sent 1 event to tp-task-stopped again.\n"
    put(queue, "hello")
    assert redrive_command.main(["--yes"], standalone_mode=False) == 1
    assert " is not an event of Lambda. It is still in the queue.\n" in capfd.readouterr().err
    put(queue, "{}")
    with pytest.raises(
        TaskProfilerError, match="not all sent, and the rest is in the queue: AWS returned TooMany"
    ):
        redrive_command.main(["--yes"], standalone_mode=False)
    cloudformation.stack = {"StackStatus": "CREATE_COMPLETE"}
    assert redrive_command.main(["--yes"], standalone_mode=False) == 0
    assert capfd.readouterr().out.endswith(
        "The stack task-profiler has no dead-letter queue: nothing to send.\n"
    )
    cloudformation.stack = None
    with pytest.raises(TaskProfilerError, match="There is no stack 'task-profiler'"):
        redrive_command.main(["--yes"], standalone_mode=False)

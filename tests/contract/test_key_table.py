"""The table of keys under one fault of DynamoDB: a call is refused, throttled, or carried out and
its answer is lost, which botocore repeats.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import boto3
import botocore.endpoint
import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ReadTimeoutError

from profiler.forwarder.invocation import (
    DeliveryError,
    ForwarderError,
    InProgressError,
    NoticeError,
)
from profiler.forwarder.notifications.idempotency import EndlessLambdaContext, run_idempotently
from tests.lambda_environment import InvocationContext, create_idempotency_table, moto_account

KEY = "arn:aws:ecs:us-west-2:123456789012:task/jobs/0123#slack"
REFUSAL = "The table done cannot be used (AccessDeniedException): check IDEMPOTENCY_TABLE and"
LATER = "The table done cannot be used ({}) at this moment: the next invocation tries again."


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with moto_account(monkeypatch, "us-west-2"):
        monkeypatch.setattr(botocore.endpoint.time, "sleep", lambda _seconds: None)
        create_idempotency_table("done")
        yield


@contextmanager
def fault(operation: str, what: str, times: int) -> Iterator[Counter[str]]:
    """The first attempts of an operation end so; yields the number of attempts of each."""
    attempts = Counter[str]()
    answer = botocore.endpoint.Endpoint._get_response

    def answer_or_fail(endpoint: Any, request: Any, model: Any, context: Any) -> Any:
        attempts[model.name] += 1
        if model.name != operation or attempts[operation] > times:
            return answer(endpoint, request, model, context)
        if what == "lost":
            answer(endpoint, request, model, context)
            return None, ReadTimeoutError(endpoint_url=request.url)
        parsed = {"Error": {"Code": what}, "ResponseMetadata": {"HTTPStatusCode": 400}}
        return (AWSResponse(request.url, 400, {}, None), parsed), None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.endpoint.Endpoint, "_get_response", answer_or_fail)
        yield attempts


class Work:
    """Work that counts, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.count = 0
        self.error = error

    def __call__(self) -> str:
        self.count += 1
        if self.error is not None:
            raise self.error
        return "sent"

    def once(self, context: Any = None) -> str:
        return run_idempotently("done", context or InvocationContext(), KEY, self)


@pytest.mark.parametrize("context", [InvocationContext, EndlessLambdaContext])
@pytest.mark.parametrize("operation", ["PutItem", "UpdateItem"])
def test_a_lost_answer_is_no_other_invocation(
    operation: str, context: Callable[[], object]
) -> None:
    work = Work()
    with fault(operation, "lost", 1) as attempts:
        assert work.once(context()) == "sent"
    assert attempts[operation] == 2
    assert work.once(context()) == "sent"
    assert work.count == 1


@pytest.mark.parametrize(
    "contexts",
    [
        (InvocationContext(), InvocationContext(59_000)),
        (EndlessLambdaContext(), EndlessLambdaContext()),
    ],
    ids=["usual", "endless"],
)
def test_a_lost_answer_takes_no_key_of_another_invocation(contexts: tuple[Any, Any]) -> None:
    first, second = contexts
    work = Work()
    raised: list[InProgressError] = []

    def meanwhile() -> str:
        with fault("PutItem", "lost", 1), pytest.raises(InProgressError) as error:
            work.once(second)
        raised.append(error.value)
        return "sent by the first"

    assert run_idempotently("done", first, KEY, meanwhile) == "sent by the first"
    assert len(raised) == 1
    assert work.once(second) == "sent by the first"
    assert work.count == 0


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("AccessDeniedException", REFUSAL),
        ("ThrottlingException", LATER.format("ThrottlingException")),
        ("lost", LATER.format("ReadTimeoutError")),
    ],
)
def test_the_remedy_is_that_of_the_fault(what: str, said: str) -> None:
    work = Work()
    with fault("PutItem", what, 9), pytest.raises(DeliveryError) as error:
        work.once()
    assert str(error.value).startswith(said)
    assert work.count == 0


def test_work_that_failed_says_so_although_its_key_cannot_be_released() -> None:
    refused = NoticeError("Slack rejected the notification.")
    work = Work(refused)
    with fault("DeleteItem", "ThrottlingException", 9), pytest.raises(NoticeError) as error:
        work.once()
    assert error.value is refused


def test_a_key_that_has_expired_is_free_before_dynamodb_deletes_it() -> None:
    """It deletes within a few days."""
    work = Work()
    assert [work.once(), work.once()] == ["sent", "sent"]
    assert work.count == 1
    client = boto3.client("dynamodb")
    (item,) = client.scan(TableName="done")["Items"]
    client.put_item(TableName="done", Item={**item, "expiration": {"N": str(int(time.time()) - 5)}})
    assert work.once() == "sent"
    assert work.count == 2


def pass_the_time_of_interrupted_invocations() -> None:
    client = boto3.client("dynamodb")
    for item in client.scan(TableName="done")["Items"]:
        if item["status"]["S"] == "INPROGRESS":
            client.put_item(TableName="done", Item={**item, "in_progress_expiration": {"N": "1"}})


@pytest.mark.parametrize("seed", range(12))
def test_whatever_fails_an_event_that_comes_twice_is_told(seed: int) -> None:
    """Twice only if the table did not take what was done. Invocations meet, and Lambda repeats."""
    rng = random.Random(seed)
    told: list[int] = []
    was_forgotten = False

    def invoke(number: int) -> None:
        nonlocal was_forgotten

        def work() -> str:
            if number == 0 and rng.random() < 0.4:
                with suppress(ForwarderError):
                    invoke(1)  # at the same time
            if rng.random() < 0.2:
                raise NoticeError("Slack is away.")
            told.append(number)
            return "sent"

        operation = rng.choice(["PutItem", "PutItem", "UpdateItem", "DeleteItem"])
        what = rng.choice(["lost", "ThrottlingException", "AccessDeniedException"])
        with fault(operation, what, rng.choice([0, 1, 2, 9])) as attempts:
            context = InvocationContext(60_000 - number * 1_000)
            try:
                run_idempotently("done", context, KEY, work)
            finally:
                was_forgotten |= operation == "UpdateItem" and attempts[operation] > 0

    for _ in range(20):
        try:
            invoke(0)
            break
        except ForwarderError:
            pass_the_time_of_interrupted_invocations()
    assert len(told) >= 1
    assert len(told) == 1 or was_forgotten
    before = len(told)
    run_idempotently("done", InvocationContext(), KEY, lambda: told.append(0))
    assert len(told) == before, "the second event"

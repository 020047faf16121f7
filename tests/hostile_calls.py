"""Calls of a command to AWS at which something happens: the process is killed, AWS throttles, or
another person acts.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.aws_proxy import Answer
from tests.fake_batch import FakeBatch
from tests.nth_calls import KilledError
from tests.refused_acts import RefusingProxy
from tools.local_answers import answer_here

_JSON = {"Content-Type": "application/x-amz-json-1.1"}


class HostileProxy(RefusingProxy):
    """Lets something happen at the call with the number ``nth``, before or after AWS carries it
    out. Calls with the numbers ``throttled_from`` are throttled.
    """

    def __init__(self, aws: Any) -> None:
        super().__init__(aws)
        self.at_call: Callable[[], object] = lambda: None
        self.is_after = False
        self.throttled_from: range = range(0)
        self.is_dead = False

    def answer(self, request: Any, body: bytes) -> Answer:
        return self._met(partial(super().answer, request, body), _throttled(body))

    def count_batch(self, batch: FakeBatch) -> None:
        """Let it happen at the calls to AWS Batch, too, which have a server of their own."""

        def carried_out(request: Any, body: bytes) -> Answer:
            number = len(self.operations)
            self.operations.append("")
            answered = batch.answer(request, body)
            self.operations[number] = batch.calls[-1][0]
            self.bodies.append((self.operations[number], body))
            return answered

        throttled = 429, {"x-amzn-ErrorType": "TooManyRequestsException"}, b'{"message": "no"}'
        answer_here(batch.url, lambda *given: self._met(partial(carried_out, *given), throttled))

    def _met(self, carry_out: Callable[[], Answer], throttled: Answer) -> Answer:
        number = len(self.operations) + 1
        if self.is_dead:
            raise KilledError
        if number == self.nth and not self.is_after:
            self.at_call()
        if number in self.throttled_from:
            self.operations.append("throttled")
            return throttled
        answered = carry_out()
        if number == self.nth and self.is_after:
            self.at_call()
        return answered

    def _refuse(self, _operation: str, _body: bytes) -> None:
        """Nothing is refused here."""

    def die(self) -> None:
        self.is_dead = True
        raise KilledError

    def reset(self) -> None:
        self.operations.clear()
        self.nth, self.is_after, self.is_dead = 0, False, False
        self.throttled_from = range(0)
        self.at_call = lambda: None


def _throttled(body: bytes) -> Answer:
    message = "Rate exceeded"
    if b"Version=2010-05" in body:
        error = f"<Error><Code>Throttling</Code><Message>{message}</Message></Error>"
        return 400, _JSON, f"<ErrorResponse>{error}</ErrorResponse>".encode()
    code = "ThrottlingException"
    content = json.dumps({"__type": code, "message": message}).encode()
    return 400, {**_JSON, "x-amzn-ErrorType": code}, content

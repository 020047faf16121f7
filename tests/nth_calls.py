"""Clients of AWS of which one call fails: refused, throttled, or carried out without an answer."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, Literal

from botocore.exceptions import ClientError, ReadTimeoutError
from msgspec import Struct, field

Failure = Literal["denied", "throttled", "lost"]
# What a person is told of each.
SAID: Final[dict[Failure, str]] = {
    "denied": "AWS refused (AccessDenied",
    "throttled": "wait a minute",
    "lost": "AWS cannot be reached",
}
# https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html
BY_ORGANIZATION: Final = (
    "User: arn:aws:iam::123456789012:user/ann is not authorized to perform this operation with an "
    "explicit deny in a service control policy"
)
_CODES: Final = {"denied": "AccessDeniedException", "throttled": "ThrottlingException"}
_UNCOUNTED: Final = frozenset({"meta", "exceptions"})


class KilledError(BaseException):
    """The end of a process: nothing catches it, and nothing is called afterwards."""


class NthCallFails(Struct):
    """Opens clients that count their calls, of which the one with the number ``nth`` fails; 0: none
    does. A paginator and a waiter are one call. ``is_killed``: the process ends at that call, which
    AWS has carried out if its answer is lost. ``is_lasting``: all calls from that one on fail, too.
    ``meanwhile`` happens at that call instead, before it or, if its answer would be lost, after it.
    A service control policy denies the calls named in ``denied``, each time.
    """

    opens: Callable[[str], Any]
    nth: int = 0
    failure: Failure = "denied"
    calls: list[str] = field(default_factory=list)
    is_killed: bool = False
    is_lasting: bool = False
    meanwhile: Callable[[], object] | None = None
    denied: frozenset[str] = frozenset()

    def open(self, service: str) -> Any:
        return _Client(self, self.opens(service))

    def made(self, name: str, call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """The answer of a call. Raises boto3's error for the one that fails."""
        self.calls.append(name)
        if name in self.denied:
            raise _refusal(name, "AccessDeniedException", BY_ORGANIZATION)
        is_past = (self.is_killed or self.is_lasting) and 0 < self.nth < len(self.calls)
        if len(self.calls) != self.nth and not is_past:
            return call(**arguments)
        if self.meanwhile is not None:
            return self._met(call, arguments)
        if self.failure == "lost" and not is_past:
            with suppress(ClientError):
                call(**arguments)
        if self.is_killed:
            raise KilledError
        if self.failure == "lost":
            raise ReadTimeoutError(endpoint_url="https://aws.example.com")
        raise _refusal(name, _CODES[self.failure], "no")

    def _met(self, call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        happens, self.meanwhile = self.meanwhile or (lambda: None), None
        if self.failure != "lost":
            happens()
            return call(**arguments)
        try:
            return call(**arguments)
        finally:
            happens()


def _refusal(name: str, code: str, message: str) -> ClientError:
    answer: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": 400},
    }
    return ClientError(answer, name)


class _Client(Struct):
    """A client, or a paginator or a waiter of one."""

    of: NthCallFails
    client: Any
    name: str = ""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.client, name)
        if name in _UNCOUNTED:
            return found
        if name in ("get_paginator", "get_waiter"):
            return lambda part: _Client(self.of, found(part), part)
        if name == "paginate":
            return lambda **arguments: self._pages(found, arguments)
        return lambda **arguments: self.of.made(self.name or name, found, arguments)

    def _pages(self, call: Callable[..., Any], arguments: dict[str, Any]) -> Iterator[Any]:
        yield from self.of.made(self.name, lambda **given: [*call(**given)], arguments)

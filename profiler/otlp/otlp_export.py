"""Exports the signals of a run within a few seconds. Whatever goes wrong is a reason to report, never an exception."""

import gzip
import re
from collections.abc import Callable, Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import Protocol as TypingProtocol
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from profiler.core.clock import Clock
from profiler.core.errors import TaskProfilerError
from profiler.core.text import on_one_line
from profiler.core.threads import run_with_timeout
from profiler.core.timestamps import NS_PER_SECOND
from profiler.core.version import __version__
from profiler.otlp.otlp_encoding import (
    CONTENT_TYPES,
    Message,
    Signal,
    encode,
    read_acknowledgement,
    read_error,
)
from profiler.otlp.otlp_settings import Target, Targets

MAX_SECONDS = 5.0
MAX_ANSWER_BYTES = 64 * 1024
_RETRYABLE = frozenset({429, 502, 503, 504})
_OK = range(200, 300)
_REDIRECTS = range(300, 400)
# Less does not suffice for a request.
_MIN_SECONDS = 0.2
# The exporter ends this much before its thread is abandoned, to say what it sent.
_MARGIN_SECONDS = 0.1
_FIRST_PAUSE_SECONDS = 0.25
_MAX_MESSAGE_CHARS = 200
_MAX_PAUSE_SECONDS = 86_400.0
_SECONDS = re.compile(r"\d+", re.ASCII)
_HIDDEN = "***"
# Shorter texts are no secrets, and may be a part of other words.
_MIN_SECRET_CHARS = 4


class HttpAnswer(Struct, frozen=True, kw_only=True):
    """An answer: its status, its headers by lower-case name, and at most ``MAX_ANSWER_BYTES`` of its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class TransportError(Exception):
    """There was no answer: a phrase that completes "the export failed because"."""


class Transport(TypingProtocol):
    """Posts a request. It follows no redirect, and reads no more of the answer than its limit."""

    def __call__(self, url: str, headers: Mapping[str, str], body: bytes, timeout_seconds: float) -> HttpAnswer:
        """Post the body. Raises TransportError."""
        ...


# Returns the headers of a request with its signature: (target, headers, body).
Sign = Callable[[Target, Mapping[str, str], bytes], Mapping[str, str]]


class _Pending(Struct):
    """A signal that is not exported yet, and the monotonic time of its next attempt."""

    signal: Signal
    target: Target
    headers: Mapping[str, str]
    body: bytes
    due_ns: int
    attempts: int = 0
    reason: str = "the time was up before it was sent"


class _Refused(Struct, frozen=True):
    reason: str
    retry_after_seconds: float | None = None


def export_in_time(
    prepare: Callable[[], tuple[Targets, Mapping[Signal, Message]]],
    exporter: "OtlpExporter",
    max_seconds: float = MAX_SECONDS,
    is_interrupted: Callable[[], bool] = lambda: False,
) -> str | None:
    """Prepare the signals and export them in at most this time, whatever blocks: a name server, a secret, a backend.

    Args:
        prepare: Returns the targets and the signals. A TaskProfilerError that it raises is the reason.
        exporter: The exporter.
        max_seconds: The time for everything.
        is_interrupted: Whether to give up earlier.

    Returns:
        None if all signals were accepted, else why not: one or more sentences.
    """

    def work() -> list[str]:
        deadline_ns = exporter.deadline_ns(max_seconds - _MARGIN_SECONDS)
        targets, signals = prepare()
        return exporter.export(targets, signals, deadline_ns)

    try:
        reasons = run_with_timeout(max_seconds, work, is_interrupted=is_interrupted)
    except TaskProfilerError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001  the export must not fail what precedes it
        return f"The export failed ({type(error).__name__})."  # its text may contain a secret
    if reasons is None and is_interrupted():
        return "The export was interrupted."
    if reasons is None:
        return f"The export took longer than {max_seconds:g} s."
    return " ".join(reasons) or None


class OtlpExporter:
    """Sends signals. Each has its share of the time; what one does not use belongs to the others.

    Args:
        transport: Posts a request.
        clock: The time, and the pauses between attempts.
        jitter: Returns a number from 0 to 1, which spreads the pauses of many exporters.
        sign: Signs a request for AWS; None if no target needs it.
    """

    def __init__(
        self, transport: Transport, clock: Clock, *, jitter: Callable[[], float], sign: Sign | None = None
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._jitter = jitter
        self._sign = sign

    def deadline_ns(self, seconds: float) -> int:
        """The monotonic time at the end of the seconds."""
        return self._clock.monotonic_ns() + round(seconds * NS_PER_SECOND)

    def export(self, targets: Targets, signals: Mapping[Signal, Message], deadline_ns: int) -> list[str]:
        """Send each signal that has a target. Returns sentences about those that were not accepted as a whole."""
        now_ns = self._clock.monotonic_ns()
        waiting = [
            self._pending(signal, targets[signal], message, now_ns)
            for signal, message in signals.items()
            if signal in targets
        ]
        failed: list[_Pending] = []
        while waiting:
            pending = min(waiting, key=lambda one: one.due_ns)
            left_seconds = (deadline_ns - max(self._clock.monotonic_ns(), pending.due_ns)) / NS_PER_SECOND
            if left_seconds < _MIN_SECONDS:
                return _sentences([*failed, *waiting])
            self._clock.sleep(max(0, pending.due_ns - self._clock.monotonic_ns()) / NS_PER_SECOND)
            refused = self._attempt(pending, left_seconds / len(waiting))
            if refused is not None:
                pending.reason = refused.reason
            if refused is not None and refused.retry_after_seconds is not None:
                pending.due_ns = self.deadline_ns(refused.retry_after_seconds)
                continue
            waiting.remove(pending)
            if refused is not None:
                failed.append(pending)
        return _sentences(failed)

    def _pending(self, signal: Signal, target: Target, message: Message, now_ns: int) -> _Pending:
        body = encode(signal, message, target.protocol)
        headers = {
            "content-type": CONTENT_TYPES[target.protocol],
            "user-agent": f"task-profiler/{__version__}",
            **({"content-encoding": "gzip"} if target.is_compressed else {}),
            **{name.lower(): value for name, value in target.headers},
        }
        body = gzip.compress(body, mtime=0) if target.is_compressed else body
        return _Pending(signal=signal, target=target, headers=headers, body=body, due_ns=now_ns)

    def _attempt(self, pending: _Pending, timeout_seconds: float) -> _Refused | None:
        pending.attempts += 1
        target, headers = pending.target, pending.headers
        if target.aws is not None and self._sign is not None:
            headers = self._sign(target, headers, pending.body)
        try:
            answer = self._transport(target.url, headers, pending.body, timeout_seconds)
        except TransportError as error:
            return _Refused(str(error))
        content_type = answer.headers.get("content-type", "").lower()
        secrets = _secrets(target, (value for name, value in headers.items() if name not in pending.headers))
        if answer.status in _OK and content_type.startswith("text/html"):
            return _Refused("the answer is a web page: check the address")
        if answer.status in _OK:
            said = read_acknowledgement(answer.body, content_type)
            rejected = _Refused(f"the server rejected a part of it{_quoted(said.message, secrets)}")
            return rejected if said.rejected > 0 else None
        if answer.status in _REDIRECTS:
            return _Refused(f"the server answered {answer.status}, a redirect: set the final address")
        reason = f"the server answered {answer.status}{_quoted(read_error(answer.body, content_type), secrets)}"
        if answer.status not in _RETRYABLE:
            return _Refused(reason)
        usual_seconds = _FIRST_PAUSE_SECONDS * 2.0 ** (pending.attempts - 1) * (1 + self._jitter())
        asked_seconds = _retry_after_seconds(answer.headers.get("retry-after", ""), self._clock.wall_ns())
        return _Refused(reason, max(usual_seconds, asked_seconds))


def _sentences(failed: Iterable[_Pending]) -> list[str]:
    """One sentence about all signals with the same reason."""
    signals: dict[tuple[str, str], list[str]] = {}
    for pending in failed:
        signals.setdefault((pending.reason, pending.target.setting), []).append(pending.signal)
    return [
        f"The {' and '.join(filter(None, (', '.join(names[:-1]), names[-1])))} were not exported: {reason} ({setting})."
        for (reason, setting), names in signals.items()
    ]


def _secrets(target: Target, signature: Iterable[str]) -> list[str]:
    """What may be a secret: the values of the headers, the query of the address, the signature."""
    query = urlsplit(target.url).query
    values = [value for _, value in target.headers]
    words = [word for value in values for word in value.split()]
    return [query, *(value for _, value in parse_qsl(query)), *values, *words, *signature]


def _quoted(message: str, secrets: Iterable[str]) -> str:
    """The server's message on one line, without what it repeats of the secrets."""
    for secret in secrets:
        message = message.replace(secret, _HIDDEN) if len(secret) >= _MIN_SECRET_CHARS else message
    shown = on_one_line(message[:_MAX_MESSAGE_CHARS]).strip()
    return f": {shown}" if shown else ""


def _retry_after_seconds(text: str, wall_ns: int) -> float:
    """The pause that the server asks for, in seconds or as a date; 0 without a valid one."""
    if _SECONDS.fullmatch(text.strip()):
        return min(float(text), _MAX_PAUSE_SECONDS)
    try:
        seconds = parsedate_to_datetime(text).timestamp() - wall_ns / NS_PER_SECOND
    except (ValueError, OverflowError, TypeError):
        return 0.0
    return min(seconds, _MAX_PAUSE_SECONDS)

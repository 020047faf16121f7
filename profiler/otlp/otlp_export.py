"""Exports the signals of a run within a few seconds.

Whatever goes wrong is a reason, never an exception.
"""

import gzip
import math
import ssl
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any

import urllib3
from msgspec import Struct
from urllib3.exceptions import HTTPError, ReadTimeoutError, SSLError

from profiler.core.aws_signature import AwsSignature
from profiler.core.background_call import run_with_timeout
from profiler.core.clock import Clock
from profiler.core.errors import TaskProfilerError
from profiler.core.http_statuses import (
    RETRYABLE_STATUSES,
    UNAUTHORIZED_STATUSES,
    retry_after_seconds,
)
from profiler.core.text import listed
from profiler.core.timestamps import NS_PER_SECOND
from profiler.core.version import __version__
from profiler.otlp.backend_words import quoted_words, words_of_error, words_of_rejection
from profiler.otlp.otlp_encoding import (
    CONTENT_TYPES,
    Message,
    Signal,
    encode_export_request,
    is_rejection,
)
from profiler.otlp.otlp_settings import AwsService, ExportTarget, Targets

MAX_SECONDS = 5.0
MAX_ANSWER_BYTES = 64 * 1024
# The statuses of a backend that does not take a signal, or not from this sender.
_UNAVAILABLE = frozenset({*UNAUTHORIZED_STATUSES, 404, 405, 501})
_OK = range(200, 300)
_REDIRECTS = range(300, 400)
# A request needs at least this time.
_MIN_SECONDS = 0.2
# The exporter ends this much earlier than its thread is abandoned, so that it can report its
# result.
_MARGIN_SECONDS = 0.1
_FIRST_PAUSE_SECONDS = 0.25


class HttpAnswer(Struct, frozen=True, kw_only=True):
    """An answer: its status, its headers by lower-case name, and at most ``MAX_ANSWER_BYTES`` of
    its body.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


class TransportError(Exception):
    """There was no answer: a phrase that completes "the export failed because"."""


# Posts a body: (url, headers, body, timeout in seconds). It follows no redirect. Raises
# TransportError.
Transport = Callable[[str, Mapping[str, str], bytes, float], HttpAnswer]
# Returns the headers of a request with its signature: (service, url, headers, body).
Sign = Callable[[AwsService, str, Mapping[str, str], bytes], Mapping[str, str]]


class _Refusal(Struct, frozen=True):
    """Why a signal was not accepted, the least pause before it is sent again, and the status of
    a final answer.
    """

    reason: str
    pause_seconds: float = math.inf
    status: int | None = None


def export_in_time(
    prepare: Callable[[], tuple[Targets, Mapping[Signal, Message]]],
    exporter: "OtlpExporter",
    max_seconds: float = MAX_SECONDS,
    is_interrupted: Callable[[], bool] = lambda: False,
) -> str | None:
    """Prepare and export in this time, whatever blocks.

    Returns None, or sentences about what was not accepted.
    """
    late = ["Nothing was exported: its settings were not read in time (OTLP_SECRET_ID)."]

    def work() -> list[str]:
        deadline_ns = exporter.deadline_ns(max_seconds - _MARGIN_SECONDS)
        targets, signals = prepare()
        late[:] = _sentences_by_reason(
            targets, {signal: "the time was up" for signal in signals if signal in targets}
        )
        return exporter.export(targets, signals, deadline_ns)

    try:
        reasons = run_with_timeout(max_seconds, work, is_interrupted=is_interrupted)
    except TaskProfilerError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001  the export must not fail what precedes it
        return f"The export failed ({type(error).__name__})."  # its text may contain a secret
    if reasons is not None:
        return " ".join(reasons) or None
    if is_interrupted():
        return "The export was interrupted."
    return f"{' '.join(late)} The limit is {max_seconds:g} s."


class OtlpExporter(Struct, eq=False):
    """Sends signals. Each has its share of the time; the others get its unused time."""

    transport: Transport
    clock: Clock
    jitter: Callable[[], float]  # a number from 0 to 1, which spreads the pauses of many exporters
    sign: Sign | None = None
    # The last export was accepted but for signals that the backend does not take at all.
    lacks_signals: bool = False
    # The backend refused the sender of all signals of the last export.
    is_unauthorized: bool = False

    def deadline_ns(self, seconds: float) -> int:
        return self.clock.monotonic_ns() + round(seconds * NS_PER_SECOND)

    def export(
        self, targets: Targets, signals: Mapping[Signal, Message], deadline_ns: int
    ) -> list[str]:
        """Send each signal that has a target; to a busy server again.

        Returns sentences about what was not accepted.
        """
        requests = {
            signal: _headers_and_body(signal, targets[signal], message)
            for signal, message in signals.items()
            if signal in targets
        }
        refused = dict.fromkeys(
            requests, _Refusal("the time was up before it was sent", pause_seconds=0)
        )
        waiting = list(requests)
        usual_seconds = _FIRST_PAUSE_SECONDS * (1 + self.jitter())
        while True:
            for number, signal in enumerate(waiting):
                share_seconds = self._left_seconds(deadline_ns) / (len(waiting) - number)
                if share_seconds < _MIN_SECONDS:
                    break
                answer = self._send_once(targets[signal], *requests[signal], share_seconds)
                if answer is None:
                    del refused[signal]
                else:
                    refused[signal] = answer
            left_seconds = self._left_seconds(deadline_ns) - _MIN_SECONDS
            waiting = []
            pause_seconds = usual_seconds
            for signal, refusal in refused.items():
                if refusal.pause_seconds <= left_seconds:
                    waiting.append(signal)
                    pause_seconds = max(pause_seconds, refusal.pause_seconds)
            if not waiting or usual_seconds > left_seconds:
                break
            self.clock.sleep(pause_seconds)
            usual_seconds *= 2
        is_accepted = len(refused) < len(requests)
        statuses = {refusal.status for refusal in refused.values()}
        self.lacks_signals = is_accepted and statuses <= _UNAVAILABLE
        self.is_unauthorized = not is_accepted and statuses <= UNAUTHORIZED_STATUSES
        return _sentences_by_reason(
            targets, {signal: refusal.reason for signal, refusal in refused.items()}
        )

    def _left_seconds(self, deadline_ns: int) -> float:
        return (deadline_ns - self.clock.monotonic_ns()) / NS_PER_SECOND

    def _send_once(
        self, target: ExportTarget, headers: Mapping[str, str], body: bytes, timeout_seconds: float
    ) -> _Refusal | None:
        """Send a request."""
        if target.aws is not None and self.sign is not None:
            headers = self.sign(target.aws, target.url, headers, body)
        try:
            answer = self.transport(target.url, headers, body, timeout_seconds)
        except TransportError as error:
            return _Refusal(str(error))
        if answer.status in _OK:
            return _refusal_of_answer(answer, target, headers)
        if answer.status in _REDIRECTS:
            return _Refusal(
                f"the server answered {answer.status}, a redirect: set the final address"
            )
        said = words_of_error(answer.body, _content_type(answer))
        reason = f"the server answered {answer.status}{quoted_words(said, target, headers)}"
        if answer.status not in RETRYABLE_STATUSES:
            return _Refusal(reason, status=answer.status)
        return _Refusal(reason, retry_after_seconds(answer.headers.get("retry-after", "")))


def _content_type(answer: HttpAnswer) -> str:
    return answer.headers.get("content-type", "").lower()


def _refusal_of_answer(
    answer: HttpAnswer, target: ExportTarget, headers: Mapping[str, str]
) -> _Refusal | None:
    """Why the request failed in spite of its status; None if it did not."""
    content_type = _content_type(answer)
    if content_type.startswith("text/html"):
        return _Refusal("the answer is a web page: check the address")
    if is_rejection(answer.body, content_type):
        said = quoted_words(words_of_rejection(answer.body, content_type), target, headers)
        return _Refusal(f"the server rejected a part of it{said or ': see its log'}")
    return None


def _headers_and_body(
    signal: Signal, target: ExportTarget, message: Message
) -> tuple[Mapping[str, str], bytes]:
    body = encode_export_request(signal, message, target.protocol)
    headers = {
        "content-type": CONTENT_TYPES[target.protocol],
        "user-agent": f"task-profiler/{__version__}",
    }
    if target.is_compressed:
        headers["content-encoding"] = "gzip"
        body = gzip.compress(body, mtime=0)
    for name, value in target.headers:
        headers[name.lower()] = value
    return headers, body


def _sentences_by_reason(targets: Targets, reasons: Mapping[Signal, str]) -> list[str]:
    """One sentence about all signals with the same reason."""
    signals: dict[tuple[str, str], list[str]] = {}
    for signal, reason in reasons.items():
        signals.setdefault((reason, targets[signal].setting), []).append(signal)
    return [
        f"The {listed(names)} were not exported: {reason} ({setting})."
        for (reason, setting), names in signals.items()
    ]


class HttpTransport:
    """Posts a body over HTTP or HTTPS: a ``Transport``.

    ``ca_file`` has certificates (None: the system's); ``ca_setting`` is its variable.
    """

    def __init__(self, ca_file: str | None = None, *, ca_setting: str = "SSL_CERT_FILE") -> None:
        self._pool = urllib3.PoolManager(retries=False, ca_certs=ca_file)
        self._ca_setting = ca_setting

    def __call__(
        self, url: str, headers: Mapping[str, str], body: bytes, timeout_seconds: float
    ) -> HttpAnswer:
        """Post the body in this time; urllib3's timeout holds for each read alone.

        Raises TransportError.
        """
        late = TransportError(
            f"the server did not answer completely within {timeout_seconds:.1f} s"
        )
        try:
            answer = run_with_timeout(
                timeout_seconds, lambda: self._post(url, headers, body, timeout_seconds)
            )
        except ReadTimeoutError as error:
            raise late from error
        except SSLError as error:
            raise TransportError(self._tls_reason(error)) from error
        except (HTTPError, HTTPException, OSError) as error:
            raise TransportError(
                f"the server cannot be reached ({type(error).__name__})"
            ) from error
        if answer is None:
            raise late
        return answer

    def _tls_reason(self, error: SSLError) -> str:
        cause = error.args[0] if error.args else None
        # Only errors of OpenSSL, not Python's own, have a message and a reason.
        if isinstance(cause, ssl.SSLCertVerificationError):
            words = getattr(cause, "verify_message", " ".join(map(str, cause.args)))
            reason = f"the server's certificate is not trusted ({words.rstrip('.')})"
            return (
                f"{reason}: set {self._ca_setting} to the file of your private CA, or check the "
                "address"
            )
        name = getattr(cause, "reason", None) or type(cause).__name__
        return f"TLS failed ({name}): check the server and the file of {self._ca_setting}"

    def _post(
        self, url: str, headers: Mapping[str, str], body: bytes, timeout_seconds: float
    ) -> HttpAnswer:
        answer = self._pool.request(
            "POST",
            url,
            headers=dict(headers),
            body=body,
            timeout=urllib3.Timeout(total=timeout_seconds),
            redirect=False,
            preload_content=False,
        )
        with answer:
            content = answer.read(MAX_ANSWER_BYTES)
        return HttpAnswer(
            status=answer.status,
            headers={name.lower(): value for name, value in answer.headers.items()},
            body=content,
        )


def aws_signer(find_credentials: Callable[[], Any]) -> Sign:
    """A function that signs requests with SigV4, with botocore's credentials."""

    def sign(
        service: AwsService, url: str, headers: Mapping[str, str], body: bytes
    ) -> Mapping[str, str]:
        return AwsSignature(find_credentials(), service.region, service.name).signed_headers(
            "POST", url, body, headers
        )

    return sign

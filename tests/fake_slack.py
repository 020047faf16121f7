"""A server that answers as Slack does: incoming webhooks and ``chat.postMessage``.

It looks at the blocks itself and refuses what Slack would (``invalid_blocks``), keeps what it was
sent, and answers otherwise as it is told: ``script`` holds the next answers, one a request; when
it is empty every good request is taken.
"""

import json
from http.server import BaseHTTPRequestHandler
from typing import Any

from msgspec import Struct, field

from tests.http_server import FakeHttpServer

WEBHOOK_PATH = "/services/T0/B0/hunter2-hunter2"
TOKEN = "xoxb-hunter2-hunter2"
CHANNELS = {"C0SUCCESS", "C0FAILURE"}


class Answer(Struct, frozen=True):
    """``text`` as it is, or JSON; or none (``hang``), or a closed connection (``drop``)."""

    status: int = 200
    text: str | None = None
    data: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False
    drop: bool = False


def rate_limited(seconds: int | str) -> Answer:
    data = {"ok": False, "error": "ratelimited"}
    return Answer(429, data=data, headers={"Retry-After": str(seconds)})


class Received(Struct, frozen=True):
    path: str
    body: dict[str, Any]
    authorization: str | None


class FakeSlack(FakeHttpServer):
    """On a free port until ``close``."""

    def __init__(self) -> None:
        super().__init__()
        self.script: list[Answer] = []
        self.received: list[Received] = []
        self.requests = 0
        self.webhook_url = self.url + WEBHOOK_PATH
        self.base_url = f"{self.url}/api/"

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The bodies that were taken."""
        return [received.body for received in self.received]

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        self.requests += 1
        answer = self.script.pop(0) if self.script else self._taken(request, body)
        if answer.hang:
            self.closed.wait()
        if answer.hang or answer.drop:
            self.hang_up(request)
        kind = "text/html" if answer.data is None else "application/json; charset=utf-8"
        text = (answer.text or "") if answer.data is None else json.dumps(answer.data)
        return answer.status, {"Content-Type": kind, **answer.headers}, text.encode()

    def _taken(self, request: BaseHTTPRequestHandler, body: bytes) -> Answer:
        received = Received(request.path, _decoded(body), request.headers.get("Authorization"))
        answer = (
            self._by_bot(received)
            if request.path.startswith("/api/")
            else self._by_webhook(received)
        )
        if answer.text == "ok" or (isinstance(answer.data, dict) and answer.data.get("ok")):
            self.received.append(received)
        return answer

    @staticmethod
    def _by_webhook(received: Received) -> Answer:
        if received.path != WEBHOOK_PATH:
            return Answer(404, text="no_service")
        if not received.body:
            return Answer(400, text="invalid_payload")
        if violations(received.body):
            return Answer(400, text="invalid_blocks")
        return Answer(text="ok")

    @staticmethod
    def _by_bot(received: Received) -> Answer:
        if (received.path, received.authorization) != ("/api/chat.postMessage", f"Bearer {TOKEN}"):
            return _error("invalid_auth")
        if received.body.get("channel") not in CHANNELS:
            return _error("channel_not_found")
        return _error("invalid_blocks") if violations(received.body) else Answer(data={"ok": True})


def _error(code: str) -> Answer:
    return Answer(data={"ok": False, "error": code})


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        decoded = json.loads(body.decode())
    except ValueError:
        return {}
    return decoded if isinstance(decoded, dict) else {}


def violations(message: dict[str, Any]) -> list[str]:
    """What Slack's reference of Block Kit forbids in ``message``; lengths in UTF-16 units, as
    JavaScript counts.
    """
    blocks = message.get("blocks", [])
    found = [] if isinstance(blocks, list) and len(blocks) <= 50 else ["blocks: more than 50"]
    if not 1 <= length(message.get("text", "")) <= 4000:
        found.append("text")
    ids = [element.get("action_id") for block in blocks for element in block.get("elements", [])]
    given = [each for each in ids if each]
    if len(set(given)) != len(given):
        found.append("action_id: twice")
    return found + [
        f"{block.get('type')}: {fault}" for block in blocks for fault in _block_faults(block)
    ]


def _block_faults(block: dict[str, Any]) -> list[str]:
    match block:
        case {"type": "header", "text": {"type": "plain_text"} as text}:
            return _text_faults(text, 150)
        case {"type": "section", "text": text, **rest} if not rest:
            return _text_faults(text, 3000)
        case {"type": "section", "fields": [_, *_] as fields, **rest} if (
            not rest and len(fields) <= 10
        ):
            return [fault for each in fields for fault in _text_faults(each, 2000)]
        case {"type": "context", "elements": [_, *_] as elements} if len(elements) <= 10:
            return [fault for each in elements for fault in _text_faults(each, 3000)]
        case {"type": "actions", "elements": [_, *_] as elements} if len(elements) <= 25:
            return [fault for each in elements for fault in _button_faults(each)]
    return ["unknown, empty or with too many elements"]


def _text_faults(text: Any, max_length: int) -> list[str]:
    match text:
        case {"type": "plain_text", "text": str() as words, **rest} if set(rest) <= {"emoji"}:
            pass
        case {"type": "mrkdwn", "text": str() as words, **rest} if set(rest) <= {"verbatim"}:
            pass
        case _:
            return ["no text object"]
    return (
        []
        if 1 <= length(words) <= max_length
        else [f"{length(words)} characters, at most {max_length}"]
    )


def _button_faults(button: Any) -> list[str]:
    match button:
        case {"type": "button", "text": {"type": "plain_text"} as text, "url": str() as url}:
            faults = _text_faults(text, 75)
            usable = url.startswith(("https://", "http://")) and length(url) <= 3000
            return faults if usable and url.isascii() and url.isprintable() else [*faults, "url"]
    return ["no url button"]


def length(text: Any) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2 if isinstance(text, str) else 0

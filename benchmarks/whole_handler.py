"""The throughput of ``forward_logs`` as a whole: from the event to the answers of the cluster.

The official client sends to a server of another process, which accepts everything at once. The
CPU time of this process alone counts: unpacking, trust, decoding, documents, the lines of the bulk
requests, their compression and the reading of the answers; neither the network nor the cluster.
"""

import gzip
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import Any, ClassVar

from benchmarks.subscription import LOG_GROUP, Invocation, load_handler
from tools.waiting import LIMIT_SECONDS

_LINES_PER_EVENT = 500
_FOUND_NOTHING = json.dumps(
    {
        "took": 1,
        "timed_out": False,
        "_shards": {"total": 1, "successful": 1, "skipped": 0, "failed": 0},
        "hits": {"total": {"value": 0, "relation": "eq"}, "hits": []},
    }
).encode()


def measure_handler(
    lines: Sequence[str], make_event: Callable[[Sequence[str]], dict[str, Any]]
) -> float:
    """Measure reports per second of CPU time, in events that ``make_event`` makes of lines."""
    events = [
        make_event(lines[first : first + _LINES_PER_EVENT])
        for first in range(0, len(lines), _LINES_PER_EVENT)
    ]
    with _accepting_server() as url:
        os.environ["ELASTICSEARCH_URL"] = url
        os.environ["TRUSTED_LOG_GROUPS"] = LOG_GROUP
        forward = load_handler()
        # The first event imports and connects.
        _forward(forward, make_event(lines[:1]))
        started_at = time.process_time()
        for event in events:
            _forward(forward, event)
        return len(lines) / (time.process_time() - started_at)


def _forward(forward: Callable[..., Any], event: dict[str, Any]) -> None:
    answer = forward(event, Invocation())
    if any(answer.get(name) for name in ("skipped", "failed", "untrusted", "batchItemFailures")):
        raise SystemExit(f"The forwarder did not index all lines: {answer}.")


@contextmanager
def _accepting_server() -> Iterator[str]:
    """The address of a server that answers as Elasticsearch does to new documents."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        if not ours.poll(LIMIT_SECONDS):
            raise SystemExit("The accepting server did not start.")
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join(LIMIT_SECONDS)


def _serve(started: Connection) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Accepting)
    started.send(server.server_port)
    server.serve_forever()


class _Accepting(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    _created: ClassVar[dict[str, Any]] = {
        "_version": 1,
        "result": "created",
        "_shards": {"total": 2, "successful": 1, "failed": 0},
        "_seq_no": 0,
        "_primary_term": 1,
        "status": 201,
    }

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        answer = self._written_answer(body) if self.path == "/_bulk" else _FOUND_NOTHING
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("x-elastic-product", "Elasticsearch")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _written_answer(self, body: bytes) -> bytes:
        items = []
        for action in body.splitlines()[::2]:
            ((kind, place),) = json.loads(action).items()
            named = {"_index": place["_index"], "_id": place["_id"]}
            items.append({kind: {**named, **self._created}})
        return json.dumps({"took": 1, "errors": False, "items": items}).encode()

    def log_message(self, *_: object) -> None:
        """Say nothing."""

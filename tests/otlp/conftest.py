"""Fixtures of the tests against a real OpenTelemetry Collector, which passes on what it
understood as JSON.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.http_server import FakeHttpServer
from tests.prerequisites import skip_or_fail
from tools.search_server import free_ports
from tools.waiting import LIMIT_SECONDS, wait_until

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "task-profiler"
# Without a queue, the collector answers when the test's server has answered.
_CONFIG = """
receivers: {otlp: {protocols: {http: {endpoint: '127.0.0.1:%d'}}}}
exporters:
  otlp_http:
    endpoint: %s
    encoding: json
    compression: none
    sending_queue: {enabled: false}
    retry_on_failure: {enabled: false}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    traces: {receivers: [otlp], exporters: [otlp_http]}
    logs: {receivers: [otlp], exporters: [otlp_http]}
    metrics: {receivers: [otlp], exporters: [otlp_http]}
"""


class Backend(FakeHttpServer):
    """Behind the collector: keeps the documents of each signal by its path.

    ``status`` answers all requests.
    """

    def __init__(self) -> None:
        super().__init__()
        self.received: dict[str, list[dict[str, Any]]] = {}
        self.status = 200

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        self.received.setdefault(request.path, []).append(json.loads(body))
        return self.status, {"Content-Type": "application/json"}, b"{}"


@dataclass(frozen=True, slots=True)
class Collector:
    """A collector that listens at ``url``, and the backend that it passes everything on to."""

    url: str
    backend: Backend = field(repr=False)


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    built = sorted(CACHE.glob("otelcol-*/otelcol"))
    if not built:
        skip_or_fail("there is no collector: install Go and run make otlp, which builds it")
    folder = tmp_path_factory.mktemp("collector")
    with Backend() as backend:
        (port,) = free_ports(1)
        configuration = "yaml:" + _CONFIG % (port, backend.url)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [built[-1], "--config", configuration], stdout=log, stderr=log
            )
        try:
            collector = Collector(f"http://127.0.0.1:{port}", backend)
            wait_until(
                lambda: process.poll() is not None or _answers(collector.url),
                "the collector to answer",
            )
            assert process.poll() is None, (folder / "log").read_text()
            yield collector
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def collector(running: Collector) -> Collector:
    """The collector, with nothing passed on yet."""
    running.backend.received.clear()
    running.backend.status = 200
    return running


def _answers(url: str) -> bool:
    try:
        return bool(
            requests.get(url, timeout=LIMIT_SECONDS).status_code == requests.codes.not_found
        )
    except requests.ConnectionError:
        return False

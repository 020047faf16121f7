"""Runs as a real OpenTelemetry Collector understands them."""

import pytest
import requests

from tests.otlp.conftest import Collector


@pytest.mark.parametrize("signal", ["traces", "logs", "metrics"])
def test_the_collector_refuses_what_is_malformed(collector: Collector, signal: str) -> None:
    """So what it takes is well-formed."""
    for content_type, body in (("application/x-protobuf", b"\x0a\xff"), ("application/json", b'{"resource')):
        refused = requests.post(
            f"{collector.url}/v1/{signal}", data=body, headers={"Content-Type": content_type}, timeout=30
        )
        assert refused.status_code == requests.codes.bad_request
    assert collector.backend.received == {}

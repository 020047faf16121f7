"""The forwarder on a real socket while the cluster does not respond and the invocation's time
runs out.
"""

import json
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

import handler
from profiler.forwarder.invocation import DeliveryError, SettingsError
from tests.http_server import FakeElasticsearch
from tests.lambda_environment import InvocationContext, forget_environment
from tests.log_subscriptions import REPORT, event, subscription_event


class Cluster(FakeElasticsearch):
    """Accepts documents; while it is silent, it does not respond."""

    def __init__(self) -> None:
        super().__init__()
        self.is_silent = True

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        if self.is_silent:
            self.closed.wait()
        return super().answer(request, body)


@pytest.fixture(params=["elasticsearch", "opensearch"])
def cluster(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with Cluster() as served:
        monkeypatch.setenv("ELASTICSEARCH_URL", served.url)
        monkeypatch.setenv("SEARCH_ENGINE", request.param)
        monkeypatch.delenv("FAILED_ITEMS_QUEUE_URL", raising=False)
        forget_environment()
        yield served
        forget_environment()


def forward(
    payload: dict[str, Any], context: InvocationContext | None = None
) -> Mapping[str, object]:
    """What the function returns, by default within an invocation whose time falls with each
    reading.
    """
    return handler.forward_logs(payload, context or InvocationContext(4_500, falls_by_ms=100))


def test_a_silent_cluster_fails_the_invocation_within_its_time(
    cluster: Cluster,
) -> None:
    """A silent cluster fails the invocation within its time and the next try loses nothing."""
    payload = subscription_event(json.dumps(REPORT))
    context = InvocationContext(4_500, falls_by_ms=100)
    with pytest.raises(
        DeliveryError, match="accepted no documents before the invocation ran out of time"
    ):
        forward(payload, context)
    assert context.left_ms > 0
    cluster.is_silent = False
    assert forward(payload) == {"indexed": 1, "skipped": 0, "failed": 0, "untrusted": 0}


def test_an_invocation_that_begins_without_time_says_so(cluster: Cluster) -> None:
    with pytest.raises(DeliveryError, match="raise the function's timeout"):
        forward(subscription_event(json.dumps(REPORT)), InvocationContext(2_000))
    assert cluster.bulks == []


NO_CLUSTERS: dict[str, dict[str, str]] = {
    "no address": {"ELASTICSEARCH_URL": ""},
    "an address without a scheme": {"ELASTICSEARCH_URL": "search.example.com"},
    "a key with a line break": {"ELASTICSEARCH_API_KEY": "a2V5\na2V5"},
}
NOTHING = {"indexed": 0, "skipped": 0, "failed": 0, "untrusted": 0}
HEALTH_CHECK = {
    "messageType": "CONTROL_MESSAGE",
    "logEvents": [{"id": "", "timestamp": 1, "message": "CWL"}],
}


@pytest.mark.parametrize("settings", NO_CLUSTERS.values(), ids=NO_CLUSTERS)
def test_what_makes_no_document_needs_no_cluster(
    settings: dict[str, str], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert forward(event(HEALTH_CHECK)) == NOTHING
    assert forward(subscription_event("hello", "world")) == {**NOTHING, "skipped": 2}
    assert forward(subscription_event()) == NOTHING
    with pytest.raises(SettingsError):
        forward(subscription_event(json.dumps(REPORT)))
    assert cluster.bulks == []
    monkeypatch.setenv("SEARCH_ENGINE", "solr")
    assert forward(event(HEALTH_CHECK)) == NOTHING

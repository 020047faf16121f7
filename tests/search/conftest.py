"""Fixtures of the tests against real search servers; each server starts once, for the first test
that needs it.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

import handler
from profiler.forwarder import indexed_report
from profiler.forwarder.search_cluster import document_delivery
from profiler.search_setup import search_servers
from tests.prerequisites import skip_or_fail
from tests.search.forwarding import Forward, forwarding
from tools.search_engines import (
    VERSION_7,
    VERSION_8,
    ServerMissingError,
    running_elasticsearch,
    running_elasticsearch_pair,
    running_opensearch,
)
from tools.search_server import SearchServer

_RUNNING: dict[str, Callable[[], AbstractContextManager[SearchServer]]] = {
    "elasticsearch8": partial(running_elasticsearch, VERSION_8),
    "elasticsearch7": partial(running_elasticsearch, VERSION_7),
    "opensearch": running_opensearch,
    "secured": partial(running_elasticsearch, VERSION_8, has_security=True),
    "pair": partial(running_elasticsearch_pair, VERSION_8),
    "zones": partial(running_opensearch, zones=3),
}
_ANSWER_SECONDS = 300.0
# For what every server answers alike: the newest Elasticsearch, and the engine that was forked from
# Elasticsearch 7.10.
TWO_SERVERS = pytest.mark.parametrize(
    "search_server", ["elasticsearch8", "opensearch"], indirect=True
)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Give all tests of a server to one process. pytest-xdist 3.8 ignores its own groups with
    pytest 9.
    """
    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = _server_of
    return scheduler


def _server_of(nodeid: str) -> str:
    """The server, which is a parameter in the test's id."""
    parameters = nodeid.partition("[")[2].removesuffix("]").split("-")
    return next((name for name in _RUNNING if name in parameters), nodeid)


@pytest.fixture(scope="session", autouse=True)
def _patience() -> Iterator[None]:
    """Wait minutes for answers that an invocation waits 3 to 30 s for: a new server on a busy
    machine takes longer.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handler, "COMPARISON_SECONDS", _ANSWER_SECONDS)
        patch.setattr(indexed_report, "_MAX_REQUEST_SECONDS", _ANSWER_SECONDS)
        patch.setattr(document_delivery, "_MAX_REQUEST_SECONDS", _ANSWER_SECONDS)
        patch.setattr(document_delivery, "_MAX_SEARCH_SECONDS", _ANSWER_SECONDS)
        patch.setattr(search_servers, "_ANSWER_SECONDS", _ANSWER_SECONDS)
        yield


@pytest.fixture(scope="session")
def _started() -> Iterator[Callable[[str], SearchServer]]:
    """Give a function that starts a server, or returns the one that it has started."""
    with contextlib.ExitStack() as stack:

        @cache
        def start(name: str) -> SearchServer:
            try:
                return stack.enter_context(_RUNNING[name]())
            except ServerMissingError as reason:
                skip_or_fail(f"the tests need a search server: {reason}")

        yield start


def _servers(*names: str) -> Any:
    """Make a fixture that gives one of these servers after the other."""

    @pytest.fixture(scope="session", params=names)
    def server(
        request: pytest.FixtureRequest, _started: Callable[[str], SearchServer]
    ) -> SearchServer:
        return _started(request.param)

    return server


search_server = _servers(
    "elasticsearch8", "elasticsearch7", "opensearch"
)  # every one that a user may have
elasticsearch7 = _servers("elasticsearch7")
opensearch = _servers("opensearch")
secured_elasticsearch = _servers("secured")  # it asks who is calling; its `admin` may do everything
pair = _servers("pair")  # the elected master of two nodes
zones = _servers("zones")  # three nodes in three balanced zones


@pytest.fixture
def forward(search_server: SearchServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Forward]:
    with forwarding(search_server, monkeypatch) as handle:
        yield handle

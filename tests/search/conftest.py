"""Fixtures of the tests against real search servers; each server starts once, for the first test that needs it."""

import contextlib
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest
import requests

from tests.contract.conftest import slack  # noqa: F401  pytest finds the fixture by this name
from tests.prerequisites import skip_or_fail
from tests.search.elasticsearch import VERSION_7, VERSION_8, running_elasticsearch, running_secured_elasticsearch
from tests.search.maven import ServerMissingError
from tests.search.opensearch import running_opensearch
from tests.search.server import SearchServer

SERVERS = ("elasticsearch8", "elasticsearch7", "opensearch")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group the tests by server, so that with several processes each server starts once."""
    for item in items:
        if isinstance(item, pytest.Function):
            params = item.callspec.params if hasattr(item, "callspec") else {}
            named = [name for name in (*SERVERS, "secured_elasticsearch") if name in item.fixturenames]
            group = params.get("search_server") or next(iter(named), None)
            if group is not None:
                item.add_marker(pytest.mark.xdist_group(str(group)))


@pytest.fixture(scope="session")
def elasticsearch8() -> Iterator[SearchServer]:
    yield from _started(running_elasticsearch(VERSION_8))


@pytest.fixture(scope="session")
def elasticsearch7() -> Iterator[SearchServer]:
    yield from _started(running_elasticsearch(VERSION_7))


@pytest.fixture(scope="session")
def opensearch() -> Iterator[SearchServer]:
    yield from _started(running_opensearch())


@pytest.fixture(scope="session")
def secured_elasticsearch() -> Iterator[SearchServer]:
    """Give an Elasticsearch 8 that asks who is calling; its `admin` may do everything."""
    yield from _started(running_secured_elasticsearch(VERSION_8))


@pytest.fixture(scope="session", params=SERVERS)
def search_server(request: pytest.FixtureRequest) -> SearchServer:
    """Give every server that a user may have, one after the other."""
    server: SearchServer = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def index(search_server: SearchServer) -> Iterator[str]:
    """Give the name of an index that is not there yet; it is deleted after the test."""
    name = f"test-{uuid.uuid4().hex}"
    yield name
    requests.delete(f"{search_server.url}/{name}", params={"ignore_unavailable": "true"}, timeout=30).raise_for_status()


def _started(server: AbstractContextManager[SearchServer]) -> Iterator[SearchServer]:
    with contextlib.ExitStack() as stack:
        try:
            started = stack.enter_context(server)
        except ServerMissingError as reason:
            skip_or_fail(f"the tests need a search server: {reason}")
        yield started

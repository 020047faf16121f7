"""Servers that several tests of the forwarder's functions use."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.fake_slack import FakeSlack
from tests.http_server import FakeElasticsearch


@pytest.fixture
def slack() -> Iterator[FakeSlack]:
    with closing(FakeSlack()) as fake:
        yield fake


@pytest.fixture
def cluster() -> Iterator[FakeElasticsearch]:
    with closing(FakeElasticsearch()) as fake:
        yield fake

"""Servers that several tests of the forwarder's functions use."""

from collections.abc import Iterator

import pytest

from tests.fake_slack import FakeSlack
from tests.http_server import FakeElasticsearch


@pytest.fixture
def slack() -> Iterator[FakeSlack]:
    fake = FakeSlack()
    yield fake
    fake.close()


@pytest.fixture
def cluster() -> Iterator[FakeElasticsearch]:
    fake = FakeElasticsearch()
    yield fake
    fake.close()

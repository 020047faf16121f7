"""The forwarder's sign-in: named secrets (moto), and API key, basic and SigV4 in HTTP requests."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import boto3
import pytest
from aws_lambda_powertools.utilities import parameters

from profiler.forwarder.documents import Document
from profiler.forwarder.function_settings import Credentials, fetch_secret, read_credentials
from profiler.forwarder.invocation import SearchClusterError, SettingsError
from profiler.forwarder.search_cluster.elasticsearch import ElasticsearchCluster
from profiler.forwarder.search_cluster.interface import SearchCluster
from profiler.forwarder.search_cluster.opensearch import OpenSearchCluster
from tests.http_server import OneAnswer
from tests.lambda_environment import moto_account

SECRET = "hunter2-hunter2"
ENGINES: tuple[Callable[[str, Credentials], SearchCluster], ...] = (
    ElasticsearchCluster,
    partial(OpenSearchCluster, region="eu-west-1"),
)
DOCUMENTS = [Document(index="task-reports-2026.03", id="1", fields={"a": 1})]


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with moto_account(monkeypatch, "eu-west-1", AWS_SESSION_TOKEN="testing"):
        yield
    parameters.clear_caches()  # type: ignore[no-untyped-call]


def test_a_secret_of_secrets_manager_and_a_parameter_are_read(aws: None) -> None:
    boto3.client("secretsmanager").create_secret(Name="search", SecretString=json.dumps({"api_key": SECRET}))
    assert read_credentials("search", fetch_secret) == Credentials(api_key=SECRET)
    value = json.dumps({"username": "me", "password": SECRET})
    boto3.client("ssm").put_parameter(Name="/search", Value=value, Type="SecureString")
    assert read_credentials("ssm:/search", fetch_secret) == Credentials(username="me", password=SECRET)
    with pytest.raises(SettingsError, match="The secret ssm:/missing cannot be read"):
        fetch_secret("ssm:/missing")


@pytest.fixture
def played() -> Iterator[OneAnswer]:
    """A cluster that takes the document. As it repeats a secret, no error may show the answer."""
    with closing(
        OneAnswer(body=json.dumps({"items": [{"update": {"status": 201}}], "error": SECRET * 2}).encode())
    ) as server:
        yield server


def signed_in(played: OneAnswer) -> list[str | None]:
    return [headers["Authorization"] for headers in played.headers]


def clusters(url: str, credentials: Credentials) -> list[SearchCluster]:
    return [engine(url, credentials) for engine in ENGINES]


@pytest.mark.parametrize(
    ("credentials", "header"),
    [
        (Credentials(api_key="a2V5"), "ApiKey a2V5"),
        (Credentials(username="me", password="pw"), "Basic bWU6cHc="),
        (Credentials(username="me", password="pä€"), "Basic bWU6cMOk4oKs"),
        (Credentials(api_key="a2V5", username="me", password="pw", aws="es"), "ApiKey a2V5"),
        (Credentials(), None),
    ],
)
def test_both_engines_sign_in_the_same_way(played: OneAnswer, credentials: Credentials, header: str | None) -> None:
    for cluster in clusters(played.url, credentials):
        assert [result.status for result in cluster.bulk(DOCUMENTS, 5)] == [201]
    assert signed_in(played) == [header, header]


URL, KEY = "https://search.example.com", Credentials(api_key="a2V5")


@pytest.mark.parametrize(
    ("url", "credentials", "words"),
    [
        (f"search.example.com:{SECRET}", KEY, "ELASTICSEARCH_URL"),
        (
            f"https://me:{SECRET}@search.example.com",
            KEY,
            "ELASTICSEARCH_URL contains credentials: .* ELASTICSEARCH_USER",
        ),
        ("https://search.example.com:port", KEY, "ELASTICSEARCH_URL"),
        ("https://", KEY, "ELASTICSEARCH_URL"),
        (URL, Credentials(api_key=f"{SECRET}\n"), "ELASTICSEARCH_API_KEY"),
        (URL, Credentials(api_key=f"{SECRET}\r\nX-Other: 1"), "ELASTICSEARCH_API_KEY"),
        (URL, Credentials(api_key=f"{SECRET}€"), "ELASTICSEARCH_API_KEY"),
    ],
)
def test_an_invalid_address_or_key_is_named_without_its_value(url: str, credentials: Credentials, words: str) -> None:
    for engine in ENGINES:
        with pytest.raises(SettingsError, match=words) as error:
            engine(url, credentials)
        assert SECRET not in str(error.value)
        assert error.value.__cause__ is None


@pytest.mark.parametrize("status", [401, 403, 413, 429, 500, 503])
def test_a_rejected_request_shows_its_status_and_no_secret(played: OneAnswer, status: int) -> None:
    played.status = status
    for cluster in clusters(played.url, Credentials(api_key=SECRET)):
        with pytest.raises(SearchClusterError, match=f"HTTP {status}") as error:
            cluster.bulk(DOCUMENTS, 5)
        assert (error.value.status, error.value.is_retryable) == (status, status in {429, 503})
        assert error.value.is_too_large is (status == 413)


def test_an_unreachable_cluster_is_retryable() -> None:
    for cluster in clusters("http://127.0.0.1:9", Credentials()):
        with pytest.raises(SearchClusterError, match="cannot be reached") as error:
            cluster.bulk(DOCUMENTS, 5)
        assert error.value.is_retryable

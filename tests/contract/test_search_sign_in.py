"""The sign-in to a search cluster, and the connection: named secrets, headers, private CAs, and
what errors say.
"""

import gzip
import json
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

import boto3
import pytest
from aws_lambda_powertools.utilities import parameters
from click.testing import CliRunner

from profiler.cli.app import group
from profiler.core.errors import TaskProfilerError
from profiler.forwarder.document_updates import Document
from profiler.forwarder.function_settings import Credentials, fetch_secret, read_credentials
from profiler.forwarder.invocation import SearchClusterError, SettingsError
from profiler.forwarder.search_cluster.bulk_client import SearchCluster
from profiler.forwarder.search_cluster.elasticsearch import ElasticsearchCluster
from profiler.forwarder.search_cluster.opensearch import OpenSearchCluster
from profiler.otlp.otlp_export import HttpTransport, TransportError
from tests.command_line import run_here
from tests.http_server import OneAnswer
from tests.lambda_environment import moto_account
from tests.private_ca import private_ca

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
    boto3.client("secretsmanager").create_secret(
        Name="search", SecretString=json.dumps({"api_key": SECRET})
    )
    assert read_credentials("search", fetch_secret) == Credentials(api_key=SECRET)
    value = json.dumps({"username": "me", "password": SECRET})
    boto3.client("ssm").put_parameter(Name="/search", Value=value, Type="SecureString")
    assert read_credentials("ssm:/search", fetch_secret) == Credentials(
        username="me", password=SECRET
    )
    with pytest.raises(SettingsError, match="The secret ssm:/missing cannot be read"):
        fetch_secret("ssm:/missing")


@pytest.fixture
def played() -> Iterator[OneAnswer]:
    """A cluster that takes the document. As it repeats a secret, no error may show the answer."""
    with closing(
        OneAnswer(
            body=json.dumps({"items": [{"update": {"status": 201}}], "error": SECRET * 2}).encode()
        )
    ) as server:
        yield server


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
def test_both_engines_sign_in_the_same_way(
    played: OneAnswer, credentials: Credentials, header: str | None
) -> None:
    for cluster in clusters(played.url, credentials):
        assert [result.status for result in cluster.write_documents(DOCUMENTS, 5)] == [201]
    assert [headers["Authorization"] for headers in played.headers] == [header, header]


def test_both_engines_compress_what_they_send_and_accept_compressed_answers(
    played: OneAnswer,
) -> None:
    for cluster in clusters(played.url, Credentials()):
        cluster.write_documents(DOCUMENTS, 5)
        cluster.request("/task-*/_search", {"size": 0}, 5)
    sent = [gzip.decompress(body) for body in played.bodies]
    lines = b"".join(b"%s\n" % line for line in DOCUMENTS[0].bulk_lines)
    assert sent[0] == sent[2] == lines
    assert json.loads(sent[1]) == json.loads(sent[3]) == {"size": 0}
    for headers in played.headers:
        assert headers.get_all("Content-Encoding") == ["gzip"]
        assert "gzip" in headers["Accept-Encoding"]


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
def test_an_invalid_address_or_key_is_named_without_its_value(
    url: str, credentials: Credentials, words: str
) -> None:
    for engine in ENGINES:
        with pytest.raises(SettingsError, match=words) as error:
            engine(url, credentials)
        assert SECRET not in str(error.value)
        assert error.value.__cause__ is None


@pytest.mark.parametrize("status", [401, 403, 413, 429, 500, 503, None])
def test_a_failed_request_shows_its_status_and_no_secret(
    played: OneAnswer, status: int | None
) -> None:
    played.status = status or 0
    url, sentence = (
        (played.url, f"HTTP {status}") if status else ("http://127.0.0.1:9", "cannot be reached")
    )
    for cluster in clusters(url, Credentials(api_key=SECRET)):
        with pytest.raises(SearchClusterError, match=sentence) as error:
            cluster.write_documents(DOCUMENTS, 5)
        assert error.value.status == status
        assert error.value.is_retryable == (status in {429, 503, None})
        assert SECRET not in str(error.value)


@pytest.mark.parametrize("answer", ["<html>", '{"items": [', ""])
@pytest.mark.parametrize("media_type", ["application/json", "image/png"])
def test_an_answer_that_is_not_json_is_an_error_that_can_be_retried_and_shows_no_secret(
    media_type: str, answer: str
) -> None:
    with OneAnswer(body=f"{answer}{SECRET}".encode()) as server:
        server.media_type = media_type
        for cluster in clusters(server.url, Credentials(api_key=SECRET)):
            with pytest.raises(
                SearchClusterError, match=f"^{cluster.engine} sent an invalid response: it is not"
            ) as error:
                cluster.write_documents(DOCUMENTS, 5)
            assert error.value.is_retryable
            assert SECRET not in "".join(traceback.format_exception(error.value))


# The commands, over real sockets.

NO_RUNS = b'{"hits": {"hits": []}}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address and the CA's file of a TLS server."""
    certificate, context = private_ca(tmp_path_factory.mktemp("ca"))
    with OneAnswer(body=NO_RUNS) as http:
        http.use_tls(context)
        yield http.url.replace("http:", "https:"), certificate


def history(url: str, **environment: str) -> CompletedProcess[str]:
    return run_here({"NO_PROXY": "*", **environment}, "history", "--from", url)


def test_a_private_ca_is_trusted_when_it_is_named(server: tuple[str, Path]) -> None:
    url, certificate = server
    refused = history(url)
    assert refused.returncode == 1
    assert refused.stderr == (
        f"task-profiler: {url} has a certificate that is not trusted: set ELASTICSEARCH_CA_FILE "
        "to the file of your private CA.\n"
    )
    done = history(url, ELASTICSEARCH_CA_FILE=str(certificate))
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert "No runs in the indices task-reports-*" in done.stderr


def test_the_forwarder_trusts_a_private_ca(
    server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
    ):  # requests prefers them; no function of Lambda has them
        monkeypatch.delenv(name, raising=False)
    url, file = server[0], str(server[1])
    nobody = Credentials()
    for cluster in (
        ElasticsearchCluster(url, nobody, file),
        OpenSearchCluster(url, nobody, "eu-west-1", file),
    ):
        assert cluster.search("task-reports-*", {}, 5) == {"hits": {"hits": []}}


def test_an_export_names_the_setting_for_a_private_ca(server: tuple[str, Path]) -> None:
    url, certificate = server
    with pytest.raises(
        TransportError,
        match=r"^the server's certificate is not trusted \(self.signed .*: set SSL_CERT_FILE to ",
    ):
        HttpTransport()(url, {}, b"x", 5)
    assert HttpTransport(str(certificate))(url, {}, b"x", 5).status == 200
    with pytest.raises(TransportError, match=r"the file of OTEL_EXPORTER_OTLP_CERTIFICATE$"):
        HttpTransport("/dev/null", ca_setting="OTEL_EXPORTER_OTLP_CERTIFICATE")(url, {}, b"x", 5)


@pytest.mark.parametrize(
    ("url", "code", "sentence"),
    [
        ("http://127.0.0.1:9", 1, "http://127.0.0.1:9 refused the connection: check the port"),
        ("http://name.invalid", 1, "http://name.invalid cannot be reached: check the address"),
        (
            "http://me:secret@127.0.0.1:9",
            2,
            "leave them out, and set ELASTICSEARCH_USER and ELASTICSEARCH_PASSWORD.",
        ),
    ],
)
def test_each_error_names_the_address_and_the_remedy(url: str, code: int, sentence: str) -> None:
    done = history(url)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert sentence in done.stderr
    assert "secret" not in done.stderr


def test_https_on_a_port_without_tls() -> None:
    with OneAnswer(body=NO_RUNS) as http:
        done = history(http.url.replace("http:", "https:"))
    assert done.returncode == 1
    assert (
        "does not speak TLS: check whether its address begins with http:// or https://."
        in done.stderr
    )


@pytest.mark.parametrize("command", ["show", "history", "recommend"])
@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (200, b'{"status": "ok"}', "no reason given"),
        (200, b"[]", "no reason given"),
        (200, b'{"hits": []}', "no reason given"),
        (401, b"<html>Sign in</html>", "no reason given"),
        (401, b"", "no reason given"),
        (502, b"<html>Bad gateway</html>", "no reason given"),
        (400, b'{"error": {"root_cause": [{"reason": "no mapping"}]}}', "no mapping"),
    ],
)
def test_a_refusal_and_something_else_are_named_with_the_address(
    command: str, status: int, body: bytes, reason: str
) -> None:
    with OneAnswer(status, body) as server:
        result = CliRunner().invoke(group, [command, "--from", server.url])
    assert isinstance(result.exception, TaskProfilerError)
    refused = f"{server.url} rejected the search (HTTP {status}: {reason}): "
    assert str(result.exception).startswith(refused)


@pytest.mark.parametrize("status", [200, 404, 405])
def test_an_address_that_answers_with_a_page_is_no_search_cluster(status: int) -> None:
    with OneAnswer(status, b"<html>Welcome</html>") as server:
        result = CliRunner().invoke(group, ["history", "--from", server.url])
    assert isinstance(result.exception, TaskProfilerError)
    assert str(result.exception).startswith(f"{server.url} is no Elasticsearch or OpenSearch: ")

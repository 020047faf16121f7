"""What the commands say when a cluster cannot be reached or is something else, and private CAs, over real sockets."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from click.testing import CliRunner

from profiler.cli.app import group
from profiler.core.errors import TaskProfilerError
from profiler.forwarder.function_settings import Credentials
from profiler.forwarder.search_cluster.elasticsearch import ElasticsearchCluster
from profiler.forwarder.search_cluster.opensearch import OpenSearchCluster
from profiler.otlp.otlp_export import HttpTransport, TransportError
from tests.command_line import run_here
from tests.http_server import OneAnswer
from tests.private_ca import private_ca

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
        f"task-profiler: {url} has a certificate that is not trusted: set ELASTICSEARCH_CA_FILE to the file of "
        "your private CA.\n"
    )
    done = history(url, ELASTICSEARCH_CA_FILE=str(certificate))
    assert (done.returncode, done.stdout) == (1, "")
    assert "No runs in the indices task-reports-*" in done.stderr


def test_the_forwarder_trusts_a_private_ca(server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # requests prefers them; no function of Lambda has them
        monkeypatch.delenv(name, raising=False)
    url, file = server[0], str(server[1])
    nobody = Credentials()
    for cluster in (ElasticsearchCluster(url, nobody, file), OpenSearchCluster(url, nobody, "eu-west-1", file)):
        assert cluster.search("task-reports-*", {}, 5) == {"hits": {"hits": []}}


def test_an_export_names_the_setting_for_a_private_ca(server: tuple[str, Path]) -> None:
    url, certificate = server
    with pytest.raises(
        TransportError, match=r"^the server's certificate is not trusted \(self.signed .*: set SSL_CERT_FILE to "
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
        ("http://me:secret@127.0.0.1:9", 2, "leave them out, and set ELASTICSEARCH_USER and ELASTICSEARCH_PASSWORD."),
        (
            "search.example.com",
            1,
            "search.example.com: no such file; for CloudWatch Logs write logs:search.example.com",
        ),
    ],
)
def test_each_error_names_the_address_and_the_remedy(url: str, code: int, sentence: str) -> None:
    done = history(url)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert sentence in done.stderr
    assert "secret" not in done.stderr


def test_https_on_a_port_without_tls() -> None:
    with OneAnswer(body=NO_RUNS) as http:
        done = history(http.url.replace("http:", "https:"))
    assert done.returncode == 1
    assert "does not speak TLS: check whether its address begins with http:// or https://." in done.stderr


def error_of(server: OneAnswer, command: str = "show") -> str:
    with closing(server):
        result = CliRunner().invoke(group, [command, "--from", server.url])
    assert isinstance(result.exception, TaskProfilerError)
    return str(result.exception)


@pytest.mark.parametrize("command", ["show", "history", "recommend"])
@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (200, b'{"status": "ok"}', "no reason given"),
        (200, b"[]", "no reason given"),
        (200, b'{"hits": []}', "no reason given"),
        (200, b"<html>Sign in</html>", "no reason given"),
        (404, b"<html>nothing here</html>", "no reason given"),
        (401, b"", "no reason given"),
        (400, b'{"error": {"root_cause": [{"reason": "no mapping"}]}}', "no mapping"),
    ],
)
def test_a_refusal_and_something_else_are_named_with_the_address(
    command: str, status: int, body: bytes, reason: str
) -> None:
    server = OneAnswer(status, body)
    assert error_of(server, command).startswith(f"{server.url} rejected the search (HTTP {status}: {reason}): ")

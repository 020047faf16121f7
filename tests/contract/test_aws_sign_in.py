"""Amazon OpenSearch Service with IAM: the commands and the forwarder sign every request."""

import json
import os
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials

from profiler.forwarder.documents import Document
from profiler.forwarder.function_settings import Credentials
from profiler.forwarder.search_cluster.opensearch import OpenSearchCluster
from tests.command_line import run_here
from tests.http_server import FakeHttpServer

REGION = "eu-west-1"
KEY = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI", "AWS_SESSION_TOKEN": "token"}
_SCOPE = f"{REGION}/es/aws4_request"
_ANONYMOUS = "User: anonymous is not authorized to perform: es:ESHttpGet because no resource-based policy allows it"
_MISMATCH = "The request signature we calculated does not match the signature you provided."


def signature(request: BaseHTTPRequestHandler, body: bytes, signed_headers: str) -> str:
    """What the service calculates from the request that has arrived: it signs parameters in their encoded form."""
    address = urlsplit(request.path)
    pairs = [part.partition("=")[::2] for part in address.query.split("&") if part]
    query = "&".join("=".join(quote(unquote(text), safe="-_.~") for text in pair) for pair in pairs)
    headers = {name: request.headers[name] for name in signed_headers.split(";")}
    arrived = AWSRequest(request.command, f"http://{headers['host']}{address.path}?{query}", headers, body)
    arrived.context["timestamp"] = request.headers["X-Amz-Date"]
    service = SigV4Auth(ReadOnlyCredentials(*KEY.values()), "es", REGION)
    return str(service.signature(service.string_to_sign(arrived, service.canonical_request(arrived)), arrived))


class AmazonDomain(FakeHttpServer):
    """Empty, with OpenSearch Dashboards at ``/_dashboards``. ``accepted`` has the requests with a valid signature."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted: list[tuple[str, str]] = []

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes]:
        status, answer = self._refusal(request, body) or self._answered(request, body)
        return status, {"Content-Type": "application/json"}, json.dumps(answer).encode()

    def _refusal(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str]] | None:
        kind, _, rest = (request.headers["Authorization"] or "").partition(" ")
        if kind != "AWS4-HMAC-SHA256":
            return 403, {"Message": _ANONYMOUS}
        given = dict(part.strip().split("=", 1) for part in rest.split(","))
        if given["Credential"].split("/", 2)[2] != _SCOPE:
            return 403, {"message": f"Credential should be scoped to a valid region, not '{given['Credential']}'."}
        names = given["SignedHeaders"]
        if not {"host", "x-amz-date", "x-amz-security-token"} <= set(names.split(";")):
            return 403, {"message": "The security token included in the request is invalid."}
        if signature(request, body, names) != given["Signature"]:
            return 403, {"message": _MISMATCH}
        return None

    def _answered(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, object]:
        self.accepted.append((request.command, request.path))
        path = urlsplit(request.path).path
        if path == "/_dashboards/api/status":
            return 200, {"version": {"number": "2.19.0"}}
        if path.endswith("/_bulk_get"):
            return 200, {"saved_objects": [{**one, "error": {"statusCode": 404}} for one in json.loads(body)]}
        if path.endswith("/_import"):
            return 200, {"success": True, "successCount": body.count(b'\n{"type":')}
        if path.endswith("/console/proxy"):
            query = parse_qs(urlsplit(request.path).query)
            return self._of_cluster(query["method"][0], query["path"][0])
        return self._of_cluster(request.command, path)

    @staticmethod
    def _of_cluster(method: str, path: str) -> tuple[int, object]:
        if path in ("/", "/_bulk") or path.endswith("/_search") or method == "PUT":
            version = {"number": "2.19.0", "distribution": "opensearch"}
            return 200, {"version": version, "hits": {"hits": []}, "items": [{"update": {"status": 201}}]}
        return 404, {"error": {"reason": "not found"}}


# The address is not Amazon's.
ENVIRONMENT = {**KEY, "ELASTICSEARCH_AWS_AUTH": "es", "AWS_REGION": REGION, "HOME": os.devnull, "NO_PROXY": "*"}


@pytest.fixture
def domain() -> Iterator[AmazonDomain]:
    with AmazonDomain() as served:
        yield served


def test_templates_and_dashboards_are_installed_in_the_cluster_or_through_the_console(domain: AmazonDomain) -> None:
    console = "/_dashboards/api/console/proxy?path=%2F_index_template%2Ftask-reports&method=PUT"
    directly = ("--elasticsearch", domain.url), ("PUT", "/_index_template/task-reports")
    for words, put in (directly, ((), ("POST", console))):
        done = run_here(ENVIRONMENT, "kibana", "import", *words, "--url", f"{domain.url}/_dashboards")
        assert (done.returncode, done.stderr) == (0, "")
        assert "installed: index template task-reports" in done.stdout
        assert put in domain.accepted
        assert domain.accepted.pop() == ("POST", "/_dashboards/api/saved_objects/_import?overwrite=true")


@pytest.mark.parametrize(
    "words", [("history", "nightly-*"), ("show", "nightly"), ("recommend",), ("report", "-o", os.devnull)]
)
def test_runs_are_read(domain: AmazonDomain, words: tuple[str, ...]) -> None:
    done = run_here(ENVIRONMENT, *words, "--from", domain.url)
    assert "HTTP 403" not in done.stderr
    assert ("POST", "/task-reports-*/_search") in {(method, path.partition("?")[0]) for method, path in domain.accepted}


@pytest.mark.parametrize(
    ("words", "environment", "said"),
    [
        ((), {"ELASTICSEARCH_AWS_AUTH": ""}, "User: anonymous is not authorized to perform: es:ESHttpGet"),
        (("--region", "eu-north-1"), {}, "Credential should be scoped to a valid region"),
        ((), {"AWS_SECRET_ACCESS_KEY": "other"}, "The request signature we calculated does not match"),
        ((), {"AWS_REGION": ""}, "AWS cannot be used: the Region is unknown: use --region"),
        (("--profile", "none"), {}, "The requests cannot be signed: there is no profile 'none'"),
    ],
)
def test_a_refusal_is_shown_in_its_own_words(
    domain: AmazonDomain, words: tuple[str, ...], environment: Mapping[str, str], said: str
) -> None:
    done = run_here({**ENVIRONMENT, **environment}, "kibana", "import", "--elasticsearch", domain.url, *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert domain.accepted == []


def test_the_forwarder_signs_in_the_same_way(domain: AmazonDomain, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEY.items():
        monkeypatch.setenv(name, value)
    cluster = OpenSearchCluster(domain.url, Credentials(aws="es"), REGION)
    (result,) = cluster.bulk([Document(index="task-reports-2026.03", id="1", fields={"a": 1})], 5)
    assert result.status == 201
    assert cluster.search("task-reports-*", {"size": 1}, 5)
    assert {path.partition("?")[0] for _, path in domain.accepted} == {"/_bulk", "/task-reports-*/_search"}

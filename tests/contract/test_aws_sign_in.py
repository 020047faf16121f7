"""Amazon OpenSearch Service with IAM: the commands and the forwarder sign every request."""

import os
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pytest
import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as AwsCredentials
from botocore.credentials import ReadOnlyCredentials

from profiler.core.aws_signature import AwsSignature
from profiler.forwarder.document_updates import Document
from profiler.forwarder.function_settings import Credentials
from profiler.forwarder.search_cluster.opensearch import OpenSearchCluster
from tests.command_line import run_here
from tests.fake_dashboards import PlayedDashboards
from tools.waiting import LIMIT_SECONDS

REGION = "eu-west-1"
KEY = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI",
    "AWS_SESSION_TOKEN": "token",
}
_SCOPE = f"{REGION}/es/aws4_request"
_ANONYMOUS = (
    "User: anonymous is not authorized to perform: es:ESHttpGet because no resource-based policy "
    "allows it"
)
_MISMATCH = "The request signature we calculated does not match the signature you provided."


def signature(request: BaseHTTPRequestHandler, body: bytes, signed_headers: str) -> str:
    """What the service calculates from the request that has arrived: it signs parameters in
    their encoded form.
    """
    address = urlsplit(request.path)
    pairs = [part.partition("=")[::2] for part in address.query.split("&") if part]
    query = "&".join("=".join(quote(unquote(text), safe="-_.~") for text in pair) for pair in pairs)
    headers = {name: request.headers[name] for name in signed_headers.split(";")}
    arrived = AWSRequest(
        request.command, f"http://{headers['host']}{address.path}?{query}", headers, body
    )
    arrived.context["timestamp"] = request.headers["X-Amz-Date"]
    service = SigV4Auth(ReadOnlyCredentials(*KEY.values()), "es", REGION)
    return str(
        service.signature(
            service.string_to_sign(arrived, service.canonical_request(arrived)), arrived
        )
    )


class AmazonDomain(PlayedDashboards):
    """Empty, with OpenSearch Dashboards at ``/_dashboards``.

    ``accepted`` has the requests with a valid signature.
    """

    def __init__(self) -> None:
        super().__init__("2.19.0")
        self.accepted: list[tuple[str, str]] = []

    def _answered(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, Any]:
        refusal = self._refusal(request, body)
        if refusal is not None:
            return 403, {"Message" if refusal is _ANONYMOUS else "message": refusal}
        self.accepted.append((request.command, request.path))
        if request.path.startswith("/_dashboards/"):
            request.path = request.path.removeprefix("/_dashboards")
            return super()._answered(request, body)
        path = urlsplit(request.path).path
        if path in ("/", "/_bulk") or path.endswith("/_search") or request.command == "PUT":
            version = {"number": "2.19.0", "distribution": "opensearch"}
            return 200, {
                "version": version,
                "hits": {"hits": []},
                "items": [{"update": {"status": 201}}],
            }
        return 404, {"error": {"reason": "not found"}}

    @staticmethod
    def _refusal(request: BaseHTTPRequestHandler, body: bytes) -> str | None:
        kind, _, rest = (request.headers["Authorization"] or "").partition(" ")
        if kind != "AWS4-HMAC-SHA256":
            return _ANONYMOUS
        given = dict(part.strip().split("=", 1) for part in rest.split(","))
        if given["Credential"].split("/", 2)[2] != _SCOPE:
            return f"Credential should be scoped to a valid region, not '{given['Credential']}'."
        names = given["SignedHeaders"]
        if not {"host", "x-amz-date", "x-amz-security-token"} <= set(names.split(";")):
            return "The security token included in the request is invalid."
        return None if signature(request, body, names) == given["Signature"] else _MISMATCH


# The address is not Amazon's.
ENVIRONMENT = {
    **KEY,
    "ELASTICSEARCH_AWS_AUTH": "es",
    "AWS_REGION": REGION,
    "HOME": os.devnull,
    "NO_PROXY": "*",
}


@pytest.fixture
def domain() -> Iterator[AmazonDomain]:
    with AmazonDomain() as served:
        yield served


def test_templates_and_dashboards_are_installed_in_the_cluster_or_through_the_console(
    domain: AmazonDomain,
) -> None:
    console = "/_dashboards/api/console/proxy?path=%2F_index_template%2Ftask-reports&method=PUT"
    directly = ("--elasticsearch", domain.url), ("PUT", "/_index_template/task-reports")
    for words, put in (directly, ((), ("POST", console))):
        done = run_here(
            ENVIRONMENT, "kibana", "import", *words, "--url", f"{domain.url}/_dashboards"
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        assert "installed: index template task-reports" in done.stdout
        assert put in domain.accepted
        assert domain.accepted.pop() == (
            "POST",
            "/_dashboards/api/saved_objects/_import?overwrite=true",
        )


@pytest.mark.parametrize(
    "words",
    [("history", "nightly-*"), ("show", "nightly"), ("recommend",), ("report", "-o", os.devnull)],
)
def test_runs_are_read(domain: AmazonDomain, words: tuple[str, ...]) -> None:
    assert "HTTP 403" not in run_here(ENVIRONMENT, *words, "--from", domain.url).stderr
    assert ("POST", "/task-reports-*/_search") in {
        (method, path.partition("?")[0]) for method, path in domain.accepted
    }


@pytest.mark.parametrize(
    ("words", "environment", "said"),
    [
        (
            (),
            {"ELASTICSEARCH_AWS_AUTH": ""},
            "User: anonymous is not authorized to perform: es:ESHttpGet",
        ),
        (("--region", "eu-north-1"), {}, "Credential should be scoped to a valid region"),
        (
            (),
            {"AWS_SECRET_ACCESS_KEY": "other"},
            "The request signature we calculated does not match",
        ),
        ((), {"AWS_REGION": ""}, "AWS cannot be used: the Region is unknown: use --region"),
        (("--profile", "none"), {}, "The requests cannot be signed: there is no profile 'none'"),
    ],
)
def test_a_refusal_is_shown_in_its_own_words(
    domain: AmazonDomain, words: tuple[str, ...], environment: Mapping[str, str], said: str
) -> None:
    done = run_here(
        {**ENVIRONMENT, **environment}, "kibana", "import", "--elasticsearch", domain.url, *words
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert said in done.stderr
    assert domain.accepted == []


def test_the_forwarder_signs_in_the_same_way(
    domain: AmazonDomain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forwarder signs in the same way and a bare comma in its encoded form."""
    for name, value in KEY.items():
        monkeypatch.setenv(name, value)
    cluster = OpenSearchCluster(domain.url, Credentials(aws="es"), REGION)
    (result,) = cluster.write_documents(
        [Document(index="task-reports-2026.03", id="1", fields={"a": 1})], LIMIT_SECONDS
    )
    assert result.status == 201
    assert cluster.search("task-reports-*", {"size": 1}, LIMIT_SECONDS)
    assert {path.partition("?")[0] for _, path in domain.accepted} == {
        "/_bulk",
        "/task-reports-*/_search",
    }
    auth = AwsSignature(AwsCredentials(*KEY.values()), REGION, "es")
    assert requests.get(
        f"{domain.url}/_search?filter_path=hits,took&pretty=", auth=auth, timeout=LIMIT_SECONDS
    ).ok
    assert domain.accepted[-1] == ("GET", "/_search?filter_path=hits,took&pretty=")

"""A domain of Amazon OpenSearch Service that only IAM users may use: it verifies the signature of each request."""

import hashlib
import hmac
import json
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.http_server import FakeHttpServer

REGION = "eu-west-1"
KEY = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI", "AWS_SESSION_TOKEN": "token"}
_SCOPE = f"{REGION}/es/aws4_request"
_ANONYMOUS = "User: anonymous is not authorized to perform: es:ESHttpGet because no resource-based policy allows it"
_MISMATCH = "The request signature we calculated does not match the signature you provided."


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature(request: BaseHTTPRequestHandler, body: bytes, signed_headers: str) -> str:
    """The signature of the request, by the description of Signature Version 4 in AWS's reference."""
    address = urlsplit(request.path)
    pairs = [part.partition("=")[::2] for part in address.query.split("&") if part]
    query = sorted((quote(unquote(name), safe="-_.~"), quote(unquote(value), safe="-_.~")) for name, value in pairs)
    canonical = [
        request.command,
        quote(address.path, safe="/-_.~"),
        "&".join(f"{name}={value}" for name, value in query),
        *(f"{name}:{' '.join(request.headers[name].split())}" for name in signed_headers.split(";")),
        "",
        signed_headers,
        hashlib.sha256(body).hexdigest(),
    ]
    moment = request.headers["X-Amz-Date"]
    digest = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
    key = f"AWS4{KEY['AWS_SECRET_ACCESS_KEY']}".encode()
    for part in (moment[:8], *_SCOPE.split("/")):
        key = _hmac(key, part)
    return _hmac(key, f"AWS4-HMAC-SHA256\n{moment}\n{moment[:8]}/{_SCOPE}\n{digest}").hex()


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
        if path.startswith("/_cat/indices/"):
            return 200, []
        if path in ("/", "/_bulk") or path.endswith("/_search") or method == "PUT":
            version = {"number": "2.19.0", "distribution": "opensearch"}
            return 200, {"version": version, "hits": {"hits": []}, "items": [{"update": {"status": 201}}]}
        return 404, {"error": {"reason": "not found"}}

"""HTTP clients of search clusters and dashboard servers, by requests."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import requests

from profiler.core.aws_signature import AwsSignature
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.search_setup.template_install import Method, ServerResponse

# Kibana requires one, OpenSearch Dashboards the other; each ignores the other's.
_XSRF_HEADERS = {"kbn-xsrf": "true", "osd-xsrf": "true"}


class ClusterServer:
    """Elasticsearch or OpenSearch, and the session of its requests."""

    def __init__(self, url: str, session: requests.Session) -> None:
        self._url = checked_address(url)
        self._session = session

    def request(self, method: Method, path: str, body: object | None = None) -> ServerResponse:
        """Send a request. Raises TaskProfilerError if there is no response."""
        return self._send(method, path, json=body)

    def _send(self, method: str, path: str, **options: Any) -> ServerResponse:  # noqa: ANN401  requests' own
        try:
            response = self._session.request(method, self._url + path, timeout=30, **options)
        except requests.RequestException as error:
            raise TaskProfilerError(f"{self._url} {_describe(error)}") from error
        return ServerResponse(status=response.status_code, body=_decoded(response), address=self._url)


class DashboardsServer(ClusterServer):
    """Kibana or OpenSearch Dashboards. Each method raises TaskProfilerError if there is no response."""

    def status(self) -> ServerResponse:
        return self._send("GET", "/api/status")

    def import_objects(self, file_name: str, content: bytes) -> ServerResponse:
        """Import saved objects, one JSON object a line, over existing ones."""
        files = {"file": (file_name, content, "application/ndjson")}
        return self._post("/api/saved_objects/_import?overwrite=true", files=files)

    def find_objects(self, objects: Sequence[tuple[str, str]]) -> ServerResponse:
        wanted = [{"type": kind, "id": identity} for kind, identity in objects]
        return self._post("/api/saved_objects/_bulk_get", json=wanted)

    def request(self, method: Method, path: str, body: object | None = None) -> ServerResponse:
        """Send a request to the cluster behind the server, through the console's proxy."""
        return self._post("/api/console/proxy", params={"path": path, "method": method}, json=body)

    def _post(self, path: str, **options: Any) -> ServerResponse:  # noqa: ANN401  requests' own
        return self._send("POST", path, headers=_XSRF_HEADERS, **options)


def checked_address(url: str) -> str:
    """Return the address without a final slash.

    Raises UsageError if it does not begin with http:// or https://, or contains credentials.
    """
    scheme, separator, rest = url.partition("://")
    if "@" in rest:  # a password may contain a slash
        raise UsageError(
            "The address contains credentials: leave them out, and set ELASTICSEARCH_USER and ELASTICSEARCH_PASSWORD."
        )
    if not separator:
        raise UsageError(f"The address {url} has no scheme: add http:// or https:// before it.")
    if scheme.lower() not in ("http", "https"):
        raise UsageError(f"{url} is not an address of a web server: write it with http:// or https://.")
    return url.rstrip("/")


def open_session(environment: Mapping[str, str], signature: AwsSignature | None = None) -> requests.Session:
    """Open a session that signs in as the environment variables say, or signs its requests.

    Raises UsageError if the variables name only a way to sign in that this command does not support: requests would be
    sent unauthenticated.
    """
    session = requests.Session()
    ca_file = environment.get("ELASTICSEARCH_CA_FILE", "")
    if ca_file:
        if not Path(ca_file).is_file():
            raise UsageError(f"ELASTICSEARCH_CA_FILE: {ca_file} is not a file of certificates in PEM format.")
        session.mount("https://", _PrivateCa(ca_file))
    key, name = environment.get("ELASTICSEARCH_API_KEY", ""), environment.get("ELASTICSEARCH_USER", "")
    if signature is not None:
        session.auth = signature
    elif key:
        if not (key.isascii() and key.isprintable()):  # the HTTP client's error would contain the key
            raise UsageError("The API key contains an invalid character: check it for line ends and quotes.")
        session.auth = _ApiKey(key)
    elif name:
        session.auth = (_as_latin_1(name), _as_latin_1(environment.get("ELASTICSEARCH_PASSWORD", "")))
    elif environment.get("ELASTICSEARCH_SECRET_ID", "").strip():
        raise UsageError(
            "ELASTICSEARCH_SECRET_ID is for the forwarder's functions only: set ELASTICSEARCH_API_KEY, or "
            "ELASTICSEARCH_USER and ELASTICSEARCH_PASSWORD, or ELASTICSEARCH_AWS_AUTH."
        )
    return session


def _as_latin_1(text: str) -> str:
    """The text whose Latin-1 bytes, which requests sends, are this text's UTF-8 bytes, which search clusters expect."""
    return text.encode(errors="surrogateescape").decode("latin-1")


class _PrivateCa(requests.adapters.HTTPAdapter):
    """Verifies certificates by a private CA. REQUESTS_CA_BUNDLE would take precedence over a session's setting."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self._file = file

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:  # noqa: ANN401  requests' own
        return super().send(request, *args, **{**options, "verify": self._file})


class _ApiKey(requests.auth.AuthBase):
    """Sends an API key. As a header of the session, requests would replace it by an entry of ~/.netrc."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"ApiKey {self._key}"
        return request


def _decoded(response: requests.Response) -> Any:  # noqa: ANN401  any JSON
    """The body; None if it is not JSON. For thousands of records, msgspec takes a tenth of the time of requests."""
    try:
        return msgspec.json.decode(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


# The kind of error, a text in its message, and the sentence's end. The first match counts.
_ERRORS: tuple[tuple[type[Exception], str, str], ...] = (
    (
        requests.exceptions.SSLError,
        "CERTIFICATE_VERIFY_FAILED",
        "has a certificate that is not trusted: set ELASTICSEARCH_CA_FILE to the file of your private CA.",
    ),
    (
        requests.exceptions.SSLError,
        "",
        "does not speak TLS: check whether its address begins with http:// or https://.",
    ),
    (
        requests.exceptions.ConnectionError,
        "Connection refused",
        "refused the connection: check the port, and whether the server runs.",
    ),
    (
        Exception,
        "",
        "cannot be reached: check the address, and network, VPN, firewalls and proxy (HTTPS_PROXY, NO_PROXY).",
    ),
)


def _describe(error: requests.RequestException) -> str:
    text = str(error)
    return next(sentence for kind, marker, sentence in _ERRORS if isinstance(error, kind) and marker in text)

"""HTTP clients of search clusters and dashboard servers, by requests."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import requests

from profiler.core.aws_signature import NO_SERVERLESS, AwsSignature, is_serverless
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.search_setup.template_install import Method, ServerResponse

# Kibana requires one, OpenSearch Dashboards the other; each ignores the other's.
_XSRF_HEADERS = {"kbn-xsrf": "true", "osd-xsrf": "true"}


class ClusterServer:
    """Elasticsearch or OpenSearch, and the session of its requests."""

    def __init__(self, url: str, session: requests.Session) -> None:
        self._url = _checked_address(url)
        self._session = session

    def request(self, method: Method, path: str, body: object | None = None) -> ServerResponse:
        """Send a request. Raises TaskProfilerError if there is no response."""
        return self._send(method, path, json=body)

    def _send(self, method: str, path: str, **options: Any) -> ServerResponse:  # noqa: ANN401  requests' own
        address = without_password(self._url)
        try:
            response = self._session.request(method, self._url + path, timeout=30, **options)
        except requests.RequestException as error:
            raise TaskProfilerError(f"{address} {_describe(error)}") from error
        return ServerResponse(status=response.status_code, body=_decoded(response), address=address)


class DashboardsServer(ClusterServer):
    """Kibana or OpenSearch Dashboards. Each method raises TaskProfilerError if there is no response."""

    def status(self) -> ServerResponse:
        """The state and the version of the server."""
        return self._send("GET", "/api/status")

    def import_objects(self, file_name: str, content: bytes) -> ServerResponse:
        """Import saved objects, one JSON object a line, over existing ones."""
        files = {"file": (file_name, content, "application/ndjson")}
        return self._post("/api/saved_objects/_import?overwrite=true", files=files)

    def find_objects(self, objects: Sequence[tuple[str, str]]) -> ServerResponse:
        """Read the saved objects with these types and ids."""
        wanted = [{"type": kind, "id": identity} for kind, identity in objects]
        return self._post("/api/saved_objects/_bulk_get", json=wanted)

    def delete_object(self, kind: str, identity: str) -> ServerResponse:
        return self._send("DELETE", f"/api/saved_objects/{kind}/{identity}", headers=_XSRF_HEADERS)

    def request(self, method: Method, path: str, body: object | None = None) -> ServerResponse:
        """Send a request to the cluster behind the server, through the console's proxy."""
        return self._post("/api/console/proxy", params={"path": path, "method": method}, json=body)

    def _post(self, path: str, **options: Any) -> ServerResponse:  # noqa: ANN401  requests' own
        return self._send("POST", path, headers=_XSRF_HEADERS, **options)


def _checked_address(url: str) -> str:
    """Return the address without a final slash. Raises UsageError if it does not begin with http:// or https://."""
    if "://" not in url:
        raise UsageError(f"The address {url} has no scheme: add http:// or https:// before it.")
    if not url.lower().startswith(("http://", "https://")):
        raise UsageError(
            f"{without_password(url)} is not an address of a web server: write it with http:// or https://."
        )
    if is_serverless(url):
        raise UsageError(NO_SERVERLESS)
    return url.rstrip("/")


def open_session(
    api_key: str | None,
    user: str | None,
    environment: Mapping[str, str],
    ca_file: str | None = None,
    signature: AwsSignature | None = None,
) -> requests.Session:
    """Open a session with the given credentials, else with the credentials in the forwarder's environment variables.

    ``user`` is ``NAME:PASSWORD``. ``ca_file`` has the certificates of a private CA. ``signature`` signs the requests,
    unless a key or a user is given. Raises UsageError if the variables name only a way to sign in that this command
    does not support: requests would be sent unauthenticated.
    """
    session = requests.Session()
    if ca_file is not None:
        if not Path(ca_file).is_file():
            raise UsageError(f"--ca-file {ca_file} is not a file: name a file of certificates in PEM format.")
        session.mount("https://", _PrivateCa(ca_file))
    if signature is not None and not (api_key or user):
        session.auth = signature
        return session
    key = api_key or environment.get("ELASTICSEARCH_API_KEY")
    name, colon, password = (user or "").partition(":")
    if user is not None and not colon:
        raise UsageError("--user is not NAME:PASSWORD: put a colon between them.")
    if user is None:
        name, password = environment.get("ELASTICSEARCH_USERNAME", ""), environment.get("ELASTICSEARCH_PASSWORD", "")
    if key and user is None:
        if not (key.isascii() and key.isprintable()):  # the HTTP client's error would contain the key
            raise UsageError("The API key contains an invalid character: check it for line ends and quotes.")
        session.auth = _ApiKey(key)
    elif name:
        session.auth = (_as_latin_1(name), _as_latin_1(password))
    elif environment.get("ELASTICSEARCH_SECRET_ID", "").strip():
        raise UsageError(
            "ELASTICSEARCH_SECRET_ID is for the forwarder's functions only: give --api-key, --user or --aws-auth, or "
            "set ELASTICSEARCH_API_KEY, or ELASTICSEARCH_USERNAME and ELASTICSEARCH_PASSWORD."
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


def without_password(url: str) -> str:
    """The address without a user name and a password in it, for messages."""
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"


# The kind of error, a text in its message, and the sentence's end. The first match counts.
_ERRORS: tuple[tuple[type[Exception], str, str], ...] = (
    (
        requests.exceptions.SSLError,
        "CERTIFICATE_VERIFY_FAILED",
        "has a certificate that is not trusted: name your private CA with --ca-file FILE.",
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

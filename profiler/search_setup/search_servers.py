"""HTTP clients of search clusters and dashboard servers, by requests."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import requests

from profiler.core.aws_signature import AwsSignature
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.json_fields import decoded_or_none
from profiler.core.web_addresses import (
    HALF_A_SIGN_IN,
    NO_PORT,
    has_usable_port,
    is_web_scheme,
    meant_address,
)
from profiler.search_setup.cluster_requests import Method, ServerResponse

_ANSWER_SECONDS = 30.0
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

    # Requests' own.
    def _send(self, method: str, path: str, **options: Any) -> ServerResponse:  # noqa: ANN401
        try:
            response = self._session.request(
                method, self._url + path, timeout=_ANSWER_SECONDS, **options
            )
        except requests.RequestException as error:
            raise TaskProfilerError(f"{self._url} {_error_reason(error)}") from error
        body = decoded_or_none(
            msgspec.json.decode, response.content
        )  # in a tenth of the time of requests
        return ServerResponse(status=response.status_code, body=body, address=self._url)


class DashboardsServer(ClusterServer):
    """Kibana or OpenSearch Dashboards.

    Each method raises TaskProfilerError if there is no response.
    """

    def status(self) -> ServerResponse:
        return self._send("GET", "/api/status")

    def import_objects(self, file_name: str, content: bytes) -> ServerResponse:
        """Import saved objects, one JSON object a line, over existing ones."""
        files = {"file": (file_name, content, "application/ndjson")}
        return self._post("/api/saved_objects/_import?overwrite=true", files=files)

    def find_objects(self, objects: Sequence[tuple[str, str]]) -> ServerResponse:
        """Ask for objects by their types and ids."""
        wanted = [{"type": kind, "id": identity} for kind, identity in objects]
        return self._post("/api/saved_objects/_bulk_get", json=wanted)

    def request(self, method: Method, path: str, body: object | None = None) -> ServerResponse:
        """Send a request to the cluster behind the server, through the console's proxy."""
        return self._post("/api/console/proxy", params={"path": path, "method": method}, json=body)

    def _post(self, path: str, **options: Any) -> ServerResponse:  # noqa: ANN401  requests' own
        return self._send("POST", path, headers=_XSRF_HEADERS, **options)


def checked_address(url: str) -> str:
    """The address without a final slash.

    UsageError without http:// or https://, or with credentials.
    """
    scheme, separator, rest = url.partition("://")
    if "@" in (rest if separator else url):  # a password may contain a slash
        raise UsageError(
            "The address contains credentials: leave them out, and set ELASTICSEARCH_USER and "
            "ELASTICSEARCH_PASSWORD."
        )
    meant = "" if is_web_scheme(scheme) and separator else meant_address(url)
    if meant:
        raise UsageError(f"{url} is not an address: write {meant}.")
    if not separator:
        raise UsageError(f"The address {url} has no scheme: add http:// or https:// before it.")
    if not is_web_scheme(scheme):
        raise UsageError(
            f"{url} is not an address of a web server: write it with http:// or https://."
        )
    if not rest.strip("/:"):
        raise UsageError(f"The address {url} has no host: write {scheme}://HOST.")
    if not has_usable_port(url):
        raise UsageError(f"{url}: {NO_PORT}")
    return url.rstrip("/")


def signed_in_session(
    environment: Mapping[str, str], signature: AwsSignature | None = None
) -> requests.Session:
    """Open a session that signs in as the variables say, or signs its requests.

    Raises UsageError.
    """
    session = requests.Session()
    ca_file = environment.get("ELASTICSEARCH_CA_FILE", "")
    if ca_file:
        if not Path(ca_file).is_file():
            raise UsageError(
                f"ELASTICSEARCH_CA_FILE: {ca_file} is not a file of certificates in PEM format."
            )
        session.mount("https://", _PrivateCa(ca_file))
    key = environment.get("ELASTICSEARCH_API_KEY", "")
    name = environment.get("ELASTICSEARCH_USER", "")
    password = environment.get("ELASTICSEARCH_PASSWORD", "")
    if signature is not None:
        session.auth = signature
    elif key:
        # The HTTP client's error would contain the key.
        if not (key.isascii() and key.isprintable()):
            raise UsageError(
                "The API key contains an invalid character: check it for line ends and quotes."
            )
        session.auth = partial(_with_api_key, key)
    elif name and password:
        session.auth = (_utf8_bytes_as_latin_1(name), _utf8_bytes_as_latin_1(password))
    elif name or password:
        raise UsageError(HALF_A_SIGN_IN)
    return session


def _utf8_bytes_as_latin_1(text: str) -> str:
    """The text whose Latin-1 bytes, which requests sends, are this text's UTF-8 bytes, which
    search clusters expect.
    """
    return text.encode(errors="surrogateescape").decode("latin-1")


class _PrivateCa(requests.adapters.HTTPAdapter):
    """Verifies certificates by a private CA. REQUESTS_CA_BUNDLE would take precedence over a
    session's setting.
    """

    def __init__(self, file: str) -> None:
        super().__init__()
        self._file = file

    def send(
        self,
        request: requests.PreparedRequest,
        *args: Any,  # noqa: ANN401  requests' own
        **options: Any,  # noqa: ANN401  requests' own
    ) -> requests.Response:
        return super().send(request, *args, **{**options, "verify": self._file})


def _with_api_key(key: str, request: requests.PreparedRequest) -> requests.PreparedRequest:
    """The request with the key.

    As a header of the session, requests would replace it by an entry of ~/.netrc.
    """
    request.headers["Authorization"] = f"ApiKey {key}"
    return request


def _error_reason(error: requests.RequestException) -> str:
    is_tls = isinstance(error, requests.exceptions.SSLError)
    if is_tls and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return (
            "has a certificate that is not trusted: set ELASTICSEARCH_CA_FILE to the file of "
            "your private CA."
        )
    if is_tls:
        return "does not speak TLS: check whether its address begins with http:// or https://."
    if "Connection refused" in str(error):
        return "refused the connection: check the port, and whether the server runs."
    return (
        "cannot be reached: check the address, and network, VPN, firewalls and proxy "
        "(HTTPS_PROXY, NO_PROXY)."
    )

"""HTTP clients of search clusters and dashboard servers, by requests."""

from collections.abc import Mapping
from typing import Any

import requests

from profiler.core.errors import TaskProfilerError, UsageError
from profiler.search.setup import Method, ServerResponse

_TIMEOUT_SECONDS = 30
# The same values as in lambda/forwarder/settings.py.
_TRUE_VALUES = frozenset({"true", "1", "yes"})
# Kibana requires one, OpenSearch Dashboards the other; each ignores the other's.
_XSRF_HEADERS = {"kbn-xsrf": "true", "osd-xsrf": "true"}


class ClusterServer:
    """Elasticsearch or OpenSearch."""

    def __init__(self, url: str, session: requests.Session) -> None:
        self._url = url.rstrip("/")
        self._session = session

    def request(self, method: Method, path: str, body: object | None = None) -> ServerResponse:
        """See profiler.search.setup."""
        return _request(self._session, method, self._url, path, json=body)


class DashboardsServer:
    """Kibana or OpenSearch Dashboards."""

    def __init__(self, url: str, session: requests.Session) -> None:
        self._url = url.rstrip("/")
        self._session = session

    def status(self) -> ServerResponse:
        """See profiler.search.dashboards."""
        return _request(self._session, "GET", self._url, "/api/status")

    def import_objects(self, file_name: str, content: bytes) -> ServerResponse:
        """See profiler.search.dashboards."""
        files = {"file": (file_name, content, "application/ndjson")}
        path = "/api/saved_objects/_import?overwrite=true"
        return _request(self._session, "POST", self._url, path, files=files, headers=_XSRF_HEADERS)

    def console(self, method: Method, path: str, body: object | None) -> ServerResponse:
        """See profiler.search.dashboards."""
        query = {"path": path, "method": method}
        return _request(
            self._session, "POST", self._url, "/api/console/proxy", params=query, json=body, headers=_XSRF_HEADERS
        )


def open_session(api_key: str | None, user: str | None, environment: Mapping[str, str]) -> requests.Session:
    """Open a session with the given credentials, else with those of the forwarder's environment variables.

    Args:
        api_key: An Elasticsearch API key.
        user: ``NAME:PASSWORD``.
        environment: The environment variables.

    Raises:
        UsageError: if ``user`` has no password, or if the variables name only a way to sign in that this command does
            not support. Without the error, requests would be sent unauthenticated.
    """
    session = requests.Session()
    key = api_key or environment.get("ELASTICSEARCH_API_KEY")
    name, colon, password = (user or "").partition(":")
    if user is not None and not colon:
        raise UsageError("--user is not NAME:PASSWORD: put a colon between them.")
    if user is None:
        name, password = environment.get("ELASTICSEARCH_USERNAME", ""), environment.get("ELASTICSEARCH_PASSWORD", "")
    if key and user is None:
        session.auth = _ApiKey(key)
    elif name:
        session.auth = (name, password)
    elif environment.get("ELASTICSEARCH_SECRET_ID", "").strip() or _is_on(environment.get("OPENSEARCH_AWS_AUTH", "")):
        raise UsageError(
            "ELASTICSEARCH_SECRET_ID and OPENSEARCH_AWS_AUTH are for the forwarder's functions only: give --api-key or "
            "--user, or set ELASTICSEARCH_API_KEY, or ELASTICSEARCH_USERNAME and ELASTICSEARCH_PASSWORD."
        )
    return session


class _ApiKey(requests.auth.AuthBase):
    """Sends an API key. As a header of the session, requests would replace it by an entry of ~/.netrc."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add the key to one request."""
        request.headers["Authorization"] = f"ApiKey {self._key}"
        return request


def _is_on(switch: str) -> bool:
    return switch.strip().lower() in _TRUE_VALUES


def _request(session: requests.Session, method: str, url: str, path: str, **options: Any) -> ServerResponse:  # noqa: ANN401  requests' own
    try:
        response = session.request(method, url + path, timeout=_TIMEOUT_SECONDS, **options)
    except requests.RequestException as error:
        what = type(error).__name__
        raise TaskProfilerError(f"The server cannot be reached ({what}): check its URL.") from error
    try:
        content: Any = response.json()
    except (requests.JSONDecodeError, RecursionError):
        content = None
    return ServerResponse(status=response.status_code, body=content)
